"""Reports as HTML and PDF, read by programs of others: html5lib, qpdf and poppler's tools.

cli/examples/write_reports.rs writes the reports: jobs of known numbers, of one node, four GPUs, 64 nodes, half a minute, hardly any data, and with
names that are markup. Needs qpdf, poppler-utils and python3-venv; html5lib comes from PyPI.
"""

import json
import re
import site
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import example

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAMES = ["known", "one", "gpus", "many", "short", "bare", "hostile"]
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
# Elements of HTML that load something or run something.
ACTIVE = {"script", "link", "img", "iframe", "object", "embed", "video", "audio", "source", "base", "form", "image", "use", "foreignObject"}


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


def setUpModule():
    global html5lib, reports
    python = run(ROOT / "grafana" / "environment.sh", HERE / "requirements-pages.txt")
    for packages in Path(python.strip()).parents[1].glob("lib/python3*/site-packages"):
        site.addsitedir(packages)
    import html5lib
    directory = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(directory.cleanup)
    reports = Path(directory.name)
    subprocess.run([example("write_reports"), reports], cwd=ROOT, check=True)


def seconds(value):
    """SLURM's D-HH:MM:SS"""
    value = int(value + 0.5)
    days, rest = divmod(value, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def digits(value):
    """Three digits that count."""
    size = abs(value)
    places = 0 if size >= 99.95 or size == 0 else 1 if size >= 9.995 else 2
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def scaled(value, base, prefixes):
    for prefix in prefixes[:-1]:
        if abs(value) < base * 0.9995:
            return f"{digits(value)} {prefix}"
        value /= base
    return f"{digits(value)} {prefixes[-1]}"


def shown(key, value):
    """A number of the JSON as people read it, by the unit in its name."""
    if key.endswith("_seconds"):
        return seconds(value)
    if key.endswith("_bytes"):
        return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
    if key.endswith("_joules"):
        return scaled(value / 3600, 1000, ["", "k", "M", "G", "T"]) + "Wh"
    if key == "carbon_grams":
        return scaled(value, 1000, ["", "k", "M"]) + "g"
    if key in ("cpus", "cores", "cores_used", "cores_idle", "gpus", "gpus_used", "flops_per_cycle"):
        return digits(value)
    percent = value * 100
    return f"{percent:.1f} %" if percent and percent < 9.95 else f"{percent:.0f} %"


def numbers(name):
    """The numbers of a report, in words."""
    report = json.loads((reports / f"{name}.json").read_bytes())
    found = {key: value for key, value in report["numbers"].items() if value is not None}
    nodes = [node["name"] for node in report["job"]["nodes"]]
    found.pop("longest_idle_start", None)
    named = [found.pop(key) for key in ("memory_peak_node", "cpus_alike_node") if key in found]
    return [shown(key, value) for key, value in found.items()] + [nodes[node] for node in named]


def totals(name):
    """The totals of nodes, in words; sums of limits and peaks as well."""
    job = json.loads((reports / f"{name}.json").read_bytes())["job"]
    sums = {}
    for node in job["nodes"]:
        for part in [node, *node["gpus"]]:
            for key, value in part["values"].items():
                sums[key] = sums.get(key, 0) + value
    counts = {"oom_kills", "page_faults_major", "io_reads", "io_writes", "instructions", "busiest_cpu_instructions", "cycles"}

    def is_count(key):
        return key in counts or key.split("_")[0] in ("flops", "slots")
    return {key: scaled(value, 1000, ["", "k", "M", "G", "T", "P", "E"]).strip() if is_count(key) else shown(key, value) for key, value in sums.items()}


class Html(unittest.TestCase):
    def page(self, name):
        parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
        return parser.parse((reports / f"{name}.html").read_text())

    def test_pages_are_valid_and_load_nothing(self):
        for name in NAMES:
            with self.subTest(name):
                page = self.page(name)
                policies = [meta.get("content") for meta in page.iter("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
                self.assertEqual(policies, [POLICY])
                tags = {element.tag.rsplit("}", 1)[-1] for element in page.iter() if isinstance(element.tag, str)}
                self.assertFalse(tags & ACTIVE, tags)
                for element in page.iter():
                    for attribute, value in element.attrib.items():
                        self.assertFalse(attribute.lower().startswith("on") or attribute in ("src", "srcset"), attribute)
                        self.assertTrue(attribute != "href" or value.startswith("https://grafana.example/"), value)
                style = "".join(element.text or "" for element in page.iter("style"))
                self.assertNotRegex(style, r"url\(|@import")

    def test_every_number_of_the_json_is_in_the_page(self):
        for name in ["known", "one", "gpus", "short", "bare"]:
            with self.subTest(name):
                cells = ["".join(cell.itertext()) for cell in self.page(name).iter("td")]
                for number in numbers(name):
                    self.assertIn(number, cells)

    def test_every_total_is_in_the_page(self):
        for name in ["known", "gpus", "many"]:
            rows = [["".join(cell.itertext()) for cell in row] for row in self.page(name).iter("tr")]
            found = {row[-1]: row[1] for row in rows}
            for key, total in totals(name).items():
                with self.subTest(name, key=key):
                    self.assertEqual(found.get(key), total)

    def test_readers_find_their_way(self):
        for name in NAMES:
            with self.subTest(name):
                page = self.page(name)
                self.assertEqual(page.get("lang"), "en")
                levels = [int(element.tag[1]) for element in page.iter() if re.fullmatch(r"h\d", str(element.tag))]
                self.assertEqual((levels[0], levels.count(1)), (1, 1))
                self.assertTrue(all(after <= before + 1 for before, after in zip(levels, levels[1:])), levels)
                ids = {element.get("id") for element in page.iter() if element.get("id")}
                self.assertTrue(all(section.get("aria-labelledby") in ids for section in page.iter("section")))
                self.assertTrue(all(head.get("scope") in ("col", "row") for head in page.iter("th")))
                self.assertTrue(all(table.find("caption") is not None for table in page.iter("table")))
                for section in page.iter("section"):
                    self.assertGreater(len("".join(section.itertext())), 40, "an empty section")
                drawings = [element for element in page.iter() if str(element.tag).endswith("svg")]
                self.assertTrue(all(drawing.get("role") == "img" and drawing.find("{*}title") is not None for drawing in drawings))

    def test_names_are_text(self):
        page = self.page("hostile")
        name = json.loads((reports / "hostile.json").read_bytes())["job"]["identity"]["name"]
        self.assertIn("<script>", name)
        self.assertIn(name, "".join(page.find("body/header/h1").itertext()))

    def test_pages_are_small(self):
        self.assertLess((reports / "many.html").stat().st_size, 300_000)

    def test_colours_have_contrast(self):
        """WCAG 2.2, 1.4.3: 4.5 to 1, in light and dark."""
        style = (ROOT / "cli/src/formats/html/style.css").read_text()

        def luminance(colour):
            colour = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
            parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
            red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue

        roots = [dict(re.findall(r"--([\w-]+):#(\w+)", root)) for root in re.findall(r":root\{(.*?)\}", style)]
        self.assertEqual(len(roots), 2)
        for colours in roots:
            for ground in ("ground", "raised"):
                for text in ("text", "quiet", "bad", "warning", "hint", "good"):
                    light, dark = sorted((luminance(colours[ground]), luminance(colours[text])), reverse=True)
                    self.assertGreaterEqual((light + 0.05) / (dark + 0.05), 4.5, (ground, text))


class Pdf(unittest.TestCase):
    def test_files_are_sound_and_tagged(self):
        for name in NAMES:
            with self.subTest(name):
                run("qpdf", "--check", reports / f"{name}.pdf")
                about = run("pdfinfo", reports / f"{name}.pdf")
                self.assertRegex(about, r"Title: +Job 39798795")
                self.assertRegex(about, r"Tagged: +yes")
                self.assertRegex(about, r"Page size: .*A4")
                self.assertRegex(about, r"JavaScript: +no")

    def test_sections_are_in_the_outline(self):
        outline = json.loads(run("qpdf", "--json", "--json-key=outlines", reports / "known.pdf"))["outlines"]
        titles = [entry["title"] for entry in outline]
        self.assertEqual(titles, ["Used of what it had", "Advice", "Nodes and GPUs", "Data quality", "Numbers and what they are"])
        self.assertEqual([entry["destpageposfrom1"] for entry in outline][0], 1)

    def test_fonts_are_in_the_file(self):
        for name in NAMES:
            with self.subTest(name):
                fonts = run("pdffonts", reports / f"{name}.pdf").splitlines()[2:]
                self.assertEqual(len(fonts), 2)
                # Embedded, a subset, and with a table of Unicode for those who copy text.
                self.assertTrue(all(re.search(r" yes yes yes ", font) for font in fonts), fonts)

    def test_no_page_is_empty(self):
        for name in NAMES:
            pages = run("pdftotext", "-layout", reports / f"{name}.pdf", "-").split("\f")[:-1]
            for at, page in enumerate(pages):
                with self.subTest(name, page=at):
                    self.assertIn(f"page {at + 1} of {len(pages)}", page)
                    self.assertIn("Job 39798795", page)
                    self.assertGreater(len(page.split()), 30)

    def test_every_number_of_the_json_can_be_selected(self):
        for name in ["known", "one", "gpus", "short", "bare"]:
            text = " ".join(run("pdftotext", "-layout", reports / f"{name}.pdf", "-").split())
            for number in numbers(name):
                with self.subTest(name, number=number):
                    self.assertIn(number, text)

    def test_all_nodes_and_gpus_are_there(self):
        text = run("pdftotext", "-layout", reports / "many.pdf", "-")
        rows = [line.split()[:2] for line in text.splitlines() if line.lstrip().startswith("node")]
        self.assertTrue(all([f"node{node:03}", "64"] in rows for node in range(1, 65)))
        self.assertTrue(all([f"node{node:03}", str(gpu)] in rows for node in range(1, 65) for gpu in range(4)))


if __name__ == "__main__":
    unittest.main()
