"""Schemas that kubeconform reads from a directory, so that nothing is downloaded.

Kubernetes' own come from a Python package that carries them (requirements.txt), the Prometheus Operator's from the CRDs in
its Go module, and those of other operators from crds.yaml. All become one file per kind, named as kubeconform's `{{.ResourceKind}}{{.KindSuffix}}.json` wants it, in
which what is not listed is refused.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
# The oldest that Chart.yaml allows, the first with recursiveReadOnly, the newest that the package has.
KUBERNETES = ("1.27.0", "1.31.0", "1.37.0")
KINDS = (
    "configmap-v1", "daemonset-apps-v1", "networkpolicy-networking-v1", "pod-v1", "secret-v1", "service-v1",
    "serviceaccount-v1",
)
CUSTOM = ("alertmanagerconfigs", "podmonitors", "prometheusrules", "scrapeconfigs", "servicemonitors")
REMOTE = "/api/_definitions.json#/$defs/"
LOCAL = "#/$defs/"


def references(value):
    """Names of definitions that a schema refers to."""
    if isinstance(value, dict):
        # References within the file of definitions have no address.
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].removeprefix(REMOTE).removeprefix(LOCAL)
        value = list(value.values())
    for each in value if isinstance(value, list) else []:
        yield from references(each)


def whole(kind, definitions):
    """A schema with all its references included."""
    needed, waiting = {}, list(references(kind))
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = definitions[name]
            waiting += references(definitions[name])
    return json.dumps(kind | {"$defs": needed}).replace(f'"{REMOTE}', f'"{LOCAL}')


def kubernetes(package, version, target):
    """Writes the schemas of one version of Kubernetes."""
    source = package / "kubernetes_validate" / "kubernetes-json-schema" / f"v{version}-local-strict"
    definitions = json.loads((source / "_definitions.json").read_text())["$defs"]
    target.mkdir(parents=True)
    for kind in KINDS:
        (target / f"{kind}.json").write_text(whole(json.loads((source / f"{kind}.json").read_text()), definitions))


def strict(schema):
    """An OpenAPI schema of a CRD as a JSON schema that refuses what is not listed."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    if made.pop("x-kubernetes-int-or-string", False):
        made.pop("type", None)
        made.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    return made


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Takes a bare `=`, which CRDs have in a list of operators, as text."""


Loader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: node.value)


def operator(module, target):
    """Writes the schemas of the operator's kinds."""
    target.mkdir(parents=True)
    for plural in CUSTOM:
        path = module / "example" / "prometheus-operator-crd" / f"monitoring.coreos.com_{plural}.yaml"
        crd = yaml.load(path.read_text(), Loader)["spec"]
        for version in crd["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            # A CRD only defines metadata as an object.
            schema["properties"]["metadata"] = {"type": "object"}
            if plural == "alertmanagerconfigs":
                # A schema of Kubernetes cannot refer to itself, so the CRD says nothing about routes below the first.
                route = schema["properties"]["spec"]["properties"]["route"]
                schema["$defs"] = {"route": route | {"properties": dict(route["properties"])}}
                schema["$defs"]["route"]["properties"]["routes"] = {"type": "array", "items": {"$ref": "#/$defs/route"}}
                schema["properties"]["spec"]["properties"]["route"] = {"$ref": "#/$defs/route"}
            name = f"{crd['names']['kind'].lower()}-{crd['group'].split('.')[0]}-{version['name']}"
            (target / f"{name}.json").write_text(json.dumps(schema))


def written_down(target):
    """Writes the schemas of crds.yaml."""
    for name, schema in yaml.safe_load((HERE / "crds.yaml").read_text()).items():
        (target / f"{name}.json").write_text(json.dumps(strict(schema)))


def make(target, module):
    """All of them below `target`: a directory per version of Kubernetes, and `operator`."""
    with tempfile.TemporaryDirectory() as temporary:
        where = Path(temporary)
        subprocess.run([sys.executable, "-m", "venv", where / "venv"], check=True)
        subprocess.run(
            [where / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps",
             "--only-binary", ":all:", "--no-compile", "--target", where / "package", "-r", HERE / "requirements.txt"],
            check=True,
        )
        for version in KUBERNETES:
            kubernetes(where / "package", version, target / version)
    operator(module, target / "operator")
    written_down(target / "operator")
