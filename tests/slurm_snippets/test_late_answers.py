"""The prolog and a controller that does not answer in time: the prolog asks again while the job runs."""

import os
import shutil
import sys
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[1] / "e2e")]
from test_snippets import Snippets  # noqa: E402
from testbed.processes import wait_for  # noqa: E402


class LateAnswers(Snippets):
    def asks_later(self, shell, while_it_waits=lambda: None):
        """A prolog whose controller answers at the third question, and what is done before that; then the file's contents, one after
        the other, until the last request."""
        self.slow_setsid()
        gate, count = self.scratch / "gate", self.scratch / "count"
        gate.unlink(missing_ok=True)
        count.write_text("")
        # The test sets the pauses, and a minute is a second.
        self.write_settings("JOBLEDGER_ASK_AGAIN='5 15 45'")
        (self.bin / "sleep").unlink(missing_ok=True)
        self.command("sleep", f'case $1 in 60) exec {shutil.which("sleep")} 1 ;; esac\n'
                     f"while [ -e {count} ] && [ ! -e {gate} ]; do {shutil.which('sleep')} 0.02; done")
        self.command("squeue", f"echo >>{count}; [ $(grep -c ^ {count}) -ge 3 ] || exit 1; printf '42|40|7|long|late\\n'")
        # Open until all processes of the prolog have ended.
        end, theirs = os.pipe()
        os.set_blocking(end, False)
        end = self.enterContext(open(end, "rb", buffering=0))
        self.inherited = (theirs,)
        self.assertNotIn(b"name=", self.prolog(shell))
        self.inherited = ()
        os.close(theirs)
        self.assertEqual(count.read_text(), "\n", "the prolog did not wait for the second")
        while_it_waits()
        gate.write_text("")
        path, seen = self.jobs / "42", []

        def is_over():
            over = end.read() == b""
            seen.append(path.read_bytes() if path.is_file() else None)
            return over
        wait_for("the questions to end", is_over, interval=0.02)
        return [content for content, before in zip(seen, [b"", *seen]) if content != before]

    def test_a_controller_that_does_not_answer_is_asked_again_while_the_job_runs(self):
        for shell in self.each_shell():
            contents = self.asks_later(shell)
            self.assertIn(b"\naccount=physics\npartition=main\nqos=long\nname=late\narray_job_id=40\n", contents[-1])
            self.assertEqual(self.left_behind(), ["42"])

    def test_an_answer_after_the_end_of_the_job_is_kept_for_a_while(self):
        for shell in self.each_shell():
            contents = self.asks_later(shell, lambda shell=shell: self.epilog(shell))
            self.assertEqual(len(contents), 3, contents)
            self.assertIn(b"\nname=late\n", contents[1])
            self.assertEqual((contents[0], contents[2], self.left_behind()), (None, None, []))

    def test_the_file_of_another_prolog_is_left_alone(self):
        for shell in self.each_shell():
            contents = self.asks_later(shell, lambda: (self.jobs / "42").write_bytes(b"job_id=42\nnode=node2\n"))
            self.assertEqual(contents, [b"job_id=42\nnode=node2\n"])

    def test_the_setting_disables_asking_again(self):
        self.write_settings("JOBLEDGER_ASK_AGAIN=''")
        (self.bin / "setsid").symlink_to(shutil.which("setsid"))
        self.command("squeue", f"echo asked >>{self.scratch}/asked; exit 1")
        for shell in self.each_shell():
            self.prolog(shell)
            self.assertEqual(self.asked(), ["asked"])


if __name__ == "__main__":
    unittest.main()
