//! A certificate of the web server that has expired. Row 23.

use std::io::Write;
use std::process::{Command, Stdio};

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::wait::until;

use crate::support::*;

const METRIC: &str = "jobledger_exporter_web_certificate_expiry_time_seconds ";

/// Puts a certificate that is valid until the first day of a year, and its key, in place.
fn put(scratch: &Scratch, year: i32) {
    let mut params = rcgen::CertificateParams::new(vec!["node".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(scratch.path().join("key.pem"), key.serialize_pem()).unwrap();
    std::fs::write(scratch.path().join("cert.pem"), certificate.pem()).unwrap();
}

/// The exposition, by a client that takes any certificate.
fn metrics(exporter: &Exporter) -> String {
    let address = exporter.address().to_string();
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-connect", &address]);
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = client.spawn().unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
    client.stdin.as_mut().unwrap().write_all(request).unwrap();
    String::from_utf8(client.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn an_expired_certificate_is_served_and_shown_until_it_is_renewed() {
    if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
        jobledger_testkit::skip("openssl", "a client of TLS");
        return;
    }
    let scratch = Scratch::new("expired");
    put(&scratch, 2020);
    let config = scratch.path().join("web.yml");
    std::fs::write(&config, "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n").unwrap();
    let node = Node::with_jobs([1]);
    let exporter = node.start(&[&format!("--web.config.file={}", config.display())]);
    let shows = |at: &str| {
        let text = metrics(&exporter);
        let line = text.lines().find_map(|line| line.strip_prefix(METRIC)).map(str::to_owned);
        let jobs = text.contains("jobledger_job_cpu_seconds_total{jobid=\"1\"");
        if jobs && line.as_deref() == Some(at) { Ok(()) } else { Err(format!("{line:?}")) }
    };
    until("the expired one", || shows("1577836800.0"));
    assert!(exporter.log().contains("the certificate has expired"), "{}", exporter.log());
    put(&scratch, 2050);
    until("the renewed one", || shows("2524608000.0"));
    assert_eq!(exporter.terminate(), Some(0));
}
