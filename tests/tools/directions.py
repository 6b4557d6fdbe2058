#!/usr/bin/env python3
"""Modules of a crate use each other in one direction: no cycle among siblings, at any level, in any crate of the workspace.

    directions.py [DIRECTORY of a crate...]     prints each cycle with the lines that close it; ends with 1 if there is one

What a module uses are its `use` declarations and paths that begin with crate:: or super::, tests left out. Cargo holds the direction between
crates; this holds it within one.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def modules(source):
    """The modules below a crate's src, {path as a tuple: file}, tests left out."""
    found = {}
    for file in sorted(source.rglob("*.rs")):
        parts = file.relative_to(source).with_suffix("").parts
        if parts[-1] in ("lib", "main") and len(parts) == 1:
            parts = ()
        elif parts[-1] == "mod":
            parts = parts[:-1]
        if not {"tests", "testing"} & set(parts):
            found[parts] = file
    return found


def without_tests(text):
    """The code of a file with comments, strings and test code blanked; line numbers do not change."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"r#\".*?\"#|'\"'|\"(?:\\\\.|[^\"\\\\])*\"", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    end = re.search(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*mod \w+ \{", text)
    return text[:end.start()] if end else text


def flattened(tree):
    """The paths of a use declaration: a::{b, c::d} is a::b and a::c::d."""
    head, brace, rest = tree.partition("{")
    if not brace:
        return [re.sub(r"\s+as\s+\w+$", "", tree.strip())]
    parts, depth, part = [], 0, ""
    for char in rest[:rest.rindex("}")]:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and not depth:
            parts.append(part)
            part = ""
        else:
            part += char
    return [head.strip() + path for part in [*parts, part] if part.strip() for path in flattened(part.strip())]


USE = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?[ \t]+)?use\s+([^;\"]+);", re.MULTILINE)


def used(text):
    """Paths from crate:: or super:: that a file's code uses, with the number of the line."""
    for match in USE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        for path in flattened(re.sub(r"\s+", " ", match[1])):
            yield path.split("::"), line
    rest = USE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in re.finditer(r"(?<![\w:])((?:crate|super)(?:::\w+)+)", rest):
        yield match[1].split("::"), rest.count("\n", 0, match.start()) + 1


def resolved(path, module, known):
    """The module of a path."""
    if path[0] == "crate":
        at, rest = (), path[1:]
    elif path[0] in ("super", "self"):
        at, rest = module, path
        while rest and rest[0] in ("super", "self"):
            at = at[:-1] if rest[0] == "super" else at
            rest = rest[1:]
    elif (*module, path[0]) in known:
        at, rest = module, path
    else:
        return None
    for name in rest:
        if (*at, name) not in known:
            break
        at = (*at, name)
    return at


def arrows(source):
    """The uses among sibling modules: {(parent, from, to): [place]}."""
    known, found = modules(source), {}
    for module, file in known.items():
        for path, line in used(without_tests(file.read_text(encoding="utf-8"))):
            target = resolved([part.strip() for part in path], module, known)
            if target is None:
                continue
            level = next((i for i, (a, b) in enumerate(zip(module, target)) if a != b), None)
            if level is not None:
                key = (module[:level], module[level], target[level])
                found.setdefault(key, []).append(f"{file.relative_to(ROOT)}:{line}")
    return found


def cycles(edges):
    """One cycle of each strongly connected group: [[name]]."""
    graph = {}
    for start, end in edges:
        graph.setdefault(start, set()).add(end)
        graph.setdefault(end, set())
    index, low, stack, on, groups = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on.add(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
                on.discard(group[-1])
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return groups


def main(crates):
    wrong = 0
    for crate in crates:
        found = arrows(crate / "src")
        for parent in sorted({parent for parent, _, _ in found}):
            edges = [(start, end) for above, start, end in found if above == parent]
            for group in cycles(edges):
                wrong += 1
                print(f"{crate.relative_to(ROOT)}: {'::'.join(('crate', *parent))}: {', '.join(group)} use each other")
                for (above, start, end), places in sorted(found.items()):
                    if above == parent and {start, end} <= set(group):
                        print(f"    {start} uses {end}: {', '.join(places[:3])}")
    return 1 if wrong else 0


if __name__ == "__main__":
    default = [path.parent for pattern in ("crates/*/Cargo.toml", "exporter/Cargo.toml", "demo/Cargo.toml") for path in ROOT.glob(pattern)]
    sys.exit(main([pathlib.Path(name).resolve() for name in sys.argv[1:]] or sorted(default)))
