//! The identity of a job, its start and end, what SLURM says of it, and the job directories that SLURM left behind.
//!
//! Reads no file: identity comes from the cgroups' paths, from root's prolog file and from the name service
//! (facts of the job table). Any kernel, no privilege, no cost.

use std::collections::BTreeSet;
use std::sync::Arc;

use exposition::{Family, Profile, Section, SubjectId, Value};
use kernel_files::ReadError;
use slurm_jobs::{Job, NodeSnapshot, Users};

use super::facts;
use crate::collector::interval_reader::IntervalReader;
use crate::collector::{Built, Collector, Entry, SourceError};

static INFO: Family = Family::info("jobledger_job_info")
    .profile(Profile::Lean)
    .labels(&[
        "sluid",
        "uid",
        "user",
        "account",
        "partition",
        "qos",
        "name",
        "array_job_id",
        "array_task_id",
        "het_job_id",
    ])
    .retained()
    .help(
        "Who a job is; what is not known on this node is empty: without \
         the prolog's file there is no account, partition, QOS or name",
    );
static START: Family = Family::gauge("jobledger_job_start_time_seconds")
    .profile(Profile::Lean)
    .retained()
    .help("When the job started on this node, since the epoch; a requeued job starts anew");
static END: Family = Family::gauge("jobledger_job_end_time_seconds")
    .profile(Profile::Lean)
    .retained()
    .help("When the job's cgroup was removed, since the epoch; only of ended jobs that are retained");
static ALONE: Family = Family::counter("jobledger_job_alone_seconds_total").help(
    "Time for which the job had the node for itself: what the node's network, \
     disks, file systems and interconnect counted then is charged to it",
);
static STALE: Family = Family::info("jobledger_node_stale_job_info")
    .profile(Profile::Lean)
    .labels(&["jobid", "sluid"])
    .help("A job's cgroup without any process that SLURM did not remove; it holds nothing but its limits");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "job",
    summary: "Identity, start and end of jobs, and job directories that SLURM left behind",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || [&INFO, &START, &END, &ALONE, &STALE].into_iter().chain(facts::FAMILIES).collect(),
    build: |context| {
        Built::plain(JobCollector {
            users: context.users.clone(),
            interval_reader: context.interval_reader.clone(),
        })
    },
};

struct JobCollector {
    users: Arc<Users>,
    interval_reader: Arc<IntervalReader>,
}

fn text(value: Option<&String>) -> &str {
    value.map_or("", String::as_str)
}

fn number(value: Option<impl ToString>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

/// What else keeps a job's directory closed shows on every other job too.
fn unfollowed() -> SourceError {
    let error = ReadError::Io(rustix::io::Errno::MFILE.raw_os_error());
    SourceError::Io { file: "a job's directory (raise LimitNOFILE)", error }
}

/// Jobs that come and go between two scrapes are missed, and the last reading of those that end.
fn unreported(errno: i32) -> SourceError {
    let file = "inotify: scrapes alone find jobs (raise fs.inotify.max_user_instances)";
    SourceError::Io { file, error: ReadError::Io(errno) }
}

impl JobCollector {
    fn emit(&self, job: &Job, snapshot: &NodeSnapshot, out: &mut Section) {
        let subject = out.subject_since(job.labels(), job.followed_from(snapshot));
        out.push(&START, subject, &[], job.started.unix);
        if let Some(ended) = job.ended {
            out.push(&END, subject, &[], ended.unix);
        }
        out.push(&ALONE, subject, &[], Value::seconds(self.interval_reader.alone(job.run)));
        facts::push(job, subject, out);
        let m = &job.metadata;
        let user = job.uid.and_then(|uid| self.users.name(uid));
        let uid = number(job.uid);
        let [array, task, het] = [number(m.array_job_id), number(m.array_task_id), number(m.het_job_id)];
        let labels = [
            ("sluid", job.sluid.as_ref().map_or("", |sluid| sluid.as_str())),
            ("uid", uid.as_str()),
            ("user", user.as_deref().unwrap_or_else(|| text(m.user.as_ref()))),
            ("account", text(m.account.as_ref())),
            ("partition", text(m.partition.as_ref())),
            ("qos", text(m.qos.as_ref())),
            ("name", text(m.name.as_ref())),
            ("array_job_id", array.as_str()),
            ("array_task_id", task.as_str()),
            ("het_job_id", het.as_str()),
        ];
        // `--metric.job-labels` puts some of these on every series; here they are once already.
        let subject = out.subject(job.labels().filter(|(key, _)| !INFO.labels.contains(key)));
        out.push(&INFO, subject, &labels, 1);
    }
}

impl Collector for JobCollector {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        for job in &snapshot.jobs {
            self.emit(job, snapshot, out);
        }
        // A requeued job may have left several directories: they are one series.
        let stale: BTreeSet<_> = snapshot.stale.iter().map(|job| (job.id, job.sluid)).collect();
        for (id, sluid) in stale {
            let id = number(id);
            let sluid = sluid.as_ref().map_or("", |sluid| sluid.as_str());
            out.push(&STALE, SubjectId::NODE, &[("jobid", id.as_str()), ("sluid", sluid)], 1);
        }
        let (ok, failed) = (snapshot.table.running, snapshot.table.unfollowed);
        match &snapshot.unavailable {
            Some(why) => Err(SourceError::Unsupported { needs: why.clone() }),
            None if failed > 0 => Err(SourceError::Partial { ok, failed, first: Box::new(unfollowed()) }),
            None => snapshot.table.events_refused.map_or(Ok(()), |errno| Err(unreported(errno))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use slurm_jobs::metadata::{Metadata, parse_metadata};
    use slurm_jobs::{JobId, Sluid};

    use super::*;
    use crate::collector::testing::{Bench, Machine, collect, ended, job, snapshot_of};

    fn known(metadata: Metadata) -> Job {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cgroup.procs", "");
        Job { metadata: Arc::new(metadata), ..job(7, machine.v2("job_7"), &[]) }
    }

    #[test]
    fn what_is_not_known_is_empty_and_every_label_is_there() {
        let snapshot = snapshot_of(Machine::new().roots(), vec![known(Metadata::default())]);
        let (outcome, text) = collect(&ENTRY, &snapshot);
        assert_eq!(outcome, Ok(()));
        assert!(
            text.contains(
                "jobledger_job_info{jobid=\"7\",sluid=\"\",uid=\"1001\",user=\"\",account=\"\",partition=\"\",qos=\"\",\
                 name=\"\",array_job_id=\"\",array_task_id=\"\",het_job_id=\"\"} 1\n"
            ),
            "{text}"
        );
        assert!(text.contains("jobledger_job_start_time_seconds{jobid=\"7\"} 1000.0\n"), "{text}");
        assert!(!text.contains("end_time"), "it runs");
    }

    #[test]
    fn an_ended_job_keeps_its_identity_and_start_and_has_an_end() {
        let metadata = parse_metadata(
            b"user=alice\naccount=physics\npartition=main\nqos=normal\nname=a \"b\"\narray_job_id=5\narray_task_id=2\nhet_job_id=4\n",
        );
        let mut job = ended(&known(metadata));
        job.sluid = Sluid::parse(b"sDNHM7VZHTTA00");
        let (_, text) = collect(&ENTRY, &snapshot_of(Machine::new().roots(), vec![job]));
        assert!(
            text.contains(
                "sluid=\"sDNHM7VZHTTA00\",uid=\"1001\",user=\"alice\",account=\"physics\",partition=\"main\",qos=\"normal\",\
                 name=\"a \\\"b\\\"\",array_job_id=\"5\",array_task_id=\"2\",het_job_id=\"4\"} 1\n"
            ),
            "{text}"
        );
        assert!(text.contains("jobledger_job_start_time_seconds{jobid=\"7\"} 1000.0\n"), "{text}");
        assert!(text.contains("jobledger_job_end_time_seconds{jobid=\"7\"} 2000.5\n"), "{text}");
    }

    #[test]
    fn the_name_service_counts_more_than_the_prologs_file() {
        let snapshot = snapshot_of(Machine::new().roots(), vec![known(parse_metadata(b"user=old\n"))]);
        let users = Users::start(Box::new(|uid| (uid == 1001).then(|| "alice".to_owned()))).unwrap();
        users.name(1001);
        users.settle(Duration::from_secs(10));
        let text = Bench::with_users(&ENTRY, &snapshot, users).collect(&snapshot).1;
        assert!(text.contains("user=\"alice\""), "{text}");
    }

    #[test]
    fn a_label_of_every_series_is_on_the_info_once() {
        let mut job = known(parse_metadata(b"account=physics\n"));
        job.labels.push(("account", "physics".to_owned()));
        let text = collect(&ENTRY, &snapshot_of(Machine::new().roots(), vec![job])).1;
        let info = text.lines().find(|l| l.starts_with("jobledger_job_info{")).unwrap();
        assert_eq!(info.matches("account=").count(), 1, "{info}");
        assert!(text.contains("start_time_seconds{jobid=\"7\",account=\"physics\"} "), "{text}");
    }

    #[test]
    fn leftovers_are_exported_once_each() {
        let machine = Machine::new();
        let mut snapshot = snapshot_of(machine.roots(), Vec::new());
        let stale = Arc::new(known(Metadata::default()));
        let unresolved = Job { id: None, sluid: Sluid::parse(b"sDNHM7VZHTTA00"), ..(*stale).clone() };
        snapshot.stale = vec![stale.clone(), stale, Arc::new(unresolved)];
        let text = collect(&ENTRY, &snapshot).1;
        assert_eq!(text.matches("jobledger_node_stale_job_info{").count(), 2, "{text}");
        assert!(text.contains("{jobid=\"7\",sluid=\"\"} 1\n"), "{text}");
        assert!(text.contains("{jobid=\"\",sluid=\"sDNHM7VZHTTA00\"} 1\n"), "{text}");
        assert_eq!(snapshot.stale[0].id, Some(JobId(7)));
    }

    #[test]
    fn without_slurm_retained_jobs_are_reported_and_the_reason_is_given() {
        let mut snapshot = snapshot_of(Machine::new().roots(), vec![ended(&known(Metadata::default()))]);
        snapshot.unavailable = Some("a running slurmd".to_owned());
        let (outcome, text) = collect(&ENTRY, &snapshot);
        assert_eq!(outcome, Err(SourceError::Unsupported { needs: "a running slurmd".to_owned() }));
        assert!(text.contains("jobledger_job_info{"), "{text}");
    }
}
