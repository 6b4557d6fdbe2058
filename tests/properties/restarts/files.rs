//! Files of the kernel, with the numbers of a history.

use jobledger_testkit::machine::Machine;

const LLITE: &str = "proc/fs/lustre/llite/scratch-ffff8b2c";
const OSC: &str = "proc/fs/lustre/osc/scratch-OST0000-osc-ffff8b2c";

/// A mount whose age is not known: the exporters read at moments of their own.
pub(super) fn nfs(machine: &Machine, bytes: u64) {
    let stats = format!(
        "device s:/a mounted on /a with fstype nfs4 statvers=1.1\n\
         \topts:\trw,vers=4.2,proto=tcp,sec=sys\n\tevents:\t1 1 1 1 1 1\n\
         \tbytes:\t0 0 0 0 {bytes} {bytes} 0 0\n\
         \tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n\txprt:\ttcp 880 0 3 0 2 294 294 0\n\
         \tper-op statistics\n\t  READ: {bytes} {bytes} 0 1 1 0 1 1 0\n\t  WRITE: 0 0 0 0 0 0 0 0 0\n"
    );
    machine.write("proc/self/mountstats", stats);
    machine.write("proc/self/mountinfo", "90 27 0:50 / /a rw - nfs4 s:/a rw,vers=4.2\n");
}

pub(super) fn lustre(machine: &Machine, bytes: u64) {
    let stats = format!("read_bytes {bytes} samples [bytes] 1 4096 {bytes}\nopen {bytes} samples [regs]\n");
    machine.write(format!("{LLITE}/stats"), stats);
    let stats = format!(
        "req_waittime {bytes} samples [usec] 1 9 {bytes} 9\nread_bytes {bytes} samples [bytes] 1 9 {bytes} 9\n"
    );
    machine.write(format!("{OSC}/stats"), stats);
}
