//! Listen addresses and the telemetry path: what is accepted is printed as it was meant.

use exporter_toolkit::{parse_listen_address, parse_telemetry_path};
use jobledger_exporter_fuzz::typed;

pub fn fuzz(bytes: &[u8]) {
    typed(bytes, run);
}

fn run(text: &str) {
    match parse_listen_address(text) {
        Ok(address) => {
            let printed = address.to_string();
            assert_eq!(parse_listen_address(&printed).expect("printed addresses are addresses"), address);
            assert!(!printed.contains(char::is_whitespace) && printed.contains(':'));
        }
        Err(error) => assert!(error.to_string().contains("is not a listen address: ")),
    }
    if let Ok(path) = parse_telemetry_path(text) {
        assert_eq!(path, text);
        assert!(path.starts_with('/') && !path.contains(['?', '#', ' ', '%']));
    }
}
