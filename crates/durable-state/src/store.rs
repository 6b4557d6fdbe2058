//! Where the slots are: an anonymous memory file or a file of ours.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FileType, FlockOperation, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::sections::{Sections, decode, encode};
use crate::slot::{self, HEAD, Identity, Refused};

/// Most bytes of a state. The slots are so far apart; what is not written takes no memory.
pub const MOST_BYTES: usize = 32 << 20;

/// Why a state cannot be kept where it should be.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The kernel refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another process has it.
    #[error("another process uses it")]
    InUse,
    /// It is no file of this user alone.
    #[error("it is not a regular file that belongs to this user alone (mode 0600)")]
    NotOurs,
    /// The state is too large.
    #[error("{0} bytes are more than a state may have")]
    TooLarge(usize),
}

impl From<Errno> for StoreError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// What was found at the start.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The latest state.
    Found(Sections),
    /// None that can be used.
    Refused(Refused),
}

/// Keeps a state.
#[derive(Debug)]
pub struct Store {
    file: File,
    identity: Identity,
    sequence: u64,
}

impl Store {
    /// In a memory file that was made before, or is made now. It lasts as long as somebody has it open.
    pub fn in_memory(inherited: Option<OwnedFd>, identity: Identity) -> Result<Self, StoreError> {
        let fd = match inherited {
            Some(fd) => fd,
            None => rustix::fs::memfd_create("jobledger-state", MemfdFlags::CLOEXEC)?,
        };
        Ok(Self { file: fd.into(), identity, sequence: 0 })
    }

    /// In a file, which is made if it is missing. No link is followed, and it must be this user's alone.
    pub fn in_file(path: &Path, identity: Identity) -> Result<Self, StoreError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        let stat = rustix::fs::fstat(&fd)?;
        let ours = stat.st_uid == rustix::process::geteuid().as_raw()
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_mode & 0o077 == 0
            && stat.st_nlink == 1;
        if !ours {
            return Err(StoreError::NotOurs);
        }
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { file: fd.into(), identity, sequence: 0 }),
            Err(Errno::WOULDBLOCK) => Err(StoreError::InUse),
            Err(error) => Err(error.into()),
        }
    }

    /// The descriptor, to be handed to systemd.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The latest state that is whole and ours. Without one both slots are emptied: a state that was refused once must not be
    /// taken for the latest by a later process.
    pub fn load(&mut self) -> Result<Outcome, StoreError> {
        let slots = [self.read(0)?, self.read(1)?];
        let read = slots.iter().map(|bytes| slot::read(bytes, self.identity));
        let mut latest = None;
        let mut refused = Refused::Empty;
        for outcome in read {
            match outcome {
                Ok(slot) if latest.as_ref().is_none_or(|(known, _)| slot.sequence > *known) => {
                    match decode::<Sections>(slot.payload) {
                        Ok(sections) => latest = Some((slot.sequence, sections)),
                        Err(_) => refused = refused.max(Refused::Damaged),
                    }
                }
                Ok(_) => {}
                Err(why) => refused = refused.max(why),
            }
        }
        match latest {
            Some((sequence, sections)) => {
                self.sequence = sequence;
                Ok(Outcome::Found(sections))
            }
            None => {
                if refused != Refused::Empty {
                    self.clear()?;
                }
                Ok(Outcome::Refused(refused))
            }
        }
    }

    /// Empties both slots, the second one also if the first cannot be.
    fn clear(&mut self) -> Result<(), StoreError> {
        let cleared = [0, 1].map(|slot| self.file.write_all_at(&[0; HEAD], offset(slot)));
        cleared.into_iter().collect::<io::Result<()>>()?;
        Ok(())
    }

    /// A slot's bytes, at most as many as a state may have.
    fn read(&self, slot: u64) -> Result<Vec<u8>, StoreError> {
        let mut head = vec![0; HEAD];
        let got = self.read_at(&mut head, offset(slot))?;
        head.truncate(got);
        let length = slot::length(&head).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        let size = rustix::fs::fstat(&self.file)?.st_size;
        let left = u64::try_from(size).unwrap_or(0).saturating_sub(offset(slot) + HEAD as u64);
        let length = length.min(MOST_BYTES - HEAD).min(usize::try_from(left).unwrap_or(0));
        let mut payload = vec![0; length];
        let got = self.read_at(&mut payload, offset(slot) + HEAD as u64)?;
        head.extend(payload.get(..got).unwrap_or_default());
        Ok(head)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Saves a state in the slot of the last but one. Returns its size in bytes. If it cannot be saved there is no state any
    /// more: with an older one, the next process would count from less than this one has shown.
    pub fn save(&mut self, sections: &Sections) -> Result<usize, StoreError> {
        let saved = self.write(sections);
        if saved.is_err() {
            self.clear()?;
        }
        saved
    }

    fn write(&mut self, sections: &Sections) -> Result<usize, StoreError> {
        let bytes = slot::write(self.sequence + 1, self.identity, &encode(sections));
        if bytes.len() > MOST_BYTES {
            return Err(StoreError::TooLarge(bytes.len()));
        }
        self.file.write_all_at(&bytes, offset((self.sequence + 1) % 2))?;
        self.sequence += 1;
        Ok(bytes.len())
    }
}

fn offset(slot: u64) -> u64 {
    slot * MOST_BYTES as u64
}

/// This boot's id, `/proc/sys/kernel/random/boot_id` (random(4)). It is of the kernel whose clock this process has, so it is
/// always that of the real procfs.
pub fn boot_id() -> Result<[u8; 16], StoreError> {
    let fd =
        rustix::fs::open("/proc/sys/kernel/random/boot_id", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = [0; 64];
    let got = rustix::io::read(&fd, &mut text[..])?;
    parse_boot_id(text.get(..got).unwrap_or_default())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no boot id").into())
}

/// `6fd5a44b-35f4-4ad4-a9b9-6b9be13e1fe9`
fn parse_boot_id(text: &[u8]) -> Option<[u8; 16]> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Vec<u8> =
        text.trim_ascii().iter().filter(|byte| **byte != b'-').map(digit).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits
        .chunks_exact(2)
        .filter_map(|pair| match pair {
            [high, low] => Some(high << 4 | low),
            _ => None,
        })
        .collect();
    if digits.len() == 32 { bytes.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::time::Instant;

    use super::*;

    const OURS: Identity = Identity { layout: 3, boot: [5; 16] };

    /// A directory of its own, removed in the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("durable-state-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn state(text: &str) -> Sections {
        Sections {
            saved: Instant::now(),
            sections: vec![("one".to_owned(), text.into()), ("two".to_owned(), vec![])],
        }
    }

    fn found(store: &mut Store) -> Vec<u8> {
        match store.load().unwrap() {
            Outcome::Found(sections) => sections.get("one").unwrap().to_vec(),
            Outcome::Refused(why) => panic!("{why}"),
        }
    }

    #[test]
    fn the_latest_state_is_found_by_the_next_process() {
        let scratch = Scratch::new("latest");
        let path = scratch.0.join("state");
        for round in 0..5 {
            let mut store = Store::in_file(&path, OURS).unwrap();
            if round == 0 {
                assert_eq!(store.load().unwrap(), Outcome::Refused(Refused::Empty));
            } else {
                assert_eq!(found(&mut store), format!("{}", round - 1).as_bytes());
            }
            store.save(&state("an older one, and longer than what comes next")).unwrap();
            store.save(&state(&round.to_string())).unwrap();
        }
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_torn_state_is_passed_over_for_the_one_before_it() {
        let mut store = Store::in_memory(None, OURS).unwrap();
        store.save(&state("before")).unwrap();
        store.save(&state("torn")).unwrap();
        store.file.write_all_at(b"x", offset(0) + HEAD as u64 + 3).unwrap();
        assert_eq!(found(&mut store), b"before");
        store.file.write_all_at(b"x", offset(1) + HEAD as u64 + 3).unwrap();
        assert_eq!(store.load().unwrap(), Outcome::Refused(Refused::Damaged));
        assert_eq!(store.load().unwrap(), Outcome::Refused(Refused::Empty), "it is not asked for twice");
    }

    #[test]
    fn a_state_of_another_boot_or_version_is_refused_for_good() {
        for (other, why) in [
            (Identity { boot: [6; 16], ..OURS }, Refused::OtherBoot),
            (Identity { layout: 4, ..OURS }, Refused::OtherVersion),
        ] {
            let mut store = Store::in_memory(None, OURS).unwrap();
            store.save(&state("a")).unwrap();
            store.identity = other;
            assert_eq!(store.load().unwrap(), Outcome::Refused(why));
            store.identity = OURS;
            assert_eq!(store.load().unwrap(), Outcome::Refused(Refused::Empty));
        }
    }

    #[test]
    fn a_memory_file_is_handed_on() {
        let mut first = Store::in_memory(None, OURS).unwrap();
        first.save(&state("a")).unwrap();
        let kept = first.descriptor().try_clone_to_owned().unwrap();
        drop(first);
        assert_eq!(found(&mut Store::in_memory(Some(kept), OURS).unwrap()), b"a");
    }

    #[test]
    fn a_file_of_others_a_link_and_one_in_use_are_refused() {
        let scratch = Scratch::new("refused");
        let path = |name: &str| scratch.0.join(name);
        std::fs::write(path("open"), "").unwrap();
        std::fs::set_permissions(path("open"), std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Store::in_file(&path("open"), OURS), Err(StoreError::NotOurs)));
        let used = Store::in_file(&path("used"), OURS).unwrap();
        assert!(matches!(Store::in_file(&path("used"), OURS), Err(StoreError::InUse)));
        drop(used);
        symlink(path("used"), path("link")).unwrap();
        assert!(matches!(Store::in_file(&path("link"), OURS), Err(StoreError::Io(_))));
        std::fs::hard_link(path("used"), path("hard")).unwrap();
        assert!(matches!(Store::in_file(&path("used"), OURS), Err(StoreError::NotOurs)));
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        assert!(matches!(Store::in_file(&path("fifo"), OURS), Err(StoreError::NotOurs)));
    }

    #[test]
    fn what_is_too_large_is_not_saved_and_what_was_before_it_is_no_state_any_more() {
        let mut store = Store::in_memory(None, OURS).unwrap();
        store.save(&state("a")).unwrap();
        let large = Sections { sections: vec![("one".to_owned(), vec![0; MOST_BYTES])], ..state("") };
        assert!(matches!(store.save(&large), Err(StoreError::TooLarge(_))));
        assert_eq!(store.load().unwrap(), Outcome::Refused(Refused::Empty));
        store.save(&state("b")).unwrap();
        assert_eq!(found(&mut store), b"b");
    }

    #[test]
    fn the_boot_id_is_32_hexadecimal_digits() {
        let id = parse_boot_id(b"6fd5a44b-35f4-4ad4-a9b9-6b9be13e1fe9\n").unwrap();
        assert_eq!((id[0], id[15]), (0x6f, 0xe9));
        for bad in [
            &b""[..],
            b"6fd5a44b",
            b"6fd5a44b-35f4-4ad4-a9b9-6b9be13e1fe9a",
            b"xfd5a44b-35f4-4ad4-a9b9-6b9be13e1fe9",
        ] {
            assert_eq!(parse_boot_id(bad), None);
        }
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
    }
}
