"""What the test of the queries expects: which jobs it looks at, which recorded machines it needs, and which queries the demo cannot answer."""

# Of the demo (docs/demo.md).
DEMO_JOBS = ["cfd-solver", "lattice", "llm-train", "fine-tune", "mesh-refine", "train-loader", "unit-test"]
VARIABLES = {"instance": ".*", "job": ".*", "uuid": ".*", "user": ".*", "account": ".*", "partition": ".*", "gpu_weight": "16", "limit": "50", "bandwidth": "0"}

MACHINES = {name: [] for name in ("v2-slingshot", "v2-lustre2.15", "energy-cray", "gpu-mi300", "gpu-intel-xe", "v2-infiniband", "vm-devices", "pmu-sapphirerapids",
                                  "slurm26.05-v2-jobs")}

# (dashboard, panel, query): why.
NOT_OF_THE_DEMO = {}

# Thresholds of the dashboards (grafana/src/style.py) and the alerts' settings that they are.
THRESHOLDS = {"CPU_LOW": "cpu_low_ratio", "GPU_LOW": "gpu_low_use_ratio", "MEMORY_NEAR_LIMIT": "memory_near_limit_ratio", "MEMORY_OVER_ASKED": "memory_over_asked_ratio",
              "GPU_IDLE_BUSY_SECONDS": "gpu_idle_busy_seconds", "GPU_SEEN": "gpu_seen_ratio", "SERIAL_LEAST": "cpu_serial_least_cores", "SERIAL_MOST": "cpu_serial_most_cores",
              "NODE_IDLE_CORES": "node_idle_cores", "NODE_BUSY_CORES": "node_busy_cores", "RESIDUAL": "residual_ratio", "SCRAPE_SLOW_SECONDS": "scrape_slow_seconds"}

# (panel, counter of jobs) whose rate is taken by a panel itself: by labels that no rule keeps, or to show scrape by scrape.
RAW_RATES = {("CPU time by mode", "cpu_seconds"), ("What happened on each node", "alone_seconds")}
