//! The accounts of memory traffic over a restart of the exporter.
//!
//! The events of memory controllers are the process's own, and count from 0 when they are opened: what was moved while no exporter
//! ran is in no number. What resctrl counts the kernel keeps (`perf_counters::resctrl`).

use std::time::Instant;

use attribution::Account;
use perf_counters::resctrl::{Quantity, SavedMonitor};
use perf_counters::uncore::{Direction, Kind};
use serde::{Deserialize, Serialize};

use super::accounts::{Method, TrafficAccount, TrafficAccounts, Where};
use crate::collector::durable::{Before, Unreadable};

/// What is saved.
#[derive(Debug, Serialize, Deserialize)]
struct SavedTraffic {
    /// By socket, kind and direction.
    accounts: Vec<(Option<u32>, String, String, Account<Method>)>,
    monitor: Option<SavedMonitor>,
    /// By quantity and package.
    telemetry: Vec<((Quantity, u32), Account<()>)>,
}

/// The labels of a count, by their text.
fn parse_where(socket: Option<u32>, kind: &str, direction: &str) -> Option<Where> {
    let l3 = Where::l3(socket);
    let kinds = [Kind::Dram, Kind::Hbm, Kind::Pmem, Kind::Mcdram].map(Kind::as_str);
    let directions = [Direction::Read, Direction::Write, Direction::Both].map(Direction::as_str);
    let kind = kinds.into_iter().chain([l3.kind]).find(|known| *known == kind)?;
    let direction = directions.into_iter().find(|known| *known == direction)?;
    Some(Where { socket, kind, direction })
}

impl TrafficAccounts {
    /// What is to be saved.
    pub(super) fn save(&self) -> Vec<u8> {
        let accounts = self.accounts.iter().map(|(at, traffic)| {
            (at.socket, at.kind.to_owned(), at.direction.to_owned(), traffic.account.clone())
        });
        let monitor = self.monitor.as_ref().map(|monitor| monitor.save(Instant::now()));
        let telemetry = self.telemetry.accounts.iter().map(|(of, account)| (*of, account.clone()));
        durable_state::encode(&SavedTraffic {
            accounts: accounts.collect(),
            monitor,
            telemetry: telemetry.collect(),
        })
    }

    /// Takes over what was saved, before any job is found.
    pub(super) fn restore(&mut self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let SavedTraffic { accounts, monitor, telemetry } = durable_state::decode(section)?;
        for (socket, kind, direction, mut account) in accounts {
            let Some(at) = parse_where(socket, &kind, &direction) else { continue };
            account.keep(|run| before.knows(run));
            self.accounts.insert(at, TrafficAccount::restored(account));
        }
        for (of, mut account) in telemetry {
            account.keep(|run| before.knows(run));
            self.telemetry.accounts.insert(of, account);
        }
        if let (Some(monitor), Some(saved)) = (&mut self.monitor, monitor) {
            monitor.restore(saved, |run| before.knows(run));
        }
        Ok(())
    }
}
