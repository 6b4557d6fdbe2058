"""The packages of packaging/build.sh: files, dependencies, scripts, and reproducible builds.

Needs debhelper, lintian, rpm, shellcheck, binutils (tests/tools/install-packages.sh) and the binaries (make test-packages).
"""

import hashlib
import json
import os
import re
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

from support import CLI, DROP_INS, EXPORTER, PACKAGING, ROOT, SERVICE

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
RULES = ROOT / "rules"
EXPORTER_FILES = {
    "usr/bin/jobledger-exporter": 0o755,
    "etc/default/jobledger-exporter": 0o644,
    "usr/share/man/man1/jobledger-exporter.1.gz": 0o644,
    "usr/share/bash-completion/completions/jobledger-exporter": 0o644,
    "usr/share/fish/vendor_completions.d/jobledger-exporter.fish": 0o644,
    "usr/share/jobledger/slurm/job_submit.lua": 0o644,
    **{f"usr/share/jobledger/slurm/{part}.d/{name}.sh": 0o755 for part in ("prolog", "epilog") for name in (
        "jobledger", "jobledger-hwperf")},
    **{f"usr/share/jobledger/systemd/{path.name}": 0o644 for path in DROP_INS},
}
CLI_FILES = {
    "usr/bin/jobledger": 0o755,
    **{f"usr/share/jobledger/slurmctld/jobledger-{name}.sh": 0o755 for name in ("mail", "admincomment", "spool")},
    **{f"usr/share/man/man1/{path.name}.gz": 0o644 for path in (PACKAGING / "man").iterdir() if path.name != "jobledger-exporter.1"},
    **{f"usr/share/jobledger/systemd-{part}/{path.name}": 0o644 for part in ("digest", "spool") for path in (PACKAGING / f"systemd/{part}").iterdir()},
    "usr/share/bash-completion/completions/jobledger": 0o644,
    "usr/share/fish/vendor_completions.d/jobledger.fish": 0o644,
}
MONITORING_FILES = {
    "etc/jobledger/rules/site.yaml", "etc/jobledger/rules/settings.yaml",
    *(f"usr/share/jobledger/rules/{path.relative_to(RULES)}" for part in RULES.iterdir() if part.is_dir() and part.name not in ("tests", "__pycache__")
      for path in part.iterdir() if path.name != "settings.yaml"),
    *(f"usr/share/jobledger/{path.relative_to(ROOT)}" for path in (ROOT / "grafana/dashboards").glob("*.json")),
}


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=True, **options).stdout


def build(directory, **environment):
    # At the usual level xz takes half a minute for each package of a binary that is not optimized.
    subprocess.run([PACKAGING / "build.sh", "--binary", EXPORTER, "--cli", CLI, "--level", "0", "--output", directory],
                   env=os.environ | environment, stdout=subprocess.DEVNULL, check=True)


def digests(directory):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(Path(directory).iterdir())}


def documentation(path):
    return path.startswith(("usr/share/doc/", "usr/share/licenses/", "usr/share/lintian/"))


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for binary in (EXPORTER, CLI):
            assert binary.exists(), f"{binary} is not there: make test-packages"
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = Path(scratch.name)
        cls.made = cls.scratch / "first"
        build(cls.made)
        names = ("jobledger-exporter", "jobledger-monitoring", "jobledger")
        cls.deb, cls.monitoring_deb, cls.cli_deb = (next(cls.made.glob(f"{name}_*.deb")) for name in names)
        cls.rpm, cls.monitoring_rpm, cls.cli_rpm = (next(cls.made.glob(f"{name}-{VERSION}*.rpm")) for name in names)

    def in_deb(self, deb):
        """Path -> (mode, owner) of the files."""
        found = {}
        for line in run("dpkg-deb", "-c", str(deb)).splitlines():
            kind, owner, _, _, _, path = line.split(None, 5)
            if kind[0] == "-":
                bits = sum(1 << 8 - place for place, letter in enumerate(kind[1:]) if letter != "-")
                found[path.removeprefix("./")] = (bits, owner)
        return found

    def in_rpm(self, rpm):
        output = run("rpm", "-qp", "--queryformat", "[%{FILEMODES:octal} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES}\n]", str(rpm))
        rows = (line.split(" ", 2) for line in output.splitlines())
        return {path.removeprefix("/"): (int(mode, 8) & 0o7777, owner) for mode, owner, path in rows if int(mode, 8) >> 12 == 0o10}

    def test_all_packages_exist_and_are_in_the_checksums(self):
        kinds = sorted(re.sub(r"[\d.]+[_-].*\.", "*.", name) for name in digests(self.made))
        self.assertEqual(len(kinds), 12, kinds)
        listed = dict(line.split()[::-1] for line in (self.made / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(listed, {name: digest for name, digest in digests(self.made).items() if name != "SHA256SUMS"})

    def test_other_files_in_the_output_directory_are_kept(self):
        """It may be a repository's pool, and contain the image's archive or the binary."""
        pool = self.scratch / "pool"
        (pool / "main").mkdir(parents=True)
        kept = {"jobledger-exporter-0.1.0-oci.tar": b"image", "other_1.0_all.deb": b"another's"}
        for name, content in kept.items():
            (pool / name).write_bytes(content)
        binary = pool / next(self.made.glob("jobledger-exporter-*-linux-gnu")).name
        binary.write_bytes(EXPORTER.read_bytes())
        binary.chmod(0o755)
        (pool / next(self.made.glob("*.deb")).name).write_bytes(b"of the last time")
        subprocess.run([PACKAGING / "build.sh", "--binary", binary, "--cli", CLI, "--level", "0", "--output", pool, "--only", "deb"],
                       stdout=subprocess.DEVNULL, check=True)
        self.assertTrue((pool / "main").is_dir())
        self.assertEqual({name: (pool / name).read_bytes() for name in kept}, kept)
        made = {name: digest for name, digest in digests(self.made).items() if name != "SHA256SUMS" and not name.endswith(".rpm")}
        self.assertEqual({name: hashlib.sha256((pool / name).read_bytes()).hexdigest() for name in made}, made)
        self.assertEqual({line.split()[1] for line in (pool / "SHA256SUMS").read_text().splitlines()}, set(made))

    def test_the_exporters_package_has_exactly_these_files(self):
        for kind, found, places in (
                ("deb", self.in_deb(self.deb), {f"lib/systemd/system/{SERVICE}": 0o644,
                                                "usr/lib/sysusers.d/jobledger-exporter.conf": 0o644,
                                                "usr/lib/tmpfiles.d/jobledger-exporter.conf": 0o644,
                                                "usr/share/zsh/vendor-completions/_jobledger-exporter": 0o644}),
                ("rpm", self.in_rpm(self.rpm), {f"usr/lib/systemd/system/{SERVICE}": 0o644,
                                                "usr/lib/sysusers.d/jobledger.conf": 0o644,
                                                "usr/lib/tmpfiles.d/jobledger.conf": 0o644,
                                                "usr/share/zsh/site-functions/_jobledger-exporter": 0o644})):
            with self.subTest(kind):
                wanted = {path: (mode, "root/root") for path, mode in (EXPORTER_FILES | places).items()}
                self.assertEqual({path: output for path, output in found.items() if not documentation(path)}, wanted)

    def test_the_cli_package_has_exactly_these_files(self):
        for kind, found, place in (("deb", self.in_deb(self.cli_deb), "vendor-completions"), ("rpm", self.in_rpm(self.cli_rpm), "site-functions")):
            with self.subTest(kind):
                wanted = {path: (mode, "root/root") for path, mode in (CLI_FILES | {f"usr/share/zsh/{place}/_jobledger": 0o644}).items()}
                self.assertEqual({path: output for path, output in found.items() if not documentation(path)}, wanted)
                # The manual page and docs/install.md name it so.
                self.assertIn("usr/share/doc/jobledger/jobledger.toml.example", found)
                self.assertIn("usr/share/doc/jobledger/digest.toml.example", found)

    def test_no_file_is_in_two_packages(self):
        for packages in ([self.in_deb(deb) for deb in (self.deb, self.cli_deb, self.monitoring_deb)],
                         [self.in_rpm(rpm) for rpm in (self.rpm, self.cli_rpm, self.monitoring_rpm)]):
            files = [path for package in packages for path in package]
            self.assertEqual(len(files), len(set(files)))

    def test_the_monitoring_package_has_exactly_these_files(self):
        for found in (self.in_deb(self.monitoring_deb), self.in_rpm(self.monitoring_rpm)):
            rules = {path for path in found if not documentation(path) and "/provisioning/" not in path}
            self.assertEqual(rules, MONITORING_FILES)

    def test_the_licences_of_every_crate_are_included(self):
        for program, deb, rpm, crates in (
                ("jobledger-exporter", self.deb, self.rpm, ("tokio", "hyper", "nvml-wrapper", "prost")),
                ("jobledger", self.cli_deb, self.cli_rpm, ("tokio", "hyper", "parquet", "hdf5-pure"))):
            with self.subTest(program):
                found = self.in_deb(deb)
                self.assertIn(f"usr/share/doc/{program}/copyright", found)
                self.assertIn(f"usr/share/doc/{program}/third-party-licences.txt.gz", found)
                found = self.in_rpm(rpm)
                for name in ("LICENSE-APACHE", "LICENSE-MIT", "third-party-licences.txt"):
                    self.assertIn(f"usr/share/licenses/{program}/{name}", found)
                output = run("python3", str(PACKAGING / "dependencies.py"), "--program", program, "licences")
                for crate in crates:
                    self.assertRegex(output, rf"(?m)^{crate} [\d.]+: ")
                # The text, not only its name.
                self.assertIn("Permission is hereby granted", output)
                fonts = ROOT / "cli/fonts"
                if program == "jobledger" and fonts.exists():
                    self.assertIn((fonts / "LICENSE").read_text().strip(), output)

    def test_the_bill_of_materials_is_the_lock_files(self):
        lock = {(crate["name"], crate["version"]): crate.get("checksum") for crate in tomllib.loads(
            (ROOT / "Cargo.lock").read_text())["package"]}
        for program, own in (("jobledger-exporter", "nvml-wrapper"), ("jobledger", "parquet")):
            with self.subTest(program):
                bill = json.loads((self.made / f"{program}.cdx.json").read_text())
                self.assertGreater(len(bill["components"]), 50)
                for component in bill["components"]:
                    checksum = component["hashes"][0]["content"]
                    self.assertEqual(lock[component["name"], component["version"]], checksum)
                names = {component["name"] for component in bill["components"]}
                self.assertLessEqual({"hyper", own}, names)
                # Used by tests and build scripts.
                self.assertEqual(names & {"proptest", "rcgen", "cc"}, set())

    def test_the_installed_binaries_are_the_built_ones(self):
        unpacked = self.scratch / "unpacked"
        run("dpkg-deb", "-x", str(self.deb), str(unpacked))
        self.assertEqual((unpacked / "usr/bin/jobledger-exporter").read_bytes(), EXPORTER.read_bytes())
        run("dpkg-deb", "-x", str(self.cli_deb), str(unpacked))
        self.assertEqual((unpacked / "usr/bin/jobledger").read_bytes(), CLI.read_bytes())
        self.assertEqual((unpacked / f"lib/systemd/system/{SERVICE}").read_text(), (PACKAGING / "systemd" / SERVICE).read_text())

    def test_the_required_c_library_is_the_needed_one(self):
        def latest(pattern, text):
            return max(tuple(map(int, found.split("."))) for found in re.findall(pattern, text))

        for binary, deb, rpm in ((EXPORTER, self.deb, self.rpm), (CLI, self.cli_deb, self.cli_rpm)):
            with self.subTest(binary.name):
                glibc = latest(r"GLIBC_([0-9.]+)", run("objdump", "-T", str(binary)))
                depends = run("dpkg-deb", "-f", str(deb), "Depends")
                self.assertEqual(latest(r"libc6 \(>= ([0-9.]+)", depends), glibc)
                needed = set(re.findall(r"NEEDED +(\S+)", run("objdump", "-p", str(binary))))
                self.assertLessEqual(needed, {f"lib{name}" for name in (
                    "c.so.6", "m.so.6", "dl.so.2", "pthread.so.0", "rt.so.1", "gcc_s.so.1")} | {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"})
                self.assertEqual("libgcc_s.so.1" in needed, "libgcc-s1" in depends)
                self.assertEqual(latest(r"\(GLIBC_([0-9.]+)\)", run("rpm", "-qp", "--requires", str(rpm))), glibc)

    def test_a_binary_that_needs_a_later_c_library_than_promised_is_refused(self):
        done = subprocess.run([PACKAGING / "build.sh", "--binary", EXPORTER, "--cli", CLI, "--output", self.scratch / "none", "--glibc", "2.17"],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, list((self.scratch / "none").glob("*"))), (1, []), done.stderr)
        self.assertIn("2.17 is promised", done.stderr)
        # The page names the version of the release build.
        self.assertIn("GLIBC=2.28\n", (PACKAGING / "binary.sh").read_text())
        self.assertIn("The binaries need glibc 2.28", (ROOT / "docs/install.md").read_text())

    def test_lintian_finds_nothing(self):
        done = subprocess.run(["lintian", "--fail-on=error,warning", "--tag-display-limit=0", str(self.deb), str(self.monitoring_deb), str(self.cli_deb)],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_settings_are_conffiles(self):
        for deb, rpm, files in ((self.deb, self.rpm, ["/etc/default/jobledger-exporter"]),
                                (self.monitoring_deb, self.monitoring_rpm, ["/etc/jobledger/rules/settings.yaml", "/etc/jobledger/rules/site.yaml"])):
            control = self.scratch / f"control-{deb.name}"
            run("dpkg-deb", "-e", str(deb), str(control))
            self.assertEqual(sorted((control / "conffiles").read_text().split()), files)
            self.assertEqual(sorted(run("rpm", "-qpc", str(rpm)).split()), files)

    def test_scripts_of_the_deb(self):
        control = self.scratch / "control"
        run("dpkg-deb", "-e", str(self.deb), str(control))
        for name in ("postinst", "prerm", "postrm"):
            run("shellcheck", "--exclude=SC2006,SC2050", str(control / name))
        after = (control / "postinst").read_text()
        # The user and the directory exist before the service starts.
        places = [after.index(word) for word in ("systemd-sysusers", "systemd-tmpfiles", "deb-systemd-invoke $_dh_action")]
        self.assertEqual(places, sorted(places))
        self.assertIn("deb-systemd-helper enable", after)
        self.assertIn("deb-systemd-helper purge", (control / "postrm").read_text())

    def test_scripts_of_the_rpm(self):
        output = run("rpm", "-qp", "--scripts", str(self.rpm))
        parts = dict(re.findall(r"(\w+) scriptlet \(using /bin/sh\):\n(.*?)(?=\n\w+ scriptlet|\Z)", output, re.DOTALL))
        self.assertEqual(set(parts), {"postinstall", "preuninstall", "postuninstall"})
        for name, text in parts.items():
            with self.subTest(name):
                subprocess.run(["shellcheck", "--shell=sh", "--exclude=SC2086", "-"], input=text, text=True, check=True)
        # EL's presets decide whether it starts; an upgrade restarts it, a removal stops it.
        self.assertIn("preset jobledger-exporter.service", parts["postinstall"])
        self.assertNotIn("enable --now", parts["postinstall"])
        self.assertIn("try-restart", parts["postuninstall"])
        self.assertIn("disable --now", parts["preuninstall"])
        for rpm in (self.monitoring_rpm, self.cli_rpm):
            self.assertEqual(run("rpm", "-qp", "--scripts", str(rpm)), "")

    def test_the_rpms_metadata(self):
        for name, rpm in (("jobledger-exporter", self.rpm), ("jobledger", self.cli_rpm)):
            output = run("rpm", "-qp", "--queryformat", "%{NAME} %{VERSION} %{LICENSE} %{PAYLOADCOMPRESSOR} %{BUILDHOST}", str(rpm))
            self.assertEqual(output, f"{name} {VERSION} Apache-2.0 OR MIT xz jobledger")
        self.assertEqual(run("rpm", "-qp", "--queryformat", "%{ARCH}", str(self.monitoring_rpm)), "noarch")
        # EL 8's rpm 4.14 can read it.
        needs = set(re.findall(r"rpmlib\((\w+)\)", run("rpm", "-qp", "--requires", str(self.rpm))))
        self.assertLessEqual(needs, {"CompressedFileNames", "FileDigests", "PayloadFilesHavePrefix", "PayloadIsXz", "RichDependencies"})

    def test_builds_are_reproducible(self):
        again = self.scratch / "second" / "elsewhere"
        other = self.scratch / "tmp"
        other.mkdir()
        build(again, TMPDIR=str(other), TZ="Asia/Tokyo", LC_ALL="C.UTF-8", USER="somebody", SOURCE_DATE_EPOCH=run(
            "git", "log", "-1", "--format=%ct", cwd=ROOT).strip())
        self.assertEqual(digests(again), digests(self.made))


if __name__ == "__main__":
    unittest.main()
