"""A cache of what takes long to build, between runs. Names contain a digest of the inputs."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


def root():
    """The cache directory: $JOBLEDGER_CACHE, or .cache/testbed in the repository."""
    return pathlib.Path(os.environ.get("JOBLEDGER_CACHE") or REPOSITORY / ".cache/testbed").absolute()


def key(*parts):
    """A short digest of strings and of files and directories (names, modes and contents)."""
    digest = hashlib.sha256()

    def add(data):
        digest.update(b"%d:" % len(data) + data)

    for part in parts:
        if not isinstance(part, pathlib.Path):
            add(str(part).encode())
            continue
        tree = sorted(p for p in part.rglob("*") if "__pycache__" not in p.parts) if part.is_dir() else [part]
        for path in tree:
            if path.is_file():
                add(str(path.relative_to(part.parent)).encode())
                add(b"x" if os.access(path, os.X_OK) else b"-")
                add(path.read_bytes())
    return digest.hexdigest()[:16]


def built(name, digest, build):
    """The directory `<cache>/<name>-<digest>`, made by `build(directory)` if it is missing.

    Two harnesses that want the same thing wait for each other; older builds of the same name are removed.
    """
    cache = root()
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"{name}-{digest}"
    if target.is_dir():
        return target
    with locked(cache / f"{name}.lock"):
        if target.is_dir():
            return target
        started = time.monotonic()
        print(f"building {target.name}", flush=True)
        partial = cache / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        build(partial)
        for old in cache.glob(f"{name}-" + "[0-9a-f]" * 16):
            shutil.rmtree(old)
        partial.rename(target)
        print(f"built {target.name} in {time.monotonic() - started:.0f} s", flush=True)
    return target


@contextlib.contextmanager
def locked(path):
    """Holds an exclusive lock on a file for a with block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="ascii") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
