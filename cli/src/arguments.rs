//! The command line: help, man pages and completions come from here.

mod examples;
mod export;
mod record;
mod usage;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::export::{Export, ExportBy, ExportLayout};
pub use self::record::{OfNode, Record};
pub use self::usage::{Usage, UsageBy, UsageFormat};
use crate::Failure;
use crate::digest::policies;
use crate::job_id::JobId;

/// Reports of SLURM jobs, from what the Jobledger exporter measured
#[derive(Debug, Parser)]
#[command(name = "jobledger", version, about, arg_required_else_help = true, after_help = examples::PROGRAM)]
pub struct Arguments {
    /// What is common to all commands.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What is common to all commands.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of all commands")]
pub struct Common {
    /// The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration
    #[arg(long, global = true, env = "JOBLEDGER_URL", hide_env = true, value_name = "URL")]
    pub url: Option<String>,
    /// Credentials and TLS for the server, in the format of promtool's --http.config.file
    #[arg(
        long = "http.config.file",
        global = true,
        env = "JOBLEDGER_HTTP_CONFIG_FILE",
        hide_env = true,
        value_name = "FILE"
    )]
    pub http_config_file: Option<PathBuf>,
    /// The cluster, where the server has several
    #[arg(long, global = true, env = "JOBLEDGER_CLUSTER", hide_env = true, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml
    #[arg(long, global = true, env = "JOBLEDGER_CONFIG", hide_env = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]
    #[arg(long, global = true, value_name = "TIME")]
    pub since: Option<String>,
    /// The latest time to look at
    #[arg(long, global = true, value_name = "TIME", default_value = "now")]
    pub until: String,
    /// The time zone of times that are shown and given, such as Europe/Berlin [default: the system's]
    #[arg(long, global = true, value_name = "NAME")]
    pub tz: Option<String>,
    /// Seconds for a query and its answer
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub timeout: Option<u32>,
    /// Does not ask sacct for state, time limit and waiting time
    #[arg(long, global = true)]
    pub no_sacct: bool,
    /// Shows each query, with its time and the size of its answer, on the standard error
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// When to colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: When,
    /// Columns of a report as text [default: the terminal's, 120 at most; 80 without one]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(60..=400))]
    pub width: Option<u16>,
    /// No characters beyond ASCII in a report as text
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always"
    )]
    pub ascii: Ascii,
}

/// When a report has no characters beyond ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Ascii {
    /// Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Common {
    /// The same for another process of this program, but for `--until`, `--verbose` and `--color`.
    pub(crate) fn again(&self) -> Vec<OsString> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.clone().into_os_string());
        let text = |text: &Option<String>| text.as_ref().map(OsString::from);
        let number = |number: Option<u32>| number.map(|number| number.to_string().into());
        let values = [
            ("--url=", text(&self.url)),
            ("--http.config.file=", path(&self.http_config_file)),
            ("--cluster=", text(&self.cluster)),
            ("--config=", path(&self.config)),
            ("--since=", text(&self.since)),
            ("--tz=", text(&self.tz)),
            ("--timeout=", number(self.timeout)),
            ("--width=", number(self.width.map(u32::from))),
            ("--ascii=", self.ascii.to_possible_value().map(|value| value.get_name().into())),
        ];
        let joined = values.into_iter().filter_map(|(option, value)| {
            let mut whole = OsString::from(option);
            whole.push(value?);
            Some(whole)
        });
        joined.chain(self.no_sacct.then(|| "--no-sacct".into())).collect()
    }
}

/// When something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless $NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// What jobs used of what they had, and what to change
    #[command(after_help = examples::REPORT)]
    Report(Report),
    /// Jobs, a line each
    #[command(after_help = examples::LIST)]
    List(List),
    /// How the elements of an array differ
    #[command(after_help = examples::ARRAY)]
    Array(Array),
    /// Jobs side by side, and how well they scale
    #[command(after_help = examples::COMPARE)]
    Compare(Compare),
    /// What ended jobs held and did not use
    #[command(after_help = examples::WASTE)]
    Waste(Waste),
    /// What users, accounts, partitions or nodes held and used, from the counters of owners
    #[command(after_help = examples::USAGE)]
    Usage(Usage),
    /// What running jobs do now, live
    #[command(after_help = examples::TOP)]
    Top(Top),
    /// A job's data as a file for other programs
    #[command(after_help = examples::EXPORT)]
    Export(Export),
    /// Records what the node's exporter shows of the job that this runs in, for reports and exports without a server
    #[command(after_help = examples::RECORD)]
    Record(Record),
    /// What the job that this runs in used on this node so far, as a line of JSON
    #[command(after_help = examples::SNAPSHOT)]
    Snapshot(OfNode),
    /// SLURM's mail of a job, with its report: what MailProg of slurm.conf starts
    #[command(after_help = examples::MAIL)]
    Mail(Mail),
    /// Stores what a job used in SLURM's AdminComment: what EpilogSlurmctld of slurm.conf starts
    #[command(after_help = examples::ADMIN_COMMENT)]
    AdminComment(AdminComment),
    /// Does what mail --spool and admin-comment --spool left to it, until it is ended: a service
    #[command(after_help = examples::SPOOL)]
    Spool,
    /// Mails users what their ended jobs wasted, by a file of policies
    #[command(after_help = examples::DIGEST)]
    Digest(Digest),
    /// Mails users whose running jobs have idle GPUs, and cancels such jobs where the site wants that
    #[command(after_help = examples::IDLE_GPUS)]
    IdleGpus(Digest),
    /// What of this program works here, and what would change it
    #[command(after_help = examples::CHECK)]
    Check,
    /// Completions for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The man page of this program, or of a command
    #[command(hide = true)]
    Man {
        /// The command
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
    /// The page docs/cli-flags.md
    #[command(hide = true)]
    Flags,
}

/// `jobledger report`
#[derive(Debug, Args)]
pub struct Report {
    /// Jobs: 123, 123_4, 123+1, 123.0, an SLUID, or slurm-123.out [default: this job, $SLURM_JOB_ID]
    #[arg(value_name = "JOB")]
    pub jobs: Vec<JobId>,
    /// How it is shown [default: as the ending of --output says, without one text]
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Writes to a file instead of the standard output. Its ending says the format: .txt, .json, .md, .html, .pdf
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Which run of a requeued job, from 1 [default: the last]
    #[arg(long, value_name = "N")]
    pub run: Option<usize>,
    /// Waits until the job's end was scraped, so many seconds at most
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub wait: Option<u32>,
    /// From these files of record instead of a server
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "wait")]
    pub recording: Vec<PathBuf>,
}

/// How a report is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For a terminal
    Text,
    /// All that is known
    Json,
    /// For tickets and wikis
    Markdown,
    /// A page with plots for a browser, in one file
    Html,
    /// The same for paper
    #[cfg(feature = "pdf")]
    Pdf,
    /// The lines of seff
    Seff,
    /// The page of jobstats
    Jobstats,
    /// What jobstats --json prints
    JobstatsJson,
    /// What jobstats stores in SLURM's AdminComment
    JobstatsBlob,
}

impl Format {
    /// The one that the ending of a file means; `None` if it has none.
    pub(crate) fn by_ending(path: &Path) -> Result<Option<Self>, Failure> {
        let Some(ending) = path.extension() else { return Ok(None) };
        match ending.to_ascii_lowercase().to_str() {
            Some("txt") => Ok(Some(Self::Text)),
            Some("json") => Ok(Some(Self::Json)),
            Some("md") => Ok(Some(Self::Markdown)),
            Some("html" | "htm") => Ok(Some(Self::Html)),
            #[cfg(feature = "pdf")]
            Some("pdf") => Ok(Some(Self::Pdf)),
            _ => Err(Failure::usage(format!(
                "{}: the name has to end in .txt, .json, .md, .html or .pdf, or --format says the format",
                path.display()
            ))),
        }
    }

    /// Several of it in a file are none.
    pub(crate) fn is_whole_file(self) -> bool {
        match self {
            Self::Html => true,
            #[cfg(feature = "pdf")]
            Self::Pdf => true,
            _ => false,
        }
    }
}

/// `jobledger list`
#[derive(Debug, Args)]
pub struct List {
    /// Jobs, in the forms of report [default: all of the user]
    #[arg(value_name = "JOB")]
    pub jobs: Vec<JobId>,
    /// Jobs of this user, or all [default: your own]
    #[arg(short, long, value_name = "NAME")]
    pub user: Option<String>,
    /// Jobs of this account
    #[arg(short = 'A', long, value_name = "NAME")]
    pub account: Option<String>,
    /// Jobs in this partition
    #[arg(short, long, value_name = "NAME")]
    pub partition: Option<String>,
    /// Elements of this array
    #[arg(short, long, value_name = "NUMBER")]
    pub array: Option<u64>,
    /// Jobs that run, or that ended
    #[arg(short, long, value_name = "STATE")]
    pub state: Option<JobState>,
    /// How they are listed
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: ListFormat,
    /// Which columns, in their order: job, user, account, partition, name, state, start, elapsed, nodes, cpus, cpu, memory, peak, gpus, gpu, time,
    /// energy, advice
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    pub columns: Vec<String>,
}

/// Which jobs are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum JobState {
    /// Running
    Running,
    /// Ended
    Ended,
}

/// How jobs are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// A table
    Text,
    /// Fields with | between them, as sacct --parsable2; seconds, bytes, joules, and ratios of 0 to 1
    Parsable,
    /// JSON
    Json,
}

/// Which jobs of a cluster.
#[derive(Debug, Clone, Args)]
pub struct Whose {
    /// Jobs of this user [default: all that you may see]
    #[arg(short, long, value_name = "NAME")]
    pub user: Option<String>,
    /// Jobs of this account
    #[arg(short = 'A', long, value_name = "NAME")]
    pub account: Option<String>,
    /// Jobs in this partition
    #[arg(short, long, value_name = "NAME")]
    pub partition: Option<String>,
}

/// `jobledger waste`
#[derive(Debug, Args)]
pub struct Waste {
    /// What is added up
    #[arg(short, long, value_name = "WHAT", default_value = "job")]
    pub by: By,
    /// What the most of comes first
    #[arg(short, long, value_name = "KIND", default_value = "cpu")]
    pub kind: Kind,
    /// How many are shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Whose.
    #[command(flatten)]
    pub whose: Whose,
    /// How it is shown
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: ListFormat,
}

/// What waste is added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Each job
    Job,
    /// Users
    User,
    /// Accounts
    Account,
    /// Partitions
    Partition,
}

/// A kind of waste.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Cores that did not work
    Cpu,
    /// GPUs on which nothing ran
    Gpu,
    /// Memory above the highest peak of a node
    Memory,
}

/// `jobledger top`
#[derive(Debug, Args)]
pub struct Top {
    /// Whose.
    #[command(flatten)]
    pub whose: Whose,
    /// What comes first
    #[arg(short, long, value_name = "COLUMN", default_value = "idle")]
    pub sort: TopSort,
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(5..=3600))]
    pub delay: u32,
    /// Minutes over which what jobs use is a mean: some scrapes. Of a younger job it is the mean since its start
    #[arg(long, value_name = "MINUTES", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub over: u32,
    /// Prints the table once
    #[arg(short = '1', long)]
    pub once: bool,
}

/// What jobs are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopSort {
    /// Idle GPUs, then idle cores
    Idle,
    /// Idle cores
    Cores,
    /// Memory that is held
    Memory,
    /// Power
    Power,
    /// The earliest start
    Time,
    /// The number
    Job,
}

/// `jobledger array`
#[derive(Debug, Args)]
pub struct Array {
    /// The array's number
    #[arg(value_name = "NUMBER")]
    pub array: u64,
    /// How it is shown
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: ArrayFormat,
}

/// How an array is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ArrayFormat {
    /// Histograms
    Text,
    /// JSON
    Json,
}

/// `jobledger compare`
#[derive(Debug, Args)]
pub struct Compare {
    /// Two to eight jobs, in the forms of report; speed-up and efficiency are beside the first
    #[arg(value_name = "JOB", num_args = 2..=8, required = true)]
    pub jobs: Vec<JobId>,
    /// How they are shown
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: ListFormat,
}

/// `jobledger mail`
#[derive(Debug, Args)]
pub struct Mail {
    /// The subject, as SLURM writes it: it says which job it is and what happened
    #[arg(short, long, value_name = "TEXT", value_parser = any_text())]
    pub subject: String,
    /// Who gets it: addresses with commas between them
    #[arg(value_name = "RECIPIENT", value_parser = any_text())]
    pub recipient: String,
    /// Waits until the job's end was scraped, so many seconds at most
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub wait: u32,
    /// Shows the mail on the standard output and does not send it
    #[arg(long)]
    pub dry_run: bool,
    /// Leaves it to `jobledger spool`. Where that does not run, or has too many, it is sent at once, without a report
    #[arg(long, conflicts_with_all = ["dry_run", "wait"])]
    pub spool: bool,
    /// Sends it without a report, and says why there is none
    #[arg(long, value_name = "WHY")]
    pub without_report: Option<String>,
}

/// A job's name is its user's, and need not be UTF-8.
fn any_text() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|text| text.to_string_lossy().into_owned())
}

/// `jobledger admin-comment`
#[derive(Debug, Args)]
pub struct AdminComment {
    /// The job: 123 or 123_4 [default: that of SLURM's variables, which slurmctld sets for EpilogSlurmctld]
    #[arg(value_name = "JOB")]
    pub job: Option<JobId>,
    /// Waits until the job's end was scraped, so many seconds at most
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub wait: u32,
    /// Leaves it to `jobledger spool`. Where that does not run, or has too many, nothing is stored
    #[arg(long, conflicts_with_all = ["wait", "job"])]
    pub spool: bool,
}

/// `jobledger digest` and `jobledger idle-gpus`. Without an option they show a table.
#[derive(Debug, Args)]
pub struct Digest {
    /// The file of policies
    #[arg(long, value_name = "FILE", default_value = policies::FILE)]
    pub policies: PathBuf,
    /// Sends the mails, and does what the policies say
    #[arg(long, conflicts_with = "dry_run")]
    pub send: bool,
    /// Shows the mails and what would be done, and does nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Of this user alone
    #[arg(long, value_name = "USER")]
    pub only: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_all_commands_are_the_same_for_another_process() {
        let given = [
            "--url=http://x",
            "--http.config.file=/h",
            "--cluster=c",
            "--config=/c",
            "--since=2d",
            "--tz=UTC",
            "--timeout=9",
            "--width=99",
            "--ascii=always",
            "--no-sacct",
        ];
        let parsed = Arguments::parse_from(["jobledger", "spool"].iter().chain(&given));
        assert_eq!(parsed.common.again(), given);
        let left_out = ["--until", "--verbose", "--color", "--help", "--version"];
        let mut command = <Arguments as clap::CommandFactory>::command();
        command.build();
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            let option = format!("--{option}");
            let is_given = given.iter().any(|given| given.split('=').next() == Some(&option));
            assert!(is_given || left_out.contains(&option.as_str()), "{option}");
        }
    }

    #[test]
    fn the_ending_of_a_file_says_the_format() {
        let of = |name: &str| Format::by_ending(Path::new(name));
        assert_eq!(of("a/report.html"), Ok(Some(Format::Html)));
        assert_eq!(of("report.JSON"), Ok(Some(Format::Json)));
        assert_eq!(of("report.x.md"), Ok(Some(Format::Markdown)));
        #[cfg(feature = "pdf")]
        assert_eq!(of("report.pdf"), Ok(Some(Format::Pdf)));
        for name in ["report", "html", ".pdf", "/dev/null", "a.b/report"] {
            assert_eq!(of(name), Ok(None), "{name}");
        }
        for name in ["report.png", "r.xyz", "r.", "r.html.gz"] {
            assert!(
                of(name).unwrap_err().says.starts_with(&format!("{name}: the name has to end in .txt, ")),
                "{name}"
            );
        }
    }
}
