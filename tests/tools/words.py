#!/usr/bin/env python3
"""Counts words that only this project understands, and how long the sentences of its front pages are.

    words.py              fails where a word is used more often than words.txt allows, or sentences are too long
    words.py --update     lowers the counts in words.txt to what is there now; it never raises one
    words.py --show WORD  every place of a word
    words.py --sentences FILE...  the mean length of the sentences of these pages

A reader knows node_exporter, SLURM, the kernel and Prometheus. docs/glossary.md has their words for what is meant here.
Counted are comments and strings of programs, and the text of pages and rules. Code, and what is quoted as code, is not.
"""

import ast
import io
import os
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COUNTS = Path(__file__).with_name("words.txt")

# A private word, and its forms.
WORDS = {
    "tell": r"tell|tells|telling|told",
    "life": r"life|lives",
    "book": r"books?|booked|bookings?",
    "stay": r"stay|stays|stayed|staying",
    "tenant": r"tenants?",
    "scene": r"scenes?",
    "fate": r"fates?",
    "ear": r"ears?|hear|hears|heard",
    "nobody's": r"nobody's",
    "in vain": r"in vain",
    "be had": r"be had",
    "let go": r"lets? go|letting go",
    "stranger": r"strangers?",
    "doubt": r"doubts?|doubted",
    "lookout": r"lookouts?",
    "hire": r"hire|hires|hired",
    "bell": r"bells?",
    "bury": r"bury|buries|buried",
}
PATTERNS = {word: re.compile(rf"\b(?:{forms})\b", re.IGNORECASE) for word, forms in WORDS.items()}

# Names of files and values, and what everybody says.
ALLOWED = re.compile(r"booked(?:\.yaml|-1d)|:booked|(?:jobledger|recording)[-/]booked|\{\w+(?::[^}]*)?\}|multi-tenants?")

# Front pages, whose sentences have so many words in the mean.
PAGES = ("README.md", "docs/architecture.md")
MOST_WORDS = 20.0

# Not written by hand, or not text.
LEFT_OUT = {
    ".git", "target", "node_modules", "__pycache__", ".cache", "corpus",
    "helm/jobledger-exporter/files", "helm/jobledger-exporter/README.md", "docs/metrics.md", "docs/flags.md", "docs/cli-flags.md",
    "grafana/dashboards", "tests/tools/words.py", "tests/tools/test_words.py", "tests/tools/words.txt",
}

RUST = re.compile(
    r"(?P<line>//[^\n]*)"
    r"|(?P<block>/\*.*?\*/)"
    r"|b?r(?P<hashes>#*)\"(?P<raw>.*?)\"(?P=hashes)"
    r"|b?\"(?P<string>(?:\\.|[^\"\\])*)\""
    r"|b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^\\'\n])'",
    re.DOTALL,
)
SLASHES = re.compile(r"(?:^|(?<=\s))//[^\n]*|/\*.*?\*/", re.DOTALL)
HASH = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)
DASHES = re.compile(r"--[^\n]*")


def pieces(pattern, text):
    """Line and text of each match; of Rust's, only those that are read."""
    for match in pattern.finditer(text):
        groups = match.groupdict()
        said = next((groups[name] for name in ("line", "block", "raw", "string") if groups.get(name) is not None), None if groups else match[0])
        if said is not None:
            yield text.count("\n", 0, match.start()) + 1, said


def of_rust(text):
    return list(pieces(RUST, text))


def of_python(text):
    """Comments and strings; of a formatted string what is between its values."""
    found = [(token.start[0], token.string) for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT]
    strings = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return found + [(node.lineno, node.value) for node in strings]


def without_code(text):
    """A page without fenced blocks, quoted code and comments; lines stay where they are."""
    def blank(match):
        return "\n" * match[0].count("\n")
    text = re.sub(r"^ *```.*?^ *```$", blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", "x", text)


def of_page(text):
    return list(enumerate(without_code(text).splitlines(), 1))


def of_lines(text):
    return list(enumerate(text.splitlines(), 1))


READERS = {
    ".rs": of_rust, ".py": of_python, ".md": of_page, ".gotmpl": of_page, ".yaml": of_lines, ".yml": of_lines,
    **dict.fromkeys((".c", ".h", ".ts", ".tsx", ".mjs"), lambda text: list(pieces(SLASHES, text))),
    **dict.fromkeys((".sh", ".service", ".conf", ".toml", "Makefile"), lambda text: list(pieces(HASH, text))),
    ".lua": lambda text: list(pieces(DASHES, text)),
}


def files(root):
    """Every file that is read, with its reader, in the order of names."""
    for directory, names, found in os.walk(root):
        here = Path(directory).relative_to(root)
        names[:] = sorted(name for name in names if name not in LEFT_OUT and str(here / name) not in LEFT_OUT)
        for name in sorted(found):
            reader = READERS.get(Path(name).suffix or name)
            if reader and str(here / name) not in LEFT_OUT:
                yield here / name, reader


def places(root):
    """File, line, word and text of each use."""
    for path, reader in files(root):
        for line, text in reader((root / path).read_text(errors="replace")):
            for offset, part in enumerate(text.split("\n")):
                plain = ALLOWED.sub("", part)
                for word, pattern in PATTERNS.items():
                    for _ in pattern.finditer(plain):
                        yield path, line + offset, word, part.strip()


def allowed(path):
    """Counts of words.txt."""
    rows = (line.rsplit(" ", 1) for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return {word: int(count) for word, count in rows}


def write(path, counts):
    rows = [f"{word} {counts[word]}\n" for word in WORDS if counts[word]]
    path.write_text("# How often each private word may still be used. Made by tests/tools/words.py --update.\n" + "".join(rows))


def check(root, path, update=False):
    """What is wrong, a line each."""
    counts = Counter(word for _, _, word, _ in places(root))
    before = allowed(path) if path.exists() else counts
    if update:
        write(path, {word: min(counts[word], before.get(word, 0)) for word in WORDS})
    return [
        f"'{word}' is used {counts[word]} times, {before.get(word, 0)} are allowed: write it in the words of docs/glossary.md"
        f" (tests/tools/words.py --show \"{word}\")"
        for word in WORDS if counts[word] > before.get(word, 0)
    ]


def sentences(page):
    """The sentences of a page: no headings, tables, pictures and code; an item of a list ends what is before it."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", without_code(page))
    paragraphs, current = [], []
    for line in [*text.splitlines(), ""]:
        line = line.strip()
        if not line or line.startswith(("|", "#")) or re.match(r"(?:[-*]|\d+\.) ", line):
            paragraphs.append(" ".join(current))
            current = []
        if line and not line.startswith(("|", "#")):
            current.append(re.sub(r"^(?:[-*]|\d+\.) +", "", line))
    found = (sentence.strip(" *_") for paragraph in paragraphs for sentence in re.split(r"(?<=[.!?])[*_)]*\s+", paragraph))
    return [sentence for sentence in found if re.search(r"\w", sentence)]


def mean_words(page):
    found = sentences(page)
    return sum(len(sentence.split()) for sentence in found) / max(len(found), 1)


def main(arguments):
    match arguments:
        case ["--show", word] if word in WORDS:
            for path, line, found, text in places(ROOT):
                if found == word:
                    print(f"{path}:{line}: {text}")
            return 0
        case ["--sentences", *pages] if pages:
            for name in pages:
                print(f"{mean_words(Path(name).read_text()):5.1f}  {name}")
            return 0
        case [] | ["--update"]:
            wrong = check(ROOT, COUNTS, update=bool(arguments))
            for name in PAGES:
                mean = mean_words((ROOT / name).read_text())
                if mean > MOST_WORDS:
                    wrong.append(f"{name}: sentences of {mean:.1f} words in the mean, at most {MOST_WORDS:g}")
            print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
            return 1 if wrong else 0
    print(__doc__, file=sys.stderr)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
