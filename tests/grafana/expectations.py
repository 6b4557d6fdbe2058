"""The expectations of the test of queries: the jobs, the recorded machines, and the queries without data in the demo."""

# Of the demo (docs/demo.md).
DEMO_JOBS = ["cfd-solver", "lattice", "llm-train", "fine-tune", "mesh-refine", "train-loader", "unit-test", "gpu-test", "sweep", "ocean+ice"]
VARIABLES = {"instance": ".*", "job": ".*", "uuid": ".*", "user": ".*", "account": ".*", "partition": ".*", "gpu_weight": "16", "limit": "50", "bandwidth": "0"}

# Recorded machines (tests/fixtures) and invented ones (machines/).
MACHINES = ("v2-slingshot", "v1-lustre2.12", "v2-nfs", "energy-cray", "gpu-mi300", "v2-infiniband", "vm-devices", "trouble", "idle")

# One of them is also a node of another cluster with the same job ids, for queries over all clusters.
TWICE = "idle"
SEVERAL_CLUSTERS = "needs a number that is a job's of two clusters"

# Queries (dashboard, panel, their letters) without data in the demo, or not always, with the reason. They must have data from the machines above.
REASONS = {
    "needs a meter of the whole node (BMC, Cray)": [("energy", "Whole nodes", "A"), ("energy", "Nodes", "C")],
    "needs a node that was idle once": [("energy", "Idle power of sockets", "A")],
    "needs a collector that fails, or something lost": [("exporter", "Failures", "A"), ("exporter", "Things lost", "EFG")],
    "needs a GPU that is lost, hot, old, or has errors": [
        ("gpu", "Health", "CG"), ("gpu", "Xid errors", "A"), ("gpu", "Clocks held down", "A"), ("gpu", "Rows replaced and pages retired", "B"), ("gpu", "Link errors", "AB"),
        ("gpu", "Slowed by heat or power", "A"), ("gpu", "Fans", "A"), ("job-report", "Clocks held down", "A")],
    "needs a job with just this trouble, for long enough": [("job-report", "Advice", "BCDEFGHIJKL")],
    SEVERAL_CLUSTERS: [("job-report", "Advice", "A")],
    "needs a job that has its node for itself for a while": [
        ("job-report", "Local disks", "AB"), ("job-report", "NFS", "AB"), ("job-report", "Operations", "B"), ("job-report", "InfiniBand, RoCE, Omni-Path", "AB")],
    "needs counters given to a profiler": [("job-report", "What happened on each node", "B")],
    "needs the collector procio": [("job-report", "What processes asked for", "AB")],
    "needs the collector network": [("job-report", "IP packets", "AB"), ("node", "No job's part", "G")],
    "needs the collector memory_traffic": [("job-report", "Memory", "B"), ("job-report", "Operational intensity", "B"), ("node", "Memory traffic", "A"),
                                           ("node", "No job's part", "N")],
    "needs the collector node_cpufreq": [("node", "Clock", "A")],
    "needs Lustre": [("job-report", "Lustre", "AB"), ("job-report", "Operations", "C"), ("node", "Lustre", "AB"), ("node", "Lustre wait", "A"), ("node", "No job's part", "JK")],
    "needs Slingshot": [("job-report", "Slingshot", "AB"), ("node", "Slingshot", "AB"), ("node", "Links", "B"), ("node", "No job's part", "F")],
    "needs a port with errors": [("node", "InfiniBand errors", "A")],
    "needs a job that SLURM left behind": [("node", "Stale jobs and counters", "A")],
    "needs an error or a kill at the right moment": [("job-report", "annotation", ["Xid"]), ("job-report", "annotation", ["Out of memory"])],
}
NOT_OF_THE_DEMO = {(dashboard, panel, letter): reason for reason, queries in REASONS.items() for dashboard, panel, letters in queries for letter in letters}

# Labels of columns that no machine needs to have, with the reason.
OFTEN_EMPTY = {"sluid": "SLURM 26.05", "reason": "counters or collectors that lack something", "profile": "divided GPUs"}

# (panel, counter of jobs) whose rate a panel computes itself: by labels that no rule keeps, or to show single scrapes.
RAW_RATES = {("CPU time by mode", "cpu_seconds"), ("What happened on each node", "alone_seconds")}
