//! Sending an order.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{LINE_PATIENCE, ORDER_PATIENCE, Order, read_line};

/// Sends an order to the exporter that listens there. Returns its answer: what was done, or why not.
pub fn send(socket: &Path, order: Order) -> Result<String, String> {
    let failed = |what: &str, error: std::io::Error| format!("{}: {what}: {error}", socket.display());
    let mut stream = UnixStream::connect(socket).map_err(|error| failed("no exporter answers", error))?;
    let ready = stream
        .set_write_timeout(Some(LINE_PATIENCE))
        .and_then(|()| stream.set_read_timeout(Some(ORDER_PATIENCE + LINE_PATIENCE)))
        .and_then(|()| stream.write_all(format!("{}\n", order.line()).as_bytes()));
    ready.map_err(|error| failed("the order cannot be given", error))?;
    let answer = read_line(&mut stream).map_err(|error| failed("no answer", error))?;
    let answer = answer.map(|line| String::from_utf8_lossy(&line).into_owned()).unwrap_or_default();
    match answer.split_once(' ') {
        Some(("ok", what)) => Ok(what.to_owned()),
        Some((_, why)) => Err(why.to_owned()),
        None => Err("the exporter refused: only root and its own user may give orders".to_owned()),
    }
}
