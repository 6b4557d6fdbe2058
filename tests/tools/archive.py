"""Builds the text archive of a fixture machine (format: tests/fixtures/README.md)."""

import posixpath


def escape_content(data):
    """The content lines of a file; NULs end a line so that command lines and environments read as lists."""
    lines = []
    pieces = data.split(b"\n")
    for i, piece in enumerate(pieces):
        last = i == len(pieces) - 1
        if last and piece == b"":
            break
        parts = piece.split(b"\0")
        for part in parts[:-1]:
            lines.append("|" + _escape(part) + "\\0\\")
        if last:
            if parts[-1] != b"":
                lines.append("|" + _escape(parts[-1]) + "\\")
        else:
            lines.append("|" + _escape(parts[-1]))
    return lines


def _escape(data, also=""):
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        also += "".join(chr(c) for c in range(0x80, 0x100))
    out = []
    for c in text:
        if c == "\\":
            out.append("\\\\")
        elif (ord(c) < 32 and c != "\t") or ord(c) == 127 or c in also:
            out.append("\\x%02x" % ord(c))
        else:
            out.append(c)
    text = "".join(out)
    # Editors strip trailing white space.
    if text.endswith(" ") or text.endswith("\t"):
        text = text[:-1] + "\\x%02x" % ord(text[-1])
    return text


class Archive:
    """A tree of entries, written in the order of their paths."""

    def __init__(self):
        self.entries = {}

    def dir(self, path, owner=None, mode=None):
        self._parents(path)
        self.entries[path] = ("dir", None, owner, mode)

    def file(self, path, content, owner=None, mode=None):
        if isinstance(content, str):
            content = content.encode()
        self._parents(path)
        self.entries[path] = ("file", content, owner, mode)

    def link(self, path, target):
        self._parents(path)
        self.entries[path] = ("link", target, None, None)

    def _parents(self, path):
        parent = posixpath.dirname(path)
        while parent and parent not in self.entries:
            self.entries[parent] = ("dir", None, None, None)
            parent = posixpath.dirname(parent)

    def text(self, header):
        out = ["# " + line if line else "#" for line in header.strip().split("\n")]
        dirs = sorted((p for p, e in self.entries.items() if e[0] == "dir"), key=natural)
        leaves_of = {}
        for p, e in self.entries.items():
            if e[0] != "dir":
                leaves_of.setdefault(posixpath.dirname(p), []).append(p)
        for d in dirs:
            out.append("")
            out.append("dir %s%s" % (_name(d), self._attributes(d)))
            for p in sorted(leaves_of.get(d, []), key=natural):
                kind, content, _, _ = self.entries[p]
                name = _name(posixpath.basename(p))
                if kind == "link":
                    out.append("link %s -> %s" % (name, _name(content)))
                else:
                    out.append("%s %s%s" % (kind, name, self._attributes(p)))
                    out.extend(escape_content(content))
        return "\n".join(out) + "\n"

    def _attributes(self, path):
        _, _, owner, mode = self.entries[path]
        text = ""
        if mode is not None:
            text += " mode=%04o" % mode
        if owner is not None:
            text += " owner=%d:%d" % owner
        return text


def _name(name):
    return _escape(name.encode(), also=" ")


def natural(path):
    """cpu2 before cpu10."""
    key = []
    for part in path.split("/"):
        pieces, digits = [], ""
        for c in part + "\0":
            if c.isdigit():
                digits += c
                continue
            if digits:
                pieces.append((1, int(digits), ""))
                digits = ""
            pieces.append((0, 0, c))
        key.append(tuple(pieces))
    return key
