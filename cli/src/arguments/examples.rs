//! Examples of each command, for its help and its man page.

pub(super) const PROGRAM: &str = "\
Examples:
  jobledger check                      # what works here
  jobledger report 123                 # a job
  jobledger list                       # your jobs of the last day";

pub(super) const REPORT: &str = "\
Examples:
  jobledger report 123                 # a job
  jobledger report 123_4 --run=1       # the first run of an element of an array
  jobledger report 123 -o job.html     # a page with plots";

pub(super) const LIST: &str = "\
Examples:
  jobledger list --since=7d            # your jobs of a week
  jobledger list --user=all --state=running
  jobledger list --format=parsable --columns=job,elapsed,cpu";

pub(super) const ARRAY: &str = "\
Examples:
  jobledger array 123                  # how its elements differ
  jobledger array 123 --format=json";

pub(super) const COMPARE: &str = "\
Examples:
  jobledger compare 123 124 125        # speed-up and efficiency beside the first one";

pub(super) const WASTE: &str = "\
Examples:
  jobledger waste --by=user            # idle cores of a week
  jobledger waste --by=account --kind=gpu --since=30d";

pub(super) const TOP: &str = "\
Examples:
  jobledger top                        # running jobs, the most idle first
  jobledger top --user=alice --over=1
  jobledger top --once --sort=power    # the table, once";

pub(super) const EXPORT: &str = "\
Examples:
  jobledger export 123 -o job.parquet  # all metrics of each node
  jobledger export 123 -o gpus.csv --by=gpu --metrics=gpu_busy_seconds_per_second,gpu_memory*
  jobledger export 123 -o job.h5 --layout=slurm";

pub(super) const RECORD: &str = "\
Examples:
  jobledger record -- ./application    # until it ends
  jobledger record -i 5 -o run.jsonl -- mpirun ./application
  jobledger report --recording run.jsonl";

pub(super) const SNAPSHOT: &str = "\
Examples:
  jobledger snapshot                   # in a job: what it used so far";

pub(super) const MAIL: &str = "\
Examples:
  jobledger mail --dry-run -s 'Slurm Job_id=123 Name=x Ended' alice";

pub(super) const DIGEST: &str = "\
Examples:
  jobledger digest                     # who would get a mail, and why
  jobledger digest --dry-run --only=alice
  jobledger digest --send";

pub(super) const IDLE_GPUS: &str = "\
Examples:
  jobledger idle-gpus                  # jobs whose GPUs do nothing
  jobledger idle-gpus --dry-run
  jobledger idle-gpus --send";

pub(super) const CHECK: &str = "\
Examples:
  jobledger check
  jobledger check --url=http://prometheus.example.org:9090";

pub(super) const COMPLETIONS: &str = "\
Examples:
  jobledger completions bash           # for ~/.local/share/bash-completion/completions/jobledger";

pub(super) const USAGE: &str = "\
Examples:
  jobledger usage --by=account --since=2026-10-01 --until=2026-11-01
  jobledger usage --by=user --since=7d --format=csv";

pub(super) const ADMIN_COMMENT: &str = "\
Examples:
  jobledger admin-comment --spool      # in EpilogSlurmctld";

pub(super) const SPOOL: &str = "\
Examples:
  jobledger spool                      # what jobledger-spool.service starts";
