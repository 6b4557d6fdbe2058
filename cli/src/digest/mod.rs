//! What users get mails about: the waste of their jobs by a site's policies, and GPUs of jobs that run and do not use them.
//!
//! Nothing here asks a server or sends a mail; [`history`] alone has a file.

pub mod bounds;
pub mod calendar;
pub mod coordinators;
pub mod findings;
pub mod history;
pub mod idle_gpus;
pub mod idle_time;
pub mod letters;
pub mod measure;
pub mod number;
pub mod policies;
pub mod squeue;
pub mod summary;
pub mod which;
