//! What was sent and done: a file to which lines of JSON are added. It says when a user got the last mail, and it is the record of what was cancelled and why.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::findings::User;
use crate::Failure;
use crate::mail::Letter;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A mail was handed over.
    Mail,
    /// SLURM is asked to cancel the job; written before it is.
    Cancel,
    /// It did.
    Cancelled,
    /// It did not.
    CancelFailed,
    /// The mail about the end of the job was handed over.
    Farewell,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// When.
    pub time: Timestamp,
    /// What.
    pub action: Action,
    /// The label of the cluster, if the server has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Whom it is about.
    pub user: String,
    /// The policy, or `idle_gpus`.
    pub policy: String,
    /// The jobs.
    pub jobs: Vec<u64>,
    /// When the job started, where it is about one; seconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<f64>,
    /// What was seen, or what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The mail about the end of the job: it is due until it was handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<Letter>,
}

/// All lines, and the file if it may be added to.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    file: Option<File>,
    entries: Vec<Entry>,
}

impl History {
    /// Reads it. Without a file nothing was done yet.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::other(format!("{}: {error}", path.display()));
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(failed)?,
        };
        let (entries, _) =
            parse(&text).map_err(|why| Failure::other(format!("{}: {why}", path.display())))?;
        Ok(Self { path: path.to_owned(), file: None, entries })
    }

    /// Opens it for this process alone.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::other(format!("{}: {error}", path.display()));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Failure::other(format!(
                    "{}: its directory is not there: the service makes it, or `history` in the policies names another file",
                    path.display()
                )),
                _ => failed(error),
            })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::other(format!("{}: another run uses it", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let (entries, whole) =
            parse(&text).map_err(|why| Failure::other(format!("{}: {why}", path.display())))?;
        // What a machine that died wrote of a line.
        file.set_len(u64::try_from(whole).unwrap_or(u64::MAX)).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file: Some(file), entries })
    }

    /// Adds a line. It is on the disk when this returns.
    pub fn add(&mut self, entry: Entry) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::other(format!("{}: {error}", self.path.display()));
        let mut line = serde_json::to_vec(&entry).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let file = self.file.as_mut().ok_or_else(|| failed(io::ErrorKind::PermissionDenied.into()))?;
        file.write_all(&line).and_then(|()| file.sync_data()).map_err(failed)?;
        self.entries.push(entry);
        Ok(())
    }

    /// Mails to a user about a policy, the earliest first.
    pub fn mails<'a>(&'a self, user: &'a User, policy: &'a str) -> impl Iterator<Item = &'a Entry> + Clone {
        self.entries.iter().filter(move |entry| {
            entry.action == Action::Mail
                && entry.user == user.name
                && entry.cluster == user.cluster
                && entry.policy == policy
        })
    }

    /// Jobs that were cancelled and whose owners do not know it: the lines that have the mail. Of a run that was killed it is not known whether SLURM
    /// cancelled the job: it did if the job is gone.
    pub fn unknown_ends<'a>(
        &'a self,
        is_gone: impl Fn(&Entry) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a Entry, &'a Letter)> {
        let asked = self.entries.iter().filter_map(|entry| Some((entry, entry.letter.as_ref()?)));
        asked.filter(move |(entry, _)| {
            let (Some(id), Some(start)) = (entry.jobs.first(), entry.start) else { return false };
            let was =
                |action| self.of_run(entry.cluster.as_deref(), *id, start).any(|done| done.action == action);
            !was(Action::CancelFailed) && !was(Action::Farewell) && (was(Action::Cancelled) || is_gone(entry))
        })
    }

    /// What was done about a run of a job.
    pub fn of_run<'a>(
        &'a self,
        cluster: Option<&'a str>,
        id: u64,
        start: f64,
    ) -> impl Iterator<Item = &'a Entry> + Clone {
        // Nodes start a job within seconds, and one of them may be missing in a scrape.
        let is_same = move |at: f64| (at - start).abs() < 60.0;
        self.entries.iter().filter(move |entry| {
            entry.cluster.as_deref() == cluster && entry.jobs == [id] && entry.start.is_some_and(is_same)
        })
    }
}

/// The lines, and how many bytes are whole ones. A last line without its end was not wholly written.
///
/// # Errors
/// A line that is none, with its number.
pub fn parse(text: &str) -> Result<(Vec<Entry>, usize), String> {
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let lines = text.get(..whole).unwrap_or_default().lines().enumerate();
    let entries = lines
        .map(|(at, line)| serde_json::from_str(line).map_err(|error| format!("line {}: {error}", at + 1)));
    Ok((entries.collect::<Result<_, _>>()?, whole))
}

#[cfg(test)]
mod tests {
    use jobledger_testkit::scratch::Scratch;

    use super::*;

    fn entry(policy: &str) -> Entry {
        Entry {
            time: Timestamp::UNIX_EPOCH,
            action: Action::Mail,
            cluster: None,
            user: "a".to_owned(),
            policy: policy.to_owned(),
            jobs: vec![7],
            start: Some(100.0),
            why: None,
            letter: None,
        }
    }

    #[test]
    fn what_was_done_is_read_again() {
        let directory = Scratch::new("history");
        let path = directory.path().join("history.jsonl");
        let user = User { cluster: None, name: "a".to_owned() };
        assert_eq!(History::read(&path).unwrap().mails(&user, "p").count(), 0);
        let mut history = History::open(&path).unwrap();
        assert!(History::open(&path).unwrap_err().says.ends_with("another run uses it"));
        history.add(entry("p")).unwrap();
        history.add(Entry { user: "b".to_owned(), ..entry("p") }).unwrap();
        history.add(Entry { action: Action::Cancel, ..entry("p") }).unwrap();
        drop(history);
        // A line that was not wholly written when the machine died.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"time\": \"20").unwrap();
        let mut history = History::open(&path).unwrap();
        history.add(entry("q")).unwrap();
        drop(history);
        let history = History::read(&path).unwrap();
        assert_eq!((history.mails(&user, "p").count(), history.mails(&user, "q").count()), (1, 1));
        assert_eq!(history.of_run(None, 7, 130.0).count(), 4);
        assert_eq!(history.of_run(Some("c"), 7, 130.0).count() + history.of_run(None, 7, 300.0).count(), 0);
        assert!(History::read(&path).unwrap().add(entry("p")).is_err(), "it was opened to be read");
    }

    #[test]
    fn a_farewell_is_due_until_it_was_handed_over() {
        let directory = Scratch::new("farewell");
        let mut history = History::open(&directory.path().join("history.jsonl")).unwrap();
        let letter = Letter { subject: "s".to_owned(), text: "t".to_owned() };
        let (gone, there) = (|_: &Entry| true, |_: &Entry| false);
        let due = |history: &History, is_gone: fn(&Entry) -> bool| history.unknown_ends(is_gone).count();
        history.add(Entry { action: Action::Cancel, letter: Some(letter), ..entry("p") }).unwrap();
        assert_eq!(
            (due(&history, gone), due(&history, there)),
            (1, 0),
            "it was killed while SLURM was asked"
        );
        history.add(Entry { action: Action::Cancelled, ..entry("p") }).unwrap();
        assert_eq!((due(&history, gone), due(&history, there)), (1, 1));
        history.add(Entry { action: Action::Farewell, ..entry("p") }).unwrap();
        assert_eq!(due(&history, gone), 0);
        let another = Entry { jobs: vec![8], ..entry("p") };
        let letter = history.entries[0].letter.clone();
        history.add(Entry { action: Action::Cancel, letter, ..another.clone() }).unwrap();
        history.add(Entry { action: Action::CancelFailed, ..another.clone() }).unwrap();
        // Of before there were farewells in the history.
        history.add(Entry { action: Action::Cancel, jobs: vec![9], ..another }).unwrap();
        assert_eq!(due(&history, gone), 0);
    }

    #[test]
    fn a_wrong_line_is_named() {
        assert!(parse("{}\n").unwrap_err().starts_with("line 1: missing field"));
        assert_eq!(parse("").unwrap(), (Vec::new(), 0));
    }
}
