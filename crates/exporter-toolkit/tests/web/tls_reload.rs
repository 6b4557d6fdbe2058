//! What a change of certificates or of the configuration does to a server with TLS.

use jobledger_testkit::eventually;

use std::time::{Duration, UNIX_EPOCH};

use rcgen::ExtendedKeyUsagePurpose;

use crate::authority::{Authority, Client, serving};
use crate::support::{Dir, Server, ask};

/// The first second of a year, as certificates of [`Authority::issue_until`] end.
fn year(seconds: u64) -> Option<std::time::SystemTime> {
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

const OF_2020: u64 = 1_577_836_800;
const OF_2050: u64 = 2_524_608_000;
const OF_2060: u64 = 2_840_140_800;

#[test]
fn an_expired_certificate_is_served_until_it_is_renewed() {
    let authority = Authority::new();
    let dir = Dir::new();
    let until = |year| authority.issue_until("node", ExtendedKeyUsagePurpose::ServerAuth, year);
    dir.put_identity(&until(2020));
    let server = Server::configured(&dir.put_config(""));
    assert_eq!(server.config.certificate_expires(), year(OF_2020));
    let refused = Client::default().get(&server, &authority).unwrap_err();
    assert!(refused.to_string().contains("expired"), "the client decides: {refused}");
    dir.put_identity(&until(2050));
    eventually("the new one is served", || Client::default().get(&server, &authority).is_ok());
    assert_eq!(server.config.certificate_expires(), year(OF_2050));
    // An old one that is put in its place by mistake.
    dir.put_identity(&until(2020));
    eventually("the mistake shows", || {
        assert!(Client::default().get(&server, &authority).is_ok());
        !server.config.last_reload().succeeded
    });
    assert_eq!(server.config.certificate_expires(), year(OF_2050));
    assert!(Client::default().get(&server, &authority).is_ok());
}

#[test]
fn the_first_certificate_of_a_chain_that_expires_counts_and_without_tls_none_does() {
    let authority = Authority::new();
    let dir = Dir::new();
    let leaf = authority.server();
    let other = authority.issue_until("other", ExtendedKeyUsagePurpose::ServerAuth, 2050);
    dir.put_identity(&leaf);
    let server = Server::configured(&dir.put_config(""));
    assert_eq!(server.config.certificate_expires(), year(OF_2060));
    dir.put("cert.pem", &format!("{}{}", leaf.cert, other.cert));
    eventually("the chain is read", || {
        let _ = Client::default().get(&server, &authority);
        server.config.certificate_expires() == year(OF_2050)
    });
    let plain = Server::configured(&Dir::new().put("web.yml", ""));
    assert_eq!(plain.config.certificate_expires(), None);
}

#[test]
fn a_new_certificate_is_taken_up_and_old_connections_end() {
    let (old, new) = (Authority::new(), Authority::new());
    let (dir, server) = serving(&old, "");
    let mut kept = Client::default().connect(&server, &old);
    assert_eq!(ask(&mut kept, "GET", "/metrics", "").unwrap().header("connection"), None);
    // Key first: for a moment the pair does not fit, and the old one must go on.
    let identity = new.server();
    dir.put("key.pem", &identity.key);
    eventually("the misfit shows", || {
        assert!(Client::default().get(&server, &old).is_ok());
        !server.config.last_reload().succeeded
    });
    dir.put("cert.pem", &identity.cert);
    eventually("the new one is served", || Client::default().get(&server, &new).is_ok());
    assert!(Client::default().get(&server, &old).is_err());
    assert!(server.config.last_reload().succeeded);
    let last = ask(&mut kept, "GET", "/metrics", "").unwrap();
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
}

#[test]
fn a_new_client_ca_locks_out_the_clients_of_the_old_one() {
    let (authority, next) = (Authority::new(), Authority::new());
    let config = "  client_ca_file: ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n";
    let (dir, server) = serving(&authority, config);
    assert!(Client::with(authority.client("a")).get(&server, &authority).is_ok());
    dir.put("ca.pem", &next.0.as_ref().pem());
    eventually("the new client is let in", || {
        Client::with(next.client("a")).get(&server, &authority).is_ok()
    });
    assert!(Client::with(authority.client("a")).get(&server, &authority).is_err());
}

#[test]
fn no_change_of_the_file_lifts_tls_or_the_check_of_clients() {
    let authority = Authority::new();
    let verify = "  client_ca_file: ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n";
    let (dir, server) = serving(&authority, verify);
    for (file, reason) in [
        (String::new(), "TLS cannot be switched off without a restart"),
        (
            "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n".to_owned(),
            "the check of client certificates cannot be switched off without a restart",
        ),
    ] {
        dir.put("web.yml", &file);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let error = runtime.block_on(server.config.reload()).unwrap_err();
        assert!(error.to_string().ends_with(reason), "{error}");
        assert!(ask(&mut server.connect(), "GET", "/metrics", "").is_err());
        assert!(Client::default().get(&server, &authority).is_err());
        assert!(Client::with(authority.client("a")).get(&server, &authority).is_ok());
    }
}

#[test]
fn tls_can_be_switched_on_while_running() {
    let authority = Authority::new();
    let dir = Dir::new();
    dir.put_identity(&authority.server());
    let server = Server::configured(&dir.put("web.yml", ""));
    let mut kept = server.connect();
    assert_eq!(ask(&mut kept, "GET", "/metrics", "").unwrap().header("connection"), None);
    dir.put_config("");
    eventually("TLS is on", || Client::default().get(&server, &authority).is_ok());
    assert_eq!(ask(&mut kept, "GET", "/metrics", "").unwrap().header("connection"), Some("close"));
    assert!(ask(&mut server.connect(), "GET", "/metrics", "").is_err());
}

#[test]
fn the_list_of_client_names_may_change_and_not_go() {
    let authority = Authority::new();
    let verify = "  client_ca_file: ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n";
    let (dir, server) = serving(&authority, &format!("{verify}  client_allowed_sans: [a]\n"));
    let let_in = |name: &str| Client::with(authority.client(name)).get(&server, &authority).is_ok();
    assert!(let_in("a") && !let_in("b"));
    dir.put_config(&format!("{verify}  client_allowed_sans: [b]\n"));
    eventually("the other client is let in", || let_in("b"));
    assert!(!let_in("a"));
    dir.put_config(verify);
    eventually("the failure shows", || {
        assert!(!let_in("a") && let_in("b"));
        !server.config.last_reload().succeeded
    });
}
