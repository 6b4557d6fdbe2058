"""The SLURM prolog and epilog snippets under the shells that sites have, with the environment that slurmd gives them.

Run: python3 -m unittest discover -s tests/slurm_snippets
Needs dash, busybox and shellcheck (apt-get install dash busybox shellcheck).
"""

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROLOG = ROOT / "slurm" / "prolog.d" / "jobledger.sh"
EPILOG = ROOT / "slurm" / "epilog.d" / "jobledger.sh"

SHELLS = {
    name: command
    for name, command in {
        "dash": ["dash"],
        "busybox": ["busybox", "sh"],
        "bash": ["bash", "--posix"],
    }.items()
    if shutil.which(command[0])
}

# Recorded from slurmd 22.05.8 (Debian 12), user and account changed. There is no PATH and no HOME.
RECORDED_22_05 = {
    "PWD": "/tmp",
    "SLURMD_NODENAME": "node1",
    "SLURM_CLUSTER_NAME": "test",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_JOBID": "42",
    "SLURM_JOB_ACCOUNT": "physics",
    "SLURM_JOB_CPUS_PER_NODE": "1",
    "SLURM_JOB_GID": "1001",
    "SLURM_JOB_ID": "42",
    "SLURM_JOB_NTASKS": "1",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_JOB_PARTITION": "main",
    "SLURM_JOB_RESTART_COUNT": "0",
    "SLURM_JOB_STDIN": "/dev/null",
    "SLURM_JOB_STDOUT": "/dev/null",
    "SLURM_JOB_UID": "1001",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_WORK_DIR": "/home/alice",
    "SLURM_NODELIST": "node1",
    "SLURM_SCRIPT_CONTEXT": "prolog_slurmd",
    "SLURM_UID": "1001",
}

_SINCE_22_05 = [name for name in RECORDED_22_05 if name.startswith("SLURM_JOB_") and name.split("_", 2)[2] in (
    "ACCOUNT CPUS_PER_NODE NTASKS NUM_NODES RESTART_COUNT STDIN STDOUT".split()
)]

# The others after src/plugins/prep/script/prep_script_slurmd.c of each version (docs/metadata.md has the table).
ENVIRONMENTS = {"22.05": RECORDED_22_05}
ENVIRONMENTS["21.08"] = {k: v for k, v in RECORDED_22_05.items() if k not in _SINCE_22_05}
ENVIRONMENTS["20.11"] = {k: v for k, v in ENVIRONMENTS["21.08"].items() if k != "SLURM_JOB_WORK_DIR"}
ENVIRONMENTS["23.02"] = RECORDED_22_05 | {
    "SLURM_JOB_START_TIME": "1700000000",
    "SLURM_JOB_END_TIME": "1700003600",
    "SLURM_JOB_EXTRA": "x=1",
    "SLURM_JOB_NODELIST": "node1",
    "SLURM_JOB_OVERSUBSCRIBE": "OK",
}
ENVIRONMENTS["24.11"] = ENVIRONMENTS["23.02"]
ENVIRONMENTS["25.11"] = ENVIRONMENTS["24.11"] | {"SLURM_JOB_SLUID": "sDNHM7VZHTTA00"}
ENVIRONMENTS["26.05"] = ENVIRONMENTS["25.11"] | {"SLURM_JOB_QOS": "normal", "SLURM_JOB_EXCLUSIVE": "no"}


def as_slurm(command, timeout, **more):
    """Runs a script as SLURM does: it kills the process group of one that has ended (src/common/run_command.c)."""
    with subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **more) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class Snippets(unittest.TestCase):
    """A scratch directory with the snippet's directory, a settings file, and commands that stand in for SLURM's."""

    inherited = ()

    def setUp(self):
        if "dash" not in SHELLS or "busybox" not in SHELLS:
            self.fail("these tests need dash and busybox: apt-get install dash busybox")
        self.scratch = Path(tempfile.mkdtemp(prefix="jobledger-snippets-"))
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)
        # All that is in the PATH: these tests must not use a squeue of the machine.
        self.bin = self.scratch / "bin"
        self.bin.mkdir()
        for tool in ["ls", "mkdir", "mv", "rm", "sed", "tr", "grep", "timeout", "cat", "sleep", "printf", "test", "find"]:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.command("logger", f'echo "$*" >>{self.scratch}/log')
        self.settings = self.scratch / "settings"
        self.top = self.scratch / "run"
        self.jobs = self.top / "jobs"
        self.write_settings()

    def write_settings(self, *lines):
        first = [f"JOBLEDGER_DIR={self.top}", f"PATH={self.bin}"]
        self.settings.write_text("\n".join([*first, *lines, ""]))

    def command(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def squeue(self, answer: bytes):
        """A squeue with this answer that records the call."""
        (self.scratch / "answer").write_bytes(answer)
        self.command("squeue", f'echo "$*" >>{self.scratch}/asked; cat {self.scratch}/answer')

    def assert_log(self, shell, *has):
        """The logged messages, each with its part of these. busybox has its own logger, which the tests cannot replace."""
        path = self.scratch / "log"
        log = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        if shell != "busybox":
            self.assertEqual(len(log), len(has), log)
            for line, part in zip(log, has):
                self.assertTrue(line.startswith("-t jobledger -p daemon.warning job 42: no metadata: "), line)
                self.assertIn(part, line)

    def asked(self):
        note = self.scratch / "asked"
        lines = note.read_text().splitlines() if note.exists() else []
        note.unlink(missing_ok=True)
        return lines

    def slow_setsid(self):
        """A setsid whose child is late."""
        (self.bin / "setsid").unlink(missing_ok=True)
        self.command("setsid", f'[ "$1" != --fork ] || shift; ({shutil.which("sleep")} 0.1; exec {shutil.which("setsid")} "$@") &')

    def run_script(self, shell, script, environment, prefix=(), limit=600):
        environment = {os.fsencode(k): os.fsencode(v) for k, v in environment.items()}
        environment[b"JOBLEDGER_SETTINGS"] = os.fsencode(self.settings)
        # SLURM's environment has no PATH, so the shell is given by its path.
        command = [shutil.which(SHELLS[shell][0]), *SHELLS[shell][1:], str(script)]
        begun = time.monotonic()
        done = as_slurm([*prefix, *command], env=environment, timeout=limit, pass_fds=self.inherited)
        self.took = time.monotonic() - begun
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""), shell)

    def prolog(self, shell, environment=None, **changes):
        environment = RECORDED_22_05 if environment is None else environment
        environment = {k: v for k, v in (environment | changes).items() if v is not None}
        self.run_script(shell, PROLOG, environment)
        path = self.jobs / environment.get("SLURM_JOB_ID", "42")
        return path.read_bytes() if path.is_file() else None

    def epilog(self, shell, environment=RECORDED_22_05, **changes):
        environment = {k: v for k, v in (environment | changes).items() if v is not None}
        self.run_script(shell, EPILOG, environment)

    def each_shell(self):
        for shell in SHELLS:
            with self.subTest(shell=shell):
                shutil.rmtree(self.top, ignore_errors=True)
                yield shell

    def left_behind(self):
        return sorted(p.name for p in self.jobs.iterdir())


class Prolog(Snippets):
    def test_every_version_of_slurm_gives_its_variables(self):
        since_23_02 = b"start_time=1700000000\ntime_limit=3600\nnodes=1\nrestarts=0\nnode_list=node1\nnode=node1\n"
        expected = {
            "20.11": b"uid=1001\nuser=alice\npartition=main\nnode_list=node1\nnode=node1\n",
            "22.05": b"uid=1001\nuser=alice\naccount=physics\npartition=main\nnodes=1\nrestarts=0\nnode_list=node1\nnode=node1\n",
            "23.02": b"uid=1001\nuser=alice\naccount=physics\npartition=main\n" + since_23_02,
            "25.11": b"sluid=sDNHM7VZHTTA00\nuid=1001\nuser=alice\naccount=physics\npartition=main\n" + since_23_02,
            "26.05": b"sluid=sDNHM7VZHTTA00\nuid=1001\nuser=alice\naccount=physics\npartition=main\nqos=normal\n" + since_23_02,
        }
        expected["21.08"], expected["24.11"] = expected["20.11"], expected["23.02"]
        self.write_settings("JOBLEDGER_ASK_CONTROLLER=never")
        for shell in self.each_shell():
            for version, environment in ENVIRONMENTS.items():
                with self.subTest(version=version):
                    content = self.prolog(shell, environment)
                    self.assertEqual(content, b"version=1\njob_id=42\n" + expected[version])
            self.assertEqual(self.left_behind(), ["42"])

    def test_a_job_without_a_time_limit_has_none_in_its_file(self):
        # What slurmd gave jobs of one minute, of two days and without a limit (24.11 and 26.05), then nonsense.
        cases = [("1795642016", "1795641956", b"60"), ("1795814760", "1795641960", b"172800"), ("1827178073", "1795642073", None),
                 ("1795641956", "1795641956", None), ("1795641955", "1795641956", None), ("", "1795641956", None),
                 ("1795642016", None, None), (None, "1795641956", None), ("soon", "1795641956", None), ("-1", "1", None),
                 ("99999999999999999999", "1795641956", None), ("1795642016", "0", b"1795642016"), ("1:2", "1", None), ("a[$(id)]", "1", None)]
        self.write_settings("JOBLEDGER_ASK_CONTROLLER=never")
        for shell in self.each_shell():
            for end, start, limit in cases:
                with self.subTest(end=end, start=start):
                    content = self.prolog(shell, ENVIRONMENTS["24.11"], SLURM_JOB_END_TIME=end, SLURM_JOB_START_TIME=start)
                    self.assertEqual(re.findall(rb"^time_limit=(.*)$", content, re.M), [limit] if limit else [])

    def test_the_file_and_its_directories_have_the_modes_that_the_exporter_needs(self):
        for shell in self.each_shell():
            before = os.umask(0o077)
            try:
                self.prolog(shell)
            finally:
                os.umask(before)
            for path, mode in [(self.top, 0o755), (self.jobs, 0o755), (self.jobs / "42", 0o644)]:
                self.assertEqual(stat.S_IMODE(path.stat().st_mode), mode, path)
                self.assertEqual(path.stat().st_uid, os.getuid())

    def test_the_controller_adds_name_qos_and_array(self):
        self.squeue(b"41|40|1|normal|other\n42|40|7|long|my job=1 \xc3\xa4|x\n420|40|8|normal|other\n")
        for shell in self.each_shell():
            content = self.prolog(shell)
            self.assertIn(b"\nqos=long\nname=my job=1 \xc3\xa4|x\narray_job_id=40\narray_task_id=7\n", content)
            self.assertEqual(
                self.asked(), ["--local --noheader --states=all --jobs=42 --format=%A|%F|%K|%q|%j"]
            )
        self.squeue(b"42|42|N/A|(null)|plain\n")
        for shell in self.each_shell():
            content = self.prolog(shell, SLURM_HET_JOB_ID="41")
            self.assertIn(b"\nname=plain\nhet_job_id=41\n", content)
            self.assertNotIn(b"array", content)
            self.assertNotIn(b"qos", content, "(null) is absent")

    def test_variables_of_the_prolog_have_priority_over_the_controller(self):
        self.squeue(b"42|42|N/A|other|plain\n")
        for shell in self.each_shell():
            content = self.prolog(shell, ENVIRONMENTS["26.05"])
            self.assertIn(b"\nqos=normal\nname=plain\n", content)
            content = self.prolog(shell, SLURM_HET_JOB_ID="0", SLURM_JOB_NAME="later", SLURM_ARRAY_JOB_ID="4")
            self.assertIn(b"\nname=later\narray_job_id=4\n", content, "a later SLURM may give these")
            self.assertEqual(len(self.asked()), 1, "then nobody is asked")

    def test_the_controller_is_asked_only_if_needed(self):
        self.squeue(b"42|42|N/A|normal|n\n")
        self.command("scontrol", 'test "$1 $2" = "show hostnames" && printf "%s\\n" a b c d e f g h $MORE')
        old = ENVIRONMENTS["21.08"]
        cases = [
            ("never", RECORDED_22_05, 0),
            ("small", RECORDED_22_05 | {"SLURM_JOB_NUM_NODES": "8"}, 1),
            ("small", RECORDED_22_05 | {"SLURM_JOB_NUM_NODES": "9"}, 0),
            ("small", RECORDED_22_05 | {"SLURM_JOB_NUM_NODES": "0"}, 0),
            ("always", RECORDED_22_05 | {"SLURM_JOB_NUM_NODES": "1000"}, 1),
            ("Small", RECORDED_22_05, 0),
            ("", RECORDED_22_05, 1),
            ("small", old | {"SLURM_NODELIST": "n[1-8]"}, 1),
            ("small", old | {"SLURM_NODELIST": "n[1-9]", "MORE": "i"}, 0),
        ]
        for shell in self.each_shell():
            for setting, environment, times in cases:
                with self.subTest(setting=setting, nodes=environment.get("SLURM_JOB_NUM_NODES")):
                    self.write_settings(f"JOBLEDGER_ASK_CONTROLLER={setting}")
                    content = self.prolog(shell, environment)
                    self.assertEqual(len(self.asked()), times)
                    self.assertEqual(b"\nname=n\n" in content, times == 1)
            self.settings.unlink()
            self.write_settings()
            self.prolog(shell)
            self.assertEqual(len(self.asked()), 1, "small is the default")

    def test_hostile_names_are_only_names(self):
        names = {
            b"x UserId=root(0) Account=secret": b"x UserId=root(0) Account=secret",
            b"a|b|c|d|e": b"a|b|c|d|e",
            b"uid=0": b"uid=0",
            b"$(touch /tmp/jobledger-pwned) `id` %s%n \\n \\0101 * ?": b"$(touch /tmp/jobledger-pwned) `id` %s%n \\n \\0101 * ?",
            b"-n": b"-n",
            b"\x1b[31mred\x07\ttab\x7f": b"[31mredtab",
            b"\xff\xfe\xc3": b"\xff\xfe\xc3",
            b"'\"": b"'\"",
        }
        for shell in self.each_shell():
            for name, kept in names.items():
                with self.subTest(name=name):
                    self.squeue(b"42|42|N/A|normal|" + name + b"\n")
                    content = self.prolog(shell)
                    lines = content.split(b"\n")
                    self.assertEqual([x for x in lines if x.startswith(b"name=")], [b"name=" + kept])
                    self.assertEqual([x for x in lines if x.startswith(b"uid=")], [b"uid=1001"])
                    self.assertEqual(len(lines), 13, content)
            self.assertFalse(Path("/tmp/jobledger-pwned").exists())

    def test_a_name_with_newlines_adds_no_lines(self):
        # SLURM takes such names (sbatch -J $'...' on 22.05) and squeue prints them as they are.
        forged = b"42|99|1|vip|evil"
        for shell in self.each_shell():
            self.squeue(b"42|42|N/A|normal|x\n" + forged + b"\n")
            content = self.prolog(shell)
            for word in (b"99", b"vip", b"evil", b"name", b"qos"):
                self.assertNotIn(word, content, "two lines of one job: none is believed")
            self.squeue(b"42|42|N/A|normal|x\nuid=0\nuser=root\n")
            content = self.prolog(shell)
            self.assertIn(b"\nname=x\n", content)
            self.assertEqual(content.count(b"uid="), 1)
            self.assertIn(b"\nuser=alice\n", content)

    def test_hostile_values_of_the_environment_add_no_lines(self):
        self.write_settings("JOBLEDGER_ASK_CONTROLLER=never")
        for shell in self.each_shell():
            content = self.prolog(
                shell,
                SLURM_JOB_ACCOUNT="a\nuid=0\nb",
                SLURM_JOB_PARTITION="\n\t\n",
                SLURM_JOB_UID="1001\nuid=0",
                SLURM_JOB_START_TIME="soon",
                SLURM_JOB_SLUID="s" * 100_000,
                SLURM_JOB_NUM_NODES="1\nuid=0",
                SLURM_JOB_RESTART_COUNT="-1",
                SLURM_NODELIST="node1\nuid=0",
            )
            self.assertEqual(
                content,
                b"version=1\njob_id=42\nsluid=" + b"s" * 512 + b"\nuser=alice\naccount=auid=0b\nnode=node1\n",
            )

    def test_missing_variables_have_no_lines(self):
        self.write_settings("JOBLEDGER_ASK_CONTROLLER=never")
        for shell in self.each_shell():
            self.assertEqual(self.prolog(shell, {"SLURM_JOB_ID": "42"}), b"version=1\njob_id=42\n")
            shutil.rmtree(self.top)
            self.assertEqual(self.prolog(shell, {"SLURM_JOBID": "42"}), b"version=1\njob_id=42\n")

    def test_gpus_are_written_by_index_and_by_uuid(self):
        self.write_settings("JOBLEDGER_ASK_CONTROLLER=never")
        gpu = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
        mig = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
        old = f"MIG-{gpu}/7/0"
        many = ",".join([mig] * 56)
        # The variables that src/plugins/gres/common/gres_common.c sets for the prolog, by version.
        cases = [
            ({}, {}),
            ({"SLURM_JOB_GPUS": "0,2", "CUDA_VISIBLE_DEVICES": "0,2", "GPU_DEVICE_ORDINAL": "0,2"}, {"gpus": "0,2"}),
            ({"SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": mig}, {"gpus": "1", "gpu_uuids": mig}),
            ({"SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": f"{gpu},{mig}"},
             {"gpus": "0,1", "gpu_uuids": f"{gpu},{mig}"}),
            ({"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": old}, {"gpus": "0", "gpu_uuids": old}),
            ({"SLURM_JOB_GPUS": "0-55", "CUDA_VISIBLE_DEVICES": many}, {"gpus": "0-55", "gpu_uuids": many}),
            ({"CUDA_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "GPU-15f2d0c1a0b1c2d3"},
             {"gpu_uuids": "GPU-15f2d0c1a0b1c2d3"}),
            # A list with anything but ids is ignored.
            ({"SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": f"0,{mig}"}, {"gpus": "0,1"}),
            ({"CUDA_VISIBLE_DEVICES": f"{gpu},,{mig}"}, {}),
            ({"CUDA_VISIBLE_DEVICES": f"{gpu},"}, {}),
            ({"CUDA_VISIBLE_DEVICES": "GPU-"}, {}),
            ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, {}),
            ({"CUDA_VISIBLE_DEVICES": f"{gpu}\nuid=0"}, {}),
            ({"CUDA_VISIBLE_DEVICES": "GPU-*,GPU-$(id),GPU-`id`"}, {}),
            ({"CUDA_VISIBLE_DEVICES": ",".join([gpu] * 300)}, {}),
            ({"SLURM_JOB_GPUS": "0,1\nuid=0"}, {}),
            ({"SLURM_JOB_GPUS": "a"}, {}),
            ({"SLURM_JOB_GPUS": ",".join(["1"] * 5000)}, {}),
        ]
        for shell in self.each_shell():
            for environment, expected in cases:
                with self.subTest(environment=environment):
                    content = self.prolog(shell, RECORDED_22_05 | environment).decode()
                    found = dict(line.split("=", 1) for line in content.splitlines())
                    self.assertEqual({k: v for k, v in found.items() if k.startswith("gpu")}, expected)
                    self.assertTrue(content.endswith("\nnode=node1\n"), content)
                    self.assertEqual(content.count("uid="), 1)

    def test_an_invalid_job_id_writes_no_file(self):
        for shell in self.each_shell():
            for job in [None, "", "0", "012", "-1", "4 2", "42x", "../../etc/x", "4\n2", "9" * 30, "*"]:
                with self.subTest(job=job):
                    self.prolog(shell, SLURM_JOB_ID=job, SLURM_JOBID=None)
                    self.assertFalse(self.top.exists())

    def test_a_controller_that_does_not_answer_costs_three_seconds_at_most(self):
        # It ignores SIGTERM, and its child keeps the output open.
        self.command("squeue", "trap '' TERM; sleep 300 & while :; do sleep 1; done")
        for shell in self.each_shell():
            content = self.prolog(shell)
            self.assertLess(self.took, 20, "three seconds, and what a busy machine adds")
            self.assertIn(b"\nuser=alice\n", content)
            self.assertEqual(self.left_behind(), ["42"])

    def test_the_file_exists_before_the_controller_is_asked(self):
        self.command("squeue", f"cat {self.jobs}/42 >{self.scratch}/seen; printf '42|42|N/A|normal|mine\\n'")
        for shell in self.each_shell():
            self.assertIn(b"\nqos=normal\nname=mine\n", self.prolog(shell))
            seen = (self.scratch / "seen").read_bytes()
            self.assertIn(b"\naccount=physics\n", seen)
            self.assertNotIn(b"name=", seen)

    def test_an_endless_answer_is_cut_off(self):
        self.command("squeue", "while :; do printf '42|42|N/A|normal|%08000d\\n' 0; done")
        for shell in self.each_shell():
            largest, stop = [0], threading.Event()

            def watch():
                while not stop.is_set():
                    for path in self.jobs.glob(".42.*.answer"):
                        try:
                            largest.append(path.stat().st_size)
                        except FileNotFoundError:
                            pass

            watcher = threading.Thread(target=watch)
            watcher.start()
            content = self.prolog(shell)
            stop.set()
            watcher.join()
            self.assertLess(self.took, 20)
            self.assertLessEqual(max(largest), 8192 * 1024, "bash counts in KiB where the others count 512 bytes")
            self.assertNotIn(b"name=", content)
            self.assertEqual(self.left_behind(), ["42"])

    def test_malformed_answers_of_the_controller_are_ignored(self):
        answers = [b"", b"\n", b"slurm_load_jobs error: Invalid job id\n", b"42", b"42|42|N/A\n", b"\0" * 100,
                   b"42|42|N/A|nor", b"142|1|1|q|n\n", b" 42|1|1|q|n\n"]
        for shell in self.each_shell():
            for answer in answers:
                with self.subTest(answer=answer):
                    self.squeue(answer)
                    content = self.prolog(shell)
                    self.assertTrue(content.startswith(b"version=1\njob_id=42\nuid=1001\n"), content)
                    for key in (b"name=", b"qos=", b"array"):
                        self.assertNotIn(key, content)
            self.command("squeue", "printf '42|42|N/A|normal|n\\n'; exit 1")
            self.assertNotIn(b"name=", self.prolog(shell), "a failed command's answer")

    def test_without_squeue_or_timeout_the_controller_is_not_asked(self):
        for shell in self.each_shell():
            self.assertIn(b"\nuser=alice\n", self.prolog(shell))
        self.squeue(b"42|42|N/A|normal|n\n")
        (self.bin / "timeout").unlink()
        for shell in self.each_shell():
            content = self.prolog(shell)
            if shell == "busybox" and self.asked():
                continue  # it has a timeout of its own
            self.assertNotIn(b"name=", content)
            self.assertEqual(self.asked(), [])

    def test_broken_settings_fail_no_job(self):
        for shell in self.each_shell():
            for line in ["if then (", "exit 3", "set -e; false", "unset JOBLEDGER_ASK_CONTROLLER", "set -u"]:
                with self.subTest(line=line):
                    self.write_settings(line)
                    self.prolog(shell)
                    ends = line.startswith(("if", "exit", "set -e"))
                    self.assert_log(shell, *[f"{self.settings} has an error"] * ends)
            self.settings.unlink()
            self.settings.mkdir()
            self.run_script(shell, PROLOG, {"SLURM_JOB_ID": "0"})
            self.settings.rmdir()

    def test_links_are_not_followed(self):
        elsewhere = self.scratch / "elsewhere"
        for shell in self.each_shell():
            shutil.rmtree(elsewhere, ignore_errors=True)
            elsewhere.mkdir()
            self.top.symlink_to(elsewhere)
            self.assertIsNone(self.prolog(shell))
            self.assert_log(shell, f"{self.top} is missing, a link, or not root's alone")
            self.top.unlink()
            self.top.mkdir()
            self.jobs.symlink_to(elsewhere)
            self.assertIsNone(self.prolog(shell))
            self.jobs.unlink()
            self.jobs.symlink_to(self.scratch / "nothing")
            self.assertIsNone(self.prolog(shell))
            self.jobs.unlink()
            self.assertEqual(list(elsewhere.iterdir()), [])
            self.jobs.mkdir()
            victim = elsewhere / "victim"
            victim.write_text("precious")
            (self.jobs / "42").symlink_to(victim)
            self.assertIsNotNone(self.prolog(shell))
            self.assertFalse((self.jobs / "42").is_symlink(), "the link gave way to a file")
            self.assertEqual(victim.read_text(), "precious")

    def test_a_directory_that_others_can_write_is_left_alone(self):
        for shell in self.each_shell():
            for path, mode in [(self.jobs, 0o775), (self.jobs, 0o757), (self.top, 0o777), (self.top, 0o1777)]:
                shutil.rmtree(self.top, ignore_errors=True)
                self.jobs.mkdir(parents=True)
                path.chmod(mode)
                self.assertIsNone(self.prolog(shell), (path, oct(mode)))
                self.assertEqual(self.left_behind(), [])
                self.assert_log(shell, f"{path} is missing, a link, or not root's alone")

    def test_a_failed_write_fails_no_job(self):
        for shell in self.each_shell():
            self.top.write_text("a file")
            self.assertIsNone(self.prolog(shell))
            self.top.unlink()
            (self.jobs / "42" / "full").mkdir(parents=True)
            self.assertIsNone(self.prolog(shell))
            self.assertEqual(self.left_behind(), ["42"], "and no temporary file is left")
            self.assert_log(shell, f"{self.top} is missing", f"{self.jobs}/42 cannot be written")

    def test_a_syslog_that_hangs_holds_up_no_job(self):
        for shell in self.each_shell():
            self.command("logger", "exec sleep 100")
            self.top.write_text("a file")
            self.assertIsNone(self.prolog(shell))
            self.assertLess(self.took, 50)
            self.top.unlink()

    def test_what_is_written_is_not_logged(self):
        for shell in self.each_shell():
            self.assertIsNotNone(self.prolog(shell))
            self.assert_log(shell)

    def test_a_read_only_and_a_full_file_system_fail_no_job(self):
        if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0:
            self.skipTest("root: a file system is mounted")
        for shell in self.each_shell():
            for mount in ["mount -t tmpfs -o mode=755,ro none {0}",
                          "mount -t tmpfs -o mode=755,size=4k none {0}; head -c 9000 /dev/zero >{0}/filler"]:
                self.jobs.mkdir(parents=True, exist_ok=True)
                setup = f"{mount.format(self.jobs)}; \"$@\"; code=$?; test ! -e {self.jobs}/42 || code=99; exit $code"
                path = os.environ["PATH"]
                prefix = [shutil.which("unshare"), "-m", "/bin/sh", "-c",
                          f"PATH={path}; export PATH; {{ {setup}; }} 2>/dev/null", "sh"]
                self.run_script(shell, PROLOG, RECORDED_22_05, prefix=prefix)
                self.assert_log(shell, f"{self.jobs}/42 cannot be written")

    def test_simultaneous_prologs_leave_one_complete_file(self):
        self.write_settings("JOBLEDGER_ASK_CONTROLLER=never")
        for shell in self.each_shell():
            self.prolog(shell)
            seen, stop = set(), threading.Event()

            def read():
                while not stop.is_set():
                    seen.add((self.jobs / "42").read_bytes())

            reader = threading.Thread(target=read)
            reader.start()
            environments = [RECORDED_22_05 | {"SLURMD_NODENAME": f"node{n}"} for n in range(40)]
            binary = [shutil.which(SHELLS[shell][0]), *SHELLS[shell][1:], str(PROLOG)]
            running = [
                subprocess.Popen(binary, env=e | {"JOBLEDGER_SETTINGS": str(self.settings)}) for e in environments
            ]
            self.assertEqual({p.wait(30) for p in running}, {0})
            stop.set()
            reader.join()
            for content in seen:
                self.assertRegex(content, rb"\Aversion=1\njob_id=42\n(.+\n)+node=node\d+\n\Z")
            self.assertEqual(self.left_behind(), ["42"])

    def test_a_requeued_job_replaces_its_file(self):
        self.write_settings("JOBLEDGER_ASK_CONTROLLER=never")
        for shell in self.each_shell():
            self.prolog(shell, SLURM_JOB_PARTITION="first")
            self.assertIn(b"partition=second\n", self.prolog(shell, SLURM_JOB_PARTITION="second"))


class Epilog(Snippets):
    def test_it_removes_the_files_of_its_job_and_of_killed_prologs(self):
        for shell in self.each_shell():
            self.prolog(shell)
            self.prolog(shell, SLURM_JOB_ID="420")
            for name in (".42.77", ".42.77.answer", ".420.78"):
                (self.jobs / name).write_text("half")
            self.epilog(shell, SLURM_SCRIPT_CONTEXT="epilog_slurmd")
            self.assertEqual(self.left_behind(), [".420.78", "420"])
            self.epilog(shell)
            self.assertEqual(self.left_behind(), [".420.78", "420"], "twice is once")

    def test_the_file_of_another_slurmd_on_this_host_is_kept(self):
        for shell in self.each_shell():
            self.prolog(shell, SLURMD_NODENAME="node1")
            self.prolog(shell, SLURMD_NODENAME="node2")
            self.epilog(shell, SLURMD_NODENAME="node1")
            self.assertEqual(self.left_behind(), ["42"])
            self.epilog(shell, SLURMD_NODENAME="node2")
            self.assertEqual(self.left_behind(), [])
            self.prolog(shell)
            self.epilog(shell, SLURMD_NODENAME=None)
            self.assertEqual(self.left_behind(), [], "a node that is not named removes")

    def ended(self, shell, version, **changes):
        """The file that is left of a job, without what the prolog wrote."""
        environment = ENVIRONMENTS[version]
        before = self.prolog(shell, environment)
        environment = environment | {"SLURM_SCRIPT_CONTEXT": "epilog_slurmd"}
        if "SLURM_JOB_END_TIME" in environment:
            environment["SLURM_JOB_END_TIME"] = "1700000042"
        self.epilog(shell, environment, **changes)
        self.assertFalse((self.jobs / "42").exists())
        path = self.jobs / "42.ended"
        if not path.exists():
            return None
        self.assertEqual((self.left_behind(), stat.S_IMODE(path.stat().st_mode)), (["42.ended"], 0o644))
        content = path.read_bytes()
        path.unlink()
        self.assertTrue(content.startswith(before), content)
        return content.removeprefix(before).decode().split()

    def test_how_the_job_ended_is_added(self):
        # (SLURM_JOB_EXIT_CODE2, SLURM_JOB_DERIVED_EC) as slurmd 22.05, 24.11 and 26.05 give them: exit 0, exit 3, kill -9 of the
        # script, a step that exits with 5, one that is killed by 11, the out-of-memory killer, exit 7 of srun without a script.
        cases = [("0:0", "0", ["exit_code=0", "signal=0", "derived_exit_code=0", "derived_signal=0"]),
                 ("3:0", "0", ["exit_code=3", "signal=0", "derived_exit_code=0", "derived_signal=0"]),
                 ("0:9", "0", ["exit_code=0", "signal=9", "derived_exit_code=0", "derived_signal=0"]),
                 ("0:0", "1280", ["exit_code=0", "signal=0", "derived_exit_code=5", "derived_signal=0"]),
                 ("0:0", "11", ["exit_code=0", "signal=0", "derived_exit_code=0", "derived_signal=11"]),
                 ("0:125", "253", ["exit_code=0", "signal=125", "derived_exit_code=0", "derived_signal=125"]),
                 ("7:0", None, ["exit_code=7", "signal=0"]),
                 ("7", "x", ["exit_code=7", "signal=7"]),
                 ("1000:", "-1", []),
                 ("a\nuid=0:1\nuid=0", "1\nuid=0", [])]
        for shell in self.each_shell():
            for code, derived, expected in cases:
                with self.subTest(code=code, derived=derived):
                    changes = {"SLURM_JOB_EXIT_CODE2": code, "SLURM_JOB_DERIVED_EC": derived}
                    self.assertEqual(self.ended(shell, "22.05", **changes), expected)
                    self.assertEqual(self.ended(shell, "26.05", **changes), ["elapsed=42", *expected])

    def test_what_slurm_does_not_say_leaves_no_file(self):
        for shell in self.each_shell():
            for version in ENVIRONMENTS:
                self.assertIsNone(self.ended(shell, version), "a job that slurmctld does not know")
            for version in ("20.11", "21.08"):
                self.assertIsNone(self.ended(shell, version, SLURM_JOB_EXIT_CODE2="0:0"), "without a count of restarts")
            for version in ("22.05", "26.05"):
                changes = {"SLURM_JOB_EXIT_CODE2": "0:0", "SLURM_JOB_RESTART_COUNT": "1"}
                self.assertIsNone(self.ended(shell, version, **changes), "requeued")

    def test_an_epilog_that_is_late_leaves_the_next_run_alone(self):
        environment = ENVIRONMENTS["23.02"]
        for shell in self.each_shell():
            self.prolog(shell, environment, SLURM_JOB_START_TIME="1700000100", SLURM_JOB_RESTART_COUNT="1")
            self.epilog(shell, environment, SLURM_JOB_EXIT_CODE2="0:0", SLURM_JOB_RESTART_COUNT="1")
            self.assertEqual(self.left_behind(), ["42"])
            # Nodes were powered up: the job started after its prolog.
            changes = {"SLURM_JOB_START_TIME": "1700000200", "SLURM_JOB_END_TIME": "1700000201", "SLURM_JOB_RESTART_COUNT": "1"}
            self.epilog(shell, environment, SLURM_JOB_EXIT_CODE2="0:0", **changes)
            self.assertIn("start_time=1700000100\n", (self.jobs / "42.ended").read_text())
            self.assertIn("elapsed=1\n", (self.jobs / "42.ended").read_text())

    def test_files_of_jobs_that_ended_are_removed_after_some_minutes(self):
        for shell in self.each_shell():
            self.prolog(shell, SLURM_JOB_ID="7")
            for name, minutes in [("1.ended", 12), ("2.ended", 8), ("7", 1000), (".later.9.1", 1000)]:
                (self.jobs / name).touch()
                os.utime(self.jobs / name, (time.time() - 60 * minutes,) * 2)
            (self.jobs / "3.ended").mkdir()
            os.utime(self.jobs / "3.ended", (0, 0))
            self.epilog(shell)
            self.assertEqual(self.left_behind(), [".later.9.1", "2.ended", "3.ended", "7"])
            self.write_settings("JOBLEDGER_KEEP_ENDED=5")
            self.epilog(shell)
            self.assertEqual(self.left_behind(), [".later.9.1", "3.ended", "7"])
            self.write_settings()

    def test_a_directory_that_others_can_write_is_left_alone(self):
        for shell in self.each_shell():
            self.prolog(shell)
            self.jobs.chmod(0o777)
            self.epilog(shell, SLURM_JOB_EXIT_CODE2="0:0")
            self.assertEqual(self.left_behind(), ["42"])

    def test_a_failed_write_fails_no_job(self):
        for shell in self.each_shell():
            self.prolog(shell)
            (self.jobs / "42.ended" / "full").mkdir(parents=True)
            self.epilog(shell, SLURM_JOB_EXIT_CODE2="0:0")
            self.assertEqual(self.left_behind(), ["42.ended"], "and no temporary file is left")

    def test_links_directories_and_strange_ids(self):
        victim = self.scratch / "victim"
        for shell in self.each_shell():
            victim.write_text("node=node1\n")
            self.jobs.mkdir(parents=True)
            (self.jobs / "42").symlink_to(victim)
            self.epilog(shell)
            self.assertEqual(self.left_behind(), [])
            (self.jobs / "42" / "full").mkdir(parents=True)
            os.mkfifo(self.jobs / "43")
            self.epilog(shell)
            self.epilog(shell, SLURM_JOB_ID="43")
            self.assertEqual(self.left_behind(), ["42"])
            for job in ["0", "", "../victim", "*", "4\n2", "x", "-rf"]:
                self.epilog(shell, SLURM_JOB_ID=job, SLURM_JOBID=None)
            self.assertEqual(self.left_behind(), ["42"])
            shutil.rmtree(self.jobs)
            elsewhere = self.scratch / f"elsewhere-{shell}"
            elsewhere.mkdir()
            (elsewhere / "42").write_text("node=node1\n")
            self.jobs.symlink_to(elsewhere)
            self.epilog(shell)
            self.assertTrue((elsewhere / "42").exists())
            self.assertEqual(victim.read_text(), "node=node1\n")
            self.jobs.unlink()

    def test_a_missing_file_and_broken_settings_fail_no_job(self):
        for shell in self.each_shell():
            self.epilog(shell)
            self.assertFalse(self.top.exists(), "the epilog makes nothing")
            for line in ["if then (", "exit 3"]:
                self.write_settings(line)
                self.epilog(shell)
            self.write_settings()


class Style(unittest.TestCase):
    def test_shellcheck_finds_nothing(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck: apt-get install shellcheck")
        done = subprocess.run(["shellcheck", "--shell=sh", PROLOG, EPILOG], capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout + done.stderr, "")

    def test_the_exporter_reads_every_written_key(self):
        put = re.compile(r"put_(?:text|number|list|small) (\w+) |printf '(\w+)=%s")
        written = ["".join(names) for script in (PROLOG, EPILOG) for names in put.findall(script.read_text())]
        parser = (ROOT / "crates/slurm-jobs/src/metadata.rs").read_text()
        # For who reads the file itself: a list of names is no label.
        written.remove("node_list")
        self.assertEqual(written, re.findall(r'b"(\w+)" => m\.', parser))

    def test_both_trust_the_same_directories(self):
        same = re.compile(r"# A directory that nobody.*?^}\n", re.S | re.M)
        self.assertEqual(*(same.findall(script.read_text()) for script in (PROLOG, EPILOG)))

    def test_they_are_executable(self):
        for script in (PROLOG, EPILOG):
            self.assertTrue(os.access(script, os.X_OK), script)
            self.assertTrue(script.read_text().startswith("#!/bin/sh\n"))


if __name__ == "__main__":
    print(f"shells: {', '.join(SHELLS)}", file=sys.stderr)
    unittest.main()
