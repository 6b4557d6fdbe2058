"""The expectations of the test of queries: the jobs, the recorded machines, and the queries without data in the demo."""

# Of the demo (docs/demo.md).
DEMO_JOBS = ["cfd-solver", "lattice", "llm-train", "fine-tune", "mesh-refine", "train-loader", "unit-test", "gpu-test", "sweep", "ocean+ice"]
VARIABLES = {"instance": ".*", "job": ".*", "uuid": ".*", "user": ".*", "account": ".*", "partition": ".*", "gpu_weight": "16", "limit": "50", "bandwidth": "0", "worst": ".*", "ten": ".*", "few": ".*", "ended": ".*", "running": ".*"}

# Recorded machines (tests/fixtures) and invented ones (machines/).
MACHINES = ("v2-slingshot", "v1-lustre2.12", "v2-nfs", "energy-cray", "gpu-mi300", "v2-infiniband", "vm-devices", "trouble", "idle")

# One of them is also a node of another cluster with the same job ids, for queries over all clusters.
TWICE = "idle"
SEVERAL_CLUSTERS = "needs a number that is a job's of two clusters"

# Queries (dashboard, panel, their letters) without data in the demo, or not always, with the reason. They must have data from the machines above.
REASONS = {
    "needs a meter of the whole node (BMC, Cray)": [("energy", "Nodes", "C")],
    "needs a node that was idle once": [("energy", "Idle power", "ABC")],
    "needs a collector that fails, or something lost": [("exporter", "Failures", "A"), ("exporter", "Things lost", "EFG"), ("overview", "Nodes with the most trouble", "E")],
    "needs a GPU that is lost, hot, old, or has errors": [
        ("gpu", "Health", "CG"), ("gpu", "Xid errors", "A"), ("gpu", "Clocks held down", "A"), ("gpu", "Rows replaced and pages retired", "B"), ("gpu", "Link errors", "AB"),
        ("gpu", "Slowed by heat or power", "A"), ("gpu", "Fans and PCIe link", "A"), ("overview", "Nodes with the most trouble", "B")],
    "needs a job with just this trouble, for long enough": [("job-report", "Advice: what to change", "BCDEFGHIJKLMNOQST")],
    SEVERAL_CLUSTERS: [("job-report", "Advice: what to change", "A")],
    "needs a job that has its node for itself for a while": [
        ("job-report", "Read and received", "CDF"), ("job-report", "Written and sent", "CDF"), ("job-report", "Operations", "B")],
    "needs a job on two nodes, and simulated nodes of one seed do not always give their jobs the same numbers": [("job-report", "How well it used what it held", "E")],
    "needs counters given to a profiler": [("job-report", "What happened on each node", "B")],
    "needs the collector procio": [("job-report", "Read and received", "B"), ("job-report", "Written and sent", "B")],
    "needs the collector network": [("job-report", "Read and received", "H"), ("job-report", "Written and sent", "H"), ("node", "No job's part", "F")],
    "needs the collector memory_traffic": [("job-report", "Memory", "B"), ("job-report", "Operational intensity", "B"), ("node", "Memory traffic", "A"),
                                           ("node", "No job's part", "K")],
    "needs the collector node_cpufreq": [("node", "Clock", "A")],
    "needs Lustre": [("job-report", "Read and received", "E"), ("job-report", "Written and sent", "E"), ("job-report", "Operations", "C"), ("node", "Lustre", "AB"), ("node", "Lustre wait", "A"),
                     ("node", "No job's part", "IJ")],
    "needs Slingshot": [("job-report", "Read and received", "G"), ("job-report", "Written and sent", "G"), ("node", "Slingshot", "AB"), ("node", "Links", "B"), ("node", "No job's part", "E")],
    "needs a port with errors, or one that is down": [("node", "InfiniBand errors", "A"), ("overview", "Nodes with the most trouble", "D")],
    "needs a job that SLURM left behind": [("node", "Stale jobs and counters", "A"), ("overview", "Nodes with the most trouble", "F")],
    "needs a node with several CPUs on a core": [("job-report", "CPUs used and held", "C")],
    "needs a node that does not answer": [("overview", "Nodes", "B"), ("node", "annotation", ["Down"])],
    "needs an error or a kill at the right moment": [("job-report", "annotation", ["Xid"]), ("job-report", "annotation", ["Out of memory"]), ("exporter", "annotation", ["Alerts"])],
    "needs a node that was booted a moment ago": [("overview", "annotation", ["Reboots"])],
}
NOT_OF_THE_DEMO = {(dashboard, panel, letter): reason for reason, queries in REASONS.items() for dashboard, panel, letters in queries for letter in letters}

# What the machines do not show either: a test of another kind has it.
NOWHERE = {("energy", "Parts beyond the whole", "A"): "every meter is right", ("job-report", "Advice: what to change", "N"): "no machine runs for ten minutes", ("job-report", "Advice: what to change", "Q"): "no machine counts the back end alone",
           ("job-report", "Advice: what to change", "S"): "on no machine counted cores do nothing", ("job-report", "Advice: what to change", "T"): "CPUs of all machines do the same",
           ("node", "annotation", "Down"): "every machine answers", ("overview", "Nodes", "B"): "every machine answers", ("exporter", "annotation", "Alerts"): "alerts of exporters wait for long",
           ("overview", "annotation", "Reboots"): "no machine says when it was booted", ("job-report", "Steps of the job", "D"): "counters of no machine are divided",
           ("job-report", "Steps of the job", "E"): "counters of no machine are divided"}

# Labels of columns that no machine needs to have, with the reason.
OFTEN_EMPTY = {"sluid": "SLURM 26.05", "reason": "counters or collectors that lack something", "profile": "divided GPUs"}

# (panel, counter of jobs) whose rate a panel of many jobs computes itself, since nothing else would read it.
RAW_RATES = {("Operations per joule", "flops"), ("Operations per joule", "energy_joules")}
