//! What systemd is notified of (sd_notify(3)), and its watchdog (sd_watchdog_enabled(3)).
//!
//! The watchdog is fed from the loop of the web server, and only while the thread that follows the jobs comes round: one of the two
//! that hangs ends the feeding, and systemd starts the service again. A collector that hangs in the kernel has a thread of
//! its own, and is no reason for that.

use std::time::Duration;

use slurm_jobs::Pulse;
use tokio::time::MissedTickBehavior;

/// How often it is fed within its limit. systemd recommends twice.
const FEEDINGS: u32 = 4;

/// Notifies systemd.
pub(super) fn notify(state: &[sd_notify::NotifyState<'_>]) {
    // Without systemd there is no one to notify.
    let _ = sd_notify::notify(state);
}

/// Whether a thread comes round, by the number of its turns.
#[derive(Debug, Default)]
struct Progress {
    last: Option<u64>,
    stands: bool,
}

impl Progress {
    fn made(&mut self, turns: u64) -> bool {
        let made = self.last.replace(turns).is_none_or(|last| last != turns);
        if !made && !self.stands {
            tracing::error!("the thread that follows the jobs hangs; the watchdog is not fed");
        }
        self.stands = !made;
        made
    }
}

/// Feeds the watchdog for as long as the runtime runs.
pub(super) async fn feed_watchdog(pulse: Pulse, limit: Duration) {
    let mut ticks = tokio::time::interval((limit / FEEDINGS).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut progress = Progress::default();
    loop {
        ticks.tick().await;
        if progress.made(pulse.turns()) {
            // systemd may hang, too: its socket must not hold up the web server.
            let fed = tokio::task::spawn_blocking(|| notify(&[sd_notify::NotifyState::Watchdog]));
            let _ = fed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_number_of_turns_that_changes() {
        let mut progress = Progress::default();
        let made: Vec<bool> = [0, 1, 1, 1, 2, 3].map(|turns| progress.made(turns)).into();
        assert_eq!(made, [true, true, false, false, true, true]);
    }
}
