use super::*;

fn parse(text: &str) -> Result<HttpConfig, String> {
    HttpConfig::parse(text.as_bytes(), Path::new("/etc/http.yml")).map_err(|error| error.to_string())
}

#[test]
fn every_key_is_known() {
    let config = parse(
        "basic_auth: {username: u, password_file: secrets/p}
tls_config:
  ca_file: ca.pem
  cert: CERT
  key_file: /abs/key.pem
  server_name: prometheus.site
  insecure_skip_verify: true
  min_version: TLS12
  max_version: TLS13
follow_redirects: false
enable_http2: true
proxy_url: http://proxy:3128
no_proxy: a,b
proxy_connect_header: {X-A: [a, b]}
http_headers:
  X-Scope-OrgID: {values: [a], secrets: [b], files: [c]}
",
    )
    .unwrap();
    let file = |setting: &Setting| match &setting.source {
        Source::File(path) => path.display().to_string(),
        Source::Inline(secret) => format!("inline {}", secret.0),
    };
    let Some(Auth::Basic { user: Some(user), password: Some(password) }) = &config.auth else { panic!() };
    assert_eq!((file(user), file(password)), ("inline u".to_owned(), "/etc/secrets/p".to_owned()));
    let (cert, key) = config.tls.identity.as_ref().unwrap();
    assert_eq!((file(cert), file(key)), ("inline CERT".to_owned(), "/abs/key.pem".to_owned()));
    assert_eq!(file(config.tls.ca.as_ref().unwrap()), "/etc/ca.pem");
    assert!(config.tls.insecure_skip_verify && !config.follow_redirects);
    let headers: Vec<_> = config.headers[0].1.iter().map(file).collect();
    assert_eq!(headers, ["inline a", "inline b", "/etc/c"]);

    let config = parse(
        "proxy_from_environment: true
oauth2:
  client_id: i
  client_secret_file: s
  scopes: [a]
  token_url: https://id.site/token?x=y
  endpoint_params: {audience: p}
  tls_config: {min_version: TLS13}
  proxy_url: http://proxy
",
    )
    .unwrap();
    let Some(Auth::OAuth2(oauth2)) = &config.auth else { panic!() };
    assert_eq!((oauth2.server.0.host.as_str(), oauth2.server.1.as_str()), ("id.site", "/token?x=y"));
    assert_eq!((oauth2.tls.min_version, config.tls.min_version), (TlsVersion::Tls13, TlsVersion::Tls12));
    assert!(config.proxy_from_environment && config.follow_redirects && config.uses_environment());
    for empty in ["", "# nothing\n", "---\n", "{}", "tls_config:\n", "tls_config: {}\nbasic_auth:\n"] {
        assert!(parse(empty).unwrap().auth.is_none(), "{empty:?}");
    }
}

#[test]
fn an_error_names_the_key() {
    for (text, why) in [
        ("a: b", "/etc/http.yml:1: unknown field `a`, expected one of"),
        ("\nbearer_token: hunter2", "/etc/http.yml:2: unknown field `bearer_token`"),
        ("basic_auth:\n  password_ref: hunter2", "/etc/http.yml:2: basic_auth: unknown field `password_ref`"),
        ("- a", "/etc/http.yml:1: invalid type: sequence, expected a mapping"),
        (
            "basic_auth: {username: u, password: [hunter2]}",
            "/etc/http.yml:1: basic_auth.password: invalid type: sequence",
        ),
        (
            "basic_auth: {username: u, username_file: f}",
            "basic_auth: username and username_file exclude each other",
        ),
        (
            "basic_auth: {password: hunter2, password_file: f}",
            "basic_auth: password and password_file exclude each",
        ),
        (
            "basic_auth: {}\nauthorization: {credentials: a}",
            "basic_auth, authorization and oauth2 exclude each other",
        ),
        ("authorization: {}", "authorization: missing one of credentials or credentials_file"),
        (
            "authorization: {credentials: a, credentials_file: b}",
            "credentials and credentials_file exclude each other",
        ),
        (
            "authorization: {type: ' basic', credentials: a}",
            "authorization.type: use basic_auth instead of Basic",
        ),
        (
            "oauth2: {client_id: a, token_url: 'https://a/'}",
            "oauth2: missing one of client_secret or client_secret",
        ),
        ("oauth2: {client_secret: a, token_url: 'https://a/'}", "oauth2: missing client_id"),
        ("oauth2: {client_secret: a, client_id: a}", "oauth2: missing token_url"),
        ("oauth2: {client_secret: a, client_id: a, token_url: /b}", "oauth2.token_url: not a URL such as"),
        ("tls_config: {ca: a, ca_file: b}", "tls_config: ca and ca_file exclude each other"),
        ("tls_config: {cert: a}", "tls_config: missing one of key or key_file"),
        ("tls_config: {key_file: a}", "tls_config: missing one of cert or cert_file"),
        ("tls_config: {min_version: TLS13, max_version: TLS12}", "tls_config.min_version: above max_version"),
        ("tls_config: {min_version: TLS10}", "tls_config.min_version: TLS10 is not supported"),
        ("tls_config: {max_version: '1.2'}", "tls_config.max_version: unknown TLS version \"1.2\""),
        ("tls_config: {server_name: 'a b'}", "tls_config.server_name: not the name of a host"),
        ("proxy_url: socks5://a", "proxy_url: only proxies of http:// are supported"),
        ("proxy_url: http://a\nproxy_from_environment: true", "proxy_url and proxy_from_environment exclude"),
        (
            "no_proxy: a\nproxy_from_environment: true",
            "no_proxy and proxy_from_environment exclude each other",
        ),
        ("no_proxy: a", "no_proxy: has no effect without proxy_url"),
        ("proxy_connect_header: {A: [b]}", "proxy_connect_header: has no effect without a proxy"),
        (
            "proxy_url: http://a\nproxy_connect_header: {A: [\"\\n\"]}",
            "proxy_connect_header.a: not the value of a",
        ),
        (
            "http_headers: {Authorization: {values: [a]}}",
            "http_headers: authorization is set by this program",
        ),
        ("http_headers: {'a b': {values: [a]}}", "http_headers: \"a b\" is not the name of a header"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(why) && error.starts_with("/etc/http.yml:"), "{text}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let error = HttpConfig::parse(b"a\n\xff", Path::new("f")).unwrap_err();
    assert_eq!((error.line, error.reason.as_str()), (Some(2), "not UTF-8"));
}
