"""The systemd unit and its drop-ins: systemd accepts them, their exposure is that of docs/install.md, and what they name exists.

Needs systemd-analyze, systemd-sysusers and systemd-tmpfiles (Debian: systemd), and the exporter's binary.
"""

import re
import shutil
import subprocess
import tempfile
import unittest
from itertools import combinations
from pathlib import Path

from support import CLI, DROP_INS, EXPORTER, PACKAGING, ROOT, SERVICE, UNIT, environment, flags, settings, values


def analyze(directory, *words):
    """systemd-analyze, with the units of a directory before the system's."""
    return subprocess.run(["systemd-analyze", *words], env={"SYSTEMD_UNIT_PATH": f"{directory}:", "PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True, check=False)


class Unit(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = Path(scratch.name)

    def place(self, drop_ins=()):
        """The unit with drop-ins and the built program."""
        shutil.rmtree(self.directory)
        (self.directory / f"{SERVICE}.d").mkdir(parents=True)
        unit = UNIT.read_text().replace("ExecStart=/usr/bin/jobledger-exporter", f"ExecStart={EXPORTER}")
        (self.directory / SERVICE).write_text(unit)
        for drop_in in drop_ins:
            shutil.copy(drop_in, self.directory / f"{SERVICE}.d")

    def test_systemd_accepts_it_with_no_with_two_and_with_all_drop_ins(self):
        self.assertTrue(EXPORTER.exists(), f"{EXPORTER} is not there: make tested-programs")
        sets = [(), *((each,) for each in DROP_INS), *combinations(DROP_INS, 2), DROP_INS]
        for drop_ins in sets:
            names = {path.stem for path in drop_ins}
            with self.subTest(drop_ins=sorted(names)):
                self.place(drop_ins)
                done = analyze(self.directory, "verify", "--recursive-errors=no", "--man=no", SERVICE)
                said = [line for line in done.stderr.splitlines() if SERVICE in line]
                self.assertEqual((done.returncode, said), (0, []), done.stderr)

    def test_systemd_accepts_the_units_of_mails_about_waste(self):
        units = sorted((PACKAGING / "systemd/digest").iterdir())
        self.assertEqual([unit.suffix for unit in units], [".service", ".timer"] * 2)
        for unit in units:
            (self.directory / unit.name).write_text(unit.read_text().replace("ExecStart=/usr/bin/jobledger ", f"ExecStart={CLI} "))
        for unit in units:
            with self.subTest(unit.name):
                done = analyze(self.directory, "verify", "--recursive-errors=no", "--man=no", unit.name)
                self.assertEqual((done.returncode, [line for line in done.stderr.splitlines() if unit.stem in line]), (0, []), done.stderr)
        for unit in units[::2]:
            # What they start is a command, and the directory of the history is theirs.
            (started,) = [value for key, value in settings(unit) if key == "ExecStart"]
            self.assertTrue((PACKAGING / f"man/jobledger-{started.split()[1]}.1").exists())
            self.assertEqual((started.split()[0], values(unit, "StateDirectory")), ("/usr/bin/jobledger", ["jobledger-digest"]))

    def test_systemd_accepts_the_unit_of_the_spool(self):
        (unit,) = (PACKAGING / "systemd/spool").iterdir()
        (started,) = values(unit, "ExecStart")
        script = ROOT / "slurm/slurmctld" / Path(started).name
        self.assertIn("exec jobledger spool", script.read_text())
        (self.directory / unit.name).write_text(unit.read_text().replace(f"ExecStart={started}", f"ExecStart={script}"))
        done = analyze(self.directory, "verify", "--recursive-errors=no", "--man=no", unit.name)
        self.assertEqual((done.returncode, [line for line in done.stderr.splitlines() if unit.stem in line]), (0, []), done.stderr)
        # The program looks there if its configuration says nothing else, and refuses a directory in which others write.
        sources = (ROOT / "cli/src/spool.rs").read_text()
        self.assertIn(f'"/var/lib/{values(unit, "StateDirectory")[0]}"', sources)
        self.assertEqual(values(unit, "StateDirectoryMode"), ["0700"])
        # It bounds what it takes from slurmctld.
        self.assertTrue({"TasksMax", "MemoryMax"} <= {key for key, _ in settings(unit)})

    def test_unknown_settings_are_found(self):
        self.place()
        with open(self.directory / SERVICE, "a") as unit:
            unit.write("[Service]\nProtectEverything=yes\n")
        done = analyze(self.directory, "verify", "--recursive-errors=no", "--man=no", SERVICE)
        self.assertIn("ProtectEverything", done.stderr)

    def exposure(self, drop_ins=()):
        self.place(drop_ins)
        done = analyze(self.directory, "security", "--offline=true", "--no-pager", SERVICE)
        return float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)[1])

    def test_exposure_is_as_documented(self):
        """The numbers of systemd 252. Other versions weigh differently; only the limit is checked."""
        documented = dict(re.findall(r"^\| `?([\w-]+)(?:\.conf)?`? \|.*\| ([0-9.]+) \|$", (ROOT / "docs/install.md").read_text(),
                               re.MULTILINE))
        version = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True).stdout
        measured = {"default": self.exposure()} | {path.stem: self.exposure([path]) for path in DROP_INS}
        self.assertEqual(set(documented), set(measured))
        if version.startswith("systemd 252"):
            self.assertEqual({name: float(number) for name, number in documented.items()}, measured)
        self.place()
        done = analyze(self.directory, "security", "--offline=true", "--threshold=25", "--no-pager", SERVICE)
        self.assertEqual(done.returncode, 0, done.stdout[-200:])

    def test_by_default_there_is_no_capability_and_a_user(self):
        self.assertEqual(values(UNIT, "CapabilityBoundingSet") + values(UNIT, "AmbientCapabilities"), [])
        self.assertIn(("CapabilityBoundingSet", ""), settings(UNIT))
        self.assertEqual(values(UNIT, "User"), ["jobledger"])

    def test_it_has_no_setting_that_hides_jobs_or_gpus(self):
        keys = {key for key, _ in settings(UNIT)}
        self.assertEqual(keys & {"ProtectProc", "ProcSubset", "PrivateDevices", "PrivateUsers", "PrivateNetwork", "ProtectHome",
                                 "ProtectClock", "DeviceAllow", "DevicePolicy"}, set())
        self.assertEqual(values(UNIT, "ProtectSystem"), ["full"])

    def test_it_has_a_watchdog_only_if_the_program_notifies_it(self):
        sources = "".join(path.read_text() for path in (ROOT / "exporter/src").rglob("*.rs"))
        asked = any(key == "WatchdogSec" for key, _ in settings(UNIT))
        self.assertEqual(asked, "NotifyState::Watchdog" in sources)
        self.assertIn("NotifyState::Ready", sources, "Type=notify waits for it")

    def test_named_variables_and_flags_exist(self):
        known = flags()
        default = (PACKAGING / "default/jobledger-exporter").read_text()
        named = set(re.findall(r"^#?(JOBLEDGER_\w+)=", default, re.MULTILINE))
        for path in (UNIT, *DROP_INS):
            named |= set(environment(path))
        self.assertEqual(named - set(known), set())
        in_arguments = set(re.findall(r"ARGS=\"(--[\w.-]+)", default))
        self.assertTrue(in_arguments)
        self.assertEqual(in_arguments - set(known.values()), set())

    def test_drop_ins_grant_their_bounding_set(self):
        for path in DROP_INS:
            with self.subTest(path.name):
                self.assertEqual(values(path, "AmbientCapabilities"), values(path, "CapabilityBoundingSet"))

    def test_every_drop_in_starts_with_its_purpose_and_explains_each_part(self):
        for path in DROP_INS:
            lines = path.read_text().splitlines()
            with self.subTest(path.name):
                self.assertTrue(lines[0].startswith("# "))
                for before, line in zip(lines, lines[1:]):
                    if line.startswith(("AmbientCapabilities=", "InaccessiblePaths=", "LimitNOFILE=", "LimitMEMLOCK=",
                                        "ReadWritePaths=", "ExecStartPre=", "ExecStartPost=", "ExecStopPost=",
                                        "DevicePolicy=")) and "=" not in before:
                        self.assertTrue(before.startswith("#"), line)
                    self.assertLessEqual(len(line), 150)


class SystemFiles(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        (self.root / "etc").mkdir()
        (self.root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
        (self.root / "etc/group").write_text("root:x:0:\n")

    def test_the_user_is_a_system_user_without_a_login(self):
        subprocess.run(["systemd-sysusers", f"--root={self.root}", PACKAGING / "sysusers.d/jobledger.conf"], check=True,
                       capture_output=True)
        name, _, uid, _, _, home, shell = (self.root / "etc/passwd").read_text().splitlines()[-1].split(":")
        self.assertEqual((name, home, shell), ("jobledger", "/", "/usr/sbin/nologin"))
        self.assertLess(int(uid), 1000)

    def test_only_root_writes_the_prologs_directory_and_the_control_socket_is_in_the_default_place(self):
        subprocess.run(["systemd-tmpfiles", "--create", f"--root={self.root}", PACKAGING / "tmpfiles.d/jobledger.conf"],
                       check=True, capture_output=True)
        for path in ("run/jobledger", "run/jobledger/jobs"):
            self.assertEqual((self.root / path).stat().st_mode & 0o7777, 0o755)
        socket = environment(UNIT)["JOBLEDGER_CONTROL_SOCKET"]
        link = self.root / "run/jobledger/control.sock"
        self.assertEqual(str(link.readlink()), socket)
        self.assertIn(f"[default: /{link.relative_to(self.root)}]", " ".join(
            subprocess.run([EXPORTER, "--help"], capture_output=True, text=True, check=True).stdout.split()))
        self.assertEqual(values(UNIT, "RuntimeDirectory"), [Path(socket).parent.name])


if __name__ == "__main__":
    unittest.main()
