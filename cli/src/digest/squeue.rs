//! Whether a run of a job that was seen is the one that SLURM runs now, by what squeue says.

use job_report::Job;

/// Options of squeue. The number of an array's last element is also that of the whole array. Without `--noconvert` squeue prints 1024 nodes as `1K`.
pub const QUESTION: [&str; 4] = ["--noheader", "--noconvert", "--array", "--format=%A|%i|%u|%T|%S|%D|%M"];
/// Nodes start a job within seconds of each other.
const SAME_START: f64 = 60.0;
/// A shorter pause matters to no time that is judged.
const PAUSE: f64 = 60.0;

/// The name of the job as scancel takes it, if this run of it runs now, on as many nodes as were seen, is this user's, and was never suspended. squeue
/// was asked and had answered at these times, seconds since the epoch.
///
/// # Errors
/// What it says instead.
pub fn confirmed(answer: &str, job: &Job, (asked, answered): (f64, f64)) -> Result<String, String> {
    let rows = answer.lines().map(|line| line.trim().split('|').collect::<Vec<_>>());
    let of_job: Vec<Vec<&str>> =
        rows.filter(|row| row.first().and_then(|number| number.parse().ok()) == Some(job.id)).collect();
    let other = || {
        let nodes = match job.nodes.len() {
            1 => "1 node".to_owned(),
            several => format!("{several} nodes"),
        };
        format!("squeue does not show that this run of it still runs on {nodes}")
    };
    let [row] = of_job.as_slice() else { return Err(other()) };
    let [_, name, user, state, start, nodes, used] = row.as_slice() else { return Err(other()) };
    let Some(start) = start.parse().ok().filter(|start: &f64| (start - job.start()).abs() <= SAME_START)
    else {
        return Err(other());
    };
    let is_known = *user == job.identity.user && nodes.parse() == Ok(job.nodes.len());
    match *state {
        "RUNNING" if is_known => {}
        "SUSPENDED" if is_known => return Err("squeue says that it is suspended".to_owned()),
        _ => return Err(other()),
    }
    let used = seconds(used).ok_or("squeue does not say for how long it ran")?;
    // It counts until it is asked, by the clock of its host.
    if used < asked - start - PAUSE || used > answered - start + PAUSE {
        let since = ((answered - start) / 60.0).floor();
        let ran = (used / 60.0).floor();
        return Err(format!("it ran for {ran} of the {since} minutes since its start: it was suspended"));
    }
    Ok((*name).to_owned())
}

/// `[days-][hours:]minutes:seconds` (`secs2time_str`, src/common/parse_time.c).
fn seconds(text: &str) -> Option<f64> {
    let (days, time) = text.split_once('-').unwrap_or(("0", text));
    let mut parts = Vec::new();
    for part in time.split(':') {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        parts.push(part.parse::<u32>().ok().filter(|_| is_number).map(f64::from)?);
    }
    let days = f64::from(days.parse::<u32>().ok()?);
    let (hours, minutes, seconds) = match parts.as_slice() {
        [minutes, seconds] => (0.0, *minutes, *seconds),
        [hours, minutes, seconds] => (*hours, *minutes, *seconds),
        _ => return None,
    };
    Some(days * 86_400.0 + hours * 3600.0 + minutes * 60.0 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn times_are_those_of_slurm() {
        for (text, wanted) in [("0:05", 5.0), ("3:00:01", 10_801.0), ("12-00:30:00", 1_038_600.0)] {
            assert_eq!(seconds(text), Some(wanted), "{text}");
        }
        for wrong in ["", "5", "INVALID", "1:2:3:4", "-1:00", "1:-5", "+1:05", "1-"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    /// In one case alone it is the run that was seen, and it ran all the time.
    #[test]
    fn slurm_has_to_say_all_of_it() {
        let job = testing::job();
        let (id, start) = (job.id, job.start());
        let now = start + 7200.0;
        let of = |row: &str| {
            let row = row.replace("ID", &id.to_string()).replace("START", &start.to_string());
            confirmed(&row, &job, (now, now + 2.0))
        };
        assert_eq!(of("ID|7_3|aturing|RUNNING|START|2|2:00:01\n"), Ok("7_3".to_owned()));
        let no = "squeue does not show that this run of it still runs on 2 nodes";
        for row in [
            "",
            "ID|7_3|aturing|PENDING|Unknown|2|0:00",
            "ID|7_3|aturing|COMPLETING|START|2|2:00:01",
            "ID|7_3|aturing|RUNNING|START|1|2:00:01",
            "ID|7_3|eve|RUNNING|START|2|2:00:01",
            "ID|7_3|eve|SUSPENDED|START|2|2:00:01",
            "8|7_3|aturing|RUNNING|START|2|2:00:01",
            "ID|7_3|aturing|RUNNING|START|2",
            "ID|7_3|aturing|RUNNING|1646398560|2|1:00:00",
            "ID|7_3|aturing|RUNNING|START|2|2:00:01\nID|7_4|aturing|RUNNING|START|2|2:00:01",
        ] {
            assert_eq!(of(row), Err(no.to_owned()), "{row}");
        }
        assert_eq!(
            of("ID|7_3|aturing|SUSPENDED|START|2|1:00:00"),
            Err("squeue says that it is suspended".to_owned())
        );
        let paused = "it ran for 90 of the 120 minutes since its start: it was suspended";
        assert_eq!(of("ID|7_3|aturing|RUNNING|START|2|1:30:00"), Err(paused.to_owned()));
        assert!(of("ID|7_3|aturing|RUNNING|START|2|INVALID").unwrap_err().contains("for how long"));
        assert!(of("ID|7_3|aturing|RUNNING|START|2|2:02:00").is_err(), "a clock that is wrong");
    }
}
