//! Runs: a number of SLURM's names several. A job is requeued, and numbers come again at `MaxJobId` or after a reset.

/// Clocks of nodes and of slurmctld differ by less than this, in seconds. The smallest time between two runs of a number is longer: SLURM holds a
/// requeued job until its credential has expired (`cred_expire`, two minutes if nothing is set).
pub const CLOCKS: f64 = 5.0;

/// When a job ran on a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Start, seconds since the epoch.
    pub start: f64,
    /// End, or when it was last seen.
    pub until: f64,
}

/// A run: its nodes, as indices of what was given, and its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The start on the first node.
    pub start: f64,
    /// The end on the last node.
    pub until: f64,
    /// Indices of its nodes.
    pub nodes: Vec<usize>,
}

/// Divides what nodes saw into runs, the earliest first. Nodes of a run overlap in time, but for their clocks: SLURM starts no run of a job before the
/// one before has ended everywhere (`job_requeue` waits for the epilogs, job_mgr.c). A cgroup may appear late on a node, when the first step starts
/// there.
pub fn runs(seen: &[Seen]) -> Vec<Run> {
    let mut order: Vec<(usize, Seen)> = seen.iter().copied().enumerate().collect();
    order.sort_by(|(_, a), (_, b)| a.start.total_cmp(&b.start));
    let mut found: Vec<Run> = Vec::new();
    for (node, Seen { start, until }) in order {
        match found.last_mut() {
            Some(run) if start <= run.until + CLOCKS => {
                run.until = run.until.max(until);
                run.nodes.push(node);
            }
            _ => found.push(Run { start, until, nodes: vec![node] }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_overlap_are_one_run() {
        let seen = |start, until| Seen { start, until };
        let found = runs(&[seen(500.0, 900.0), seen(0.0, 400.0), seen(10.0, 390.0), seen(700.0, 800.0)]);
        assert_eq!(found.iter().map(|run| run.nodes.clone()).collect::<Vec<_>>(), [vec![1, 2], vec![0, 3]]);
        assert_eq!((found[0].start, found[0].until), (0.0, 400.0));
        assert_eq!((found[1].start, found[1].until), (500.0, 900.0));
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn clocks_of_nodes_differ() {
        let seen = |start| Seen { start, until: start + 2.0 };
        assert_eq!(runs(&[seen(0.0), seen(3.0)]).len(), 1, "a job of two seconds, and clocks three apart");
        assert_eq!(runs(&[seen(0.0), seen(62.0)]).len(), 2);
    }
}
