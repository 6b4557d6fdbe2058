//! Where a server sends the client, and what goes there.

use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::service::{Reply, Service};
use prometheus_api::{Error, Kind};

use super::{ONE, ask, client, options, says};

const BASIC: &str =
    "basic_auth: {username: user, password: hunter2}\nhttp_headers: {X-Scope-OrgID: {values: [a]}}\n";

fn to(url: &str) -> impl Fn(&str) -> Reply + Send + 'static {
    let moved = Reply::new("307 Moved", &format!("Location: {url}\r\n"), "");
    move |request| if request.contains(" /here/") { Reply::json(ONE) } else { moved.clone() }
}

#[tokio::test]
async fn credentials_go_to_the_same_server_alone() {
    let dir = Scratch::new("prometheus-api-redirects");
    let other = Service::start(None, says("200 OK", "", ONE));
    let server = Service::start(None, to("/here/?a=b"));
    let client = client(options(&server), &dir, BASIC);
    assert_eq!(ask(&client).await, Ok(1.0));
    for request in server.requests() {
        assert!(request.contains("authorization: Basic dXNlcjpodW50ZXIy\r\n"), "{request}");
        assert!(
            request.contains("x-scope-orgid: a\r\n") && request.ends_with("timeout=20000ms"),
            "{request}"
        );
    }
    assert!(server.requests()[1].starts_with("POST /here/?a=b HTTP/1.1"));

    server.answer(to(&format!("http://{}/here/", other.address)));
    assert_eq!(ask(&client).await, Ok(1.0));
    let request = &other.requests()[0];
    assert!(request.starts_with("POST /here/") && request.ends_with("timeout=20000ms"), "{request}");
    assert!(!request.contains("authorization") && !request.contains("x-scope"), "{request}");
}

#[tokio::test]
async fn redirects_end() {
    let dir = Scratch::new("prometheus-api-redirects");
    let server = Service::start(None, to("/there?token=hunter2"));
    let host = server.address;
    let following = client(options(&server), &dir, BASIC);
    let error = ask(&following).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{host} redirects to /there: there is no end of redirects"));
    assert_eq!((server.requests().len(), error.kind()), (11, Kind::Network));
    let staying = client(options(&server), &dir, "follow_redirects: false");
    let error = ask(&staying).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{host} redirects to /there: follow_redirects is false"));
    server.answer(says("307 Moved", "Location: //elsewhere/\r\n", ""));
    assert!(matches!(ask(&following).await, Err(Error::Redirect { .. })));
    server.answer(says("303 See Other", "Location: /login\r\n", ""));
    assert!(matches!(ask(&following).await, Err(Error::Refused { status: 303, .. })));
}
