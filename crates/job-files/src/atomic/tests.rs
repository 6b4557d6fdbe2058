use std::fs;

use super::*;

fn full(to: &mut BufWriter<File>) -> io::Result<()> {
    to.write_all(b"whole")
}

fn half(to: &mut BufWriter<File>) -> io::Result<()> {
    to.write_all(b"half")?;
    to.flush()?;
    Err(io::Error::other("no more"))
}

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn read(path: &Path) -> String {
    let mut text = String::new();
    io::Read::read_to_string(&mut OpenOptions::new().read(true).open(path).unwrap(), &mut text).unwrap();
    text
}

#[test]
fn a_file_is_whole_or_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    assert_eq!(write(&path, half).unwrap_err().to_string(), "no more");
    assert_eq!(names(directory.path()), Vec::<String>::new(), "nothing is left");
    write(&path, full).unwrap();
    assert_eq!((read(&path).as_str(), names(directory.path())), ("whole", vec!["file".to_owned()]));
    fs::write(&path, "old").unwrap();
    write(&path, half).unwrap_err();
    assert_eq!((read(&path).as_str(), names(directory.path())), ("old", vec!["file".to_owned()]));
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = write(&directory.path().join("none/file"), full).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("there is no directory {}", directory.path().join("none").display())
    );
    fs::write(directory.path().join("file"), "").unwrap();
    let error = write(&directory.path().join("file/file"), full).unwrap_err().to_string();
    assert!(!error.contains(".jobledger-"), "{error}");
}

#[test]
fn permissions_and_links_remain() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("file"), directory.path().join("link"));
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("file", &link).unwrap();
    write(&link, full).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read(&path), "whole");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    // A new one has the mode of any new file.
    let (new, any) = (directory.path().join("new"), directory.path().join("any"));
    write(&new, full).unwrap();
    fs::write(&any, "").unwrap();
    assert_eq!(fs::metadata(&new).unwrap().permissions(), fs::metadata(&any).unwrap().permissions());
}

#[test]
fn a_directory_that_cannot_be_written_to_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("none/file");
    assert_eq!(write(&missing, full).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(write(directory.path(), full).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    // Root may write anywhere but here.
    assert!(write(Path::new("/proc/self/jobledger"), full).is_err());
}

#[test]
fn a_device_is_written_to_and_remains_one() {
    use std::os::unix::fs::FileTypeExt;
    let device = Path::new("/dev/full");
    assert_eq!(write(device, full).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(fs::metadata(device).unwrap().file_type().is_char_device());
    write(Path::new("/dev/null"), full).unwrap();
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(names(Path::new("/dev")).iter().all(|name| !name.starts_with(".jobledger-")));
}
