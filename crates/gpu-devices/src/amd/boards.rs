//! Boards of two dies (MI250 and MI250X): each is a GPU with a render node and is given to jobs alone, but energy and power
//! are measured of the board, by its first die (drivers/gpu/drm/amd/pm/swsmu/smu13/aldebaran_ppt.c).

use std::sync::Arc;

use super::Gpu;
use crate::{Part, Quantity, Unit, UnitSample};

/// Makes the units of all GPUs. Dies with the same serial number are on one board: they become parts of one unit,
/// which has the board's energy. Where the board is not known, the first die's energy could be that of both, and is
/// not counted.
pub(super) fn join(gpus: Vec<Gpu>) -> Vec<UnitSample> {
    let serials: Vec<Option<String>> =
        gpus.iter().map(|gpu| gpu.serial.clone().filter(|_| gpu.of_two)).collect();
    let mut units = Vec::new();
    let mut boards: Vec<(String, UnitSample)> = Vec::new();
    for (gpu, serial) in gpus.into_iter().zip(&serials) {
        let Gpu { mut sample, parts, energy, power, of_two, .. } = gpu;
        let dies = serials.iter().filter(|other| serial.is_some() && *other == serial).count();
        let energy = energy.map(|energy| (Quantity::ENERGY, energy));
        match serial {
            Some(serial) if dies == 2 => {
                let at = boards.iter().position(|(known, _)| known == serial).unwrap_or_else(|| {
                    boards.push((serial.clone(), UnitSample::new(board(serial, &sample.unit), 0)));
                    boards.len() - 1
                });
                let Some((_, whole)) = boards.get_mut(at) else { continue };
                if energy.is_some() {
                    whole.epoch = sample.epoch;
                }
                whole.counts.extend(energy);
                whole.standing.extend(energy);
                whole.facts.extend(power);
                sample.unit = Arc::new(die(&whole.unit, &sample.unit));
            }
            _ if of_two => sample.facts.extend(power),
            _ => {
                sample.counts.extend(energy);
                sample.standing.extend(energy);
                sample.facts.extend(power);
            }
        }
        units.push(sample);
        units.extend(parts);
    }
    units.extend(boards.into_iter().map(|(_, board)| board));
    units
}

fn board(serial: &str, die: &Unit) -> Arc<Unit> {
    Arc::new(Unit {
        uuid: serial.into(),
        index: None,
        minor: None,
        pci: None,
        nodes: Vec::new(),
        part: None,
        divided: true,
        ..die.clone()
    })
}

fn die(board: &Unit, die: &Unit) -> Unit {
    let part = Part {
        parent: board.uuid.clone(),
        gpu_instance: die.index.unwrap_or_default(),
        compute_instance: 0,
        profile: "die".into(),
        slices: Some((1, 2)),
    };
    Unit { part: Some(part), ..die.clone() }
}
