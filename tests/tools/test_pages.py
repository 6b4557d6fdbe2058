"""Links of pages have targets, blocks of code have a language, and queries use existing series."""

import re
import unittest
from pathlib import Path

import words

ROOT = Path(__file__).resolve().parents[2]
# helm-docs makes the chart's README from its template.
PAGES = sorted(ROOT / path for path, _ in words.files(ROOT) if path.suffix in (".md", ".gotmpl") and ".github" not in path.parts)
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"sh", "yaml", "text", "ini", "promql", "python", "rust", "mermaid", "toml"}


def anchors(page):
    """The anchors that forges make from headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Pages(unittest.TestCase):
    def test_links_lead_to_files_and_headings_that_exist(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
                path, _, anchor = target.partition("#")
                if re.match(r"[a-z]+:", target) or "{{" in target:
                    continue
                with self.subTest(f"{page.relative_to(ROOT)}: {target}"):
                    file = (page.parent / path).resolve() if path else page
                    self.assertTrue(file.exists())
                    if anchor:
                        self.assertIn(anchor, anchors(file))

    def test_code_is_fenced_with_a_language(self):
        for page in PAGES:
            with self.subTest(page.relative_to(ROOT)):
                text = page.read_text()
                self.assertLessEqual({language for _, language, _ in FENCE.findall(text)}, LANGUAGES)
                rest = FENCE.sub("", text)
                self.assertNotIn("```", rest)
                self.assertEqual(re.findall(r"^(?:#.*|[^-\s|*\d][^\n]*|)\n\n?(    \S.*)$", rest, re.MULTILINE), [])

    def test_every_page_of_docs_is_in_the_index(self):
        index = (ROOT / "docs/README.md").read_text()
        for page in (ROOT / "docs").glob("*.md"):
            if page.name != "README.md":
                with self.subTest(page.name):
                    self.assertIn(f"]({page.name})", index)

    def test_queries_ask_for_metrics_and_recorded_series_that_exist(self):
        known = {line.split()[0] for line in (ROOT / "tests/metric_names.txt").read_text().splitlines()}
        for file in [*(ROOT / "rules/recording").glob("*.yaml"), *(ROOT / "rules/optional").glob("*.yaml")]:
            known |= set(re.findall(r"record: (\S+)", file.read_text()))
        for page in PAGES:
            for _, language, block in FENCE.findall(page.read_text()):
                if language == "promql":
                    query = re.sub(r"#.*", "", block)
                    for name in re.findall(r"[a-z_]*:?jobledger_[a-z0-9_]+(?::\w+)*", query):
                        with self.subTest(f"{page.relative_to(ROOT)}: {name}"):
                            self.assertIn(name, known)


if __name__ == "__main__":
    unittest.main()
