//! Files of processes. The name in `stat` is the user's: whatever it is, it moves no field.

use kernel_files::processes::parse_pids;
use io_accounting::parse_process_io;
use jobledger_exporter::collector::job::process_totals::parse_smaps_rollup;
use kernel_files::parse::parse_pid_stat;
use slurm_jobs::identity::{parse_boot_time, parse_start_ticks, parse_status, pids};
use jobledger_exporter_fuzz::prefixes_are_read;

pub fn fuzz(bytes: &[u8]) {
    let name: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).take(64).collect();
    let stat = [
        &b"4711 ("[..],
        &name,
        b") S 42 1 1 0 -1 4194560 210 0 4 0 0 3 0 0 20 0 1 0 1053 8101888 533 18446744073709551615\n",
    ]
    .concat();
    let parsed = parse_pid_stat(&stat).expect("a stat with any name");
    assert_eq!((parsed.state, parsed.ppid, parsed.start_ticks, parsed.vsize), (b'S', 42, 1053, 8_101_888));
    assert_eq!(parse_start_ticks(&stat), Some(1053));

    if let Ok(parsed) = parse_pid_stat(bytes) {
        assert_eq!(parse_start_ticks(bytes), Some(parsed.start_ticks), "two readers of one field");
    }
    let owner = parse_status(bytes);
    let printed = [
        owner.parent.map(|parent| format!("PPid:\t{parent}\n")),
        owner.uid.map(|uid| format!("Uid:\t{uid}\t0\t0\t0\n")),
    ];
    assert_eq!(parse_status(printed.into_iter().flatten().collect::<String>().as_bytes()), owner);
    if let Some(boot) = parse_boot_time(bytes) {
        assert_eq!(parse_boot_time(format!("btime {boot}\n").as_bytes()), Some(boot));
    }
    assert!(pids(bytes, 8).len() <= 8);
    assert!(pids(bytes, usize::MAX).starts_with(&pids(bytes, 8)));
    let mut all = Vec::new();
    if parse_pids(bytes, |pid| all.push(pid)).is_ok() {
        let printed: String = all.iter().map(|pid| format!("{pid}\n")).collect();
        let mut again = Vec::new();
        assert!(parse_pids(printed.as_bytes(), |pid| again.push(pid)).is_ok());
        assert_eq!(again, all);
    }
    prefixes_are_read(bytes, parse_process_io);
    prefixes_are_read(bytes, parse_smaps_rollup);
}
