#!/usr/bin/env python3
"""What is compiled into a program, as cargo resolves it from Cargo.lock.

    packaging/dependencies.py licences   every crate with the text of its licences, and embedded fonts with theirs
    packaging/dependencies.py sbom       the same as CycloneDX 1.5 (https://cyclonedx.org/docs/1.5/json/)
    ... --program jobledger              of that program, not of jobledger-exporter
    ... --target TRIPLE                  for another platform than this one
    ... --debian NAME=VERSION            and Debian's packages that are shipped with it, in the SBOM

Build scripts, procedural macros and test dependencies are not in the binary and not listed. The same lock gives the same bytes.
"""

import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tomllib
import urllib.parse
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[1]
_LICENCE_FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def host():
    """The platform that is built for."""
    version = subprocess.run(["rustc", "-vV"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.search(r"^host: (.*)$", version, re.MULTILINE)[1]


def packages(name, target):
    """(the program of that name, the crates in it by name and version), as cargo lists them."""
    output = subprocess.run(["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={target}"],
                          cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    metadata = json.loads(output)
    known = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    (program,) = (package for package in metadata["packages"] if package["name"] == name and not package["source"])
    linked, waiting = set(), [program["id"]]
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            crate = dependency["pkg"]
            normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            macro = any("proc-macro" in target["kind"] for target in known[crate]["targets"])
            if normal and not macro and crate not in linked:
                linked.add(crate)
                waiting.append(crate)
    # The workspace's own crates are the program.
    crates = sorted((known[name] for name in linked if known[name]["source"]), key=lambda crate: (crate["name"], crate["version"]))
    return program, crates


def checksums():
    """(name, version) -> SHA-256 of the crate as it was downloaded."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(crate["name"], crate["version"]): crate["checksum"] for crate in lock["package"] if "checksum" in crate}


def licence_files(directory):
    """The texts in a directory, in the order of their names."""
    files = sorted(path for path in directory.iterdir() if path.is_file() and _LICENCE_FILE.match(path.name))
    return [path.read_text(errors="replace").strip() for path in files]


def licences(options):
    """One text: the crates, then each licence once with those that it is of."""
    program, crates = packages(options.program, options.target)
    holders = {}
    for crate in crates:
        for text in licence_files(pathlib.Path(crate["manifest_path"]).parent):
            holders.setdefault(text, []).append(f"{crate['name']} {crate['version']}")
    fonts = pathlib.Path(program["manifest_path"]).parent / "fonts"
    for text in licence_files(fonts) if fonts.exists() else []:
        holders.setdefault(text, []).extend(sorted(path.stem for path in fonts.glob("*.ttf")))
    page = [f"Rust crates in {options.program}, and their licences", ""]
    for crate in crates:
        where = crate["repository"] or crate["homepage"] or ""
        page.append(f"{crate['name']} {crate['version']}: {crate['license']} {where}".rstrip())
    for text, names in holders.items():
        page += ["", "-" * 80, ", ".join(names), "", text]
    return "\n".join(page) + "\n"


def component(crate, sums):
    """A crate as CycloneDX has it."""
    name, version = crate["name"], crate["version"]
    entry = {"type": "library", "bom-ref": f"pkg:cargo/{name}@{version}", "name": name, "version": version,
            "purl": f"pkg:cargo/{name}@{version}"}
    if (name, version) in sums:
        entry["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
    if crate["license"]:
        # The field had "/" for OR before SPDX expressions.
        entry["licenses"] = [{"expression": crate["license"].replace("/", " OR ")}]
    return entry


def debian(package, target):
    """A package of Debian as CycloneDX has it."""
    name, version = package.split("=")
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(target.partition("-")[0], "all")
    purl = f"pkg:deb/debian/{name}@{urllib.parse.quote(version)}?arch={architecture}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def sbom(options):
    """The bill of materials."""
    program, crates = packages(options.program, options.target)
    sums = checksums()
    lock = hashlib.sha256((ROOT / "Cargo.lock").read_bytes()).hexdigest()
    whole = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
             "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, ' '.join([lock + program['version'], *options.debian]))}",
             "metadata": {"component": component(program, sums) | {"type": "application"}},
             "components": [component(crate, sums) for crate in crates] + [debian(each, options.target) for each in options.debian]}
    return json.dumps(whole, indent=1) + "\n"


if __name__ == "__main__":
    documents = {"licences": licences, "sbom": sbom}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", choices=documents)
    parser.add_argument("--program", default="jobledger-exporter")
    parser.add_argument("--target", default=None)
    parser.add_argument("--debian", action="append", default=[], metavar="NAME=VERSION")
    given = parser.parse_args()
    given.target = given.target or host()
    sys.stdout.write(documents[given.document](given))
