//! The helper's end: reads orders, checks them, and does them one by one.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::protocol::{Act, Answer, LONGEST, Order};
use crate::resctrl::tree::{Mounted, Tree};

/// Obeys until the exporter is gone. Malformed orders are not answered.
pub(super) fn serve(socket: BorrowedFd<'_>, tree: &Mounted) {
    // One more than there can be, so that a longer one is not taken for its beginning.
    let mut message = vec![0; LONGEST + 1];
    loop {
        let length = match recv(socket, message.as_mut_slice(), RecvFlags::empty()) {
            Ok((_, 0)) => return,
            Ok((_, length)) => length,
            Err(Errno::INTR | Errno::NOMEM | Errno::NOBUFS) => continue,
            Err(_) => return,
        };
        let Ok(order) = Order::parse(message.get(..length).unwrap_or_default()) else { continue };
        let outcome = match order.act {
            Act::Make => tree.make(&order.group),
            Act::Remove => tree.remove(&order.group),
            Act::Add(task) => tree.add_task(&order.group, task),
            Act::Assign => tree.assign(&order.group),
        };
        let answer = Answer { number: order.number, outcome }.write();
        loop {
            match send(socket, &answer, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Ok(_) => break,
                Err(_) => return,
            }
        }
    }
}
