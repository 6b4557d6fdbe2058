"""The drawing of the crates: order, arrows, and the place in the page."""

import unittest

import crates


def package(name, *uses, dev=(), description="One."):
    dependencies = [{"name": each, "kind": None} for each in uses] + [{"name": each, "kind": "dev"} for each in dev]
    return {"name": name, "description": description, "manifest_path": f"/w/crates/{name}/Cargo.toml", "dependencies": dependencies}


FOUND = {
    "workspace_root": "/w",
    "packages": [
        package("agent", "jobs", "files", "serde", dev=["kit"]),
        package("files"),
        package("jobs", "files"),
        package("kit", "files", description=None),
    ],
}


class Drawing(unittest.TestCase):
    def test_arrows_that_follow_from_others_and_those_of_tests_are_left_out(self):
        self.assertEqual(crates.uses(FOUND["packages"]), {"agent": {"jobs"}, "files": set(), "jobs": {"files"}, "kit": {"files"}})

    def test_dependencies_come_first(self):
        text = crates.drawing(FOUND)
        self.assertIn("graph BT\n  files\n  jobs\n  kit\n  agent\n  jobs --> files\n  kit --> files\n  agent --> jobs\n```\n", text)
        self.assertIn("| `jobs` | `crates/jobs/` | One. |\n| `kit` | `crates/kit/` |  |\n", text)

    def test_the_drawing_is_between_its_marks_and_writing_it_again_changes_nothing(self):
        once = crates.drawn(f"before\n{crates.BEGIN}stale\n{crates.END}after\n", FOUND)
        self.assertTrue(once.startswith("before\n") and once.endswith("after\n") and "stale" not in once)
        self.assertEqual(crates.drawn(once, FOUND), once)
        with self.assertRaises(SystemExit):
            crates.drawn("no marks", FOUND)


if __name__ == "__main__":
    unittest.main()
