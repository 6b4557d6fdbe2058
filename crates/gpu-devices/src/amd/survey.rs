//! The identity of an AMD GPU, and its division.

use std::sync::Arc;

use super::kfd::Node;
use crate::drm::{Attributes, Card, MAJOR};
use crate::{DeviceNode, Part, Unit, Vendor};

/// Names of models whose boards do not always report one (`product_name`), by PCI device id
/// (drivers/gpu/drm/amd/amdgpu/amdgpu_drv.c; the PCI ID database).
const MODELS: [(u32, &str); 6] = [
    (0x738c, "AMD Instinct MI100"),
    (0x7408, "AMD Instinct MI250X"),
    (0x740c, "AMD Instinct MI250X/MI250"),
    (0x740f, "AMD Instinct MI210"),
    (0x74a0, "AMD Instinct MI300A"),
    (0x74a1, "AMD Instinct MI300X"),
];

/// Sockets with CPU cores, whose energy the firmware counts, too (smu_v13_0_6_pmfw.h, `SocketEnergyAcc` beside `CcdEnergyAcc`).
pub(super) const SOCKETS: [u32; 1] = [0x74a0];
/// Those that are one of two dies of a board.
pub(super) const OF_TWO: [u32; 2] = [0x7408, 0x740c];
/// Aldebaran: its units of energy are known, though the revision of its tables does not show them.
pub(super) const MI200: [u32; 3] = [0x7408, 0x740c, 0x740f];

/// A GPU with its parts.
#[derive(Debug)]
pub(super) struct Surveyed {
    pub(super) unit: Arc<Unit>,
    /// In the order of the partitions.
    pub(super) parts: Vec<Arc<Unit>>,
    /// KFD's nodes: of the parts, or one of the GPU.
    pub(super) nodes: Vec<Node>,
    pub(super) serial: Option<String>,
}

impl Surveyed {
    pub(super) fn new(index: Option<u32>, card: &Card, nodes: Vec<Node>, files: &mut Attributes<'_>) -> Self {
        let unique = files.line(&card.device, "unique_id");
        let serial =
            files.line(&card.device, "serial_number").filter(|serial| Some(serial) != unique.as_ref());
        let uuid: Arc<str> = unique.map_or_else(|| card.pci.clone(), Into::into);
        let known = MODELS.iter().find(|(id, _)| *id == card.device_id).map(|(_, name)| (*name).to_owned());
        let model = files.line(&card.device, "product_name").or(known);
        let model: Arc<str> = model.unwrap_or_else(|| format!("AMD {:#06x}", card.device_id)).into();
        let divided = nodes.len() > 1;
        let unit = Unit {
            vendor: Vendor::Amd,
            uuid: uuid.clone(),
            index,
            minor: Some(card.render),
            pci: Some(card.pci.clone()),
            model,
            nodes: vec![DeviceNode { major: MAJOR, minor: card.render }],
            part: None,
            divided,
        };
        let mut parts = Vec::new();
        if divided {
            let mode =
                files.line(&card.device, "current_compute_partition").unwrap_or_default().to_lowercase();
            let profile: Arc<str> = mode.into();
            let all = nodes.iter().map(|node| node.simds).sum();
            parts.extend(nodes.iter().map(|node| {
                Arc::new(Unit {
                    uuid: format!("{uuid}/{}", node.partition).into(),
                    minor: Some(node.render),
                    nodes: vec![DeviceNode { major: MAJOR, minor: node.render }],
                    part: Some(Part {
                        parent: uuid.clone(),
                        gpu_instance: node.partition,
                        compute_instance: 0,
                        profile: profile.clone(),
                        slices: (all > 0).then_some((node.simds, all)),
                    }),
                    divided: false,
                    ..unit.clone()
                })
            }));
        }
        Self { unit: Arc::new(unit), parts, nodes, serial }
    }
}
