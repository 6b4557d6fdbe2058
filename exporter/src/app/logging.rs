//! The log, on standard error. Writing it never waits: a reader that does not read costs messages, not scrapes.

use std::io::{self, Write};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tracing::Level;
use tracing_subscriber::fmt;

use crate::cli::{Config, Mode};

/// `--check` prints its own report, and the output of `--once` is metrics.
fn least_severe(config: &Config) -> Level {
    config.log_level.min(match config.mode {
        Mode::Serve => Level::TRACE,
        Mode::Once => Level::WARN,
        Mode::Check => Level::ERROR,
    })
}

/// Sends messages to standard error as the configuration says, with the priorities of sd-daemon(3) left to journald's own
/// parsing of JSON or text. Panics go there too, and not through the standard library, which would wait.
pub fn log_to_stderr(config: &Config) {
    let level = least_severe(config);
    let builder = fmt().with_max_level(level).with_writer(|| Message(&STDERR)).with_target(false);
    // A second call (in tests) keeps the first log.
    let _ = if config.log_json {
        builder.json().flatten_event(true).try_init()
    } else {
        use std::io::IsTerminal;
        builder.with_ansi(io::stderr().is_terminal()).try_init()
    };
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}

static STDERR: Mutex<Lost> = Mutex::new(Lost { messages: 0, torn: false });

/// What could not be written since the last message that could.
#[derive(Debug)]
struct Lost {
    messages: u64,
    /// The last line has no end.
    torn: bool,
}

/// Takes one message at each `write`, as the formatter gives them.
struct Message<'a>(&'a Mutex<Lost>);

impl Write for Message<'_> {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        let mut lost = self.0.lock();
        lost.write(message, |bytes| write_now(&io::stderr(), bytes));
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lost {
    /// Writes a message, with a word about those before it that were lost; or loses it.
    fn write(&mut self, message: &[u8], write_now: impl Fn(&[u8]) -> usize) {
        let mut text = Vec::new();
        if self.torn {
            text.push(b'\n');
        }
        if self.messages > 0 {
            text.extend(format!("{} log messages were lost: nobody read them\n", self.messages).bytes());
        }
        let expected = text.len();
        text.extend(message);
        let written = write_now(&text);
        if written >= expected {
            self.messages = 0;
        }
        if written < text.len() {
            self.messages += 1;
        }
        self.torn = match written {
            0 => self.torn,
            _ => text.get(written - 1) != Some(&b'\n'),
        };
    }
}

/// Writes as much as is possible without waiting, and returns how much. Pipes and sockets that poll as writable take
/// this much at once (pipe(7): PIPE_BUF). `O_NONBLOCK` would also change the other users of the open file.
fn write_now(to: &impl std::os::fd::AsFd, bytes: &[u8]) -> usize {
    const AT_ONCE: usize = 4096;
    let mut written = 0;
    for part in bytes.chunks(AT_ONCE) {
        let mut fds = [PollFd::new(to, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = matches!(poll(&mut fds, Some(&now)), Ok(1..));
        if !ready || !fds.iter().all(|fd| fd.revents().contains(PollFlags::OUT)) {
            break;
        }
        match rustix::io::write(to, part) {
            Ok(n) => {
                written += n;
                if n < part.len() {
                    break;
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => break,
            // A closed pipe or a full disk: the message is lost.
            Err(_) => return bytes.len(),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_loses_messages_and_says_so_when_it_is_read_again() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut lost = Lost { messages: 0, torn: false };
        let message = [&[b'x'; 999][..], b"\n"].concat();
        let (slept, ()) = jobledger_testkit::wait::quiet_time(|| {
            for _ in 0..1000 {
                lost.write(&message, |bytes| write_now(&writer, bytes));
            }
        });
        assert!(slept < std::time::Duration::from_secs(5), "{slept:?}");
        let count = lost.messages;
        assert!(count > 800, "{count}");
        let mut held = vec![0; 1 << 20];
        let read = rustix::io::read(&reader, &mut held[..]).unwrap();
        assert!(read + usize::try_from(count).unwrap() * 1000 >= 1_000_000);
        lost.write(b"again\n", |bytes| write_now(&writer, bytes));
        let more = rustix::io::read(&reader, &mut held[..]).unwrap();
        let text = String::from_utf8_lossy(&held[..more]);
        let expected = format!("{count} log messages were lost: nobody read them\nagain\n");
        assert_eq!(text.trim_start_matches('\n'), expected);
        assert_eq!(lost.messages, 0);
    }

    #[test]
    fn a_closed_pipe_is_no_reason_to_keep_count() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let mut lost = Lost { messages: 0, torn: false };
        lost.write(b"a\n", |bytes| write_now(&writer, bytes));
        assert_eq!((lost.messages, lost.torn), (0, false));
    }

    #[test]
    fn a_line_that_was_cut_is_ended_before_the_next() {
        let mut lost = Lost { messages: 0, torn: false };
        lost.write(b"whole\n", |_| 3);
        assert!(lost.torn);
        let written = std::cell::RefCell::new(Vec::<u8>::new());
        lost.write(b"next\n", |bytes| {
            written.borrow_mut().extend(bytes);
            bytes.len()
        });
        assert_eq!(written.into_inner(), b"\n1 log messages were lost: nobody read them\nnext\n");
        assert!(!lost.torn);
    }
}
