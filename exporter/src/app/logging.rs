//! The log, on standard error.

use tracing::Level;
use tracing_subscriber::fmt;

/// Sends messages of this level and more severe ones to standard error, with the priorities of sd-daemon(3) left
/// to journald's own parsing of JSON or text.
pub fn log_to_stderr(level: Level, json: bool) {
    let builder = fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    // A second call (in tests) keeps the first log.
    let _ = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        use std::io::IsTerminal;
        builder.with_ansi(std::io::stderr().is_terminal()).try_init()
    };
}
