//! The administrator's own files: configuration, certificates, tables.

use std::io::{self, Read};
use std::path::Path;

/// Far above any certificate chain.
const MAX_BYTES: u64 = 1024 * 1024;

/// Reads a regular file of at most 1 MiB. Anything else might never end, or block: a FIFO, a device.
#[allow(clippy::disallowed_methods, reason = "not a kernel file: the administrator's own, of known size")]
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("larger than 1 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_regular_files_are_read() {
        let dir = std::env::temp_dir().join(format!("jobledger-site-file-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("large");
        std::fs::write(&file, vec![b'a'; 1024 * 1024]).unwrap();
        assert_eq!(read(&file).unwrap().len(), 1024 * 1024);
        std::fs::write(&file, vec![b'a'; 1024 * 1024 + 1]).unwrap();
        assert_eq!(read(&file).unwrap_err().to_string(), "larger than 1 MiB");
        assert_eq!(read(&dir).unwrap_err().to_string(), "not a regular file");
        assert_eq!(read(&dir.join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err().to_string(), "not a regular file");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
