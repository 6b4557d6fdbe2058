//! What is read of a device once, when it appears.

use kernel_files::{Buffer, Dir, label_text};

use super::port::{CASTS, Form, Port, SOURCES, parse_counter, read};

/// What Omni-Path's driver answers 0 for because the link has no such thing, or leaves as it was in the question
/// (drivers/infiniband/hw/hfi1/mad.c, pma_get_ib_portcounters).
const NOT_OF_OMNI_PATH: [&str; 3] =
    ["counters/symbol_error", "counters/VL15_dropped", "counters/port_xmit_wait"];

/// One device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    /// Inode of the directory of its ports.
    pub(super) identity: u64,
    pub(super) driver: String,
    pub(super) board: String,
    pub(super) firmware: String,
    pub(super) ports: Vec<Port>,
}

/// A line that the device may have; empty when it has not, or when it cannot be read.
fn text(dir: &Dir, file: &str, buffer: &mut Buffer) -> String {
    dir.read_record(file, buffer).map(|bytes| label_text(bytes.trim_ascii())).unwrap_or_default()
}

impl Device {
    /// Looks at a device of the class.
    pub(super) fn survey(class: &Dir, name: String, identity: u64, buffer: &mut Buffer) -> Self {
        let driver = class.read_link(&format!("{name}/device/driver")).unwrap_or_default();
        let driver = label_text(driver.rsplit('/').next().unwrap_or_default().as_bytes());
        let omni_path = driver == "hfi1" || (driver.is_empty() && name.starts_with("hfi1_"));
        let mut ports = Vec::new();
        if let Ok(dir) = class.open_link(&format!("{name}/ports")) {
            for entry in dir.directories().unwrap_or_default() {
                if let Ok(port) = dir.open_dir(&entry.name) {
                    ports.extend(survey_port(port, entry.name, omni_path, buffer));
                }
            }
        }
        ports.sort_by_key(|port| (port.number.len(), port.number.clone()));
        Self {
            driver,
            board: text(class, &format!("{name}/board_id"), buffer),
            firmware: text(class, &format!("{name}/fw_ver"), buffer),
            name,
            identity,
            ports,
        }
    }
}

fn survey_port(dir: Dir, number: String, omni_path: bool, buffer: &mut Buffer) -> Option<Port> {
    let identity = dir.stat().ok()?.inode;
    let mut files = Vec::new();
    for group in ["counters", "counters_ext", "hw_counters"] {
        let listed = dir.open_dir(group).and_then(|group| group.list()).unwrap_or_default();
        files.extend(listed.into_iter().map(|entry| format!("{group}/{}", entry.name)));
    }
    if omni_path {
        files.retain(|file| !NOT_OF_OMNI_PATH.contains(&file.as_str()));
    }
    let has = |file: &str| files.iter().any(|there| there == file);
    let extended = has("counters/unicast_rcv_packets") || has("counters/multicast_rcv_packets");
    let mut sources = Vec::new();
    for (counter, candidates) in &SOURCES {
        // One that fails may work the next time; one that says "N/A" never will.
        let mut answers = |file| !matches!(read(&dir, file, parse_counter, buffer), Ok(Some(None)));
        let found = candidates.iter().find(|(file, _)| has(file) && answers(file));
        sources.extend(found.map(|(file, form)| {
            let unit = match form {
                // Flits (hfi1/mad.c, pma_get_opa_port_dctrs) where others count words.
                Form::Data(_) if omni_path => 8,
                Form::Data(_) => 4,
                Form::Plain(_) | Form::Driver => 1,
            };
            (*counter, *file, *form, unit)
        }));
    }
    let casts = CASTS.iter().filter_map(|(family, direction, names)| {
        let file = names.iter().find(|file| has(file))?;
        Some((*family, *direction, *file))
    });
    let casts = casts.collect();
    let link_layer = text(&dir, "link_layer", buffer);
    Some(Port { number, identity, link_layer, dir, files, sources, casts, extended })
}
