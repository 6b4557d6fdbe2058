//! The tables that an administrator can extend by a file.

use std::path::Path;

use gpu_devices::peaks::Peaks;
use perf_counters::catalogue::Catalogue;

/// The events of CPUs, with those of a site's file. `Err` names the file.
pub fn catalogue(file: Option<&Path>) -> Result<Catalogue, String> {
    file.map_or_else(|| Ok(Catalogue::built_in()), |file| read(file, Catalogue::with_site_bytes))
}

/// The peaks of GPUs, with those of a site's file. `Err` names the file.
pub fn peaks(file: Option<&Path>) -> Result<Peaks, String> {
    file.map_or_else(|| Ok(Peaks::built_in()), |file| read(file, Peaks::with_site_bytes))
}

fn read<T>(file: &Path, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T, String> {
    let bytes = config_files::read_config_file(file).map_err(|error| error.to_string());
    bytes.and_then(|bytes| parse(&bytes)).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sites_file_is_named_when_it_is_refused() {
        let file = std::env::temp_dir().join(format!("jobledger-tables-{}", std::process::id()));
        let refused = || [catalogue(Some(&file)).unwrap_err(), peaks(Some(&file)).unwrap_err()];
        for error in refused() {
            assert_eq!(error, format!("{}: No such file or directory (os error 2)", file.display()));
        }
        std::fs::write(&file, "nothing: 1\n").unwrap();
        for error in refused() {
            assert!(error.starts_with(&format!("{}: ", file.display())), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
