//! The HTTP configuration file and the files that it names.

use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::service::{Reply, Service};
use prometheus_api::{Client, Kind, Options};

use super::{ONE, ask, client, file, options};

#[tokio::test]
async fn what_the_files_hold_is_sent() {
    let dir = Scratch::new("prometheus-api-config");
    file(&dir, "user", "user\n", 0o644);
    file(&dir, "password", " hunter2\n", 0o600);
    file(&dir, "token", "abc\n", 0o600);
    file(&dir, "cookie", "a=b\n", 0o600);
    let server = Service::start(None, |_| Reply::json(ONE));
    for (config, header) in [
        (
            "basic_auth: {username_file: user, password_file: password}",
            "authorization: Basic dXNlcjpodW50ZXIy",
        ),
        ("basic_auth: {username: user}", "authorization: Basic dXNlcjo="),
        ("authorization: {credentials_file: token}", "authorization: Bearer abc"),
        ("authorization: {type: Token, credentials: xyz}", "authorization: Token xyz"),
        ("http_headers: {Cookie: {files: [cookie]}}", "cookie: a=b"),
        ("http_headers: {X-Scope-OrgID: {values: [a|b]}}", "x-scope-orgid: a|b"),
        ("http_headers: {X-A: {values: [a], secrets: [b]}}", "x-a: a\r\nx-a: b"),
    ] {
        assert_eq!(ask(&client(options(&server), &dir, config)).await, Ok(1.0), "{config}");
        let request = server.requests().pop().unwrap();
        assert!(request.contains(&format!("\r\n{header}\r\n")), "{config}: {request}");
    }
}

#[test]
fn a_secret_that_all_users_may_read_is_a_warning() {
    let dir = Scratch::new("prometheus-api-modes");
    let open = Options { url: "http://localhost".to_owned(), ..Options::default() };
    let warnings = |config: &str, mode| {
        let path = file(&dir, "http.yml", config, mode);
        let client = Client::new(&Options { http_config_file: Some(path), ..open.clone() }).unwrap();
        client.warnings().to_vec()
    };
    let shown = dir.path().join("http.yml").display().to_string();
    let of_file = format!("{shown} has a secret, and all users may read or write it: chmod o= {shown}");
    for (config, secret) in [
        ("basic_auth: {username: u, password: hunter2}", true),
        ("authorization: {credentials: hunter2}", true),
        ("oauth2: {client_id: a, client_secret: hunter2, token_url: 'https://a/'}", true),
        ("proxy_url: 'http://u:hunter2@proxy'", true),
        ("http_headers: {X-A: {secrets: [hunter2]}}", true),
        ("http_headers: {X-A: {values: [public]}}", false),
        ("proxy_url: 'http://proxy'", false),
        ("tls_config: {server_name: a}", false),
    ] {
        assert_eq!(
            warnings(config, 0o644),
            if secret { vec![of_file.clone()] } else { Vec::new() },
            "{config}"
        );
        assert!(warnings(config, 0o640).is_empty(), "{config}");
    }
    file(&dir, "password", "hunter2", 0o604);
    let found = warnings("basic_auth: {username: u, password_file: password}", 0o600);
    assert!(found.len() == 1 && found[0].contains("/password has a secret"), "{found:?}");
}

#[test]
fn credentials_over_plain_http_are_a_warning() {
    let dir = Scratch::new("prometheus-api-plain");
    let with = |url: &str, config: &str| {
        client(Options { url: url.to_owned(), ..Options::default() }, &dir, config).warnings().to_vec()
    };
    let basic = "basic_auth: {username: u, password: hunter2}";
    assert_eq!(
        with("http://prom:9090/", basic),
        ["prom:9090: http shows the credentials to the network: use https"]
    );
    assert!(with("http://prom:9090/", "").is_empty());
    for private in ["https://prom/", "http://localhost:9090", "http://[::1]:9090"] {
        assert!(with(private, basic).is_empty(), "{private}");
    }
    let tokens = "oauth2: {client_id: a, client_secret: hunter2, token_url: 'http://a/'}";
    assert_eq!(
        with("https://prom/", tokens),
        ["oauth2.token_url: http shows the secret to the network: use https"]
    );
}

#[test]
fn an_error_names_the_file_and_no_secret() {
    let dir = Scratch::new("prometheus-api-files");
    let wrong = |config: &str| {
        let path = file(&dir, "http.yml", config, 0o600);
        let options =
            Options { url: "http://a".to_owned(), http_config_file: Some(path), ..Options::default() };
        let error = Client::new(&options).unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        error.to_string().replace(&dir.path().display().to_string(), "DIR")
    };
    file(&dir, "empty.pem", "", 0o600);
    for (config, why) in [
        (
            "tls_config: {ca_file: none.pem}",
            "DIR/http.yml: tls_config.ca_file: DIR/none.pem: No such file or directory (os error 2)",
        ),
        (
            "tls_config: {ca_file: empty.pem}",
            "DIR/http.yml: tls_config.ca_file: DIR/empty.pem: holds no certificate",
        ),
        (
            "basic_auth: {username: a, password_file: none}",
            "DIR/http.yml: basic_auth.password_file: DIR/none: No such file or directory (os error 2)",
        ),
        (
            "basic_auth: {username: 'a:b', password: x}",
            "DIR/http.yml: basic_auth: a user name cannot hold a colon (RFC 7617)",
        ),
        (
            "authorization: {credentials: \"hunter2\\n\"}",
            "DIR/http.yml: authorization.credentials: not the value of a header",
        ),
        (
            "\n\nbasic_auth: [hunter2]",
            "DIR/http.yml:3: basic_auth: invalid type: sequence, expected a mapping",
        ),
    ] {
        assert_eq!(wrong(config), why);
    }
    let none = Options { http_config_file: Some(dir.path().join("none.yml")), ..Options::default() };
    let error = Client::new(&Options { url: "http://a".to_owned(), ..none }).unwrap_err().to_string();
    assert!(error.ends_with("/none.yml: No such file or directory (os error 2)"), "{error}");
    let error =
        Client::new(&Options { url: "https://u:hunter2@a".to_owned(), ..Options::default() }).unwrap_err();
    assert!(error.kind() == Kind::Config && !error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn a_client_shows_no_secret() {
    let dir = Scratch::new("prometheus-api-debug");
    let config = "basic_auth: {username: u, password: hunter2}\nproxy_url: 'http://u:hunter2@proxy'\n\
                  http_headers: {X-A: {secrets: [hunter2]}}\nproxy_connect_header: {X-B: [hunter2]}\n";
    let client = client(Options { url: "https://a".to_owned(), ..Options::default() }, &dir, config);
    assert!(!format!("{client:?}").contains("hunter2"));
    let parsed = prometheus_api::HttpConfig::parse(config.as_bytes(), dir.path()).unwrap();
    let shown = format!("{parsed:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("dTpodW50ZXIy"), "{shown}");
}
