//! Data of amdgpu's compute driver (KFD): the partitions of a GPU with their render nodes, and memory by process
//! (drivers/gpu/drm/amd/amdkfd/kfd_topology.c and kfd_process.c; partitions since Linux 6.5).

use std::collections::HashMap;

use kernel_files::parse::{ParseError, fields, integer, lines, parse_integer};
use kernel_files::{Dir, Roots};

use crate::drm::Attributes;

/// `properties` of a node of the topology.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties {
    /// PCI domain.
    pub domain: Option<u64>,
    /// Bus, device and function; of a divided GPU with the partition's number in the function.
    pub location_id: Option<u64>,
    /// Of `/dev/dri/renderD<minor>`; of CPUs 0.
    pub drm_render_minor: Option<u64>,
    /// SIMDs that it has.
    pub simd_count: Option<u64>,
}

/// Parses `properties`, a `name value` a line.
pub fn parse_properties(bytes: &[u8]) -> Result<Properties, ParseError> {
    let mut properties = Properties::default();
    for line in lines(bytes) {
        let (number, line) = line?;
        let mut words = fields(line);
        let field = match words.next() {
            Some(b"domain") => &mut properties.domain,
            Some(b"location_id") => &mut properties.location_id,
            Some(b"drm_render_minor") => &mut properties.drm_render_minor,
            Some(b"simd_count") => &mut properties.simd_count,
            _ => continue,
        };
        let value = words.next().and_then(integer);
        *field = Some(value.ok_or(ParseError::new(number, "not an unsigned integer"))?);
    }
    Ok(properties)
}

/// A GPU, or a partition of one, as KFD knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// Its id among the files of processes.
    pub(super) id: u64,
    /// PCI address of the whole GPU.
    pub(super) pci: String,
    /// Which partition; 0 when it is not divided.
    pub(super) partition: u32,
    pub(super) render: u32,
    pub(super) simds: u32,
}

impl Node {
    fn new(id: u64, properties: &Properties) -> Option<Self> {
        let location = u32::try_from(properties.location_id?).ok()?;
        let render = u32::try_from(properties.drm_render_minor?).ok().filter(|minor| *minor > 0)?;
        let (bus, device) = ((location >> 8) & 0xff, (location >> 3) & 0x1f);
        Some(Self {
            id,
            pci: format!("{:04x}:{bus:02x}:{device:02x}.0", properties.domain.unwrap_or_default()),
            // The function of a GPU is 0; Linux 6.5 has the number in the uppermost bits.
            partition: (location & 7) | (location >> 28),
            render,
            simds: u32::try_from(properties.simd_count.unwrap_or_default()).ok()?,
        })
    }
}

/// Every GPU that KFD has. None where it is not built in.
pub(super) fn nodes(roots: &Roots, files: &mut Attributes<'_>) -> Vec<Node> {
    let Ok(dir) = Dir::open(&roots.sys("class/kfd/kfd/topology/nodes")) else { return Vec::new() };
    let mut nodes = Vec::new();
    for entry in dir.directories().unwrap_or_default() {
        let Some(id) = files.number(&dir, &format!("{}/gpu_id", entry.name)).filter(|id| *id > 0) else {
            continue;
        };
        let properties = files.parsed(&dir, &format!("{}/properties", entry.name), parse_properties);
        nodes.extend(properties.and_then(|properties| Node::new(id, &properties)));
    }
    nodes.sort_by(|a, b| (&a.pci, a.partition).cmp(&(&b.pci, b.partition)));
    nodes
}

/// Memory that processes have through KFD: by its id of the GPU, pid and bytes. Every process that uses KFD has a file for
/// every GPU that it may open; only those with memory are on it.
pub(super) fn processes(roots: &Roots, files: &mut Attributes<'_>) -> HashMap<u64, Vec<(u32, u64)>> {
    let mut found: HashMap<u64, Vec<(u32, u64)>> = HashMap::new();
    let Ok(dir) = Dir::open(&roots.sys("class/kfd/kfd/proc")) else { return found };
    for entry in dir.directories().unwrap_or_default() {
        let Some(pid) = integer(entry.name.as_bytes()).and_then(|pid| u32::try_from(pid).ok()) else {
            continue;
        };
        let Ok(process) = dir.open_dir(&entry.name) else { continue };
        for file in process.list().unwrap_or_default() {
            let Some(id) = file.name.strip_prefix("vram_").and_then(|id| integer(id.as_bytes())) else {
                continue;
            };
            if let Some(bytes) = files.parsed(&process, &file.name, parse_integer).filter(|bytes| *bytes > 0)
            {
                found.entry(id).or_default().push((pid, bytes));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_s_number_is_in_the_function() {
        let text = b"cpu_cores_count 0\nsimd_count 152\nlocation_id 49666\ndomain 1\ndrm_render_minor 130\nunique_id 1311768467463790320\n";
        let node = Node::new(7, &parse_properties(text).unwrap()).unwrap();
        let expected = Node { id: 7, pci: "0001:c2:00.0".to_owned(), partition: 2, render: 130, simds: 152 };
        assert_eq!(node, expected);
        let early = Properties {
            location_id: Some(0x3000_c200),
            drm_render_minor: Some(131),
            ..Properties::default()
        };
        let node = Node::new(7, &early).unwrap();
        assert_eq!((node.pci.as_str(), node.partition), ("0000:c2:00.0", 3));
        assert_eq!(
            Node::new(0, &Properties { location_id: Some(0), drm_render_minor: Some(0), ..early }),
            None,
            "a CPU"
        );
    }

    #[test]
    fn torn_properties_are_an_error() {
        assert!(parse_properties(b"simd_count 152\nlocation_id 49").is_err());
        assert!(parse_properties(b"simd_count many\n").is_err());
        assert_eq!(parse_properties(b""), Ok(Properties::default()));
    }
}
