//! TLS: who is let in, and with what.

use std::io::Write;
use std::time::Instant;

use exporter_toolkit::WebConfigHandle;
use rcgen::ExtendedKeyUsagePurpose;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use crate::authority::{Authority, Client, Identity, serving};
use crate::support::{Dir, Server, ask, quick, until_closed};

#[test]
fn metrics_come_over_both_versions() {
    let authority = Authority::new();
    let (_dir, server) = serving(&authority, "");
    for versions in [vec![&TLS12], vec![&TLS13]] {
        let mut stream = Client { versions, ..Client::default() }.connect(&server, &authority);
        assert_eq!(ask(&mut stream, "GET", "/metrics", "").unwrap().status, 200);
        assert_eq!(ask(&mut stream, "GET", "/-/healthy", "").unwrap().status, 200, "the connection is kept");
    }
}

#[test]
fn inline_pem_serves_as_well_as_files() {
    let authority = Authority::new();
    let dir = Dir::new();
    let indented = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let Identity { cert, key } = authority.server();
    let config = format!("tls_server_config:\n  cert: |\n{}  key: |\n{}", indented(&cert), indented(&key));
    let server = Server::configured(&dir.put("web.yml", &config));
    assert_eq!(Client::default().get(&server, &authority).unwrap().status, 200);
    assert!(
        !format!("{:?}", server.config).contains(key.lines().nth(1).unwrap()),
        "the key is in a debug text"
    );
}

#[test]
fn versions_suites_and_curves_are_limited_as_configured() {
    let authority = Authority::new();
    let suites = |wanted: fn(&str) -> bool| {
        let mut provider = ring::default_provider();
        provider.cipher_suites.retain(|suite| wanted(&format!("{:?}", suite.suite())));
        provider
    };
    let curve = |nth: usize| {
        let mut provider = ring::default_provider();
        provider.kx_groups = vec![ring::ALL_KX_GROUPS[nth]];
        provider
    };
    let only12 = |provider| Client { versions: vec![&TLS12], provider, identity: None };
    let all = ring::default_provider;
    let any = |provider| Client { provider, ..Client::default() };
    for (config, client, let_in) in [
        ("min_version: TLS13", only12(all()), false),
        ("min_version: TLS13", any(all()), true),
        ("max_version: TLS12", Client { versions: vec![&TLS13], ..Client::default() }, false),
        ("max_version: TLS12", any(all()), true),
        ("cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]", only12(all()), true),
        (
            "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]",
            only12(suites(|name| name.contains("AES_128"))),
            false,
        ),
        (
            "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]",
            any(suites(|name| name.contains("TLS13_AES_128"))),
            true,
        ),
        ("cipher_suites: [TLS_AES_128_GCM_SHA256]", only12(all()), false),
        ("cipher_suites: [TLS_AES_128_GCM_SHA256]", any(all()), true),
        ("curve_preferences: [CurveP384]", any(curve(2)), true),
        ("curve_preferences: [CurveP384]", any(curve(0)), false),
        ("prefer_server_cipher_suites: false", any(all()), true),
    ] {
        let (_dir, server) = serving(&authority, &format!("  {config}\n"));
        let answer = client.get(&server, &authority);
        assert_eq!(answer.is_ok(), let_in, "{config}: {answer:?}");
    }
}

#[test]
fn clients_are_held_to_their_certificates() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let none = || Client::default();
    let good = || Client::with(authority.client("prometheus"));
    let other = || Client::with(authority.client("somebody"));
    let forged = || Client::with(stranger.client("prometheus"));
    let expired =
        || Client::with(authority.issue_until("prometheus", ExtendedKeyUsagePurpose::ClientAuth, 2020));
    let a_server = || Client::with(authority.issue("prometheus", ExtendedKeyUsagePurpose::ServerAuth));
    let ca = "  client_ca_file: ca.pem\n  client_auth_type: ";
    type Case<'a> = (String, Vec<(Client, bool)>);
    let cases: [Case<'_>; 6] = [
        ("  client_auth_type: NoClientCert\n".to_owned(), vec![(none(), true), (good(), true)]),
        ("  client_auth_type: RequestClientCert\n".to_owned(), vec![(none(), true), (forged(), true)]),
        ("  client_auth_type: RequireAnyClientCert\n".to_owned(), vec![(none(), false), (forged(), true)]),
        (format!("{ca}VerifyClientCertIfGiven\n"), vec![(none(), true), (good(), true), (forged(), false)]),
        (
            format!("{ca}RequireAndVerifyClientCert\n"),
            vec![
                (none(), false),
                (good(), true),
                (other(), true),
                (forged(), false),
                (expired(), false),
                (a_server(), false),
            ],
        ),
        (
            format!("{ca}RequireAndVerifyClientCert\n  client_allowed_sans: [prometheus, '*.site']\n"),
            vec![(none(), false), (good(), true), (other(), false), (forged(), false)],
        ),
    ];
    for (config, clients) in cases {
        let (_dir, server) = serving(&authority, &config);
        for (nth, (client, let_in)) in clients.into_iter().enumerate() {
            for versions in [vec![&TLS12], vec![&TLS13]] {
                let answer = Client { versions, ..client.clone() }.get(&server, &authority);
                assert_eq!(answer.is_ok(), let_in, "client {nth} of\n{config}{answer:?}");
            }
        }
    }
}

#[test]
fn an_allowed_ip_address_may_be_spelled_in_any_way() {
    let authority = Authority::new();
    let config = "  client_ca_file: ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n  client_allowed_sans:\n    - 127.0.0.1\n";
    let (_dir, server) = serving(&authority, config);
    assert!(Client::with(authority.client("any")).get(&server, &authority).is_ok());
}

#[test]
fn a_plaintext_client_gets_nothing_and_a_silent_one_is_closed() {
    let authority = Authority::new();
    let (_dir, server) = serving(&authority, "");
    let mut plain = server.connect();
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    let (_, said) = until_closed(&mut plain, Instant::now());
    assert!(!said.starts_with(b"HTTP"), "{said:?}");
    let started = Instant::now();
    let (took, said) = until_closed(&mut server.connect(), started);
    assert!(took >= quick().header_timeout && said.is_empty());
    assert!(server.exporter.asked.lock().unwrap().is_empty());
    assert_eq!(Client::default().get(&server, &authority).unwrap().status, 200);
}

#[test]
fn what_the_configuration_names_must_be_there_and_fit() {
    let authority = Authority::new();
    let dir = Dir::new();
    dir.put_identity(&authority.server());
    dir.put("ca.pem", &authority.0.as_ref().pem());
    dir.put("empty.pem", "");
    dir.put("other.pem", &authority.server().key);
    dir.put("torn.pem", authority.server().cert.get(..200).unwrap());
    let at = dir.0.display();
    for (config, wanted) in [
        (
            "cert_file: none.pem\n  key_file: key.pem",
            format!(" tls_server_config.cert_file: {at}/none.pem: No such file or directory (os error 2)"),
        ),
        (
            "cert_file: cert.pem\n  key_file: none.pem",
            format!(" tls_server_config.key_file: {at}/none.pem: No such file or directory (os error 2)"),
        ),
        (
            "cert_file: .\n  key_file: key.pem",
            format!(" tls_server_config.cert_file: {at}/.: not a regular file"),
        ),
        (
            "cert_file: empty.pem\n  key_file: key.pem",
            format!(" tls_server_config.cert_file: {at}/empty.pem: holds no certificate"),
        ),
        (
            "cert_file: key.pem\n  key_file: key.pem",
            format!(" tls_server_config.cert_file: {at}/key.pem: holds no certificate"),
        ),
        (
            "cert_file: cert.pem\n  key_file: cert.pem",
            format!(
                " tls_server_config.key_file: {at}/cert.pem: holds no private key that is readable without a passphrase"
            ),
        ),
        (
            "key_file: other.pem\n  cert_file: cert.pem",
            format!(
                " tls_server_config.key_file: {at}/other.pem: does not fit the certificate: keys may not be consistent: KeyMismatch"
            ),
        ),
        (
            "cert_file: cert.pem\n  key: nonsense",
            " tls_server_config.key: holds no private key that is readable without a passphrase".to_owned(),
        ),
        (
            "cert_file: cert.pem\n  key_file: key.pem\n  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: empty.pem",
            format!(" tls_server_config.client_ca_file: {at}/empty.pem: holds no certificate"),
        ),
    ] {
        let path = dir.put("web.yml", &format!("tls_server_config:\n  {config}\n"));
        let error = WebConfigHandle::load(Some(&path)).unwrap_err();
        assert_eq!(error.to_string(), format!("{}:{wanted}", path.display()));
    }
    let path = dir.put("web.yml", "tls_server_config:\n  cert_file: torn.pem\n  key_file: key.pem\n");
    let error = WebConfigHandle::load(Some(&path)).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{at}/web.yml: tls_server_config.cert_file: {at}/torn.pem: not PEM: ")),
        "{error}"
    );
    let missing = dir.0.join("none.yml");
    let error = WebConfigHandle::load(Some(&missing)).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: No such file or directory (os error 2)", missing.display()));
}

#[test]
fn half_a_handshake_costs_nobody() {
    let authority = Authority::new();
    let (_dir, server) = serving(&authority, "");
    let half: Vec<_> = (0..400)
        .map(|_| {
            let mut half = server.connect();
            // The server may have closed it already.
            let _ = half.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]);
            half
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(Client::default().get(&server, &authority).unwrap().status, 200);
    }
    let (_, handshakes) = server.monitor.stats().connections[0];
    assert!(handshakes <= 256, "{handshakes}");
    drop(half);
}
