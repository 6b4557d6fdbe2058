"""The tests with real SLURM: every function marked by `scenario`, in the order of these modules."""

import importlib

_MODULES = ("kinds", "restarts", "identity", "endings", "report", "accounting", "runs", "recordings", "ledger", "short_jobs", "bindings", "gpus", "counters", "profilers", "bed",
            "devices", "bmc", "demo", "package")


def all_scenarios():
    """Name -> scenario."""
    found = {}
    for module in _MODULES:
        for value in vars(importlib.import_module(f"{__name__}.{module}")).values():
            if hasattr(value, "unable"):
                found[value.__name__] = value
    return found
