//! Units for the tests of binding.

use std::sync::Arc;

use gpu_devices::{DeviceNode, Part, Unit, Vendor};

/// A device node of NVIDIA's.
pub(super) fn node(major: u32, minor: u32) -> DeviceNode {
    DeviceNode { major, minor }
}

/// A whole GPU, `GPU-<minor>`, `/dev/nvidia<minor>`.
pub(super) fn gpu(minor: u32) -> Unit {
    Unit {
        vendor: Vendor::Nvidia,
        uuid: Arc::from(format!("GPU-{minor}")),
        index: Some(minor),
        minor: Some(minor),
        pci: None,
        model: "A100".into(),
        nodes: vec![node(195, minor)],
        part: None,
        divided: false,
    }
}

/// A part of a GPU, `MIG-<minor>-<gi>-<ci>`, with the capability nodes 236:<100 gi> and 236:<100 gi + ci + 1>.
pub(super) fn mig(minor: u32, gi: u32, ci: u32) -> Unit {
    let part = Part {
        parent: Arc::from(format!("GPU-{minor}")),
        gpu_instance: gi,
        compute_instance: ci,
        profile: "1g.10gb".into(),
        slices: Some((1, 7)),
    };
    Unit {
        uuid: Arc::from(format!("MIG-{minor}-{gi}-{ci}")),
        nodes: vec![node(195, minor), node(236, 100 * gi), node(236, 100 * gi + ci + 1)],
        part: Some(part),
        ..gpu(minor)
    }
}
