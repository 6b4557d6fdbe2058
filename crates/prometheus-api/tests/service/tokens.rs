//! OAuth 2.

use std::sync::atomic::{AtomicUsize, Ordering};

use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::service::{Reply, Service};
use prometheus_api::{Error, Kind, Range};

use super::{ask, client, options, says};

const EMPTY: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;

fn config(tokens: &Service, more: &str) -> String {
    let url = format!("http://{}/token", tokens.address);
    format!("oauth2: {{client_id: 'i:d', client_secret: hunter2, token_url: '{url}'{more}}}\n")
}

#[tokio::test]
async fn a_token_is_used_until_shortly_before_its_end() {
    let dir = Scratch::new("prometheus-api-tokens");
    let count = AtomicUsize::new(0);
    let tokens = Service::start(None, move |_| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        Reply::json(&format!(r#"{{"access_token":"t{number}","token_type":"bearer","expires_in":3600}}"#))
    });
    let server = Service::start(None, |_| Reply::json(EMPTY));
    let more = ", scopes: [a, b], endpoint_params: {audience: 'x y'}";
    let asking =
        client(prometheus_api::Options { max_points: 1, ..options(&server) }, &dir, &config(&tokens, more));
    let range = Range { start: 0.0, end: 7.0, step: 1.0 };
    asking.query_range("a", range).await.unwrap();
    assert_eq!((tokens.requests().len(), server.requests().len()), (1, 8));
    assert!(server.requests().iter().all(|request| request.contains("authorization: Bearer t0\r\n")));
    let request = &tokens.requests()[0];
    // i%3Ad:hunter2
    assert!(
        request.starts_with("POST /token ") && request.contains("Basic aSUzQWQ6aHVudGVyMg==\r\n"),
        "{request}"
    );
    assert!(
        request.ends_with("\r\n\r\ngrant_type=client_credentials&scope=a%20b&audience=x%20y"),
        "{request}"
    );

    tokens.answer(says("200 OK", "", r#"{"access_token":"short","expires_in":10}"#));
    let again = client(options(&server), &dir, &config(&tokens, ""));
    let _ = again.query_range("a", range).await.unwrap();
    let _ = again.query_range("a", range).await.unwrap();
    assert_eq!(tokens.requests().len(), 3);
}

#[tokio::test]
async fn a_server_may_want_the_secret_in_the_form() {
    let dir = Scratch::new("prometheus-api-tokens");
    let tokens = Service::start(None, |request: &str| {
        if request.contains("client_id=i%3Ad&client_secret=hunter2") {
            Reply::json(r#"{"access_token":"t"}"#)
        } else {
            Reply::new("401 No", "", "")
        }
    });
    let server = Service::start(None, |_| Reply::json(super::ONE));
    let asking = client(options(&server), &dir, &config(&tokens, ""));
    assert_eq!(ask(&asking).await, Ok(1.0));
    assert!(!tokens.requests()[1].contains("authorization"));
}

#[tokio::test]
async fn a_server_without_a_token_is_named() {
    let dir = Scratch::new("prometheus-api-tokens");
    let tokens = Service::start(None, says("403 Forbidden", "", "hunter2"));
    let server = Service::start(None, |_| Reply::json(super::ONE));
    let host = tokens.address;
    let asking = client(options(&server), &dir, &config(&tokens, ""));
    let error = ask(&asking).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("no token of {host}: it answers 403 Forbidden: see oauth2 of the HTTP configuration file")
    );
    assert_eq!(error.kind(), Kind::Server);
    tokens.answer(says("200 OK", "", r#"{"access_token": 5, "a": "hunter2"}"#));
    let error = ask(&asking).await.unwrap_err();
    assert!(matches!(&error, Error::Token { .. }) && !error.to_string().contains("hunter2"), "{error}");
    assert!(server.requests().is_empty());
}
