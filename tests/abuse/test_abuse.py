"""A scraper with a limit of 10 seconds has every page, whole, whatever other clients do. All of them are on the node itself.

Run: python3 -m unittest discover -s tests/abuse
Needs openssl and jobledger-demo; builds it if need be. Takes a minute and a half.
"""

import pathlib
import sys
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import cases  # noqa: E402
import servers  # noqa: E402

SECONDS = 5


def named(title):
    return "".join(character if character.isalnum() else "_" for character in title)


def tests_of(all_cases):
    """A test for each case."""

    def test_of(case):
        def test(self):
            scraper = cases.suffer(servers.Ours, case, SECONDS)
            self.assertEqual(set(scraper.outcomes), {"200"}, cases.summary(scraper))

        test.__doc__ = case.title
        return test

    return {f"test_{named(case.title)}": test_of(case) for case in all_cases}


class Server(unittest.TestCase):
    """Places, bytes and passwords (crates/exporter-toolkit)."""

    locals().update(tests_of(cases.SERVER))


class Collecting(unittest.TestCase):
    """Deadlines and filters of others (exporter/src/scrape)."""

    locals().update(tests_of(cases.COLLECTING))


if __name__ == "__main__":
    unittest.main()
