//! Every fuzz target, in one program: each by itself would be linked with all of the exporter, which takes longer than fuzzing.
//! `FUZZ_TARGET` names the one that runs.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

macro_rules! targets {
    ($($name:ident)*) => {
        $(mod $name;)*
        const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name::fuzz)),*];
    };
}

targets! {
    accounting
    cgroup_files
    counters
    device_helper
    device_program
    digest
    energy
    event_catalogue
    exposition
    file_systems
    gpu_binding
    gpu_files
    http_config
    interconnect
    ipmi
    job_files
    job_hdf5
    kernel_types
    keyed
    known_work
    listen_address
    mail
    node_files
    numbers
    nvidia
    orders
    pmu_sysfs
    proc_files
    prometheus_answer
    recording
    redfish
    report_formats
    report_pages
    resctrl
    slurm_names
    slurm_texts
    state
    svg_plots
    web_config
    web_request
}

static CHOSEN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    #[allow(clippy::disallowed_methods, reason = "libFuzzer takes the arguments")]
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let Some((_, fuzz)) = TARGETS.iter().find(|(name, _)| *name == wanted) else {
        eprintln!("FUZZ_TARGET is one of {:?}", TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        std::process::exit(2);
    };
    *fuzz
});

fuzz_target!(|bytes: &[u8]| CHOSEN(bytes));
