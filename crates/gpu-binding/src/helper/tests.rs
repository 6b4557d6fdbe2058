use jobledger_testkit::scratch::Scratch;

use super::*;

fn roots(scratch: &Scratch) -> Roots {
    let at = |name| scratch.path().join(name);
    Roots::new(at("proc"), at("sys"), at("cgroup"), at("dev"))
}

fn put(scratch: &Scratch, file: &str, text: &str) {
    let path = scratch.path().join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_gpu_is_a_node_a_driver_or_a_card_and_a_management_controller_is_none() {
    for (files, expected) in [
        (&[][..], false),
        (&[("dev/null", "")], false),
        (&[("dev/nvidia0", "")], true),
        (&[("dev/nvidiactl", "")], true),
        (&[("dev/dri/renderD128", "")], true),
        (&[("dev/dri/card0", "")], false),
        (&[("proc/driver/nvidia/version", "")], true),
        (
            &[("sys/bus/pci/devices/a/class", "0x030200\n"), ("sys/bus/pci/devices/a/vendor", "0x10de\n")],
            true,
        ),
        (
            &[("sys/bus/pci/devices/a/class", "0x038000\n"), ("sys/bus/pci/devices/a/vendor", "0x1002\n")],
            true,
        ),
        (
            &[("sys/bus/pci/devices/a/class", "0x030000\n"), ("sys/bus/pci/devices/a/vendor", "0x1a03\n")],
            false,
        ),
        (
            &[("sys/bus/pci/devices/a/class", "0x020000\n"), ("sys/bus/pci/devices/a/vendor", "0x8086\n")],
            false,
        ),
    ] {
        let scratch = Scratch::new("helper-gpu");
        files.iter().for_each(|(file, text)| put(&scratch, file, text));
        assert_eq!(has_gpu(&roots(&scratch)), expected, "{files:?}");
    }
}

#[test]
fn it_is_not_started_where_it_cannot_matter_and_that_is_said() {
    let scratch = Scratch::new("helper-matters");
    let why = || start_where_it_matters(&roots(&scratch), None).unwrap_err().to_string();
    assert_eq!(why(), "unsupported: needs cgroup v2");
    put(&scratch, "cgroup/unified/cgroup.controllers", "");
    assert_eq!(why(), "unsupported: needs a GPU");
    put(&scratch, "dev/nvidia0", "");
    let why = std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            privileges::drop_capabilities(CapabilitySet::NET_ADMIN).unwrap();
            why()
        });
        refused.join().unwrap()
    });
    assert_eq!(why, "denied: the programs that guard the devices of jobs");
}
