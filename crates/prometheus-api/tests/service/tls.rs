//! Which certificates are accepted.

use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::service::{Authority, Identity, Reply, Service};
use prometheus_api::{Error, Options};

use super::{ONE, ask, client, file, options};

fn https(server: &Service) -> Options {
    Options { url: format!("https://{}", server.address), ..options(server) }
}

fn one(_: &str) -> Reply {
    Reply::json(ONE)
}

#[tokio::test]
async fn a_certificate_is_of_a_trusted_authority_for_the_host_and_in_time() {
    let dir = Scratch::new("prometheus-api-tls");
    let (authority, other) = (Authority::default(), Authority::default());
    file(&dir, "ca.pem", &authority.pem(), 0o644);
    file(&dir, "other.pem", &other.pem(), 0o644);
    let server = Service::start(Some(authority.issue_until(4000)), one);
    let with = |tls: &str| client(https(&server), &dir, &format!("tls_config: {{{tls}}}\n"));
    let failed = |why: &str| Err(Error::Tls { host: server.address.to_string(), why: why.to_owned() });
    assert_eq!(ask(&with("ca_file: ca.pem")).await, Ok(1.0));
    assert_eq!(ask(&with("ca_file: ca.pem, min_version: TLS13")).await, Ok(1.0));
    assert_eq!(ask(&with("ca_file: ca.pem, max_version: TLS12")).await, Ok(1.0));
    assert_eq!(ask(&with("insecure_skip_verify: true")).await, Ok(1.0));
    let unknown = failed("no authority that is trusted issued the service's certificate");
    assert_eq!(ask(&with("ca_file: other.pem")).await, unknown);
    assert_eq!(ask(&with("")).await, unknown);
    let named = with("ca_file: ca.pem, server_name: prometheus.site");
    assert_eq!(ask(&named).await, failed("the service's certificate is not for this host"));

    let old = Service::start(Some(authority.issue_until(2010)), one);
    let client = client(https(&old), &dir, "tls_config: {ca_file: ca.pem}");
    let error = ask(&client).await.unwrap_err();
    let text = format!("no TLS with {}: the service's certificate has expired", old.address);
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn a_server_may_want_a_certificate_of_the_client() {
    let dir = Scratch::new("prometheus-api-mtls");
    let (authority, clients) = (Authority::default(), Authority::default());
    file(&dir, "ca.pem", &authority.pem(), 0o644);
    file(&dir, "client.pem", &clients.issue_until(4000).pem(), 0o600);
    file(&dir, "wrong.pem", &Identity::of_factory().pem(), 0o600);
    let server = Service::start_for(&clients, authority.issue_until(4000), one);
    let with = |tls: &str| client(https(&server), &dir, &format!("tls_config: {{ca_file: ca.pem{tls}}}\n"));
    assert_eq!(ask(&with(", cert_file: client.pem, key_file: client.pem")).await, Ok(1.0));
    let error = ask(&with(", cert_file: wrong.pem, key_file: wrong.pem")).await.unwrap_err();
    assert!(matches!(error, Error::Tls { .. } | Error::Broken { .. }), "{error}");
    let error = ask(&with("")).await.unwrap_err();
    assert!(matches!(error, Error::Tls { .. } | Error::Broken { .. }), "{error}");
}
