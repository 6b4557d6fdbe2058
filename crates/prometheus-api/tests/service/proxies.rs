//! A proxy between the client and its server.

use std::io::{Read, Write, copy};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::service::{Authority, Reply, Service};
use prometheus_api::{Client, Error, Kind, Options, ProxyEnvironment};

use super::{ONE, ask, client, file, options, says};

/// A proxy that makes tunnels to one server, whatever it is asked for, and notes the requests for them.
fn tunnels(to: SocketAddr, status: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let noted = requests.clone();
    spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            noted.lock().unwrap().push(String::from_utf8(head).unwrap());
            write!(stream, "HTTP/1.1 {status}\r\n\r\n").unwrap();
            let server = TcpStream::connect(to).unwrap();
            let (mut from, mut back) = (stream.try_clone().unwrap(), server.try_clone().unwrap());
            let mut there = server;
            spawn(move || {
                let _ = copy(&mut from, &mut there);
                let _ = there.shutdown(Shutdown::Write);
            });
            spawn(move || {
                let _ = copy(&mut back, &mut stream);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    (address, requests)
}

#[tokio::test]
async fn plain_http_is_asked_of_the_proxy() {
    let dir = Scratch::new("prometheus-api-proxy");
    let proxy = Service::start(None, says("200 OK", "", ONE));
    let of = Options { url: "http://prometheus.invalid:9090/p".to_owned(), ..options(&proxy) };
    let config = format!("proxy_url: 'http://user:hunter2@{}'\n", proxy.address);
    assert_eq!(ask(&client(of.clone(), &dir, &config)).await, Ok(1.0));
    let request = &proxy.requests()[0];
    assert!(
        request.starts_with("POST http://prometheus.invalid:9090/p/api/v1/query HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains("host: prometheus.invalid:9090\r\n"), "{request}");
    assert!(request.contains("proxy-authorization: Basic dXNlcjpodW50ZXIy\r\n"), "{request}");

    let proxies = ProxyEnvironment { http_proxy: Some(proxy.address.to_string()), ..Default::default() };
    let of = Options { proxies, ..of };
    assert_eq!(ask(&client(of.clone(), &dir, "proxy_from_environment: true")).await, Ok(1.0));
    // The environment counts only where the file says so.
    let direct = Client::new(&of).unwrap();
    assert!(matches!(ask(&direct).await, Err(Error::Unreachable { .. })));
    assert_eq!(proxy.requests().len(), 2);
}

#[tokio::test]
async fn tls_goes_through_a_tunnel() {
    let dir = Scratch::new("prometheus-api-tunnel");
    let authority = Authority::default();
    file(&dir, "ca.pem", &authority.pem(), 0o644);
    let server = Service::start(Some(authority.issue_until(4000)), |_| Reply::json(ONE));
    let (proxy, requests) = tunnels(server.address, "200 Connection established");
    let config = format!(
        "proxy_url: http://{proxy}\nproxy_connect_header: {{X-From: [me]}}\n\
         tls_config: {{ca_file: ca.pem, server_name: 127.0.0.1}}\nbasic_auth: {{username: u, password: p}}\n"
    );
    let of = Options { url: "https://prometheus.invalid/".to_owned(), ..options(&server) };
    let through = client(of, &dir, &config);
    assert_eq!(ask(&through).await, Ok(1.0));
    assert_eq!(ask(&through).await, Ok(1.0));
    let requests = requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].starts_with("CONNECT prometheus.invalid:443 HTTP/1.1\r\n"), "{requests:?}");
    assert!(requests[0].contains("x-from: me\r\n"), "{requests:?}");
    assert!(!requests[0].contains("authorization"), "{requests:?}");
    assert!(server.requests()[1].contains("authorization: Basic dTpw\r\n"));
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named() {
    let dir = Scratch::new("prometheus-api-refusal");
    let server = Service::start(None, |_| Reply::json(ONE));
    let (proxy, _) = tunnels(server.address, "407 Proxy Authentication Required");
    let of = Options { url: "https://prometheus.invalid/".to_owned(), ..options(&server) };
    let error = ask(&client(of.clone(), &dir, &format!("proxy_url: http://{proxy}"))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Network);
    assert_eq!(
        error.to_string(),
        format!("the proxy {proxy}: no connection to prometheus.invalid: 407 Proxy Authentication Required")
    );
    let nobody = jobledger_testkit::servers::free_address();
    let error = ask(&client(of, &dir, &format!("proxy_url: http://{nobody}"))).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("the proxy {nobody} cannot be reached: ")), "{error}");
}
