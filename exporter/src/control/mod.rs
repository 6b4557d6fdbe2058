//! Orders to a running exporter, by a socket of the file system that only root and the exporter's own user may use.
//!
//! One line each way. `gpu release` has the GPU drivers released, so that a GPU can be reset or repartitioned, and
//! answers when that is done; `gpu resume` has them opened again. `counters yield` has the hardware counters
//! released, for at most so many milliseconds where a number follows; `counters resume` has them taken up again;
//! `counters status` reports who has them. The socket is made before privileges are dropped, where its directory
//! exists; without it the exporter takes no orders.

mod client;
pub mod counter_orders;
mod server;

use std::time::Duration;

pub use client::send;
pub use server::{Control, Handler, bind};

/// The longest line either way, bytes.
const LONGEST: usize = 512;
/// How long either side waits for the other's line.
const LINE_PATIENCE: Duration = Duration::from_secs(5);
/// How long an order may take.
const ORDER_PATIENCE: Duration = Duration::from_secs(20);

/// What can be ordered of the GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuOrder {
    /// Release their drivers.
    Release,
    /// Read them again.
    Resume,
}

/// What can be ordered of the hardware's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterOrder {
    /// Release them, for at most this long.
    Yield(Option<Duration>),
    /// Take them up again.
    Resume,
    /// Report who has them.
    Status,
}

/// What can be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// To do with GPUs.
    Gpus(GpuOrder),
    /// To do with counters.
    Counters(CounterOrder),
}

impl Order {
    /// Those that are one line each.
    const PLAIN: [(Self, &str); 5] = [
        (Self::Gpus(GpuOrder::Release), "gpu release"),
        (Self::Gpus(GpuOrder::Resume), "gpu resume"),
        (Self::Counters(CounterOrder::Yield(None)), "counters yield"),
        (Self::Counters(CounterOrder::Resume), "counters resume"),
        (Self::Counters(CounterOrder::Status), "counters status"),
    ];

    /// The line of it.
    pub fn line(self) -> String {
        if let Self::Counters(CounterOrder::Yield(Some(limit))) = self {
            return format!("counters yield {}", limit.as_millis());
        }
        Self::PLAIN.iter().find(|(order, _)| *order == self).map_or("", |(_, line)| line).to_owned()
    }

    /// From a line without its end.
    pub fn parse(line: &[u8]) -> Option<Self> {
        if let Some(limit) = line.strip_prefix(b"counters yield ") {
            let limit = Duration::from_millis(kernel_files::parse::integer(limit)?);
            return Some(Self::Counters(CounterOrder::Yield(Some(limit))));
        }
        Self::PLAIN.into_iter().find(|(_, plain)| plain.as_bytes() == line).map(|(order, _)| order)
    }
}

/// Reads a line to its end, without it; `None` when there is none, or a longer one than there is.
fn read_line(stream: &mut impl std::io::Read) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() <= LONGEST {
        match stream.read(&mut byte)? {
            0 => return Ok(None),
            _ if byte == [b'\n'] => return Ok(Some(line)),
            _ => line.extend(byte),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
