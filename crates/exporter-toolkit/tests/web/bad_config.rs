//! Every mistake in a web configuration file is named, with its line.

use std::path::Path;

use exporter_toolkit::WebConfig;

const HASH: &str = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";

fn error(text: &str) -> String {
    let error = WebConfig::parse(text.as_bytes(), Path::new("web.yml")).expect_err(text);
    error.to_string()
}

/// The settings of a TLS section that is otherwise complete; the first of them is on line 4.
fn tls(settings: &str) -> String {
    format!("tls_server_config:\n  cert_file: a\n  key_file: b\n{settings}\n")
}

#[test]
fn structure() {
    for (text, wanted) in [
        (
            "tls_sever_config: {}",
            "1: unknown field `tls_sever_config`, expected one of `tls_server_config`, `http_server_config`, `rate_limit`, `basic_auth_users`",
        ),
        (
            "rate_limit:\n\nextra: 1",
            "3: unknown field `extra`, expected one of `tls_server_config`, `http_server_config`, `rate_limit`, `basic_auth_users`",
        ),
        (
            "rate_limit:\n  burst: 1\n  interva: 1s",
            "3: rate_limit: unknown field `interva`, expected `interval` or `burst`",
        ),
        ("rate_limit:\n  burst: 1\nrate_limit:\n  burst: 2", "1: duplicate field `rate_limit`"),
        ("rate_limit:\n  burst: 1\n  burst: 2", "2: rate_limit: duplicate field `burst`"),
        ("- a", "1: invalid type: sequence, expected a mapping"),
        ("hunter2", "1: invalid type: string, expected a mapping"),
        ("tls_server_config: yes please", "1: tls_server_config: invalid type: string, expected a mapping"),
        (
            "tls_server_config:\n  cert_file: [a]",
            "2: tls_server_config.cert_file: invalid type: sequence, expected a string",
        ),
        (
            "tls_server_config:\n\tcert_file: a",
            "2: found character that cannot start any token, while scanning for the next token",
        ),
        (
            "tls_server_config: {cert: \"x\n",
            "2: found unexpected end of stream, while scanning a quoted scalar at line 1 column 27",
        ),
        ("tls_server_config: &b\n  cert: *d", "2: unknown anchor"),
        (
            "tls_server_config: {}\n---\nrate_limit: {}",
            " deserializing from YAML containing more than one document is not supported",
        ),
    ] {
        assert_eq!(error(text), format!("web.yml:{wanted}"), "{text}");
    }
    let error = WebConfig::parse(b"rate_limit:\n  interval: \xff", Path::new("web.yml")).unwrap_err();
    assert_eq!(error.to_string(), "web.yml:2: not UTF-8");
}

#[test]
fn tls_settings() {
    for (text, wanted) in [
        (
            "tls_server_config:\n  key_file: b".to_owned(),
            " tls_server_config: missing one of cert or cert_file",
        ),
        (
            "# c\ntls_server_config:\n  cert_file: a".to_owned(),
            " tls_server_config: missing one of key or key_file",
        ),
        (
            "tls_server_config:\n  min_version: TLS13".to_owned(),
            " tls_server_config: missing one of cert or cert_file",
        ),
        (tls("  cert: x"), " tls_server_config: cert and cert_file exclude each other"),
        (tls("  key: x"), " tls_server_config: key and key_file exclude each other"),
        (
            tls("  min_version: TLS11"),
            "4: tls_server_config.min_version: TLS11 is not supported: it is broken (RFC 8996); use TLS12 or TLS13",
        ),
        (
            tls("  min_version: 1.2"),
            "4: tls_server_config.min_version: unknown TLS version \"1.2\": TLS12 or TLS13",
        ),
        (
            tls("\n  max_version: SSL3"),
            "5: tls_server_config.max_version: unknown TLS version \"SSL3\": TLS12 or TLS13",
        ),
        (
            tls("  max_version: TLS12\n  min_version: TLS13"),
            " tls_server_config.min_version: above max_version",
        ),
        (
            tls("  cipher_suites:\n  - TLS_AES_128_GCM_SHA256\n  - TLS_FOO"),
            "6: tls_server_config.cipher_suites[1]: unknown cipher suite \"TLS_FOO\"",
        ),
        (
            tls("  cipher_suites: [TLS_FOO]"),
            "4: tls_server_config.cipher_suites[0]: unknown cipher suite \"TLS_FOO\"",
        ),
        (
            tls("  cipher_suites:\n    - TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
            "5: tls_server_config.cipher_suites[0]: cipher suite \"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA\" is not supported: no forward secrecy, or no authenticated encryption",
        ),
        (
            tls("  max_version: TLS12\n  cipher_suites: [TLS_AES_128_GCM_SHA256]"),
            " tls_server_config.cipher_suites: none of these is a suite of TLS 1.2",
        ),
        (
            tls("  curve_preferences:\n    - X25519\n    - CurveP521"),
            "6: tls_server_config.curve_preferences[1]: curve CurveP521 is not supported: use CurveP384, CurveP256 or X25519",
        ),
        (
            tls("  curve_preferences: [P256]"),
            "4: tls_server_config.curve_preferences[0]: unknown curve \"P256\": X25519, CurveP256 or CurveP384",
        ),
        (
            tls("  prefer_server_cipher_suites: 1"),
            "4: tls_server_config.prefer_server_cipher_suites: invalid type: integer, expected a boolean",
        ),
        (
            tls("  client_auth_type: Always"),
            "4: tls_server_config.client_auth_type: unknown client_auth_type \"Always\"",
        ),
        (
            tls("  client_auth_type: RequireAndVerifyClientCert"),
            " tls_server_config.client_auth_type: needs client_ca or client_ca_file",
        ),
        (
            tls("  client_auth_type: VerifyClientCertIfGiven"),
            " tls_server_config.client_auth_type: needs client_ca or client_ca_file",
        ),
        (
            tls("  client_ca_file: c"),
            " tls_server_config.client_ca_file: has no effect without client_auth_type",
        ),
        (
            tls("  client_ca: c\n  client_auth_type: NoClientCert"),
            " tls_server_config.client_ca: has no effect without client_auth_type",
        ),
        (
            tls("  client_allowed_sans: [a]"),
            " tls_server_config.client_allowed_sans: needs client_auth_type RequireAndVerifyClientCert or RequireAnyClientCert",
        ),
        (
            tls(
                "  client_ca_file: c\n  client_auth_type: VerifyClientCertIfGiven\n  client_allowed_sans:\n  - a",
            ),
            " tls_server_config.client_allowed_sans: needs client_auth_type RequireAndVerifyClientCert or RequireAnyClientCert",
        ),
        (
            tls("  client_auth_type: RequireAnyClientCert\n  client_allowed_sans: []"),
            " tls_server_config.client_allowed_sans: an empty list refuses every client",
        ),
    ] {
        assert_eq!(error(&text), format!("web.yml:{wanted}"), "{text}");
    }
}

#[test]
fn headers_rates_and_users() {
    let headers = |lines: &str| format!("http_server_config:\n  headers:\n{lines}\n");
    let users = |lines: &str| format!("basic_auth_users:\n{}\n", lines.replace("HASH", HASH));
    for (text, wanted) in [
        (
            headers("    Server: x"),
            "3: http_server_config.headers: unknown field `Server`, expected one of `Strict-Transport-Security`, `X-Content-Type-Options`, `X-Frame-Options`, `X-XSS-Protection`, `Content-Security-Policy`",
        ),
        (
            headers("    x-frame-options: deny"),
            "3: http_server_config.headers: unknown field `x-frame-options`, expected one of `Strict-Transport-Security`, `X-Content-Type-Options`, `X-Frame-Options`, `X-XSS-Protection`, `Content-Security-Policy`",
        ),
        (
            headers("    X-Frame-Options: no"),
            " http_server_config.headers: x-frame-options is \"no\", not one of: deny, sameorigin",
        ),
        (
            headers("    X-XSS-Protection: 1\n    X-Content-Type-Options: yes"),
            " http_server_config.headers: x-content-type-options is \"yes\", not one of: nosniff",
        ),
        (
            headers("    X-XSS-Protection: \"a\\nb\""),
            "3: http_server_config.headers.X-XSS-Protection: \"a\\nb\" is not a header value",
        ),
        (
            headers("    X-XSS-Protection: 1\n    X-XSS-Protection: 0"),
            "3: http_server_config.headers: duplicate field `X-XSS-Protection`",
        ),
        (
            "http_server_config:\n  http2: perhaps".to_owned(),
            "2: http_server_config.http2: invalid type: string, expected a boolean",
        ),
        (
            "rate_limit:\n  burst: 1\n  interval: 5".to_owned(),
            "3: rate_limit.interval: \"5\" is not a duration such as 1s, 250ms or 1m30s: time unit needed, for example 5sec or 5ms",
        ),
        (
            "rate_limit:\n  interval: -1s\n  burst: 1".to_owned(),
            "2: rate_limit.interval: \"-1s\" is not a duration such as 1s, 250ms or 1m30s: expected number at 0",
        ),
        ("rate_limit:\n  interval: 1s".to_owned(), " rate_limit.burst: 0 refuses every request"),
        (
            users("  alice: hunter2"),
            "2: basic_auth_users.alice: not a bcrypt hash: Invalid hash: the hash format is malformed; expected 60 ASCII bytes",
        ),
        (
            users(&format!("  alice: {HASH}\n  bob: {}", HASH.replace("$10$", "$31$"))),
            "3: basic_auth_users.bob: bcrypt cost 31 is not in 4..18",
        ),
        (users("  bob: HASH\n  alice: HASH\n  bob: HASH"), "2: basic_auth_users: duplicate field `bob`"),
        (users("  \"a:b\": HASH"), "2: basic_auth_users: user \"a:b\": a user name cannot hold a colon"),
        (
            "basic_auth_users: hunter2".to_owned(),
            "1: basic_auth_users: invalid type: string, expected a mapping of strings",
        ),
        (
            "basic_auth_users:\n  - hunter2".to_owned(),
            "2: basic_auth_users: invalid type: sequence, expected a mapping of strings",
        ),
    ] {
        let said = error(&text);
        assert_eq!(said, format!("web.yml:{wanted}"), "{text}");
        assert!(!said.contains("hunter2"), "a password is in the error");
    }
}

#[test]
fn what_the_toolkit_takes_is_taken() {
    for text in [
        "",
        "# nothing\n",
        "tls_server_config:\nhttp_server_config:\nrate_limit:\nbasic_auth_users:\n",
        "tls_server_config: {}\n",
        "http_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: sameorigin\n    X-Content-Type-Options: nosniff\n",
        "rate_limit:\n  interval: 0\n  burst: 0\n",
        "rate_limit:\n  interval: 1m30s\n  burst: 20\n",
        "rate_limit:\n  interval: 1.5h\n  burst: 20\n",
        &tls("  client_auth_type: RequireClientCert\n  client_allowed_sans: [a]"),
        &tls(
            "  min_version: TLS12\n  max_version: TLS13\n  prefer_server_cipher_suites: true\n  cipher_suites:\n  - TLS_AES_128_GCM_SHA256\n  - TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256\n  curve_preferences: [CurveP256, X25519]",
        ),
        &tls(
            "  client_ca_file: c\n  client_auth_type: RequireAndVerifyClientCert\n  client_allowed_sans: [a, 10.0.0.1]",
        ),
        &format!("basic_auth_users:\n  alice: {HASH}\n  1: {HASH}\n"),
    ] {
        WebConfig::parse(text.as_bytes(), Path::new("web.yml")).expect(text);
    }
}
