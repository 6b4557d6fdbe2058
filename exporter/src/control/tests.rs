use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::channel;

use super::*;

const RELEASE: Order = Order::Gpus(GpuOrder::Release);
const RESUME: Order = Order::Gpus(GpuOrder::Resume);

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("jobledger-control-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_order_is_carried_out_and_answered() {
    let scratch = Scratch::new("order");
    let (orders, given) = channel();
    let handler = move |order, _| {
        orders.send(order).unwrap();
        match order {
            RELEASE => Ok("released".to_owned()),
            _ => Err("no GPU".to_owned()),
        }
    };
    bind(&scratch.socket()).unwrap().unwrap().serve(Box::new(handler)).unwrap();
    assert_eq!(send(&scratch.socket(), RELEASE), Ok("released".to_owned()));
    assert_eq!(send(&scratch.socket(), RESUME), Err("no GPU".to_owned()));
    assert_eq!(given.iter().take(2).collect::<Vec<_>>(), [RELEASE, RESUME]);
}

#[test]
fn nonsense_and_silence_cost_nobody_else_anything() {
    let scratch = Scratch::new("nonsense");
    let handler = |_, _| Ok("done".to_owned());
    bind(&scratch.socket()).unwrap().unwrap().serve(Box::new(handler)).unwrap();
    for nonsense in [&b"gpu\n"[..], b"gpu release", b"\n", b"\xff\xfe\n", &[b'x'; 100_000]] {
        let mut stream = UnixStream::connect(scratch.socket()).unwrap();
        // One that is too long is hung up on.
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer == "error no such order\n", "{answer}");
    }
    assert_eq!(send(&scratch.socket(), RELEASE), Ok("done".to_owned()));
}

#[test]
fn a_socket_left_behind_is_made_anew_and_one_in_use_is_kept() {
    let scratch = Scratch::new("stale");
    drop(bind(&scratch.socket()).unwrap().unwrap());
    let control = bind(&scratch.socket()).unwrap().unwrap();
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(scratch.socket()).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(bind(&scratch.socket()).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(control);
    assert!(bind(&scratch.0.join("none/control.sock")).unwrap().is_none(), "no directory, no socket");
    assert!(send(&scratch.0.join("none/control.sock"), RELEASE).unwrap_err().contains("no exporter answers"));
}

#[test]
fn every_order_is_a_line_and_every_such_line_that_order() {
    let limited = |limit| Order::Counters(CounterOrder::Yield(Some(limit)));
    let orders = Order::PLAIN.map(|(order, _)| order);
    for order in orders
        .into_iter()
        .chain([limited(Duration::from_millis(1500)), limited(Duration::from_millis(u64::MAX))])
    {
        assert!(!order.line().is_empty() && order.line().len() < LONGEST);
        assert_eq!(Order::parse(order.line().as_bytes()), Some(order));
    }
    for bad in [
        "counters",
        "counters yield ",
        "counters yield -1",
        "counters yield 1s",
        "counters  status",
        "gpu yield",
    ] {
        assert_eq!(Order::parse(bad.as_bytes()), None, "{bad}");
    }
}
