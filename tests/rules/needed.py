"""The rules that a test needs: all of them at each minute of each test would take long."""

import re


def only(groups, names, texts=True):
    """The groups with the rules of these names, and those that they need, directly or not. A name may be that of an alert."""
    rules = [
        (rule.get("alert", rule.get("record")), " ".join([rule["expr"], *(rule.get("annotations", {}).values() if texts else [])]))
        for group in groups
        for rule in group["rules"]
    ]
    found, more = set(), set(names)
    while more:
        found |= more
        more = {name for rule, asks in rules if rule in more for name in re.findall(r"jobledger:[\w:]+", asks)} - found
    kept = []
    for group in groups:
        own = [rule for rule in group["rules"] if rule.get("alert", rule.get("record")) in found]
        if not texts:
            own = [rule | {"annotations": {}} if "alert" in rule else rule for rule in own]
        kept += [group | {"rules": own}] if own else []
    return kept
