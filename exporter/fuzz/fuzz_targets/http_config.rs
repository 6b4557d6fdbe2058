//! The HTTP configuration file of a client: an error names the file, and no secret of it is shown.

use std::path::Path;

use prometheus_api::HttpConfig;

pub fn fuzz(bytes: &[u8]) {
    match HttpConfig::parse(bytes, Path::new("/etc/jobledger/http.yml")) {
        Ok(config) => {
            let shown = format!("{config:?}");
            assert!(std::str::from_utf8(bytes).is_ok());
            // Where the word is only a password, it is not shown.
            let text = String::from_utf8_lossy(bytes);
            if text.matches("hunter2").count() == text.matches("password: hunter2").count() {
                assert!(!shown.contains("hunter2"), "{shown}");
            }
        }
        Err(error) => {
            assert!(error.to_string().starts_with("/etc/jobledger/http.yml"), "{error}");
            assert!(!error.reason.is_empty());
        }
    }
}
