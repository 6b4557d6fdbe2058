//! SLURM's accounting, by `sacct`: what no node knows, such as the state of a job that ended and its time limit. One call for each job, of options
//! that SLURM has had since 20.11 (src/sacct/options.c).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use job_report::{Accounted, CLOCKS, Ended, Identity, Job, Origin};

use crate::config;
use crate::slurm_command;
use crate::text::harmless;

/// The command that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sacct {
    program: OsString,
    /// It was named, so that its absence is worth a word.
    named: bool,
    timeout: Duration,
    /// SLURM's names of clusters, by their labels.
    clusters: BTreeMap<String, String>,
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
    /// SLURM's name of its cluster.
    pub cluster: String,
    /// It is of the job's cluster, since that one was asked, or there is only one.
    pub is_of_cluster: bool,
    /// Whose it is: the number.
    pub uid: String,
    /// Whose it is: the name.
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
    /// Seconds that it ran, without those in which it was suspended.
    pub elapsed: Option<f64>,
    /// Seconds in which it was suspended.
    pub suspended: Option<f64>,
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
const FIELDS: [&str; 18] = [
    "jobidraw",
    "cluster",
    "uid",
    "user",
    "account",
    "partition",
    "qos",
    "submit",
    "eligible",
    "start",
    "end",
    "elapsedraw",
    "suspended",
    "state",
    "exitcode",
    "timelimitraw",
    "nnodes",
    "jobname",
];

impl Sacct {
    /// The one that the configuration means; `None` if none is to be asked.
    pub fn configured(slurm: &config::Slurm) -> Option<Self> {
        let setting = slurm.sacct.as_deref();
        (setting != Some("never")).then(|| Self {
            program: setting.unwrap_or("sacct").into(),
            named: setting.is_some(),
            timeout: Duration::from_secs(10),
            clusters: slurm.clusters.clone().unwrap_or_default(),
            failure: Arc::default(),
        })
    }

    /// The same for lists, which do without it: its failure is a warning only if the configuration names it.
    pub fn for_lists(&self) -> Self {
        let failure = if self.named { self.failure.clone() } else { Arc::default() };
        Self { failure, ..self.clone() }
    }

    /// Why it failed the first time.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Whether it answers, or why not.
    pub async fn answers(&self) -> Result<(), String> {
        self.ask("1", None).await.map(drop).map_err(|error| error.to_string())
    }

    /// The runs of jobs, by their numbers, of the cluster with this label; without any sacct, and of a cluster that the configuration does not name
    /// among others, there are none. `None` if it failed.
    pub async fn records(&self, jobs: &str, cluster: Option<&str>) -> Option<Vec<Record>> {
        let named = cluster.and_then(|label| self.clusters.get(label)).map(String::as_str);
        if named.is_none() && cluster.is_some() && !self.clusters.is_empty() {
            return Some(Vec::new());
        }
        match self.ask(jobs, named).await {
            Ok((text, delimiter)) => {
                let mut records = parse(&text, &delimiter);
                for record in &mut records {
                    record.is_of_cluster =
                        named.is_some() || cluster.is_none_or(|cluster| cluster == record.cluster);
                }
                Some(records)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.named => Some(Vec::new()),
            Err(error) => {
                // Of several failures the first one is enough.
                let _ = self.failure.set(error.to_string());
                None
            }
        }
    }

    /// What it prints of jobs, and its delimiter.
    async fn ask(&self, jobs: &str, cluster: Option<&str>) -> io::Result<(String, String)> {
        // No name of a job can have been made to contain this.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let delimiter = format!("|{now:x}|");
        let mut arguments: Vec<String> =
            ["--parsable", "--allocations", "--noheader", "--duplicates"].map(str::to_owned).to_vec();
        arguments.push(format!("--delimiter={delimiter}"));
        arguments.push(format!("--format={}", FIELDS.join(",")));
        arguments.push(format!("--jobs={jobs}"));
        arguments.extend(cluster.map(|name| format!("--clusters={name}")));
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
    let [id, cluster, uid, rest @ ..] = fields.as_slice() else { return None };
    let [user, account, partition, qos, submit, eligible, start, end, elapsed, suspended, rest @ ..] = rest
    else {
        return None;
    };
    let [state, exit, limit, nodes, name] = rest else { return None };
    let (code, signal) = exit.split_once(':').unwrap_or_default();
    Some(Record {
        id: number(id)?,
        cluster: harmless(cluster),
        is_of_cluster: false,
        uid: harmless(uid),
        user: harmless(user),
        account: harmless(account),
        partition: harmless(partition),
        qos: harmless(qos),
        submit: time(submit),
        eligible: time(eligible),
        start: time(start),
        end: time(end),
        elapsed: number(elapsed).map(seconds),
        suspended: clock(suspended),
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

/// `[D-]HH:MM:SS` in seconds (`secs2time_str`, src/common/parse_time.c). No job is suspended for decades.
fn clock(text: &str) -> Option<f64> {
    const MOST: u64 = 1_000_000_000;
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let parts: Vec<u64> = clock.split(':').map(number).collect::<Option<_>>()?;
    let [hours, minutes, rest] = parts.as_slice() else { return None };
    let all = ((number(days)? * 24 + hours) * 60 + minutes) * 60 + rest;
    (all <= MOST).then(|| seconds(all))
}

/// A cgroup begins so many seconds after SLURM's start at most, where it is not certain that a record is of the job's cluster: the prolog runs before.
const LATE: f64 = 300.0;

impl Record {
    /// Whether it may be the run of this cluster, number, user and start. The cgroup of an allocation may appear late, when its first step starts.
    fn fits(&self, id: u64, who: &Identity, started: f64) -> bool {
        let same = |known: &str, other: &str| known.is_empty() || other.is_empty() || known == other;
        // A number is what the exporter has of a user without a name.
        let is_name = |user: &str| !user.bytes().all(|byte| byte.is_ascii_digit());
        let is_user = match self.uid.is_empty() || who.uid.is_empty() {
            true => !is_name(&who.user) || same(&self.user, &who.user),
            false => self.uid == who.uid,
        };
        let (Some(start), true) = (self.start, self.id == id && is_user) else { return false };
        let is_then = start <= started + CLOCKS && self.end.is_none_or(|end| end >= started - CLOCKS);
        let is_alike =
            same(&self.partition, &who.partition) && same(&self.name, &who.name) && started - start <= LATE;
        is_then && (self.is_of_cluster || is_alike)
    }

    /// Whether both are one job: SLURM starts one anew after these states.
    pub(super) fn is_followed(&self) -> bool {
        matches!(
            self.state.as_str(),
            "REQUEUED"
                | "REQUEUE_HOLD"
                | "REQUEUE_FED"
                | "SPECIAL_EXIT"
                | "NODE_FAIL"
                | "PREEMPTED"
                | "BOOT_FAIL"
        )
    }
}

/// The record of a run; `None` if none is certain to be it.
pub fn record_of<'a>(job: &Job, records: &'a [Record]) -> Option<&'a Record> {
    record_of_run((job.id, &job.identity, job.start()), records)
}

/// The same of a run of this number, owner and start.
pub(super) fn record_of_run<'a>(
    (id, who, start): (u64, &Identity, f64),
    records: &'a [Record],
) -> Option<&'a Record> {
    let began = |record: &Record| record.start.unwrap_or(0.0);
    let fitting = records.iter().filter(|record| record.fits(id, who, start));
    fitting.max_by(|a, b| began(a).total_cmp(&began(b)))
}

/// Adds what the accounting knows to a run. It goes before what follows from the node's facts.
pub fn fill(job: &mut Job, records: &[Record]) {
    let Some(record) = record_of(job, records) else { return };
    let record = record.clone();
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
    job.account(Accounted {
        submit: record.submit,
        start: record.start.unwrap_or_else(|| job.start()),
        end: record.end,
        elapsed: record
            .elapsed
            .or_else(|| Some(record.end? - record.start? - record.suspended.unwrap_or(0.0))),
        suspended: record.suspended,
    });
}

#[cfg(test)]
mod tests;
