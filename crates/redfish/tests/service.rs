//! A service that answers as controllers do, and as they should not.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::service::{self as testkit, Authority, Identity, Reply};
use kernel_files::SourceError;
use redfish::{Fingerprint, Limits, Options, Quantity, Service, Trust};
use ring::digest::{SHA256, digest};

const PATH: &str = "redfish/v1/Chassis/1/EnvironmentMetrics";
const RESOURCE: &str =
    r##"{"@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics", "PowerWatts": {"Reading": 374.5}}"##;
const SECRET: &str = "correct-horse";
/// `monitor:correct-horse`.
const RIGHT: &str = "Basic bW9uaXRvcjpjb3JyZWN0LWhvcnNl";

/// A service with a certificate of an authority, and what a client needs for it.
struct Site {
    dir: Scratch,
    service: testkit::Service,
    options: Options,
}

fn fine(_: &str) -> Reply {
    Reply::json(RESOURCE)
}

fn site(answers: impl Fn(&str) -> Reply + Send + 'static) -> Site {
    let authority = Authority::default();
    site_of(&authority, authority.issue_until(2060), answers)
}

fn site_of(
    authority: &Authority,
    identity: Identity,
    answers: impl Fn(&str) -> Reply + Send + 'static,
) -> Site {
    let dir = Scratch::new("redfish");
    let service = testkit::Service::start(Some(identity), answers);
    let ca = dir.path().join("ca.pem");
    write(&ca, authority.pem()).unwrap();
    let options = Options {
        address: format!("https://{}/{PATH}", service.address).parse().unwrap(),
        credentials: Some(put_credentials(&dir, &format!("monitor:{SECRET}"))),
        trust: Some(Trust::Authorities(ca)),
        limits: Limits { answer: Duration::from_secs(60), ..Limits::default() },
    };
    Site { dir, service, options }
}

fn put_credentials(dir: &Scratch, text: &str) -> PathBuf {
    let file = dir.path().join("credentials");
    write(&file, text).unwrap();
    set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file
}

impl Site {
    fn open(&self) -> Service {
        Service::open(&self.options).unwrap()
    }

    /// The error of one answer, as it is shown. No text of the client has the password.
    fn error(&self) -> String {
        let client = self.open();
        let error = client.ask(Instant::now()).1.unwrap_err();
        let shown = format!("{error} {error:?} {client:?} {:?}", self.options);
        assert!(!shown.contains(SECRET) && !shown.contains("Basic"), "{shown}");
        error.to_string()
    }
}

fn watts(client: &Service, now: Instant) -> Result<u64, SourceError> {
    client.ask(now).1.map(|answer| answer.value(Quantity::Watts).unwrap())
}

#[test]
fn a_resource_is_asked_with_the_credentials_and_nothing_else() {
    let site = site(fine);
    assert_eq!(watts(&site.open(), Instant::now()), Ok(374_500_000));
    let requests = site.service.requests();
    let head = requests[0].to_ascii_lowercase();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].starts_with(&format!("GET /{PATH} HTTP/1.1\r\n")), "{head}");
    assert!(requests[0].contains(RIGHT), "{head}");
    assert!(head.contains(&format!("host: {}\r\n", site.service.address)), "{head}");
    assert!(head.contains("accept: application/json\r\n"), "{head}");
}

#[test]
fn an_answer_is_given_again_for_the_pause_and_the_connection_is_kept() {
    let site = site(fine);
    let (client, start) = (site.open(), Instant::now());
    assert_eq!(watts(&client, start), Ok(374_500_000));
    site.service.answer(|_| Reply::json(&RESOURCE.replace("374.5", "380")));
    let soon = start + Duration::from_millis(4999);
    let (at, answer) = client.clone().ask(soon);
    assert_eq!(
        (at, answer.unwrap().value(Quantity::Watts)),
        (start, Ok(374_500_000)),
        "also through a clone"
    );
    assert_eq!(watts(&client, start + Duration::from_secs(5)), Ok(380_000_000));
    assert_eq!((site.service.requests().len(), site.service.connections()), (2, 1));
}

#[test]
fn a_connection_that_the_service_closed_is_made_again() {
    let site = site(|_| Reply { close: true, ..fine("") });
    let (client, start) = (site.open(), Instant::now());
    for round in 0..3 {
        assert_eq!(watts(&client, start + Duration::from_secs(round * 10)), Ok(374_500_000));
    }
    assert_eq!((site.service.requests().len(), site.service.connections()), (3, 3));
}

#[test]
fn a_body_in_chunks_is_put_together() {
    let site = site(|_| {
        let (one, two) = RESOURCE.split_at(30);
        let body =
            format!("{:x}\r\n{one}\r\n{:x};ext=1\r\n{two}\r\n0\r\nTrailer: x\r\n\r\n", one.len(), two.len());
        let bytes = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes();
        Reply { bytes, ..Reply::default() }
    });
    assert_eq!(watts(&site.open(), Instant::now()), Ok(374_500_000));
}

#[test]
fn a_late_answer_is_none() {
    let mut site = site(|_| Reply { after: Duration::from_secs(60), ..fine("") });
    site.options.limits.answer = Duration::from_millis(300);
    assert_eq!(site.error(), "failed: Redfish: no answer within 0.3 s");
    let half =
        Reply { bytes: b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec(), ..Reply::default() };
    site.service.answer(move |_| half.clone());
    assert_eq!(site.error(), "failed: Redfish: no answer within 0.3 s");
    assert_eq!(Limits::default().answer, Duration::from_secs(4));
}

#[test]
fn refused_credentials_are_tried_again_when_they_changed_and_else_ever_more_seldom() {
    let site =
        site(|head| if head.contains(RIGHT) { fine("") } else { Reply::new("401 Unauthorized", "", "") });
    put_credentials(&site.dir, "monitor:wrong");
    let (client, start) = (site.open(), Instant::now());
    let asked = |seconds| {
        let result = watts(&client, start + Duration::from_secs(seconds));
        (result.map_err(|error| error.to_string()), site.service.requests().len())
    };
    let refused = Err("denied: Redfish: 401 Unauthorized, the credentials are wrong or missing".to_owned());
    let minutes = [(0, 1), (10, 1), (59, 1), (65, 2), (130, 2), (180, 2), (185, 3), (420, 3), (425, 4)];
    let hours = [
        (900, 4),
        (905, 5),
        (1860, 5),
        (1865, 6),
        (3780, 6),
        (3785, 7),
        (7380, 7),
        (7385, 8),
        (10_980, 8),
        (10_985, 9),
    ];
    for (seconds, requests) in minutes.into_iter().chain(hours) {
        assert_eq!(asked(seconds), (refused.clone(), requests), "after {seconds} s");
    }
    put_credentials(&site.dir, &format!("monitor\n{SECRET}\n"));
    assert_eq!(asked(10_990), (Ok(374_500_000), 10), "at once");
    put_credentials(&site.dir, "monitor:wrong again");
    assert_eq!(asked(11_000), (refused.clone(), 11));
    assert_eq!(asked(11_055), (refused.clone(), 11));
    assert_eq!(asked(11_065), (refused, 12), "after a minute, as at first");
}

#[test]
fn a_credentials_file_that_is_damaged_is_an_error_until_it_is_right() {
    let site = site(fine);
    let (client, start) = (site.open(), Instant::now());
    assert_eq!(watts(&client, start), Ok(374_500_000));
    set_permissions(put_credentials(&site.dir, "monitor:other"), Permissions::from_mode(0o644)).unwrap();
    let error = watts(&client, start + Duration::from_secs(10)).unwrap_err().to_string();
    assert!(error.ends_with("all users may read or write it: chmod o= FILE"), "{error}");
    assert_eq!(site.service.requests().len(), 1, "nothing is sent");
    put_credentials(&site.dir, "monitor:another");
    assert_eq!(watts(&client, start + Duration::from_secs(20)), Ok(374_500_000));
}

#[test]
fn other_statuses_have_a_reason_and_redirects_are_not_followed() {
    let site = site(fine);
    let elsewhere = testkit::Service::start(None, fine);
    let location = format!("Location: http://{}/{PATH}\r\n", elsewhere.address);
    for (status, error) in [
        ("301 Moved Permanently", "failed: Redfish: 301 Moved Permanently: redirects are not followed"),
        ("307 Temporary Redirect", "failed: Redfish: 307 Temporary Redirect: redirects are not followed"),
        ("403 Forbidden", "denied: Redfish: 403 Forbidden, the user lacks the privilege Login"),
        ("404 Not Found", "failed: Redfish: 404 Not Found: the service has no such resource"),
        ("503 Service Unavailable", "failed: Redfish: 503 Service Unavailable"),
        ("204 No Content", "failed: Redfish: 204 No Content"),
    ] {
        let location = location.clone();
        site.service.answer(move |_| {
            Reply::new(status, &location, if status.starts_with("204") { "" } else { RESOURCE })
        });
        assert_eq!(site.error(), error);
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[test]
fn an_answer_that_is_no_resource_has_a_reason() {
    let site = site(|_| Reply::json("<html>busy</html>"));
    assert_eq!(site.error(), "malformed: Redfish answer: line 1: not JSON");
    let body = |size: usize| Reply::json(&format!("{RESOURCE}{}", " ".repeat(size - RESOURCE.len())));
    site.service.answer(move |_| body(256 << 10));
    assert_eq!(watts(&site.open(), Instant::now()), Ok(374_500_000));
    site.service.answer(move |_| body((256 << 10) + 1));
    assert_eq!(site.error(), "failed: Redfish: the answer is larger than 256 KiB");
    site.service.answer(|_| {
        let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000)).repeat(100);
        let bytes = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}").into_bytes();
        Reply { bytes, ..Reply::default() }
    });
    assert_eq!(site.error(), "failed: Redfish: the answer is larger than 256 KiB");
    site.service.answer(|_| Reply { bytes: b"220 smtp ready\r\n\r\n".to_vec(), ..Reply::default() });
    assert_eq!(site.error(), "failed: Redfish: invalid HTTP version parsed");
    site.service.answer(|_| {
        let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n", "x".repeat(100 << 10));
        Reply { bytes: head.into_bytes(), ..Reply::default() }
    });
    assert_eq!(site.error(), "failed: Redfish: message head is too large");
    site.service.answer(|_| Reply::default());
    assert!(site.error().starts_with("failed: Redfish: connection "), "{}", site.error());
    site.service.answer(|_| {
        let mut reply = fine("");
        reply.bytes.truncate(100);
        Reply { close: true, ..reply }
    });
    assert!(site.error().starts_with("failed: Redfish: error reading a body"), "{}", site.error());
}

#[test]
fn a_service_that_does_not_listen_is_an_error() {
    let mut site = site(fine);
    let free = jobledger_testkit::servers::free_address();
    site.options.address = format!("https://{free}/{PATH}").parse().unwrap();
    assert_eq!(site.error(), "failed: Redfish: Connection refused (os error 111)");
}

#[test]
fn a_certificate_of_another_authority_for_another_host_or_that_has_expired_is_refused() {
    let (authority, other) = (Authority::default(), Authority::default());
    let error = |identity| {
        let site = site_of(&authority, identity, fine);
        (site.error(), site.service.requests().len())
    };
    let failed = |says: &str| (format!("failed: Redfish: {says}"), 0);
    assert_eq!(
        error(other.issue_until(2060)),
        failed("no authority that is trusted issued the service's certificate")
    );
    assert_eq!(error(authority.issue_until(2010)), failed("the service's certificate has expired"));
    assert_eq!(error(Identity::of_factory()), failed("the service's certificate has expired"));
    let mut site = site_of(&authority, authority.issue_until(2060), fine);
    site.options.address =
        format!("https://localhost:{}/{PATH}", site.service.address.port()).parse().unwrap();
    assert_eq!(site.error(), "failed: Redfish: the service's certificate is not for this host");
}

#[test]
fn a_pinned_certificate_is_accepted_whatever_it_says_and_no_other_is() {
    let identity = Identity::of_factory();
    let hex: String =
        digest(&SHA256, &identity.certificate).as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let pin: Fingerprint = format!("sha256:{hex}").parse().unwrap();
    let mut site = site_of(&Authority::default(), identity, fine);
    site.options.trust = Some(Trust::Certificate(pin));
    assert_eq!(watts(&site.open(), Instant::now()), Ok(374_500_000));
    let wrong = format!("sha256:{}", "00".repeat(32)).parse().unwrap();
    site.options.trust = Some(Trust::Certificate(wrong));
    let error =
        format!("failed: Redfish: the service's certificate is sha256:{hex}, not the one that is configured");
    assert_eq!((site.error(), site.service.requests().len()), (error, 1), "the password is not sent");
}

#[test]
fn plain_http_is_for_loopback_and_without_credentials_none_are_sent() {
    let service = testkit::Service::start(None, fine);
    let options = |trust| Options {
        address: format!("http://localhost:{}/{PATH}", service.address.port()).parse().unwrap(),
        credentials: None,
        trust,
        limits: Limits::default(),
    };
    let client = Service::open(&options(None)).unwrap();
    assert_eq!(watts(&client, Instant::now()), Ok(374_500_000));
    assert!(!service.requests()[0].to_ascii_lowercase().contains("authorization"));
    let pin = Trust::Certificate(format!("sha256:{}", "00".repeat(32)).parse().unwrap());
    assert!(Service::open(&options(Some(pin))).is_err());
}

#[test]
fn files_that_cannot_be_used_are_refused_at_the_start() {
    let site = site(fine);
    let error = |change: &dyn Fn(&mut Options)| {
        let mut options = site.options.clone();
        change(&mut options);
        Service::open(&options).unwrap_err().to_string()
    };
    let none = site.dir.path().join("none");
    assert!(error(&|o| o.credentials = Some(none.clone())).contains("none: No such file"));
    assert!(error(&|o| o.trust = Some(Trust::Authorities(none.clone()))).contains("none: No such file"));
    assert!(error(&|o| o.trust = None).contains("https needs"));
    for (text, why) in [
        ("", "holds no certificate"),
        ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "not PEM"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "not a CA certificate"),
    ] {
        let bad = site.dir.path().join("bad.pem");
        write(&bad, text).unwrap();
        let error = error(&|o| o.trust = Some(Trust::Authorities(bad.clone())));
        assert!(error.contains("bad.pem") && error.contains(why), "{error}");
    }
}
