"""The files of a job, read by programs of others: pandas, pyarrow, DuckDB, Python's csv and json, and jsonschema.

What they should find is written down here by hand; crates/job-files/src/sample.rs is the job. Needs python3-venv; the programs come from PyPI.
"""

import csv
import json
import site
import subprocess
import tempfile
import unittest
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tools import example

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)
ENDS = [START + timedelta(seconds=seconds) for seconds in (60, 120, 180, 240, 270)]
NODE = '-b"02",\r\n../\u202eä'
USER = "=cmd|' /C calc'!A0"
NAME = "<script>alert(1)</script>\0\x1b[31m"

# By node, then column. None is a gap, and a whole column of them is not measured there.
WIDE = {
    "b01": {
        "cpu_seconds_per_second": [0.5, 1, 2, 0, 1],
        "cpu_user_seconds_per_second": [0.4, 0.8, 1.6, 0, 0.8],
        "cpu_system_seconds_per_second": [0.1, 0.2, 0.4, 0, 0.2],
        "memory_peak_bytes": [1.1e9, 2.1e9, 3.1e9, 3.1e9, 3.1e9],
        "memory_used_bytes": [1e9, 2e9, 3e9, 3e9, 2.5e9],
        "energy_package_joules_per_second": [100, 100, 100, 100, 100],
        "gpu_busy_seconds_per_second": [1, 1, 1.5, 1.5, 1],
        "gpu_idle_seconds_per_second": [1, 1, 0.5, 0.5, 1],
    },
    NODE: {
        "cpu_seconds_per_second": [1, 1, 1, 1, 1],
        "cpu_user_seconds_per_second": [0.8, 0.8, 0.8, 0.8, 0.8],
        "cpu_system_seconds_per_second": [0.2, 0.2, 0.2, 0.2, 0.2],
        "memory_peak_bytes": [4e9, None, None, 4.2e9, 4.2e9],
        "memory_used_bytes": [4e9, None, None, 4.1e9, 1e9 / 3],
        "energy_package_joules_per_second": [None] * 5,
        "gpu_busy_seconds_per_second": [0.25] * 5,
        "gpu_idle_seconds_per_second": [0.75] * 5,
    },
}
GPUS = {("b01", "0"): [1] * 5, ("b01", "1"): [0, 0, 0.5, 0.5, 0], (NODE, "0"): [0.25] * 5}
COLUMNS = list(WIDE["b01"])


def setUpModule():
    global files, pandas, pyarrow, parquet, duckdb, jsonschema
    python = subprocess.run([ROOT / "grafana" / "environment.sh", HERE / "requirements.txt"], capture_output=True, text=True, check=True)
    # It is made with this Python, so what is in it can be imported here.
    for packages in Path(python.stdout.strip()).parents[1].glob("lib/python3*/site-packages"):
        site.addsitedir(packages)
    import duckdb, jsonschema, pandas, pyarrow  # noqa: E401
    from pyarrow import parquet
    directory = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(directory.cleanup)
    files = Path(directory.name)
    subprocess.run([example("write_sample"), files], cwd=ROOT, check=True)


class Files(unittest.TestCase):
    def assert_values(self, found, expected):
        """Equal to the last digits of a float; None is a gap."""
        found = [None if value is None or value != value else value for value in found]
        self.assertEqual([value is None for value in found], [value is None for value in expected])
        for one, other in zip(found, expected):
            if other is not None:
                self.assertAlmostEqual(one, other, delta=1e-12 * abs(other))


class Csv(Files):
    def test_pandas_reads_times_numbers_and_gaps(self):
        frame = pandas.read_csv(files / "wide-node.csv", parse_dates=["time"])
        self.assertEqual(list(frame.columns), ["time", "node", *COLUMNS])
        self.assertEqual(str(frame["time"].dt.tz), "UTC")
        for node, columns in WIDE.items():
            # What looks like a formula has an apostrophe before it.
            rows = frame[frame["node"] == ("'" + node if node == NODE else node)]
            self.assertEqual([time.to_pydatetime() for time in rows["time"]], ENDS)
            for column, expected in columns.items():
                self.assert_values(rows[column], expected)
        self.assertTrue(all(frame[column].dtype == "float64" for column in COLUMNS if column.startswith("memory")))

    def test_pythons_csv_reads_the_names(self):
        with open(files / "wide-gpu.csv", newline="") as file:
            header, *rows = csv.reader(file)
        self.assertEqual(header, ["time", "node", "gpu", "gpu_busy_seconds_per_second", "gpu_idle_seconds_per_second"])
        self.assertEqual([(row[1].removeprefix("'"), row[2]) for row in rows[::5]], list(GPUS))
        self.assertEqual([row[0] for row in rows[:2]], ["2023-11-14T22:14:20.000Z", "2023-11-14T22:15:20.000Z"])

    def test_no_field_of_text_is_a_formula(self):
        for path in files.glob("*.csv"):
            with open(path, newline="") as file:
                for row in csv.DictReader(file):
                    for key in ("node", "gpu", "metric", "unit"):
                        self.assertFalse(row.get(key, "").startswith(("=", "+", "-", "@", "\t", "\r")), (path, row))

    def test_rows_of_tasks_are_those_of_their_time(self):
        frame = pandas.read_csv(files / "wide-task.csv", parse_dates=["time"])
        self.assertEqual(list(frame.columns), ["time", "node", "step", "task", "cpu_seconds_per_second", "memory_used_bytes"])
        self.assertEqual([time.to_pydatetime() for time in frame["time"][:3]], ENDS[1:4])
        # What each task used, by minute.
        used = frame.groupby("task")["cpu_seconds_per_second"].sum() * 60
        self.assertEqual({task: round(seconds, 9) for task, seconds in used.items()}, {0: 100, 1: 35, 2: 147})

    def test_long_pivoted_is_wide(self):
        long = pandas.read_csv(files / "long-job.csv", parse_dates=["time"])
        wide = pandas.read_csv(files / "wide-job.csv", parse_dates=["time"]).set_index("time")
        self.assertTrue(long.pivot(index="time", columns="metric", values="value")[wide.columns].equals(wide.astype(float)))
        units = dict(zip(long["metric"], long["unit"]))
        self.assertEqual(units["memory_used_bytes"], "bytes")
        self.assertEqual(units["energy_package_joules_per_second"], "joules_per_second")

    def test_duckdb_reads_types_by_itself(self):
        types = dict(duckdb.sql(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM '{files}/wide-job.csv')").fetchall())
        self.assertIn(types["time"], ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"))
        self.assertEqual(types["memory_used_bytes"], "DOUBLE")


class Parquet(Files):
    def test_pyarrow_reads_types_values_and_nulls(self):
        table = parquet.read_table(files / "wide-node.parquet")
        self.assertEqual(table.schema.field("time").type, pyarrow.timestamp("ms", tz="UTC"))
        self.assertFalse(table.schema.field("time").nullable)
        self.assertEqual(table.schema.field("node").type, pyarrow.string())
        self.assertTrue(all(table.schema.field(column).type == pyarrow.float64() for column in COLUMNS))
        rows = table.to_pylist()
        for at, (node, columns) in enumerate(WIDE.items()):
            of = rows[5 * at:5 * at + 5]
            self.assertEqual([row["node"] for row in of], [node] * 5)
            self.assertEqual([row["time"] for row in of], ENDS)
            for column, expected in columns.items():
                self.assert_values([row[column] for row in of], expected)
        self.assertEqual(table["memory_used_bytes"].null_count, 2)

    def test_the_file_is_as_described(self):
        file = parquet.ParquetFile(files / "wide-node.parquet")
        self.assertEqual(file.num_row_groups, 2)
        column = file.metadata.row_group(0).column(COLUMNS.index("memory_used_bytes") + 2)
        self.assertEqual((column.compression, column.path_in_schema), ("ZSTD", "memory_used_bytes"))
        self.assertIn("BYTE_STREAM_SPLIT", column.encodings)
        self.assertTrue({"PLAIN_DICTIONARY", "RLE_DICTIONARY"} & set(file.metadata.row_group(0).column(1).encodings))
        footer = {key.decode(): value.decode() for key, value in file.metadata.metadata.items() if key.startswith(b"jobledger.")}
        self.assertEqual((footer["jobledger.schema"], footer["jobledger.job_id"], footer["jobledger.user"]), ("1", "12345", USER))
        self.assertEqual((footer["jobledger.account"], footer["jobledger.name"], footer["jobledger.cluster"]), ("@physics", NAME, "alpha"))
        self.assertEqual(json.loads(footer["jobledger.units"])["memory_used_bytes"], "bytes")
        self.assertEqual(set(json.loads(footer["jobledger.descriptions"])), set(COLUMNS))

    def test_duckdb_and_pandas_read_the_same(self):
        for layout in ("wide", "long"):
            for by in ("node", "gpu", "job"):
                path = files / f"{layout}-{by}.parquet"
                frame = pandas.read_parquet(path)
                rows = duckdb.sql(f"SELECT * EXCLUDE (time), epoch_ms(time) AS time FROM '{path}'").fetchall()
                self.assertEqual(len(rows), len(frame))
                self.assertEqual(rows[0][-1], 1_700_000_060_000)
                value = "value" if layout == "long" else "gpu_busy_seconds_per_second"
                found, = duckdb.sql(f"SELECT count({value}), sum({value}) FROM '{path}'").fetchall()
                self.assertEqual(found[0], frame[value].count())
                self.assertAlmostEqual(found[1], frame[value].sum(), delta=1e-9 * found[1])
        self.assertEqual(dict(duckdb.sql(f"SELECT gpu, sum(gpu_busy_seconds_per_second) FROM '{files}/wide-gpu.parquet' WHERE node = 'b01' GROUP BY gpu")
                              .fetchall()), {"0": 5, "1": 1})

    def test_parquet_has_what_csv_has(self):
        for layout in ("wide", "long"):
            for by in ("node", "gpu", "job", "step", "task"):
                a = parquet.read_table(files / f"{layout}-{by}.parquet").to_pylist()
                with open(files / f"{layout}-{by}.csv", newline="") as file:
                    b = list(csv.DictReader(file))
                self.assertEqual(len(a), len(b))
                for one, other in zip(a, b):
                    self.assertEqual(list(one), list(other))
                    self.assertEqual(one["time"], datetime.fromisoformat(other["time"]))
                    for key in one.keys() - {"time"}:
                        expected = "" if one[key] is None else one[key]
                        found = other[key].removeprefix("'") if isinstance(expected, str) else float(other[key])
                        self.assertEqual(found, expected, (layout, by, key))

    def test_rates_times_bins_are_totals(self):
        seconds = {end: length for end, length in zip(ENDS, (60, 60, 60, 60, 30))}
        rows = parquet.read_table(files / "wide-job.parquet").to_pylist()
        total = sum(row["cpu_seconds_per_second"] * seconds[row["time"]] for row in rows)
        self.assertAlmostEqual(total, 240 + 270)


class Json(Files):
    def test_the_document(self):
        document = json.loads((files / "report.json").read_text())
        self.assertEqual((document["schema"], document["job"]["id"], document["job"]["identity"]["name"]), (1, 12345, NAME))
        self.assertEqual([node["name"] for node in document["job"]["nodes"]], list(WIDE))
        curves = document["curves"]
        self.assertEqual([datetime.fromtimestamp(end, timezone.utc) for end in curves["ends"]], ENDS)
        self.assertEqual(list(curves["metrics"]), COLUMNS)
        for column in (name for name in COLUMNS if not name.startswith("gpu_")):
            for series in curves["metrics"][column]["series"]:
                self.assertIsNone(series["gpu"])
                self.assert_values(series["values"], WIDE[series["node"]][column])
        busy = curves["metrics"]["gpu_busy_seconds_per_second"]["series"]
        for series, (gpu, expected) in zip(busy, GPUS.items(), strict=True):
            self.assertEqual((series["node"], series["gpu"]), gpu)
            self.assert_values(series["values"], expected)


class ClusterCockpit(Files):
    def setUp(self):
        self.at = files / "archive" / "alpha" / "12" / "345" / "1700000000"
        self.meta, self.data = (json.loads((self.at / name).read_text()) for name in ("meta.json", "data.json"))

    def test_schemas(self):
        schema = json.loads((HERE / "clustercockpit.json").read_text())
        for name, document in (("meta", self.meta), ("data", self.data)):
            jsonschema.Draft202012Validator.check_schema(schema)
            jsonschema.Draft202012Validator(schema | {"$ref": f"#/$defs/{name}"}).validate(document)
        broken = self.meta | {"jobState": "running"}
        with self.assertRaises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(schema | {"$ref": "#/$defs/meta"}).validate(broken)

    def test_numbers(self):
        self.assertEqual(self.meta["tags"], [{"type": "missing", "name": "flops_any"}, {"type": "missing", "name": "mem_bw"}])
        used = self.data["mem_used"]["node"]["series"]
        self.assertEqual([series["hostname"] for series in used], list(WIDE))
        for series in used:
            gigabytes = [value and value / 1e9 for value in WIDE[series["hostname"]]["memory_used_bytes"]]
            self.assert_values(series["data"], gigabytes)
            known = [value for value in gigabytes if value is not None]
            self.assertAlmostEqual(series["statistics"]["max"], max(known))
            self.assertAlmostEqual(series["statistics"]["min"], min(known))
        for series in self.data["cpu_user"]["node"]["series"]:
            # Of four CPUs.
            self.assert_values(series["data"], [25 * value for value in WIDE[series["hostname"]]["cpu_user_seconds_per_second"]])
        for series, (gpu, busy) in zip(self.data["acc_utilization"]["accelerator"]["series"], GPUS.items(), strict=True):
            self.assertEqual(series["hostname"], gpu[0])
            self.assert_values(series["data"], [100 * value for value in busy])
        self.assertNotIn("flops_any", self.data)


class Supremm(Files):
    def test_statistics(self):
        document = json.loads((files / "supremm.json").read_text())
        self.assertEqual(document["_id"], "12345-1700000270")
        self.assertEqual((document["acct"]["user"], document["acct"]["host_list"]), (USER, list(WIDE)))
        user = document["cpu"]["jobcpus"]["user"]
        ratios = pandas.Series([192 / 1080, 216 / 1080])
        for key, expected in (("avg", ratios.mean()), ("min", ratios.min()), ("max", ratios.max()), ("med", ratios.median()),
                              ("cov", ratios.std() / ratios.mean()), ("krt", -2)):
            self.assertAlmostEqual(user[key], expected)
        self.assertEqual((user["cnt"], type(user["cnt"])), (2, int))
        self.assertEqual(document["uncperf"], {"error": 1})


class Anonymous(Files):
    def test_names_are_tokens(self):
        with open(files / "anonymous.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        names = [row["node"] for row in rows]
        self.assertEqual(len(set(names)), 2)
        self.assertTrue(all(name.startswith("node-") and len(name) == 21 for name in names))
        self.assert_values([float(row["cpu_seconds_per_second"]) for row in rows[:5]], WIDE["b01"]["cpu_seconds_per_second"])


if __name__ == "__main__":
    unittest.main()
