//! What a failed run of a collector shows: the source's error, and what an admin can do about it.

use std::fmt;

use kernel_files::SourceError;

/// A source's error with advice to the admin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectError {
    /// What the source says.
    pub error: SourceError,
    /// What allows it, where the kernel refused.
    advice: Option<&'static str>,
}

impl From<SourceError> for CollectError {
    fn from(error: SourceError) -> Self {
        let advice = match error.lasting() {
            SourceError::Denied { what } => Some(advice(what)),
            _ => None,
        };
        Self { error, advice }
    }
}

impl fmt::Display for CollectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        self.advice.map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl CollectError {
    /// Without what changes from scrape to scrape, for a label: each change of the counts of a partial failure would
    /// make a new series.
    pub fn lasting(&self) -> Self {
        Self { error: self.error.lasting().clone(), advice: self.advice }
    }
}

const PERF: &str =
    "give the exporter CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8), or set kernel.perf_event_paranoid to 0";
const PERF_CGROUPS: &str = "give the exporter CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8) and set kernel.perf_event_paranoid to 2 where it is more (Debian and Ubuntu: there the capability is not enough), or set it to 0";
const CGROUP_FILES: &str =
    "let the exporter's user read the cgroup file system (no stricter mode or LSM rule)";
const NODE_FILES: &str = "let the exporter's service read it (ProcSubset=all, no stricter mode or LSM rule)";
const PROCESSES: &str = "give the exporter CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";

/// What an admin can do, by how the refused file or call begins. The first that fits counts.
const ADVICE: &[(&[&str], &str)] = &[
    (&["cgroup.procs"], "run as root or without a user namespace"),
    (&["cpu.", "cpuacct.", "cpuset.", "memory.", "io.", "blkio.", "pids.", "devices.list"], CGROUP_FILES),
    (
        &["proc/self/mount"],
        "start the exporter with AmbientCapabilities= instead of file capabilities, which make its /proc/self root's, and without hidepid or a stricter LSM rule",
    ),
    (&["/proc/self/"], "mount a procfs for the exporter's service"),
    (&["/proc"], PROCESSES),
    (&["perf events of "], PERF_CGROUPS),
    (
        &["counters of some jobs: no more descriptors"],
        "raise --collector.perf.most-descriptors, or count fewer groups with --collector.perf.groups",
    ),
    (&["RAPL's perf events", "memory controllers' perf events"], PERF),
    (
        &["powercap energy_uj"],
        "energy_uj is root's against PLATYPUS (CVE-2020-8694): give the exporter CAP_PERFMON, which the same counters need through perf, make the files readable for its group by a udev rule, or start it as root",
    ),
    (
        &["hwmon energy"],
        "amd_energy's counters are root's in some versions: make them readable for the exporter's group by a udev rule",
    ),
    (
        &["/dev/ipmi"],
        "start the exporter as root or link the drop-in bmc.conf: it is opened at the start alone, for a helper that holds it",
    ),
    (
        &["Redfish: "],
        "give --collector.energy.redfish-credentials a user that the BMC lets read; what was refused is tried again when the file changes, else more and more seldom",
    ),
    (&["/dev/hsmp"], "let the exporter's service read /dev/hsmp (mode 0644; DeviceAllow=/dev/hsmp r)"),
    (
        &["resctrl"],
        "start the exporter as root or with CAP_SETUID and CAP_SETGID (and ReadWritePaths=/sys/fs/resctrl), for its helper: moving others' tasks is root's",
    ),
    (
        &["NVIDIA's driver"],
        "let the exporter open /dev/nvidiactl and /dev/nvidia* (systemd: DeviceAllow=char-nvidia* rw, no PrivateDevices=)",
    ),
    (
        &["nvml"],
        "run the exporter with CAP_SYS_ADMIN, or load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0 if it is activity",
    ),
    (
        &["/sys/class/drm/card"],
        "let the exporter's service read /sys (no stricter mode or LSM rule); a GPU that is being reset answers so, too",
    ),
    (&["the prolog's files of GPUs"], "make the directory and its files root's, writable by nobody else"),
    (
        &["the device helper ended", "the BMC helper ended"],
        "restart the exporter, which starts its helper anew",
    ),
    (
        &["the programs that guard the devices of jobs"],
        "start the exporter with CAP_SYS_ADMIN and CAP_NET_ADMIN, of which it keeps none itself",
    ),
    (
        &["perf counters' BPF: "],
        "grant CAP_BPF and CAP_PERFMON and let bpf(2) pass SystemCallFilter=, or set --collector.perf.method=cgroup",
    ),
    (
        &["BPF: "],
        "grant CAP_BPF and CAP_NET_ADMIN and let bpf(2) pass SystemCallFilter=; before Linux 5.11 also LimitMEMLOCK=infinity",
    ),
    (&["LIKWID's lock is no regular file"], "remove it, or name the right one with --counters.lock-file"),
    (&["LIKWID's lock may not be looked at"], "let the exporter's user search its directory (mode 0755)"),
    (
        &["lustre stats"],
        "mount -o remount,mode=755 /sys/kernel/debug (and no kernel lockdown), or start the exporter as root after Lustre",
    ),
];

fn advice(what: &str) -> &'static str {
    let fits = |begins: &[&str]| begins.iter().any(|begins| what.starts_with(begins));
    ADVICE.iter().find(|(begins, _)| fits(begins)).map_or(NODE_FILES, |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use kernel_files::Tally;

    use super::*;

    fn denied(what: &str) -> SourceError {
        SourceError::Denied { what: what.to_owned() }
    }

    #[test]
    fn only_what_is_denied_has_advice_and_the_most_special_row_counts() {
        let shown = |error: SourceError| CollectError::from(error).to_string();
        assert_eq!(shown(SourceError::Unsupported { needs: "a GPU".to_owned() }), "unsupported: needs a GPU");
        assert_eq!(shown(denied("/proc/PID/io")), format!("denied: /proc/PID/io; {PROCESSES}"));
        assert_eq!(shown(denied("memory.current")), format!("denied: memory.current; {CGROUP_FILES}"));
        assert_eq!(shown(denied("proc/diskstats")), format!("denied: proc/diskstats; {NODE_FILES}"));
        assert!(shown(denied("proc/self/mountstats")).contains("AmbientCapabilities"));
        assert!(shown(denied("/proc/self/fd")).contains("mount a procfs"));
        assert!(shown(denied("BPF: making a map: not permitted")).contains("CAP_BPF"));
        assert!(shown(denied("powercap energy_uj")).contains("PLATYPUS"));
        assert!(shown(denied("/dev/ipmi0")).contains("bmc.conf"));
        assert!(shown(denied("resctrl's groups")).contains("for its helper"));
        assert!(shown(denied("nvmlGpmSampleGet")).contains("CAP_SYS_ADMIN"));
    }

    #[test]
    fn a_partial_failure_has_the_advice_of_its_first_one() {
        let mut tally = Tally::default();
        tally.note(Ok(()));
        tally.note::<()>(Err(denied("RAPL's perf events")));
        let error = CollectError::from(tally.result().unwrap_err());
        assert_eq!(
            error.to_string(),
            format!("partial: 1 of 2 failed, first denied: RAPL's perf events; {PERF}")
        );
        assert_eq!(error.lasting().to_string(), format!("denied: RAPL's perf events; {PERF}"));
    }

    /// A row behind one that begins like it is never reached.
    #[test]
    fn every_row_is_reached() {
        for (begins, wanted) in ADVICE {
            for begin in *begins {
                assert_eq!(advice(begin), *wanted, "{begin}");
            }
        }
    }
}
