//! Jobs that no node saw because they never ran: SLURM's accounting has those that wait, and those that were cancelled while they did.

use job_report::show::time;

use crate::job_id::JobId;
use crate::source::accounting::{Record, Sacct};
use crate::{Failure, Kind};

/// Why a job was not found: that it never ran, if SLURM says so, else what is known already. `now` is in seconds since the epoch.
pub(super) async fn reason(
    (sacct, cluster): (Option<&Sacct>, Option<&str>),
    id: &JobId,
    now: f64,
    unknown: Failure,
) -> Failure {
    let (Some(sacct), Kind::NotFound) = (sacct, unknown.kind) else { return unknown };
    let mut records = sacct.records(&id.to_string(), cluster).await.unwrap_or_default();
    records.retain(|record| record.is_of_cluster);
    sentence(&records, now).map_or(unknown, |says| Failure::new(Kind::NeverRan, format!("job {id}: {says}")))
}

/// Of the job that had the number last: earlier ones may have run. Elements of an array are submitted together, and one that ran is enough.
fn sentence(records: &[Record], now: f64) -> Option<String> {
    let last = records.iter().filter_map(|record| record.submit).reduce(f64::max)?;
    let mut of_last = records.iter().filter(|record| record.submit == Some(last));
    let record = of_last.clone().next()?;
    if !of_last.all(never_ran) {
        return None;
    }
    Some(match record.end {
        Some(end) => format!("it never ran: {} after it had waited for {}", record.state, time(end - last)),
        None => format!("it has not run yet: {}, and has waited for {}", record.state, time(now - last)),
    })
}

/// Releases of SLURM differ in whether a job that was cancelled while it waited has a start: it is the end then.
fn never_ran(record: &Record) -> bool {
    record.start.is_none() || (record.state == "CANCELLED" && record.start == record.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(state: &str, [submit, start, end]: [Option<f64>; 3]) -> Record {
        Record { state: state.to_owned(), submit, start, end, ..Record::default() }
    }

    #[test]
    fn what_never_ran_says_so() {
        let said = |records: &[Record]| sentence(records, 10_000.0);
        let waits = || record("PENDING", [Some(2800.0), None, None]);
        let ran = |submit| record("COMPLETED", [Some(submit), Some(submit), Some(submit + 60.0)]);
        let cancelled = "it never ran: CANCELLED after it had waited for 01:00:00";
        assert_eq!(
            said(&[record("CANCELLED", [Some(400.0), None, Some(4000.0)])]).as_deref(),
            Some(cancelled)
        );
        let at_its_end = record("CANCELLED", [Some(400.0), Some(4000.0), Some(4000.0)]);
        assert_eq!(said(&[at_its_end]).as_deref(), Some(cancelled));
        let waiting = "it has not run yet: PENDING, and has waited for 02:00:00";
        assert_eq!(said(&[waits()]).as_deref(), Some(waiting));
        // The number came again, or the job was requeued.
        assert_eq!(said(&[ran(100.0), waits()]).as_deref(), Some(waiting));
        assert_eq!(said(&[waits(), ran(5000.0)]), None);
        // An element of the array ran.
        assert_eq!(said(&[waits(), ran(2800.0)]), None);
        assert_eq!(said(&[record("CANCELLED", [Some(1.0), Some(2.0), Some(3.0)])]), None);
        assert_eq!(said(&[]), None);
    }
}
