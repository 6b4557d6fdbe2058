//! Files that other tools' prologs leave for each GPU: `/run/gpustat` of Princeton's jobstats, and dcgm-exporter's
//! `hpc-job-mapping-dir`.
//!
//! A file is looked up by the names of the units, so other files cost nothing. It is trusted like the file of the
//! prolog snippet: only if root, or the owner of the cgroup tree, owns it, and no other user can write it or its
//! directory.

use std::path::Path;
use std::sync::Arc;

use gpu_devices::Unit;
use kernel_files::parse::{fields, integer};
use kernel_files::{Buffer, Dir, ReadError, SourceError};
use slurm_jobs::JobId;

use super::Source;
use super::names::Names;

/// Jobs that are believed to share a GPU, at most.
const MOST_JOBS: usize = 1024;

/// A job that a file names, and its owner if the file has that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Which job.
    pub id: JobId,
    /// Its owner.
    pub uid: Option<u32>,
}

/// Parses a file of `/run/gpustat`: a line `<jobid>` or `<jobid> <uid>`. `None` for anything else; 0 is no job.
pub fn parse_gpustat(bytes: &[u8]) -> Option<Named> {
    let line = bytes.trim_ascii();
    let mut words = fields(line).filter(|_| !line.contains(&b'\n'));
    let id = JobId::parse(words.next()?)?;
    let uid = match words.next() {
        Some(word) => Some(u32::try_from(integer(word)?).ok()?),
        None => None,
    };
    words.next().is_none().then_some(Named { id, uid })
}

/// Parses a file of `hpc-job-mapping-dir`: a job id each line. Other lines, such as a torn last one, are ignored.
pub fn parse_job_mapping(bytes: &[u8]) -> Vec<Named> {
    let ids = bytes.split(|byte| *byte == b'\n').filter_map(|line| JobId::parse(line.trim_ascii()));
    ids.take(MOST_JOBS).map(|id| Named { id, uid: None }).collect()
}

/// The jobs of each unit that has a file.
pub(super) type Claims = Vec<(Arc<str>, Vec<Named>)>;

/// Reads the files for these units, and the first error. Files that vanish meanwhile are absent. Of several names the
/// first that exists counts.
pub(super) fn read(
    source: Source,
    dir: &Path,
    units: &[Arc<Unit>],
    names: Names<'_>,
    owner: u32,
    buffer: &mut Buffer,
) -> (Claims, Option<SourceError>) {
    const FILES: &str = "the prolog's files of GPUs";
    let mut claims = Claims::new();
    let mut wrong = None;
    let failed = |error| Some(SourceError::reading(FILES, "")(error));
    let dir = match Dir::open(dir) {
        Ok(dir) => dir,
        Err(ReadError::Gone) => return (claims, None),
        Err(error) => return (claims, failed(error)),
    };
    for unit in units.iter().filter(|unit| !unit.divided) {
        let by_id = (source == Source::Gpustat && is_file_name(&unit.uuid)).then(|| unit.uuid.to_string());
        for name in by_id.into_iter().chain(names.number_of(unit)) {
            match dir.read_owned(&name, owner, buffer) {
                Ok(bytes) => {
                    let named = match source {
                        Source::Gpustat => parse_gpustat(bytes).into_iter().collect(),
                        _ => parse_job_mapping(bytes),
                    };
                    claims.push((unit.uuid.clone(), named));
                    break;
                }
                Err(ReadError::Gone) => {}
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
    }
    (claims, wrong.and_then(failed))
}

/// An id comes from a driver, and old ones of parts have slashes.
fn is_file_name(id: &str) -> bool {
    !id.is_empty() && !id.starts_with('.') && !id.contains('/')
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{CWD, Mode, mkfifoat};
    use test_machine::Machine;

    use super::super::testing::{gpu, mig};
    use super::*;

    fn named(id: u32, uid: Option<u32>) -> Named {
        Named { id: JobId(id), uid }
    }

    #[test]
    fn the_two_forms() {
        for (text, expected) in [
            ("42 1001\n", Some(named(42, Some(1001)))),
            ("42\n", Some(named(42, None))),
            ("42 1001", Some(named(42, Some(1001)))),
            ("0 0\n", None),
            ("", None),
            ("\n", None),
            ("42 alice\n", None),
            ("42 1001 more\n", None),
            ("42\n1001\n", None),
            ("42 -1\n", None),
            ("4294967295 0\n", None),
            ("x 1001\n", None),
        ] {
            assert_eq!(parse_gpustat(text.as_bytes()), expected, "{text:?}");
        }
        let ids = |text: &[u8]| parse_job_mapping(text).iter().map(|named| named.id.0).collect::<Vec<_>>();
        assert_eq!(ids(b"42\n43\r\n\n"), [42, 43]);
        assert_eq!(ids(b"42\njob1\n0\n43"), [42, 43]);
        assert_eq!(ids(b""), Vec::<u32>::new());
        assert_eq!(ids("7\n".repeat(5000).as_bytes()).len(), MOST_JOBS);
    }

    /// The directory of the test's files, and their owner.
    struct Place {
        machine: Machine,
        owner: u32,
    }

    impl Place {
        fn new() -> Self {
            let machine = Machine::new();
            let path = machine.path.join("files");
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let owner = Dir::open(&path).unwrap().stat().unwrap().uid;
            Self { machine, owner }
        }

        fn file(&self, name: &str, content: &str) {
            self.machine.write(&format!("files/{name}"), content);
            let path = self.machine.path.join("files").join(name);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
        }

        fn read(
            &self,
            source: Source,
            units: &[Arc<Unit>],
        ) -> (Vec<(String, Vec<u32>)>, Option<SourceError>) {
            let dir = self.machine.path.join("files");
            let names = Names::new(units, None);
            let (claims, wrong) = read(source, &dir, units, names, self.owner, &mut Buffer::default());
            let ids = |named: Vec<Named>| named.iter().map(|named| named.id.0).collect();
            (claims.into_iter().map(|(unit, named)| (unit.to_string(), ids(named))).collect(), wrong)
        }
    }

    #[test]
    fn files_are_found_by_id_first_and_by_number_where_that_is_certain() {
        let place = Place::new();
        let mut whole = [gpu(0), gpu(1), gpu(2)].map(Arc::new);
        place.file("0", "40 1001\n");
        place.file("1", "41 1001\n");
        place.file("GPU-1", "42 1001\n");
        place.file("3", "43 1001\n");
        let claims = |pairs: &[(&str, &[u32])]| {
            (pairs.iter().map(|(unit, jobs)| (unit.to_string(), jobs.to_vec())).collect::<Vec<_>>(), None)
        };
        assert_eq!(place.read(Source::Gpustat, &whole), claims(&[("GPU-0", &[40]), ("GPU-1", &[42])]));
        Arc::make_mut(&mut whole[0]).index = Some(2);
        Arc::make_mut(&mut whole[2]).index = Some(0);
        assert_eq!(
            place.read(Source::Gpustat, &whole),
            claims(&[("GPU-1", &[42])]),
            "numbers are not certain"
        );

        let mut divided = gpu(0);
        divided.divided = true;
        let mixed = [divided, mig(0, 7, 0), mig(0, 8, 0), gpu(1)].map(Arc::new);
        place.file("MIG-0-7-0", "50 1001\n");
        place.file("0.8", "51\n52\n");
        assert_eq!(
            place.read(Source::Gpustat, &mixed),
            claims(&[("MIG-0-7-0", &[50]), ("MIG-0-8-0", &[]), ("GPU-1", &[42])])
        );
        assert_eq!(place.read(Source::JobMapping, &mixed), claims(&[("MIG-0-8-0", &[51, 52])]));
    }

    #[test]
    fn what_others_could_have_written_is_not_believed() {
        let place = Place::new();
        let units = [gpu(0), gpu(1), gpu(2), gpu(3), gpu(4), gpu(5)].map(Arc::new);
        let at = |name: &str| place.machine.path.join("files").join(name);
        place.file("good", "40 1001\n");
        symlink("good", at("0")).unwrap();
        mkfifoat(CWD, at("1"), Mode::from_raw_mode(0o644)).unwrap();
        place.file("2", "42 1001\n");
        std::fs::set_permissions(at("2"), std::fs::Permissions::from_mode(0o666)).unwrap();
        place.file("3", &"1".repeat(kernel_files::SIZE_CAP + 1));
        std::fs::create_dir(at("4")).unwrap();
        place.file("5", "45 1001\n");
        for number in 0..5 {
            let (claims, wrong) = place.read(Source::Gpustat, &units);
            assert_eq!(claims, [("GPU-5".to_owned(), vec![45])]);
            assert!(wrong.is_some(), "{number}");
            let path = at(&number.to_string());
            if number == 4 { std::fs::remove_dir(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
        }
        assert_eq!(place.read(Source::Gpustat, &units).1, None);

        std::fs::set_permissions(at(""), std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = place.read(Source::Gpustat, &units).1.unwrap();
        assert_eq!(error.to_string(), "denied: the prolog's files of GPUs");
        std::fs::remove_dir_all(at("")).unwrap();
        assert_eq!(place.read(Source::Gpustat, &units), (Vec::new(), None), "no prolog of that kind");
    }

    #[test]
    fn an_id_with_a_slash_is_no_name() {
        for (id, is) in
            [("GPU-1", true), ("", false), ("..", false), ("MIG-GPU-1/7/0", false), ("/etc", false)]
        {
            assert_eq!(is_file_name(id), is, "{id}");
        }
    }
}
