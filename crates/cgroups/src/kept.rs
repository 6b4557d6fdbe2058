//! Files that are held open from one reading to the next. Opening and closing a file of a cgroup costs the kernel more than
//! reading most of them, and each open one some 4 KiB of memory: so there is a budget.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kernel_files::{Buffer, Content, Dir, File, ReadError};
use parking_lot::Mutex;

/// Rounds after which a file that nobody reads any more is closed: those of an ended step.
const IDLE_ROUNDS: u32 = 3;
/// Readings in one round after which a file is held open: CPU time of the jobs that are there is read when another one ends.
const OFTEN: u32 = 3;
/// How long the kernel keeps a list of v1 after a reading, and shows it again through the same descriptor
/// (kernel/cgroup/cgroup-v1.c, `CGROUP_PIDLIST_DESTROY_DELAY`: a second).
const LIST_KEPT: Duration = Duration::from_millis(1250);
/// How old a list may get that is read without such a pause.
const LIST_AGE: Duration = Duration::from_secs(2);

/// How many files all cgroups together may hold open.
#[derive(Debug)]
pub struct DescriptorBudget {
    most: usize,
    held: AtomicUsize,
    round: AtomicU32,
}

impl DescriptorBudget {
    /// For so many descriptors; 0 has every file opened for each reading.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, held: AtomicUsize::new(0), round: AtomicU32::new(0) })
    }

    /// Another round of readings begins. A file is held open from the second round on in which it is read, or when it was
    /// read often in one, so that those of short jobs are not.
    pub fn next_round(&self) {
        self.round.fetch_add(1, Ordering::Relaxed);
    }

    /// How many files are held open.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn take(self: &Arc<Self>) -> Option<Place> {
        let more = |held: usize| (held < self.most).then_some(held + 1);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place(self.clone()))
    }
}

/// One descriptor of the budget, given back when dropped.
#[derive(Debug)]
struct Place(Arc<DescriptorBudget>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Entry {
    /// The latest round in which it was read, and how often before this time.
    used: u32,
    readings: u32,
    /// When it was read last, and since when the kernel may have shown the same list.
    read: Instant,
    same_since: Instant,
    /// Shared with the reading under way: nothing is locked while the kernel is asked.
    file: Option<Arc<(File, Place)>>,
}

impl Entry {
    fn new(round: u32) -> Self {
        let now = Instant::now();
        Self { used: round, readings: 0, read: now, same_since: now, file: None }
    }

    /// Closes a list that was read without a pause for long: opened again it is a new one.
    fn refresh_list(&mut self) {
        let now = Instant::now();
        let kept = now.duration_since(self.read) < LIST_KEPT;
        let old = now.duration_since(self.same_since) >= LIST_AGE;
        self.read = now;
        if !kept || old {
            self.same_since = now;
        }
        if kept && old {
            self.file = None;
        }
    }
}

/// The files of one directory, by their path below it.
#[derive(Debug)]
pub(crate) struct KeptFiles {
    budget: Arc<DescriptorBudget>,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    swept: u32,
    by_path: HashMap<Box<str>, Entry>,
}

impl KeptFiles {
    pub(crate) fn new(budget: Arc<DescriptorBudget>) -> Self {
        Self { budget, files: Mutex::default() }
    }

    /// Those of another directory, within the same budget.
    pub(crate) fn other(&self) -> Self {
        Self::new(self.budget.clone())
    }

    /// Reads a file of the directory, by the descriptor that is held where there is one.
    pub(crate) fn read<'b>(
        &self,
        dir: &Dir,
        path: &str,
        content: Content,
        buffer: &'b mut Buffer,
    ) -> Result<&'b [u8], ReadError> {
        let Some(file) = self.file(dir, path, content)? else { return read_once(dir, path, content, buffer) };
        match file.0.read(content, buffer) {
            Ok(len) => buffer.filled(len).ok_or(ReadError::TooLarge),
            // Gone, or made again under the same name.
            Err(ReadError::Gone) => {
                self.files.lock().by_path.remove(path);
                read_once(dir, path, content, buffer)
            }
            Err(error) => Err(error),
        }
    }

    /// The file, opened if it is time to hold it and there is room. Its error is that of opening it.
    fn file(&self, dir: &Dir, path: &str, content: Content) -> Result<Option<Arc<(File, Place)>>, ReadError> {
        if self.budget.most == 0 {
            return Ok(None);
        }
        let round = self.budget.round.load(Ordering::Relaxed);
        {
            let mut files = self.files.lock();
            if files.swept != round {
                files.swept = round;
                files.by_path.retain(|_, entry| round.wrapping_sub(entry.used) <= IDLE_ROUNDS);
            }
            match files.by_path.get_mut(path) {
                Some(entry) => {
                    let again = std::mem::replace(&mut entry.used, round) != round;
                    entry.readings = entry.readings.saturating_add(1);
                    if content == Content::List {
                        entry.refresh_list();
                    }
                    if entry.file.is_some() || !(again || entry.readings >= OFTEN) {
                        return Ok(entry.file.clone());
                    }
                }
                None => {
                    files.by_path.insert(path.into(), Entry::new(round));
                    return Ok(None);
                }
            }
        }
        let Some(place) = self.budget.take() else { return Ok(None) };
        let file = Arc::new((dir.open_file(path)?, place));
        if let Some(entry) = self.files.lock().by_path.get_mut(path) {
            entry.file = Some(file.clone());
        }
        Ok(Some(file))
    }
}

/// Opens, reads and closes a file.
pub(crate) fn read_once<'b>(
    dir: &Dir,
    path: &str,
    content: Content,
    buffer: &'b mut Buffer,
) -> Result<&'b [u8], ReadError> {
    match content {
        Content::Record => dir.read_record(path, buffer),
        Content::List => dir.read_list(path, buffer),
        Content::Lines => dir.read(path, buffer),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Ordinary files: what is held and when does not depend on the file system.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("jobledger-kept-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.0.join(name), text).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn text(kept: &KeptFiles, dir: &Dir, path: &str) -> Result<String, ReadError> {
        let mut buffer = Buffer::default();
        let bytes = kept.read(dir, path, Content::Record, &mut buffer)?;
        Ok(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn a_file_is_held_from_its_second_round_to_the_third_without_a_reading() {
        let scratch = Scratch::new("rounds");
        scratch.write("a", "1");
        let (dir, budget) = (Dir::open(&scratch.0).unwrap(), DescriptorBudget::new(8));
        let kept = KeptFiles::new(budget.clone());
        for _ in 0..2 {
            assert_eq!(text(&kept, &dir, "a").as_deref(), Ok("1"));
            assert_eq!(budget.held(), 0, "read in one round alone");
        }
        budget.next_round();
        for content in ["1", "23"] {
            scratch.write("a", content);
            assert_eq!(text(&kept, &dir, "a").as_deref(), Ok(content));
            assert_eq!(budget.held(), 1);
        }
        scratch.write("b", "b");
        for _ in 0..IDLE_ROUNDS {
            budget.next_round();
            assert_eq!(text(&kept, &dir, "b").as_deref(), Ok("b"));
        }
        assert_eq!(budget.held(), 2);
        budget.next_round();
        assert_eq!(text(&kept, &dir, "b").as_deref(), Ok("b"));
        assert_eq!(budget.held(), 1, "a was not read any more");
        drop(kept);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_file_that_is_read_often_in_one_round_is_held() {
        let scratch = Scratch::new("often");
        scratch.write("a", "1");
        let (dir, budget) = (Dir::open(&scratch.0).unwrap(), DescriptorBudget::new(8));
        let kept = KeptFiles::new(budget.clone());
        for reading in 0..=OFTEN {
            assert_eq!(budget.held(), 0, "{reading}");
            assert_eq!(text(&kept, &dir, "a").as_deref(), Ok("1"));
        }
        assert_eq!(budget.held(), 1);
    }

    #[test]
    fn a_list_that_is_read_without_a_pause_is_opened_again_and_no_other_file_is() {
        let scratch = Scratch::new("lists");
        let (dir, budget) = (Dir::open(&scratch.0).unwrap(), DescriptorBudget::new(8));
        let kept = KeptFiles::new(budget.clone());
        let read = |content| {
            let mut buffer = Buffer::default();
            kept.read(&dir, "tasks", content, &mut buffer).unwrap().to_vec()
        };
        // Under the name is another file, so that its content shows whether the one that is held was read.
        let another = |text: &str| {
            scratch.write("new", text);
            std::fs::rename(scratch.0.join("new"), scratch.0.join("tasks")).unwrap();
        };
        let ago = |read: Duration, same_since: Duration| {
            let (now, mut files) = (Instant::now(), kept.files.lock());
            let entry = files.by_path.get_mut("tasks").unwrap();
            (entry.read, entry.same_since) = (now - read, now - same_since);
        };
        another("1\n");
        (0..=OFTEN).for_each(|_| drop(read(Content::List)));
        another("2\n");
        ago(Duration::ZERO, Duration::ZERO);
        assert_eq!(read(Content::List), b"1\n", "the kernel may show the same list for so short a time");
        ago(2 * LIST_KEPT, 10 * LIST_AGE);
        assert_eq!(read(Content::List), b"1\n", "after a pause the kernel makes a new list");
        ago(Duration::ZERO, 2 * LIST_AGE);
        assert_eq!(read(Content::Record), b"1\n", "a file that is no list");
        assert_eq!(read(Content::List), b"2\n");
        assert_eq!(budget.held(), 1);
    }

    #[test]
    fn the_budget_is_never_exceeded_and_what_it_has_no_room_for_is_read_all_the_same() {
        let scratch = Scratch::new("budget");
        let names: Vec<String> = (0..5).map(|i| format!("f{i}")).collect();
        names.iter().for_each(|name| scratch.write(name, name));
        let dir = Dir::open(&scratch.0).unwrap();
        for most in [0, 2] {
            let budget = DescriptorBudget::new(most);
            let kept = [KeptFiles::new(budget.clone()), KeptFiles::new(budget.clone())];
            for _ in 0..3 {
                for (kept, name) in kept.iter().flat_map(|kept| names.iter().map(move |name| (kept, name))) {
                    assert_eq!(text(kept, &dir, name).as_deref(), Ok(name.as_str()));
                    assert!(budget.held() <= most);
                }
                budget.next_round();
            }
            assert_eq!(budget.held(), most);
        }
    }

    #[test]
    fn a_missing_file_is_missing_and_takes_no_place() {
        let scratch = Scratch::new("missing");
        let (dir, budget) = (Dir::open(&scratch.0).unwrap(), DescriptorBudget::new(2));
        let kept = KeptFiles::new(budget.clone());
        for _ in 0..3 {
            assert_eq!(text(&kept, &dir, "none"), Err(ReadError::Gone));
            budget.next_round();
        }
        assert_eq!(budget.held(), 0);
        scratch.write("none", "there");
        assert_eq!(text(&kept, &dir, "none").as_deref(), Ok("there"));
    }
}
