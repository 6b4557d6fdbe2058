//! SLURM's accounting, by `sacct`: what no node knows, such as the state of a job that ended and its time limit. One call for each job, of options
//! that SLURM has had since 20.11 (src/sacct/options.c).

use std::ffi::OsString;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use job_report::{Ended, Job, Origin};

use crate::slurm_command;
use crate::text::harmless;

/// The command that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sacct {
    program: OsString,
    /// It was named, so that its absence is worth a word.
    named: bool,
    timeout: Duration,
    failure: Arc<OnceLock<String>>,
}

/// What a report says where the command failed. Why it did is said once, whatever the number of reports.
pub(super) const NOT_KNOWN: &str =
    "SLURM's accounting does not answer: state, time limit and waiting time are what the nodes know.";

/// A run of a job, as the accounting has it. An empty string is not known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// SLURM's number.
    pub id: u64,
    /// Whose it is.
    pub user: String,
    /// That of the job.
    pub account: String,
    /// That of the job.
    pub partition: String,
    /// That of the job.
    pub qos: String,
    /// When it was submitted, or requeued; seconds since the epoch.
    pub submit: Option<f64>,
    /// From when on it might have run.
    pub eligible: Option<f64>,
    /// When it started.
    pub start: Option<f64>,
    /// When it ended; `None` while it runs.
    pub end: Option<f64>,
    /// `COMPLETED`, `FAILED`, `TIMEOUT`, ...
    pub state: String,
    /// Of the batch script.
    pub exit_code: Option<u64>,
    /// 0 if no signal ended it.
    pub signal: Option<u64>,
    /// Seconds; `None` without a limit.
    pub time_limit: Option<f64>,
    /// Nodes that it got.
    pub nodes: Option<u64>,
    /// Its name.
    pub name: String,
}

/// The fields of a line. The name is last: it holds what its user wants.
const FIELDS: [&str; 14] = [
    "jobidraw",
    "user",
    "account",
    "partition",
    "qos",
    "submit",
    "eligible",
    "start",
    "end",
    "state",
    "exitcode",
    "timelimitraw",
    "nnodes",
    "jobname",
];

impl Sacct {
    /// The one that the configuration means; `None` if none is to be asked.
    pub fn configured(setting: Option<&str>) -> Option<Self> {
        match setting {
            Some("never") => None,
            setting => Some(Self {
                program: setting.unwrap_or("sacct").into(),
                named: setting.is_some(),
                timeout: Duration::from_secs(10),
                failure: Arc::default(),
            }),
        }
    }

    /// Why it failed the first time.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Whether it answers, or why not.
    pub async fn answers(&self) -> Result<(), String> {
        self.ask("1").await.map(drop).map_err(|error| error.to_string())
    }

    /// The runs of a job; without any sacct there are none. `None` if it failed.
    pub async fn records(&self, job: &str) -> Option<Vec<Record>> {
        match self.ask(job).await {
            Ok((text, delimiter)) => Some(parse(&text, &delimiter)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.named => Some(Vec::new()),
            Err(error) => {
                // Of several failures the first one is enough.
                let _ = self.failure.set(error.to_string());
                None
            }
        }
    }

    /// What it prints of a job, and its delimiter.
    async fn ask(&self, job: &str) -> io::Result<(String, String)> {
        // No name of a job can have been made to contain this.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let delimiter = format!("|{now:x}|");
        let arguments = [
            "--parsable",
            "--allocations",
            "--noheader",
            "--duplicates",
            &format!("--delimiter={delimiter}"),
            &format!("--format={}", FIELDS.join(",")),
            &format!("--jobs={job}"),
        ];
        let text = slurm_command::ask(&self.program, &arguments, self.timeout).await?;
        Ok((text, delimiter))
    }
}

/// Reads `sacct --parsable` of [`FIELDS`]: each run ends with the delimiter and a line break, so that a name may hold line breaks. What is no run is
/// left out.
pub fn parse(text: &str, delimiter: &str) -> Vec<Record> {
    text.split(&format!("{delimiter}\n")).filter_map(|line| record(line, delimiter)).collect()
}

fn record(line: &str, delimiter: &str) -> Option<Record> {
    let fields: Vec<&str> = line.splitn(FIELDS.len(), delimiter).collect();
    let [id, user, account, partition, qos, submit, eligible, start, end, state, exit, limit, nodes, name] =
        fields.as_slice()
    else {
        return None;
    };
    let (code, signal) = exit.split_once(':').unwrap_or_default();
    Some(Record {
        id: number(id)?,
        user: harmless(user),
        account: harmless(account),
        partition: harmless(partition),
        qos: harmless(qos),
        submit: time(submit),
        eligible: time(eligible),
        start: time(start),
        end: time(end),
        state: word(state)?,
        exit_code: number(code),
        signal: number(signal),
        time_limit: number(limit).map(|minutes| seconds(minutes) * 60.0),
        nodes: number(nodes),
        name: harmless(name),
    })
}

/// Decimal digits alone; SLURM's own numbers have 32 bits, its times 64.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// `Unknown` and `None` are no times; neither is 0.
fn time(text: &str) -> Option<f64> {
    number(text).filter(|time| *time > 0).map(seconds)
}

#[allow(clippy::cast_precision_loss, reason = "twelve digits")]
fn seconds(number: u64) -> f64 {
    number as f64
}

/// The state without more: `CANCELLED by 1000`.
fn word(text: &str) -> Option<String> {
    let word = text.split(' ').next()?;
    let is_one = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    (!word.is_empty() && word.len() <= 32 && word.bytes().all(is_one)).then(|| word.to_owned())
}

/// A node's clock and the controller's may differ by so much.
const CLOCKS: f64 = 5.0;

/// Adds what the accounting knows to a job. It goes before what follows from the node's facts. A job of another cluster that has the same number is
/// none of its runs: it ran at another time, or is another user's.
pub fn fill(job: &mut Job, records: Vec<Record>) {
    let started = job.start();
    // A number is what the exporter has of a user without a name.
    let user = Some(&job.identity.user).filter(|user| !user.bytes().all(|byte| byte.is_ascii_digit()));
    let is_this = |record: &Record| {
        record.id == job.id
            && record.start.is_some_and(|start| start <= started + CLOCKS)
            && record.end.is_none_or(|end| end >= started - CLOCKS)
            && (record.user.is_empty() || user.is_none_or(|user| *user == record.user))
    };
    let start = |record: &Record| record.start.unwrap_or(0.0);
    let latest = records.into_iter().filter(is_this).max_by(|a, b| start(a).total_cmp(&start(b)));
    let Some(record) = latest else { return };
    if record.end.is_some() {
        let Record { exit_code, signal, .. } = record;
        let signal = signal.filter(|signal| *signal > 0);
        job.ended = Some(Ended { state: record.state, origin: Origin::Accounting, exit_code, signal });
    }
    job.time_limit = record.time_limit.or(job.time_limit);
    job.nodes_allocated = record.nodes.or(job.nodes_allocated);
    let could_begin = record.submit.into_iter().chain(record.eligible).reduce(f64::max);
    let waited = record.start.zip(could_begin).map(|(start, begin)| start - begin);
    job.queued_seconds = waited.filter(|waited| *waited >= 0.0).or(job.queued_seconds);
    let who = &mut job.identity;
    for (known, more) in [
        (&mut who.user, record.user),
        (&mut who.account, record.account),
        (&mut who.partition, record.partition),
        (&mut who.qos, record.qos),
        (&mut who.name, record.name),
    ] {
        if known.is_empty() {
            *known = more;
        }
    }
}

#[cfg(test)]
mod tests;
