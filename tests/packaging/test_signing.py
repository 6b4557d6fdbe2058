"""The signature over SHA256SUMS: packaging/build.sh makes it with a site's key, and the commands of docs/install.md verify it.

Needs gpg and gpgv (tests/tools/install-packages.sh) and the programs (make tested-programs).
"""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import EXPORTER, PACKAGING, ROOT


class Signing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert EXPORTER.exists(), f"{EXPORTER} is not there: make tested-programs"
        # Short: gpg's agent has a socket there, whose path has 107 bytes at most.
        scratch = tempfile.TemporaryDirectory(prefix="sign-", dir="/tmp")
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = Path(scratch.name)
        cls.keys = {name: cls.key(name) for name in ("site", "other")}
        cls.made = cls.scratch / "made"
        done = cls.build(cls.made, JOBLEDGER_SIGNING_KEY=cls.keys["site"], GNUPGHOME=str(cls.scratch / "site"))
        assert done.returncode == 0, done.stderr
        cls.said = done.stdout

    @classmethod
    def gpg(cls, home, *words):
        return subprocess.run(["gpg", "--homedir", home, "--batch", "--quiet", *words], capture_output=True, check=True).stdout

    @classmethod
    def key(cls, name):
        """A key pair of a site's; returns its fingerprint."""
        home = cls.scratch / name
        home.mkdir(mode=0o700)
        cls.addClassCleanup(subprocess.run, ["gpgconf", "--homedir", home, "--kill", "all"], check=False)
        cls.gpg(home, "--passphrase", "", "--quick-generate-key", f"{name} <{name}@example.org>", "ed25519", "sign", "never")
        listed = cls.gpg(home, "--with-colons", "--list-secret-keys").decode()
        fingerprint = re.search(r"^fpr:*([0-9A-F]+):$", listed, re.MULTILINE)[1]
        (cls.scratch / f"{name}.gpg").write_bytes(cls.gpg(home, "--export", fingerprint))
        (cls.scratch / f"{name}.secret").write_bytes(cls.gpg(home, "--passphrase", "", "--pinentry-mode", "loopback",
                                                             "--export-secret-keys", fingerprint))
        return fingerprint

    @classmethod
    def build(cls, output, **environment):
        # What the program `jobledger` is does not matter here.
        words = [PACKAGING / "build.sh", "--binary", EXPORTER, "--cli", EXPORTER, "--only", "deb", "--output", output]
        given = {name: value for name, value in os.environ.items() if name != "JOBLEDGER_SIGNING_KEY"}
        return subprocess.run(words, env=given | environment, capture_output=True, text=True, check=False)

    def verify(self, directory, keyring="site"):
        """The commands of docs/install.md; true if all succeed."""
        page = (ROOT / "docs/install.md").read_text()
        commands = re.search(r"```sh\n(gpgv .*?)```", page, re.DOTALL)[1]
        (directory / "jobledger-key.gpg").write_bytes((self.scratch / f"{keyring}.gpg").read_bytes())
        home = self.scratch / "reader"
        home.mkdir(mode=0o700, exist_ok=True)
        done = subprocess.run(["sh", "-ec", commands], cwd=directory, env={"PATH": os.environ["PATH"], "GNUPGHOME": str(home)},
                              capture_output=True, text=True, check=False)
        return done.returncode == 0

    def copy(self, name):
        directory = self.scratch / name
        shutil.copytree(self.made, directory)
        return directory

    def test_what_was_built_is_verified_with_the_sites_key(self):
        self.assertIn("signed: SHA256SUMS.asc", self.said)
        self.assertTrue(self.verify(self.copy("good")))
        listed = (self.made / "SHA256SUMS").read_text()
        for suffix in (".deb", ".cdx.json", "-linux-gnu"):
            self.assertRegex(listed, rf"(?m){re.escape(suffix)}$", "packages, SBOM and binary are all in the signed sums")

    def test_one_file_alone_can_be_verified(self):
        directory = self.copy("alone")
        for path in directory.iterdir():
            if not path.name.startswith(("SHA256SUMS", "jobledger-exporter_")):
                path.unlink()
        self.assertTrue(self.verify(directory))

    def test_a_changed_package_is_found(self):
        directory = self.copy("package")
        with open(next(directory.glob("jobledger-exporter_*.deb")), "ab") as package:
            package.write(b"x")
        self.assertFalse(self.verify(directory))

    def test_changed_sums_are_found(self):
        directory = self.copy("sums")
        package = next(directory.glob("jobledger-exporter_*.deb"))
        package.write_bytes(b"another")
        sums = subprocess.run(["sha256sum", package.name], cwd=directory, capture_output=True, text=True, check=True).stdout
        (directory / "SHA256SUMS").write_text(sums)
        self.assertFalse(self.verify(directory))

    def test_another_key_is_not_the_sites(self):
        self.assertFalse(self.verify(self.copy("other-key"), "other"))
        by_other = self.copy("by-other")
        (by_other / "SHA256SUMS.asc").unlink()
        self.gpg(self.scratch / "other", "--armor", "--detach-sign", str(by_other / "SHA256SUMS"))
        self.assertFalse(self.verify(by_other))
        self.assertTrue(self.verify(by_other, "other"), "or nothing is verified at all")

    def test_a_file_with_the_secret_key_does_as_well(self):
        output = self.scratch / "by-file"
        done = self.build(output, JOBLEDGER_SIGNING_KEY=str(self.scratch / "site.secret"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.verify(output))

    def test_a_key_that_is_not_there_makes_nothing(self):
        output = self.scratch / "no-key"
        done = self.build(output, JOBLEDGER_SIGNING_KEY="0" * 40, GNUPGHOME=str(self.scratch / "site"))
        self.assertEqual((done.returncode, list(output.glob("*"))), (1, []), done.stderr)
        self.assertIn("cannot sign", done.stderr)

    def test_without_a_key_nothing_is_signed_and_that_is_said(self):
        output = self.copy("unsigned")
        done = self.build(output)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not signed: JOBLEDGER_SIGNING_KEY names no key", done.stdout)
        self.assertFalse((output / "SHA256SUMS.asc").exists(), "that of an earlier build")


if __name__ == "__main__":
    unittest.main()
