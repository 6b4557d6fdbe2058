//! Orders to a running exporter: a line is one order or none, and what is one is written as it was read.

use jobledger_exporter::control::Order;

pub fn fuzz(line: &[u8]) {
    let Some(order) = Order::parse(line) else { return };
    let written = order.line();
    assert_eq!(Order::parse(written.as_bytes()), Some(order));
    // A number may have zeros before it.
    assert!(written.len() <= line.len() && !written.contains('\n'));
}
