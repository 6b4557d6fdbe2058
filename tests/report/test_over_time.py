"""What pages and exports have over time beside the job itself: its busiest steps, its GPUs, its nodes. A real Prometheus and a recording have the
same samples, written by hand.

Needs Prometheus.
"""

import csv
import re
import time
import unittest

from tools import Ran, Samples, program, scratch, server_of_files

GIB = 1 << 30
BEGIN = int(time.time()) // 60 * 60 - 3600
END = BEGIN + 1800
INTERVAL, RETAINED = 30, 120
CPUS = 8
# Of each step the begin and the end, how many CPUs it used, and what it held. Eight did next to nothing: a plot has seven lines.
STEPS = {"batch": (0, 1800, 0.25, GIB), "0": (0, 900, 4, 2 * GIB), "1": (900, 1800, 6, 3 * GIB)} | {str(step): (600, 1200, 0.01, 4096) for step in range(2, 10)}
SHOWN = ("batch", "0", "1")


def samples():
    samples, after = Samples(), range(END + 5, END + RETAINED, INTERVAL)
    times = [*range(BEGIN + 15, END, INTERVAL), *after]
    for node in ("n1", "n2"):
        of_node = f'instance="{node}:9810"'

        def put(name, labels, times, value):
            samples.put(name, f'jobid="7",{of_node}' + labels, times, value)

        put("jobledger_job_info", ',user="alice"', times, 1)
        put("jobledger_job_start_time_seconds", "", times, BEGIN)
        put("jobledger_job_end_time_seconds", "", after, END)
        put("jobledger_job_cpus", "", times, CPUS)
        put("jobledger_job_gpus", "", times, 1)
        put("jobledger_job_allocated_cpu_seconds_total", "", times, lambda at: CPUS * (min(at, END) - BEGIN))
        put("jobledger_job_cpu_seconds_total", ',mode="user"', times, lambda at: 5 * (min(at, END) - BEGIN))
        put("jobledger_job_energy_joules_total", ',domain="package",socket="0",method="alone"', times, lambda at: 200 * (min(at, END) - BEGIN))
        put("jobledger_job_core_energy_joules_total", ',socket="0"', times, lambda at: 50 * (min(at, END) - BEGIN))
        put("jobledger_job_process_io_syscalls_total", ',direction="read"', times, lambda at: 7 * (min(at, END) - BEGIN))
        for step, (begin, end, cpus, held) in STEPS.items():
            begin, end = BEGIN + begin, BEGIN + end
            while_there = [at for at in times if begin < at <= end]
            of_step = f',step="{step}"'
            put("jobledger_step_cpu_seconds_total", f'{of_step},mode="user"', [at for at in times if at > begin],
                lambda at, begin=begin, end=end, cpus=cpus: round(cpus * (min(at, end) - begin), 3))
            put("jobledger_step_memory_anon_bytes", of_step, while_there, held / 2)
            put("jobledger_step_memory_shmem_bytes", of_step, while_there, held / 2)
            put("jobledger_task_cpu_seconds_total", f'{of_step},task="0",mode="user"', [at for at in times if at > begin], 1e6)
        put("jobledger_job_gpu_info", ',gpu="0",uuid="GPU-a",model="H100",minor="0"', times, 1)
        put("jobledger_job_gpu_allocated_seconds_total", ',gpu="0",uuid="GPU-a"', times, lambda at: min(at, END) - BEGIN)
        put("jobledger_job_gpu_energy_joules_total", ',gpu="0",uuid="GPU-a",method="whole"', times, lambda at: 100 * (min(at, END) - BEGIN))
        # These go on whatever job has the GPU and the node, and began before this one. The other GPU is another job's.
        for gpu, times_faster in (("0", 1), ("1", 100)):
            def put_gpu(name, labels, value, gpu=gpu):
                samples.put(name, f'gpu="{gpu}",uuid="GPU-{"ab"[int(gpu)]}",{of_node}{labels}', times, value)

            put_gpu("jobledger_gpu_info", "", 1)
            put_gpu("jobledger_gpu_throttle_seconds_total", ',reason="sw_power_cap"', lambda at, faster=times_faster: 5000 + faster * (at - BEGIN) / 4)
            put_gpu("jobledger_gpu_throttle_seconds_total", ',reason="thermal"', 3)
            put_gpu("jobledger_gpu_ecc_errors_total", ',since="load",type="corrected",location="dram"', lambda at: 10 + (at - BEGIN) / 2)
            put_gpu("jobledger_gpu_ecc_errors_total", ',since="load",type="corrected",location="sram"', lambda at: 20 + (at - BEGIN) / 2)
            put_gpu("jobledger_gpu_ecc_errors_total", ',since="life",type="corrected",location="dram"', lambda at: 30 + (at - BEGIN) * 9)
            put_gpu("jobledger_gpu_utilization_ratio", ',engine="memory"', 0.5)
            put_gpu("jobledger_gpu_utilization_ratio", ',engine="encoder"', 0.25)
            put_gpu("jobledger_gpu_fan_speed_ratio", ',fan="0"', 0.75)
            put_gpu("jobledger_gpu_fan_speed_ratio", ',fan="1"', 0.7)
            put_gpu("jobledger_gpu_bar1_bytes", ',state="used"', GIB)
            put_gpu("jobledger_gpu_bar1_bytes", ',state="free"', 7 * GIB)
        samples.put("jobledger_node_cpu_seconds_total", f'{of_node},mode="idle"', times, lambda at: 1e6 + 3 * (at - BEGIN))
        samples.put("jobledger_node_cpu_seconds_total", f'{of_node},mode="user"', times, lambda at: 1e6 + 60 * (at - BEGIN))
        samples.put("jobledger_node_memory_available_bytes", of_node, times, 100 * GIB)
        samples.put("jobledger_node_cpus", of_node, times, 64)
    return samples


class OverTime(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = cls.enterClassContext(scratch("jobledger-over-time"))
        file = cls.directory / "job.om"
        file.write_text("\n".join(samples().lines()))
        server = cls.enterClassContext(server_of_files(file))
        cls.program = program()
        cls.sources = {"server": (f"http://{server.address}", ["7", "--no-sacct"]), "recording": (None, ["--recording", str(file)])}

    def written(self, name, source, *arguments):
        url, which = self.sources[source]
        out = self.directory / name
        ran = Ran(self.program, url, *arguments, *which, f"--output={out}")
        self.assertEqual((ran.status, ran.out, ran.err), (0, "", ""))
        return out.read_text()

    def rows(self, source, by, metrics):
        """What is in the middle of the job, by node."""
        text = self.written("job.csv", source, "export", f"--by={by}", "--step=300", f"--metrics={metrics}")
        rows = list(csv.DictReader(text.splitlines()))
        self.assertEqual({row["node"] for row in rows}, {"n1", "n2"})
        self.assertEqual(len(rows), 12)
        return rows

    def test_a_page_has_the_busiest_steps(self):
        for source in self.sources:
            with self.subTest(source):
                page = self.written("job.html", source, "report", "--format=html")
                cpus, held = (re.search(r"<desc>(batch [^<]*)</desc>", page[page.index(title):]).group(1)
                              for title in ("CPUs used by each step", "Memory that each step held"))
                # Both nodes together. A server without marks of staleness shows a step's memory, and so the step, for five minutes more.
                most = {name: float(most) for name, most in re.findall(r"(\S+) [\d.]+ to ([\d.]+), mean", cpus)}
                self.assertEqual(most.keys(), {*SHOWN, "2", "3", "4", "5"})
                for step in SHOWN:
                    self.assertAlmostEqual(most[step], 2 * STEPS[step][2], delta=0.02 * most[step])
                for step in SHOWN:
                    size = f"{2 * STEPS[step][3] // GIB} GiB"
                    self.assertIn(f"{step} {size} to {size}, mean {size}", held)

    def test_energy_of_cores_is_in_that_of_packages(self):
        page = re.sub(r"<[^>]*>", " ", self.written("job.html", "server", "report", "--format=html"))
        table = " ".join(page[page.index("Energy by domain"):].split())
        self.assertIn("Energy of cores, as the CPU measures it: a part of that of packages 50 Wh", " ".join(page.split()))
        self.assertIn("CPU packages 200 Wh 67 % 400 W … of these the cores 50 Wh 17 % 100 W GPUs 100 Wh 33 % 200 W all 300 Wh 100 % 600 W", table)

    def test_exports_have_what_is_of_gpus(self):
        expected = {"gpu_power_throttle_seconds_per_second": 0.25, "gpu_thermal_throttle_seconds_per_second": 0, "gpu_ecc_corrected_per_second": 1,
                    "gpu_memory_utilization_ratio": 0.5, "gpu_encoder_utilization_ratio": 0.25, "gpu_fan_speed_ratio": 0.75, "gpu_bar1_used_bytes": GIB}
        for source in self.sources:
            with self.subTest(source):
                rows = self.rows(source, "gpu", "gpu_*")
                for column, value in expected.items():
                    # The first bin begins before the first reading.
                    for row in [rows[1], rows[3], rows[8], rows[10]]:
                        self.assertAlmostEqual(float(row[column]), value, places=2, msg=column)

    def test_exports_have_what_is_of_the_node(self):
        expected = {"node_cpu_idle_seconds_per_second": 3, "node_memory_available_bytes": 100 * GIB, "syscall_reads_per_second": 7, "energy_core_joules_per_second": 50}
        for source in self.sources:
            with self.subTest(source):
                rows = self.rows(source, "node", "node_*,syscall_r*,energy_core*")
                for column, value in expected.items():
                    for row in [rows[1], rows[3], rows[8], rows[10]]:
                        self.assertAlmostEqual(float(row[column]), value, places=2, msg=column)
                self.assertNotIn("node_cpu_iowait_seconds_per_second", rows[0])


if __name__ == "__main__":
    unittest.main()
