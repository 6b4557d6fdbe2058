//! `--check`: what works here, why not, and what would change it.

use std::fmt::Write;
use std::time::Duration;

use super::opened::advice_on_turns;
use super::{KeptState, Node, once};
use crate::cli::Config;
use crate::collector::SourceError;

/// The report, and whether every enabled collector works or has nothing to read here. `who` names the user of the
/// check: root reads what a service's own user cannot.
pub fn check(node: &Node, config: &Config, who: &str) -> std::io::Result<(String, bool)> {
    let mut report = String::new();
    let mut fine = true;
    if let Err(error) = once(node, Duration::from_secs(30))? {
        return Ok((format!("{error}\n"), false));
    }
    let line = |report: &mut String, name: &str, state: &str, text: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(report, "{name:<16} {state:<12} {text}");
    };
    line(&mut report, "COLLECTOR", "STATE", "WHAT IT MEASURES, OR WHY IT YIELDS NOTHING");
    for (entry, outcome) in node.engine.outcomes() {
        match outcome {
            Some(Ok(())) => line(&mut report, entry.name, "ok", entry.summary),
            Some(Err(error)) => {
                fine &= matches!(error.error, SourceError::Unsupported { .. });
                let text = error.to_string();
                line(
                    &mut report,
                    entry.name,
                    error.error.reason(),
                    text.split_once(": ").map_or(&*text, |(_, why)| why),
                );
            }
            None => line(&mut report, entry.name, "late", "not run"),
        }
    }
    for entry in &config.disabled {
        let text = format!("{}; --collector.{} switches it on", entry.summary, entry.name);
        line(&mut report, entry.name, "off", &text);
    }
    let _ = writeln!(report, "\n{} running jobs", node.engine.running_jobs());
    if let Some(advice) = advice_on_turns(config) {
        let _ = writeln!(report, "{advice}");
    }
    let _ = writeln!(report, "{}", KeptState::describe(config));
    let _ = writeln!(report, "Looked as {who}. A service has its own user, capabilities and settings.");
    Ok((report, fine))
}
