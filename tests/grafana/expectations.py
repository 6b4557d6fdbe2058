"""What the test of the queries expects: which jobs it looks at, which recorded machines it needs, and which queries the demo cannot answer."""

# Of the demo (docs/demo.md).
DEMO_JOBS = ["cfd-solver", "lattice", "llm-train", "fine-tune", "mesh-refine", "train-loader", "unit-test"]
VARIABLES = {"instance": ".*", "job": ".*", "uuid": ".*", "user": ".*", "account": ".*", "partition": ".*", "gpu_weight": "16", "limit": "50", "bandwidth": "0"}

MACHINES = {name: [] for name in ("v2-slingshot", "v2-lustre2.15", "energy-cray", "gpu-mi300", "gpu-intel-xe", "v2-infiniband", "vm-devices", "pmu-sapphirerapids",
                                  "slurm26.05-v2-jobs")}

# (dashboard, panel, query): why.
NOT_OF_THE_DEMO = {}
