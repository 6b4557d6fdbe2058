//! One test per row of the fault table (README.md): the real binary on a node that breaks while it runs.

mod clients;
mod groups;
mod hanging;
mod hostile;
mod ledger;
mod process;
mod reading;
mod scale;
mod support;
