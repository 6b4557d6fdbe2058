//! The directory in which slurmctld's scripts leave mails and AdminComments for `jobledger spool`: a file for each.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use job_files::atomic;
use nix::unistd::geteuid;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::config;

/// What `StateDirectory=` of its unit makes.
const DIRECTORY: &str = "/var/lib/jobledger-spool";
/// Entries that wait at most.
const MOST: usize = 10_000;
/// Bytes of an entry: a subject of SLURM and a list of recipients.
const MOST_BYTES: u64 = 8192;
/// Held by the program that works on the entries.
const LOCK: &str = "lock";

/// The directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spool {
    directory: PathBuf,
    /// How many entries may wait.
    most: usize,
}

/// What a script of slurmctld was started for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// When, in seconds since the epoch.
    pub time: f64,
    /// What is to be done.
    pub task: Task,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// A mail of SLURM.
    Mail {
        /// As SLURM writes it.
        subject: String,
        /// Addresses with commas between them.
        recipient: String,
        /// `$SLURM_JOB_MAIL_TYPE`
        mail_type: Option<String>,
        /// `$SLURM_JOB_ID`
        job_id: Option<String>,
    },
    /// What a job used, for SLURM's accounting.
    AdminComment {
        /// Its name for SLURM's accounting: `42`, or `42_4` of an element of an array.
        job: String,
        /// Its number.
        number: u64,
        /// The name of the cluster in SLURM's accounting.
        cluster: Option<String>,
    },
}

impl Spool {
    /// The one of the configuration.
    pub fn new(config: &config::Spool) -> Self {
        let directory = config.directory.clone().unwrap_or_else(|| DIRECTORY.into());
        Self { directory, most: config.most.unwrap_or(MOST) }
    }

    /// Leaves a task. It is on the disk afterwards.
    ///
    /// # Errors
    /// Nobody would do it, too many wait, or it was not written.
    pub fn put(&self, task: Task) -> io::Result<()> {
        self.is_own()?;
        let lock = File::open(self.directory.join(LOCK));
        let has_worker =
            lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)));
        if !has_worker {
            return Err(self.wrong("`jobledger spool` does not run"));
        }
        let waiting = self.names()?.len();
        if waiting >= self.most {
            return Err(self.wrong(&format!("{waiting} mails and comments wait already")));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let bytes = serde_json::to_vec(&Entry { time: since.as_secs_f64(), task })?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MOST_BYTES) {
            return Err(self.wrong("it is too long"));
        }
        // In the order of their names they are in that of time.
        let name = format!("{:010}.{:09}-{}", since.as_secs(), since.subsec_nanos(), std::process::id());
        atomic::write(&self.directory.join(name), |file| file.write_all(&bytes))
    }

    /// Keeps other processes from working on it as long as the file is open; `None` if one does.
    pub(crate) fn claim(&self) -> io::Result<Option<File>> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        self.is_own()?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(self.directory.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The entries, the first one first.
    pub(crate) fn names(&self) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for file in fs::read_dir(&self.directory)? {
            let name = file?.file_name();
            names.extend(name.to_str().filter(|name| is_name(name)).map(str::to_owned));
        }
        Ok(names)
    }

    /// Reads an entry. An error says what is wrong with it.
    pub(crate) fn read(&self, name: &str) -> io::Result<Entry> {
        let mut options = OpenOptions::new();
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = options.read(true).custom_flags(flags).open(self.directory.join(name))?;
        let about = file.metadata()?;
        if !about.is_file() || about.uid() != geteuid().as_raw() || about.len() > MOST_BYTES {
            return Err(io::Error::other("it is no entry of this user"));
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Removes an entry that was done.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))
    }

    /// An error unless nobody else can write there.
    fn is_own(&self) -> io::Result<()> {
        let about = fs::symlink_metadata(&self.directory).map_err(|error| self.wrong(&error.to_string()))?;
        if !about.is_dir() || about.uid() != geteuid().as_raw() || about.mode() & 0o022 != 0 {
            return Err(self.wrong("it is no directory in which this user alone writes"));
        }
        Ok(())
    }

    fn wrong(&self, why: &str) -> io::Error {
        io::Error::other(format!("{}: {why}", self.directory.display()))
    }
}

/// Of a file that is being written the name begins with a dot.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'.' || byte == b'-';
    name.bytes().next().is_some_and(|first| first.is_ascii_digit()) && name.bytes().all(is_part)
}
