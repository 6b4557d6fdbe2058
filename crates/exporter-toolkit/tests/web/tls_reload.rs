//! What a change of certificates or of the configuration does to a server with TLS.

use jobledger_testkit::eventually;

use crate::authority::{Authority, Client, serving};
use crate::support::{Dir, Server, ask};

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
