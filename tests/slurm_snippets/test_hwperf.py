"""Releasing the hardware counters to a job: the prolog, the epilog and the filter of job submissions.

Needs root (files are given to users), dash, busybox, and Lua as SLURM is built with it (apt-get install lua5.1 lua5.3 lua5.4).
"""

import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_snippets import ENVIRONMENTS, RECORDED_22_05, ROOT, SHELLS, Snippets  # noqa: E402

PROLOG = ROOT / "slurm" / "prolog.d" / "jobledger-hwperf.sh"
EPILOG = ROOT / "slurm" / "epilog.d" / "jobledger-hwperf.sh"
FILTER = ROOT / "slurm" / "job_submit.lua"
LUAS = [path for path in map(shutil.which, ("lua5.1", "lua5.3", "lua5.4")) if path]
ALICE, MONITOR = 1001, 1777


@unittest.skipUnless(os.geteuid() == 0, "root: files are given to users")
class HandOver(Snippets):
    """The prolog and the epilog, with their own lock, perf_event_paranoid and exporter."""

    def setUp(self):
        super().setUp()
        for tool in ("chown", "chmod", "sh"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.command("logger", f'echo "$*" >>{self.scratch}/log')
        self.run_dir = self.scratch / "var-run"
        self.lock = self.run_dir / "likwid.lock"
        self.paranoid = self.scratch / "paranoid"
        self.state = self.top / "hwperf"
        self.orders = self.scratch / "orders.sock"
        self.settle()

    def settle(self, *lines, monitor="root"):
        self.write_settings(f"JOBLEDGER_LIKWID_LOCK={self.lock}", f"JOBLEDGER_PARANOID_FILE={self.paranoid}",
                            f"JOBLEDGER_MONITOR={monitor}", f"JOBLEDGER_ORDERS={self.orders}", *lines)

    def each_shell(self):
        for shell in super().each_shell():
            shutil.rmtree(self.run_dir, ignore_errors=True)
            self.run_dir.mkdir(mode=0o755)
            self.paranoid.write_text("2\n")
            (self.scratch / "log").unlink(missing_ok=True)
            yield shell

    def start(self, shell, constraints=None, **changes):
        environment = RECORDED_22_05 | {"SLURM_JOB_CONSTRAINTS": constraints} | changes
        self.run_script(shell, PROLOG, {k: v for k, v in environment.items() if v is not None})

    def end(self, shell, constraints=None, **changes):
        environment = RECORDED_22_05 | {"SLURM_JOB_CONSTRAINTS": constraints} | changes
        environment["SLURM_SCRIPT_CONTEXT"] = "epilog_slurmd"
        self.run_script(shell, EPILOG, {k: v for k, v in environment.items() if v is not None})

    def owner(self):
        return os.lstat(self.lock).st_uid

    def level(self):
        return self.paranoid.read_text().strip()

    def assert_log(self, shell, has):
        """The logged messages. busybox has its own logger, which the tests cannot replace."""
        path = self.scratch / "log"
        log = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        if shell == "busybox":
            return
        if has:
            self.assertIn(has, log)
        else:
            self.assertEqual(log, "")

    def handed_over(self):
        return self.owner() == ALICE, self.level() == "0", self.state.exists()

    def test_a_hwperf_job_gets_the_counters_and_the_epilog_restores_them(self):
        for shell in self.each_shell():
            for constraints in ("hwperf", "hwperf&big", "big&hwperf", "[a|hwperf]", "(a|hwperf)&b", "hwperf*2", "[hwperf*2&b*4]",
                                "a,hwperf"):
                with self.subTest(constraints=constraints):
                    self.start(shell, constraints)
                    self.assertEqual(self.handed_over(), (True, True, True))
                    self.end(shell, constraints)
                    self.assertEqual((self.owner(), self.level(), self.state.exists()), (0, "2", False))
            self.assert_log(shell, None)

    def test_other_jobs_get_nothing(self):
        for shell in self.each_shell():
            for constraints in (None, "", "(null)", "big", "hwperf2", "nohwperf", "hw-perf", "hwperf.x", "HWPERF", "*"):
                with self.subTest(constraints=constraints):
                    self.start(shell, constraints)
                    self.assertFalse(self.lock.exists(), "and no lock is made for it")
                    self.assertEqual((self.level(), self.state.exists()), ("2", False))
                    self.end(shell, constraints)
                    self.assertFalse(self.lock.exists())
            # The constraint is not expanded to files of the working directory.
            self.assert_log(shell, None)

    def test_every_version_of_slurm_passes_the_constraint_in_the_same_form(self):
        for shell in self.each_shell():
            for version, environment in ENVIRONMENTS.items():
                with self.subTest(version=version):
                    shared = "SLURM_JOB_OVERSUBSCRIBE" in environment
                    self.start(shell, "hwperf", **environment)
                    self.assertEqual(self.lock.exists() and self.owner() == ALICE, not shared, "OK is shared")
                    self.assert_log(shell, "shares its node" if shared else None)
                    self.end(shell, "hwperf", **environment)
                    self.start(shell, "hwperf", **environment | {"SLURM_JOB_OVERSUBSCRIBE": "NO"})
                    self.assertEqual(self.handed_over(), (True, True, True))
                    self.end(shell, "hwperf", **environment)
                    self.assertEqual((self.owner(), self.level()), (0, "2"))

    def test_the_lock_belongs_to_the_monitoring_user_outside_of_hwperf_jobs(self):
        for shell in self.each_shell():
            self.settle(monitor=MONITOR)
            self.lock.write_text("")
            os.chown(self.lock, 4321, -1)
            self.start(shell)
            self.assertEqual(self.owner(), MONITOR, "at the start of any job")
            self.start(shell, "hwperf")
            self.assertEqual(self.owner(), ALICE)
            # Its owner may do this.
            self.lock.chmod(0o600)
            self.end(shell, "hwperf")
            self.assertEqual((self.owner(), self.lock.stat().st_mode & 0o777), (MONITOR, 0o644))
            self.settle(monitor="nobody-of-this-name")
            self.start(shell, "hwperf")
            self.end(shell, "hwperf")
            self.assertEqual(self.owner(), 0, "where there is no such user, it bars everybody")

    def test_the_level_is_only_lowered_and_the_old_one_is_restored(self):
        for shell in self.each_shell():
            for before, during in (("4", "0"), ("3", "0"), ("1", "0"), ("0", "0"), ("-1", "-1")):
                with self.subTest(before=before):
                    self.paranoid.write_text(before + "\n")
                    self.start(shell, "hwperf")
                    self.assertEqual(self.level(), during)
                    self.end(shell, "hwperf")
                    self.assertEqual(self.level(), before)
            self.paranoid.write_text("2\n")
            self.start(shell, "hwperf")
            self.paranoid.write_text("1\n")
            self.end(shell, "hwperf")
            self.assertEqual(self.level(), "1", "a level that was set meanwhile is kept")
            self.settle("JOBLEDGER_HWPERF_PARANOID=1")
            self.paranoid.write_text("3\n")
            self.start(shell, "hwperf")
            self.assertEqual(self.level(), "1")
            self.end(shell, "hwperf")
            self.assertEqual(self.level(), "3")
            self.settle()

    def test_after_a_missing_epilog_the_next_prolog_restores(self):
        for shell in self.each_shell():
            # The same job again: the first old level is kept.
            for _ in range(3):
                self.start(shell, "hwperf", SLURM_JOB_RESTART_COUNT="1")
                self.assertEqual(self.handed_over(), (True, True, True))
            self.assertIn("before=2\n", self.state.read_text())
            self.start(shell, None, SLURM_JOB_ID="43", SLURM_JOBID="43")
            self.assertEqual((self.owner(), self.level(), self.state.exists()), (0, "2", False))
            # Then another user's job.
            self.start(shell, "hwperf")
            self.start(shell, "hwperf", SLURM_JOB_ID="44", SLURM_JOBID="44", SLURM_JOB_UID="1002")
            self.assertEqual((self.owner(), self.level()), (1002, "0"))
            self.end(shell, "hwperf")
            self.assertEqual((self.owner(), self.level()), (1002, "0"), "a late epilog takes nothing from another job")
            self.end(shell, "hwperf", SLURM_JOB_ID="44", SLURM_JOBID="44", SLURM_JOB_UID="1002")
            self.assertEqual((self.owner(), self.level(), self.state.exists()), (0, "2", False))
            # /run/jobledger was removed meanwhile: the old level is lost, the lock is not.
            self.start(shell, "hwperf")
            shutil.rmtree(self.top)
            self.end(shell, "hwperf")
            self.assertEqual((self.owner(), self.level()), (0, "0"))

    def test_after_a_prolog_that_is_killed_at_any_moment_the_next_one_restores(self):
        count, killed = self.scratch / "n", self.scratch / "killed"
        for shell in self.each_shell():
            if shell == "busybox":
                continue  # it has builtin commands
            killed.unlink(missing_ok=True)
            for victim, nth, there in itertools.product(("mv", "chown", "chmod", "rm"), range(3), (False, True)):
                with self.subTest(victim=victim, nth=nth, there=there):
                    self.paranoid.write_text("2\n")
                    self.lock.unlink(missing_ok=True)
                    if there:
                        self.lock.write_text("")
                    (self.bin / victim).unlink()
                    # The nth call kills the calling script.
                    self.command(victim, f"n=$(cat {count} 2>/dev/null || echo 0); echo $((n + 1)) >{count}\n"
                                 f"[ $n != {nth} ] || {{ echo {victim} >>{killed}; kill -9 $PPID; exit; }}\n"
                                 f'exec {shutil.which(victim)} "$@"')
                    self.start(shell, "hwperf")
                    count.unlink(missing_ok=True)
                    (self.bin / victim).unlink()
                    (self.bin / victim).symlink_to(shutil.which(victim))
                    self.start(shell, None, SLURM_JOB_ID="43", SLURM_JOBID="43")
                    self.assertEqual((self.level(), self.state.exists()), ("2", False))
                    if self.lock.exists():
                        self.assertEqual(self.owner(), 0)
            self.assertEqual(set(killed.read_text().split()), {"mv", "chown", "chmod", "rm"})

    def test_links_and_other_file_types_are_not_followed(self):
        victim = self.scratch / "victim"
        for shell in self.each_shell():
            victim.write_text("")
            os.chown(victim, 0, 0)
            victim.chmod(0o600)
            for odd in (lambda: self.lock.symlink_to(victim), lambda: self.lock.symlink_to("nowhere"), self.lock.mkdir,
                        lambda: os.mkfifo(self.lock)):
                odd()
                self.start(shell, "hwperf")
                self.assertEqual((self.level(), self.state.exists()), ("2", False))
                self.assert_log(shell, "nothing was handed over")
                self.assertEqual(os.lstat(self.lock).st_uid, 0)
                self.end(shell, "hwperf")
                self.assertEqual((victim.stat().st_uid, victim.stat().st_mode & 0o777), (0, 0o600))
                self.assertFalse((self.run_dir / "nowhere").exists())
                if self.lock.is_dir() and not self.lock.is_symlink():
                    self.lock.rmdir()
                else:
                    self.lock.unlink()
            # A directory in which others can create a link is refused; /var/run itself may be a link.
            self.run_dir.chmod(0o777)
            self.start(shell, "hwperf")
            self.assertFalse(self.lock.exists())
            self.run_dir.chmod(0o755)
            linked = self.scratch / "linked"
            linked.unlink(missing_ok=True)
            linked.symlink_to(self.run_dir)
            self.write_settings(f"JOBLEDGER_LIKWID_LOCK={linked}/likwid.lock", f"JOBLEDGER_PARANOID_FILE={self.paranoid}")
            self.start(shell, "hwperf")
            self.assertEqual(self.owner(), ALICE)
            self.settle()
            self.end(shell, "hwperf")
            # The note with the old level is not read through a link either.
            self.top.mkdir(exist_ok=True)
            victim.write_text("job=42\nnode=node1\nbefore=4\nlowered=2\n")
            self.state.symlink_to(victim)
            self.start(shell)
            self.assertEqual(self.level(), "2")
            self.assertTrue(victim.exists())

    def test_a_malformed_note_is_harmless(self):
        for shell in self.each_shell():
            for note in ("", "x", "before=", "before=rm -rf /\nlowered=2", "before=99\nlowered=2", "before=$(touch x)\nlowered=2\n",
                         "job=*\nbefore=1\n", "=\n==\n", "\0\xff"):
                self.top.mkdir(exist_ok=True)
                self.state.write_text(note)
                self.start(shell, "hwperf")
                self.assertEqual(self.handed_over(), (True, True, True), repr(note))
                self.end(shell, "hwperf")
                self.assertEqual((self.owner(), self.level()), (0, "2"), repr(note))

    def test_two_slurmd_on_a_host_do_not_take_it_from_each_other(self):
        for shell in self.each_shell():
            self.start(shell, "hwperf", SLURMD_NODENAME="node1")
            self.start(shell, None, SLURMD_NODENAME="node2", SLURM_JOB_ID="50", SLURM_JOBID="50")
            self.assertEqual(self.handed_over(), (True, True, True))
            self.start(shell, "hwperf", SLURMD_NODENAME="node2", SLURM_JOB_UID="1002", SLURM_JOB_ID="51", SLURM_JOBID="51")
            self.assertEqual(self.handed_over(), (True, True, True))
            self.assert_log(shell, "job 42 of node1 has the counters")
            self.end(shell, "hwperf", SLURMD_NODENAME="node2", SLURM_JOB_ID="51", SLURM_JOBID="51")
            self.assertEqual(self.handed_over(), (True, True, True))
            self.end(shell, "hwperf", SLURMD_NODENAME="node1")
            self.assertEqual((self.owner(), self.level(), self.state.exists()), (0, "2", False))

    def test_it_waits_until_the_exporter_has_yielded(self):
        for shell in self.each_shell():
            self.orders.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self.orders))
                note = self.scratch / "asked"
                note.unlink(missing_ok=True)
                self.command("jobledger-exporter", f'echo "$*" >>{note}\n'
                             f'[ $(grep -c . <{note}) -lt 4 ] && echo "held; the lock" || echo "yielded since now"')
                self.start(shell, "hwperf")
                asked = note.read_text().splitlines()
                self.assertEqual(asked, [f"counters status --control.socket={self.orders}"] * 4)
                self.assertEqual(self.handed_over(), (True, True, True))
                self.assert_log(shell, None)
                self.end(shell, "hwperf")
                self.assertEqual(len(note.read_text().splitlines()), 4, "the epilog waits for nobody")
                self.start(shell)
                self.assertEqual(len(note.read_text().splitlines()), 4, "nor does a job that does not profile")

                # An exporter that does not, and one that hangs: the job starts after two seconds.
                for body in ("echo held", "exec sleep 60", "exit 1"):
                    self.command("jobledger-exporter", body)
                    self.start(shell, "hwperf")
                    self.assertLess(self.took, 4)
                    self.assertEqual(self.handed_over(), (True, True, True))
                    self.assert_log(shell, "the exporter did not yield")
                    self.end(shell, "hwperf")
                (self.bin / "jobledger-exporter").unlink()
                self.start(shell, "hwperf")
                self.assertLess(self.took, 2, "where there is no exporter nobody is waited for")
                self.end(shell, "hwperf")

    def test_no_error_fails_a_job(self):
        for shell in self.each_shell():
            for job in ("0x", "", "../x", "*", "4\n2", "12345678901"):
                self.start(shell, "hwperf", SLURM_JOB_ID=job, SLURM_JOBID=None)
                self.assertFalse(self.lock.exists(), job)
            for uid in (None, "", "alice", "-1", "0;x"):
                self.start(shell, "hwperf", SLURM_JOB_UID=uid)
                self.assertFalse(self.lock.exists() and self.owner())
                self.assertEqual(self.level(), "2")
            for line in ("if then (", "exit 3", f"JOBLEDGER_LIKWID_LOCK={self.scratch}/no/where", "JOBLEDGER_DIR=/proc/x"):
                self.settle(line)
                self.start(shell, "hwperf")
                self.end(shell, "hwperf")
                self.assertEqual(self.level(), "2")
            self.settle()
            (self.bin / "logger").rename(self.bin / "gone")
            self.lock.unlink(missing_ok=True)
            self.lock.mkdir()
            self.start(shell, "hwperf")
            (self.bin / "gone").rename(self.bin / "logger")
            self.paranoid.unlink()
            self.lock.rmdir()
            self.start(shell, "hwperf")
            self.assertEqual(self.owner(), ALICE, "a kernel without perf events has its lock all the same")
            self.end(shell, "hwperf")
            self.assertEqual(self.owner(), 0)
            self.assertFalse(self.paranoid.exists())
            self.paranoid.write_text("2\n")

    def test_the_site_chooses_the_name_of_the_feature(self):
        for shell in self.each_shell():
            self.settle("JOBLEDGER_HWPERF_FEATURE=likwid")
            self.start(shell, "hwperf")
            self.assertFalse(self.lock.exists())
            self.start(shell, "likwid&hwperf")
            self.assertEqual(self.handed_over(), (True, True, True))
            self.end(shell, "likwid&hwperf")
            self.settle()


DRIVER = r"""
slurm = { SUCCESS = 0, log_user = function(format, ...) io.write(string.format(format, ...), "\n") end }
for key, value in pairs(SLURM) do slurm[key] = value end
assert(loadfile(FILTER))()
for _, case in ipairs(CASES) do
    local result
    if case.job then
        if case.job == true then case.job = nil end
        result = slurm_job_modify(case.desc, case.job, {}, 1001)
    else
        result = slurm_job_submit(case.desc, {}, 1001)
    end
    io.write("= ", string.format("%d", result), "\n")
end
"""


def lua(value):
    """A value as Lua writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(k)}] = {lua(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(lua(v) for v in value) + "}"
    return json.dumps(value)


class Filter(unittest.TestCase):
    """The results of job_submit/lua for submissions and changes."""

    REFUSED = 2029

    def setUp(self):
        if not LUAS:
            self.fail("these tests need Lua: apt-get install lua5.1 lua5.3 lua5.4")

    def answers(self, cases, slurm=None):
        """(result, the user's message) of each case, the same in every Lua."""
        script = f"SLURM = {lua(slurm or {})}\nFILTER = {lua(str(FILTER))}\nCASES = {lua(cases)}\n{DRIVER}"
        answers = set()
        for interpreter in LUAS:
            done = subprocess.run([interpreter, "-"], input=script, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), interpreter)
            answers.add(done.stdout)
        self.assertEqual(len(answers), 1)
        found = re.findall(r"((?:(?!= ).*\n)*)= (\d+)\n", answers.pop())
        self.assertEqual(len(found), len(cases))
        return [(int(result), message.strip()) for message, result in found]

    def check(self, cases, slurm=None):
        """Each (case, result). A refusal has a message, an accepted case has none."""
        for (case, wanted), (result, message) in zip(cases, self.answers([case for case, _ in cases], slurm)):
            with self.subTest(case=case):
                self.assertEqual(result, wanted)
                self.assertEqual("hwperf" in message, wanted != 0, message)

    def test_the_feature_needs_whole_nodes(self):
        cases = []
        for features in ("hwperf", "hwperf&big", "big|hwperf", "[a|hwperf]", "(hwperf|b)&c", "hwperf*2", "[x*1&hwperf*3]", "a,hwperf",
                         ' hwperf ', '"hwperf"'):
            # Unset, --oversubscribe, --exclusive=user, =mcs, =topo.
            for shared in (None, 65534, 1, 2, 3, 4):
                cases.append(({"desc": {"features": features, "shared": shared}}, self.REFUSED))
            cases.append(({"desc": {"features": features, "shared": 0}}, 0))
        for features in (None, "", "big", "hwperf2", "nohwperf", "hw-perf", "hwperf.x", "hwperf_x", "HWPERF", "x=hwperf"):
            for shared in (None, 65534, 0, 1):
                cases.append(({"desc": {"features": features, "shared": shared}}, 0))
        self.check(cases)
        # SLURM's own error code and value.
        self.check([({"desc": {"features": "hwperf", "shared": 65534}}, 4711)],
                   {"ESLURM_INVALID_FEATURE": 4711, "NO_VAL16": 65534})

    def test_a_preference_for_the_feature_is_refused(self):
        for shared in (None, 65534, 0):
            self.check([({"desc": {"prefer": "hwperf", "shared": shared}}, self.REFUSED),
                        ({"desc": {"prefer": "big", "shared": shared}}, 0),
                        ({"desc": {"prefer": "a|hwperf", "shared": shared}, "job": {"features": "hwperf"}}, self.REFUSED)])

    def test_a_job_update_neither_adds_the_feature_nor_removes_whole_nodes(self):
        plain, profiles = {"features": "big"}, {"features": "hwperf&big"}
        self.check([
            ({"desc": {}, "job": plain}, 0),
            ({"desc": {}, "job": {}}, 0),
            ({"desc": {}, "job": True}, 0),
            ({"desc": {"features": "small"}, "job": plain}, 0),
            ({"desc": {"shared": 1}, "job": plain}, 0),
            ({"desc": {"features": "hwperf"}, "job": plain}, self.REFUSED),
            ({"desc": {"features": "hwperf"}, "job": {}}, self.REFUSED),
            ({"desc": {"features": "hwperf"}, "job": True}, self.REFUSED),
            ({"desc": {"features": "hwperf", "shared": 0}, "job": plain}, self.REFUSED),
            ({"desc": {"shared": 65534}, "job": profiles}, 0),
            ({"desc": {"shared": 0}, "job": profiles}, 0),
            ({"desc": {"shared": 1}, "job": profiles}, self.REFUSED),
            ({"desc": {"shared": 2}, "job": profiles}, self.REFUSED),
            ({"desc": {"features": "hwperf", "shared": 65534}, "job": profiles}, 0),
            ({"desc": {"features": "hwperf", "shared": 1}, "job": profiles}, self.REFUSED),
            ({"desc": {"features": "big", "shared": 1}, "job": profiles}, 0),
            ({"desc": {"features": "", "shared": 1}, "job": profiles}, 0),
        ])

    def test_a_site_can_call_it_from_its_own_filter(self):
        script = f"""
            slurm = {{ SUCCESS = 0 }}
            dofile({lua(str(FILTER))})
            function slurm_job_submit(job_desc)
                local refused = jobledger_hwperf.submit(job_desc)
                if refused ~= slurm.SUCCESS then return refused end
                return 7
            end
            print(slurm_job_submit({{ features = "hwperf" }}), slurm_job_submit({{ features = "hwperf", shared = 0 }}))
            jobledger_hwperf.feature = "likwid"
            print(slurm_job_submit({{ features = "hwperf" }}), slurm_job_submit({{ features = "likwid" }}))"""
        for interpreter in LUAS:
            done = subprocess.run([interpreter, "-"], input=script, capture_output=True, text=True, check=False)
            self.assertEqual((done.stderr, done.stdout), ("", "2029\t7\n7\t2029\n"), interpreter)


class Style(unittest.TestCase):
    def test_shellcheck_finds_nothing(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck: apt-get install shellcheck")
        done = subprocess.run(["shellcheck", "--shell=sh", PROLOG, EPILOG], capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout + done.stderr, "")

    def test_common_parts_of_both_scripts_are_the_same(self):
        common = [re.search(r"# --- the same .*?\n(.*)# --- until here", path.read_text(), re.DOTALL)[1]
                  for path in (PROLOG, EPILOG)]
        self.assertEqual(*common)

    def test_they_are_executable(self):
        for script in (PROLOG, EPILOG):
            self.assertTrue(os.access(script, os.X_OK), script)
            self.assertTrue(script.read_text().startswith("#!/bin/sh\n"))


if __name__ == "__main__":
    unittest.main()
