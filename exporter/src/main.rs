//! Lifecycle only.
fn main() {}
