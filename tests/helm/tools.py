"""Programs for the tests of the chart: helm, kubeconform and helm-docs, built once (tests/tools/go-tools.sh), and the exporter.

Needs PyYAML (python3-yaml) and, the first time, the registries of Go and Python.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

try:
    import yaml
except ImportError:
    raise unittest.SkipTest("rules: needs python3-yaml") from None

import schemas

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "jobledger-exporter"
CI = sorted((CHART / "ci").glob("*-values.yaml"))
CACHE = Path(os.environ.get("JOBLEDGER_CACHE") or Path.home() / ".cache" / "jobledger")
PROMTOOL = shutil.which("promtool")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# The version of Kubernetes in most tests.
VERSION = "1.31.0"
TOOLS = {
    "helm": "helm.sh/helm/v3/cmd/helm@v3.22.0",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0",
    "helm-docs": "github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2",
}
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
# In exporter/, what the chart's tests are made for.
EXPORTERS = ("target/debug/jobledger-exporter", "target/release/jobledger-exporter")


def go_tools(*arguments):
    done = subprocess.run([ROOT / "tests/tools/go-tools.sh", *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


@functools.cache
def paths():
    """Paths of the programs, by name."""
    return dict(zip(TOOLS, go_tools(*TOOLS.values()), strict=True))


@functools.cache
def schema_directory():
    """The directory of the schemas, built when missing or when their inputs changed."""
    pins = b"".join((schemas.HERE / name).read_bytes() for name in ("schemas.py", "crds.yaml", "requirements.txt")) + OPERATOR.encode()
    target = CACHE / "helm" / f"schemas-{hashlib.sha256(pins).hexdigest()[:12]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
                schemas.make(Path(temporary) / "made", Path(go_tools("--source", OPERATOR)[0]))
                (Path(temporary) / "made").rename(target)
    return target


@functools.cache
def exporter():
    """The exporter's binary, as built by `cargo test`."""
    named = os.environ.get("JOBLEDGER_EXPORTER")
    found = [Path(named)] if named else [ROOT / path for path in EXPORTERS if (ROOT / path).exists()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def helm(*arguments, chart=CHART, release="site"):
    """Runs helm on the chart, without a user's settings."""
    command, *rest = arguments
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "HELM_NO_PLUGINS": "1"}
    target = [release, chart] if command in ("template", "install") else [chart]
    return subprocess.run(
        [paths()["helm"], command, *target, *rest], env=environment, capture_output=True, text=True, timeout=600
    )


def readme():
    """The chart's README, from README.md.gotmpl and the comments of values.yaml."""
    command = [paths()["helm-docs"], "--chart-search-root", CHART, "--dry-run", "--log-level", "error"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600, check=True).stdout.strip() + "\n"


def write_readme():
    (CHART / "README.md").write_text(readme())


def render(*values, **options):
    """The output of `helm template` for values, each a path or a mapping. Raises if it fails."""
    done = template(*values, **options)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


def template(*values, version=VERSION, chart=CHART, release="site", arguments=()):
    with tempfile.TemporaryDirectory() as temporary:
        options = []
        for number, each in enumerate(values):
            if isinstance(each, dict):
                path = Path(temporary) / f"{number}.yaml"
                path.write_text(yaml.safe_dump(each))
                each = path
            options += ["--values", each]
        return helm("template", "--kube-version", version, *options, *arguments, chart=chart, release=release)


def objects(text):
    """The objects of a YAML stream, in order."""
    return [each for each in yaml.load_all(text, LOADER) if each]


def only(kind, found):
    """The only object of a kind."""
    (one,) = [each for each in found if each["kind"] == kind]
    return one


@functools.cache
def rendered(name, version=VERSION):
    """The objects of a file of ci/."""
    return objects(render(CHART / "ci" / f"{name}-values.yaml", version=version))


def copy_of_chart(directory):
    """A copy of the chart that may be changed."""
    return Path(shutil.copytree(CHART, directory / "chart"))


def image(**values):
    """Values including a registry."""
    return {"image": {"registry": "registry.example.org/hpc"}, **values}
