//! Receiving orders.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use super::{LINE_PATIENCE, ORDER_PATIENCE, Order, read_line};

/// The pause after an accept(2) that failed.
const AFTER_ERROR: Duration = Duration::from_millis(200);

/// Carries out an order within a time. Returns what was done, or why not, in a line.
pub type Handler = Box<dyn Fn(Order, Duration) -> Result<String, String> + Send>;

/// A socket that is not served yet.
#[derive(Debug)]
pub struct Control(UnixListener);

/// Makes the socket. `None` when its directory is not there: then this site gives no orders.
pub fn bind(path: &Path) -> std::io::Result<Option<Control>> {
    if !path.parent().is_some_and(Path::is_dir) {
        return Ok(None);
    }
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            // A socket file of an exporter that is gone does not answer; a running exporter keeps its socket.
            if UnixStream::connect(path).is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    // Each connection's user is checked; the mode keeps others from connecting at all.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(Some(Control(listener)))
}

impl Control {
    /// Takes orders from now on, one at a time, on a thread that sleeps until a connection comes.
    pub fn serve(self, handler: Handler) -> std::io::Result<()> {
        let work = move || {
            for stream in self.0.incoming() {
                if let Err(error) = stream.and_then(|stream| read_now(stream, &handler)) {
                    tracing::debug!(%error, "an order that was not given to its end");
                    // Out of descriptors the same would be answered at once, again and again.
                    std::thread::park_timeout(AFTER_ERROR);
                }
            }
        };
        std::thread::Builder::new().name("control".to_owned()).stack_size(256 << 10).spawn(work).map(drop)
    }
}

fn read_now(mut stream: UnixStream, handler: &Handler) -> std::io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    if !(peer.uid.is_root() || peer.uid == rustix::process::geteuid()) {
        return Ok(());
    }
    stream.set_read_timeout(Some(LINE_PATIENCE))?;
    stream.set_write_timeout(Some(LINE_PATIENCE))?;
    let order = read_line(&mut stream)?.and_then(|line| Order::parse(&line));
    let answer = match order.map(|order| handler(order, ORDER_PATIENCE)) {
        Some(Ok(done)) => format!("ok {done}\n"),
        Some(Err(why)) => format!("error {why}\n"),
        None => "error no such order\n".to_owned(),
    };
    stream.write_all(answer.as_bytes())
}
