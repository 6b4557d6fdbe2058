//! Passwords, rate limit and headers.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exporter_toolkit::WebOptions;
use jobledger_testkit::eventually;

use crate::support::{Dir, Server, ask, read_answer};

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

fn users(list: &[(&str, &str)]) -> String {
    let line =
        |(user, password): &(&str, &str)| format!("  {user}: {}\n", bcrypt::hash(password, 4).unwrap());
    format!("basic_auth_users:\n{}", list.iter().map(line).collect::<String>())
}

#[test]
fn with_users_nothing_is_answered_without_a_password() {
    let dir = Dir::new();
    let server = Server::configured(&dir.put("web.yml", &users(&[("alice", "right"), ("bob", "other")])));
    for path in ["/metrics", "/", "/-/healthy", "/-/ready", "/nothing"] {
        let answer = server.get(path, "");
        assert_eq!((answer.status, answer.text()), (401, "Unauthorized\n"), "{path}");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Basic realm=\"Test exporter\""));
        assert_eq!(ask(&mut server.connect(), "POST", path, "").unwrap().status, 401);
    }
    for (login, status) in [
        (basic("alice", "right"), 200),
        (basic("bob", "other"), 200),
        (basic("alice", "other"), 401),
        (basic("alice", ""), 401),
        (basic("mallory", "right"), 401),
        (basic("", ""), 401),
        (basic("alice", &"x".repeat(100)), 401),
        ("Authorization: Bearer right\r\n".to_owned(), 401),
        ("Authorization: Basic ????\r\n".to_owned(), 401),
    ] {
        assert_eq!(server.get("/metrics", &login).status, status, "{login}");
    }
    assert_eq!(server.exporter.asked.lock().unwrap().len(), 2, "nobody else reached the exporter");
}

#[test]
fn a_flood_of_wrong_passwords_delays_neither_who_is_known_nor_who_is_new() {
    let dir = Dir::new();
    let hash = |password| bcrypt::hash(password, 7).unwrap();
    let (alice, bob) = (hash("right"), hash("other"));
    let config = format!("basic_auth_users:\n  alice: {alice}\n  bob: {bob}\n");
    let server = Server::configured(&dir.put("web.yml", &config));
    assert_eq!(server.get("/metrics", &basic("alice", "right")).status, 200);
    let mut flood: Vec<_> = (0..60).map(|_| server.connect()).collect();
    for (nth, connection) in flood.iter_mut().enumerate() {
        let login = basic("alice", &format!("wrong {nth}"));
        connection.write_all(format!("GET / HTTP/1.1\r\nHost: node\r\n{login}\r\n").as_bytes()).unwrap();
    }
    let started = Instant::now();
    assert_eq!(server.get("/metrics", &basic("alice", "right")).status, 200);
    let known = started.elapsed();
    assert_eq!(server.get("/metrics", &basic("bob", "other")).status, 200);
    let new = started.elapsed();
    let statuses: Vec<_> =
        flood.iter_mut().map(|connection| read_answer(connection, false).unwrap().status).collect();
    let all = started.elapsed();
    assert!(known < all / 2 && new < all / 2, "{known:?}, {new:?} of {all:?}");
    // 503: a slow machine has not come to it in time.
    assert!(statuses.iter().all(|status| matches!(status, 401 | 503)), "{statuses:?}");
    let rejected: BTreeMap<_, _> = server.monitor.stats().rejected.into_iter().collect();
    assert_eq!(rejected["password"] + rejected["login"], 60, "{rejected:?}");
}

#[test]
fn logins_are_remembered_by_the_next_process() {
    let dir = Dir::new();
    let path = dir.put("web.yml", &users(&[("alice", "right")]));
    let load = || exporter_toolkit::WebConfigHandle::load(Some(&path)).unwrap();
    let start =
        |config| Server::start_with(crate::support::quick(), Default::default(), config, "127.0.0.1:0");
    let before = start(load());
    let empty = before.config.export_logins();
    assert_eq!(before.get("/metrics", &basic("alice", "right")).status, 200);
    let logins = before.config.export_logins();
    assert!(logins.len() > empty.len());
    let config = load();
    config.import_logins(&logins).unwrap();
    assert!(config.import_logins(b"nonsense").is_err());
    let after = start(config);
    assert_eq!(after.get("/metrics", &basic("alice", "right")).status, 200);
    assert_eq!(after.config.export_logins(), logins, "nothing had to be checked");
    assert_eq!(after.get("/metrics", &basic("alice", "wrong")).status, 401);
    dir.put("web.yml", &users(&[("alice", "new")]));
    let changed = load();
    changed.import_logins(&logins).unwrap();
    let changed = start(changed);
    assert_eq!(changed.get("/metrics", &basic("alice", "right")).status, 401, "the password has changed");
    assert_eq!(changed.get("/metrics", &basic("alice", "new")).status, 200);
}

#[test]
fn a_changed_password_holds_on_connections_that_are_open() {
    let dir = Dir::new();
    let server = Server::configured(&dir.put("web.yml", &users(&[("alice", "old")])));
    let mut kept = server.connect();
    assert_eq!(ask(&mut kept, "GET", "/metrics", &basic("alice", "old")).unwrap().status, 200);
    dir.put("web.yml", &users(&[("alice", "new")]));
    eventually("the old password is refused", || server.get("/", &basic("alice", "old")).status == 401);
    assert_eq!(ask(&mut kept, "GET", "/metrics", &basic("alice", "old")).unwrap().status, 401);
    assert_eq!(server.get("/metrics", &basic("alice", "new")).status, 200);
    assert!(server.config.last_reload().succeeded);
}

#[test]
fn a_broken_file_leaves_the_last_good_one_in_force() {
    let dir = Dir::new();
    let good = users(&[("alice", "right")]);
    let server = Server::configured(&dir.put("web.yml", &good));
    let before = server.config.last_reload();
    assert!(before.succeeded);
    for broken in ["basic_auth_users:\n  alice: plain\n", "no: such key\n", "{", "", "basic_auth_users: {}\n"]
    {
        dir.put("web.yml", broken);
        eventually("the failure shows", || {
            assert_eq!(server.get("/", "").status, 401, "{broken:?}");
            assert_eq!(server.get("/", &basic("alice", "right")).status, 200, "{broken:?}");
            !server.config.last_reload().succeeded
        });
        assert!(server.config.last_reload().at > before.at);
        dir.put("web.yml", &good);
        eventually("the file is good again", || {
            server.get("/", "");
            server.config.last_reload().succeeded
        });
    }
    std::fs::remove_file(dir.0.join("web.yml")).unwrap();
    eventually("a missing file shows", || {
        assert_eq!(server.get("/", "").status, 401);
        !server.config.last_reload().succeeded
    });
}

#[test]
fn a_file_that_is_being_written_is_left_alone() {
    let dir = Dir::new();
    let path = dir.put("web.yml", &users(&[("alice", "right"), ("bob", "right")]));
    let interval = Duration::from_millis(400);
    let config = exporter_toolkit::WebConfigHandle::load_with(Some(&path), interval).unwrap();
    let server = Server::start_with(crate::support::quick(), Default::default(), config, "127.0.0.1:0");
    let loaded = server.config.last_reload().at;
    let started = Instant::now();
    while started.elapsed() < interval * 3 {
        // Valid, and only half of what it will be.
        std::fs::write(&path, users(&[("alice", "right")])).unwrap();
        assert_eq!(server.get("/", &basic("bob", "right")).status, 200);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.config.last_reload().at, loaded);
    eventually("it is read once it is left alone", || server.get("/", &basic("bob", "right")).status == 401);
}

#[test]
fn an_explicit_reload_reads_at_once_and_reports() {
    let dir = Dir::new();
    let path = dir.put("web.yml", &users(&[("alice", "right")]));
    let config =
        exporter_toolkit::WebConfigHandle::load_with(Some(&path), Duration::from_secs(3600)).unwrap();
    let server = Server::start_with(crate::support::quick(), Default::default(), config, "127.0.0.1:0");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    dir.put("web.yml", "rate_limit:\n  burst: x\n");
    let error = runtime.block_on(server.config.reload()).unwrap_err();
    assert!(
        error.to_string().starts_with(&format!("{}:2: rate_limit.burst: invalid type", path.display())),
        "{error}"
    );
    assert!(!server.config.last_reload().succeeded);
    dir.put("web.yml", "");
    let error = runtime.block_on(server.config.reload()).unwrap_err();
    assert!(
        error.to_string().ends_with("the password check cannot be switched off without a restart"),
        "{error}"
    );
    dir.put("web.yml", &users(&[("bob", "right")]));
    runtime.block_on(server.config.reload()).unwrap();
    assert!(server.config.last_reload().succeeded);
    assert_eq!(server.get("/", &basic("bob", "right")).status, 200);
    assert_eq!(server.config.files(), [path]);
}

#[test]
fn requests_beyond_the_rate_limit_are_refused() {
    let dir = Dir::new();
    let server = Server::configured(&dir.put("web.yml", "rate_limit: {interval: 1h, burst: 3}\n"));
    let statuses = [0; 5].map(|_| server.get("/-/healthy", "").status);
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    // An unrelated change does not fill the bucket.
    dir.put(
        "web.yml",
        "rate_limit: {interval: 1h, burst: 3}\nhttp_server_config: {headers: {X-Frame-Options: deny}}\n",
    );
    eventually("the header appears", || {
        let answer = server.get("/-/healthy", "");
        assert_eq!(answer.status, 429);
        answer.header("x-frame-options").is_some()
    });
}

#[test]
fn the_rate_limit_is_not_for_the_sites_scrapers() {
    let dir = Dir::new();
    let path = dir.put("web.yml", "rate_limit: {interval: 1h, burst: 1}\n");
    let config = exporter_toolkit::WebConfigHandle::load(Some(&path)).unwrap();
    let scrapers = vec!["127.0.0.2".parse().unwrap()];
    let options = WebOptions { scrapers, ..crate::support::quick() };
    let server = Server::start_with(options, Default::default(), config, "127.0.0.1:0");
    assert_eq!([0; 3].map(|_| server.get("/metrics", "").status), [200, 429, 429]);
    for _ in 0..3 {
        assert_eq!(ask(&mut server.connect_from("127.0.0.2"), "GET", "/metrics", "").unwrap().status, 200);
    }
    assert!(server.monitor.stats().rejected.contains(&("rate", 2)));
}

#[test]
fn configured_headers_are_on_every_answer() {
    let dir = Dir::new();
    let config = "http_server_config:\n  http2: true\n  headers:\n    X-Frame-Options: deny\n    \
        Strict-Transport-Security: max-age=1\n    Content-Security-Policy: default-src 'self'\n    X-XSS-Protection: ''\n";
    let server = Server::configured(&dir.put("web.yml", config));
    for path in ["/metrics", "/", "/nothing"] {
        let answer = server.get(path, "");
        assert_eq!(answer.header("x-frame-options"), Some("deny"));
        assert_eq!(answer.header("strict-transport-security"), Some("max-age=1"));
        assert_eq!(answer.header("content-security-policy"), Some("default-src 'self'"));
        assert_eq!(answer.header("x-xss-protection"), None);
    }
}
