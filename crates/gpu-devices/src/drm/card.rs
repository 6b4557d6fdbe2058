//! The GPUs that a driver has: `/sys/class/drm/cardN`, with the render node of the same PCI device.

use std::sync::Arc;

use kernel_files::parse::{ParseError, integer};
use kernel_files::{Dir, ReadError, Roots, SourceError, label_text};

use super::Attributes;

const CLASS: &str = "/sys/class/drm";

/// A GPU and its driver.
#[derive(Debug)]
pub(crate) struct Card {
    /// Of `/dev/dri/card<number>`.
    pub(crate) number: u32,
    /// Of `/dev/dri/renderD<minor>`, through which programs compute.
    pub(crate) render: u32,
    /// PCI address.
    pub(crate) pci: Arc<str>,
    /// Product, as PCI numbers it.
    pub(crate) device_id: u32,
    /// `amdgpu`, `i915`, `xe`.
    pub(crate) driver: String,
    /// The card's directory in the class.
    pub(crate) card: Dir,
    /// The PCI device's.
    pub(crate) device: Dir,
}

/// `12` of `card12`. Connectors (`card0-DP-1`) are none.
fn number(name: &str, prefix: &str) -> Option<u32> {
    u32::try_from(integer(name.strip_prefix(prefix)?.as_bytes())?).ok()
}

/// The last part of a link, its name in another directory.
fn target(class: &Dir, link: &str) -> Option<String> {
    class.read_link(link).ok()?.rsplit('/').next().map(str::to_owned)
}

fn parse_hex(bytes: &[u8]) -> Result<u32, ParseError> {
    let digits = std::str::from_utf8(bytes.trim_ascii()).ok().and_then(|text| text.strip_prefix("0x"));
    let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    value.ok_or(ParseError::new(1, "not a hexadecimal number"))
}

/// Whether a driver has a GPU here.
pub(crate) fn is_present(roots: &Roots, drivers: &[&str]) -> bool {
    let Ok(class) = Dir::open(&roots.sys("class/drm")) else { return false };
    let mut found = false;
    let look = |name: &[u8], _, _| {
        let card = std::str::from_utf8(name).ok().filter(|name| number(name, "card").is_some());
        let driver = card.and_then(|card| target(&class, &format!("{card}/device/driver")));
        found |= driver.is_some_and(|driver| drivers.contains(&driver.as_str()));
    };
    class.for_each(look).is_ok() && found
}

/// The GPUs of these drivers in the order of their cards. Those without a render node are displays, not GPUs to compute on.
pub(crate) fn cards(
    roots: &Roots,
    drivers: &[&str],
    files: &mut Attributes<'_>,
) -> Result<Vec<Card>, SourceError> {
    let failed = |error| SourceError::reading(CLASS, CLASS)(error);
    let class = match Dir::open(&roots.sys("class/drm")) {
        Ok(class) => class,
        Err(ReadError::Gone) => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let entries = class.list().map_err(failed)?;
    let renders: Vec<(u32, String)> = entries
        .iter()
        .filter_map(|e| Some((number(&e.name, "renderD")?, target(&class, &format!("{}/device", e.name))?)))
        .collect();
    let mut cards = Vec::new();
    for entry in entries {
        let Some(number) = number(&entry.name, "card") else { continue };
        let name = entry.name;
        let Some(driver) = target(&class, &format!("{name}/device/driver")) else { continue };
        let Some(pci) = target(&class, &format!("{name}/device")) else { continue };
        let render = renders.iter().find(|(_, device)| *device == pci);
        let (true, Some((render, _))) = (drivers.contains(&driver.as_str()), render) else { continue };
        let (card, device) = match (class.open_link(&name), class.open_link(&format!("{name}/device"))) {
            (Ok(card), Ok(device)) => (card, device),
            (Err(ReadError::Gone), _) | (_, Err(ReadError::Gone)) => continue,
            (Err(error), _) | (_, Err(error)) => {
                files.fail(failed(error));
                continue;
            }
        };
        let device_id = files.parsed(&device, "device", parse_hex).unwrap_or_default();
        let pci = label_text(pci.as_bytes()).into();
        cards.push(Card { number, render: *render, pci, device_id, driver, card, device });
    }
    cards.sort_by_key(|card| card.number);
    Ok(cards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connectors_are_no_cards() {
        assert_eq!(number("card12", "card"), Some(12));
        assert_eq!(number("renderD128", "renderD"), Some(128));
        for other in ["card", "card0-DP-1", "card-1", "renderD", "version"] {
            assert_eq!(number(other, "card"), None, "{other}");
        }
        assert_eq!(parse_hex(b"0x740c\n"), Ok(0x740c));
        assert!(parse_hex(b"740c\n").is_err());
    }
}
