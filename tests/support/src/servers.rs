//! A real Prometheus and its promtool, as Debian packages them.
#![allow(clippy::indexing_slicing, reason = "an index into a JSON value that is not there gives null")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::http;
use crate::scratch::Scratch;
use crate::wait::{QUIET, until};

const INSTALL: &str = "apt-get install --no-install-recommends prometheus";

/// A loopback address whose port is free, and nobody else's for a minute unless they ask for it by number.
///
/// A port that was only bound and closed is the kernel's to give to the next who asks for any. This one has had a connection that
/// its listener's side closed first: it is in `TIME_WAIT`, where the kernel gives it to nobody, while a server, which sets
/// `SO_REUSEADDR`, may listen on it (net/ipv4/inet_connection_sock.c, `inet_csk_bind_conflict`).
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("its address");
    let client = TcpStream::connect(address).expect("a connection to it");
    drop(listener.accept().expect("the connection's other end"));
    drop(client);
    address
}

/// Lets a command die with the thread that starts it, so that a killed test run leaves no server.
#[allow(unsafe_code, reason = "there is no safe way to run code between fork and exec")]
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    // SAFETY: prctl is one system call; it neither allocates nor takes a lock, which is all that a child of a
    // process with threads may do before exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            Ok(())
        })
    }
}

/// A Prometheus on a free loopback port, stopped on drop. It dies with the thread that started it.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    dir: Scratch,
}

/// One element of an instant vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    /// Labels with `__name__`.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

impl Prometheus {
    /// Starts it with a configuration and waits until it is ready. Files beside the configuration, such as rules, are
    /// given by name and content.
    ///
    /// # Panics
    /// If it is not installed, or does not come up; with its log.
    #[must_use]
    pub fn start(config: &str, files: &[(&str, &str)]) -> Self {
        Self::start_program(Path::new("prometheus"), &[], config, files)
    }

    /// The same with another program, and more flags.
    ///
    /// # Panics
    /// As [`Prometheus::start`].
    #[must_use]
    pub fn start_program(program: &Path, flags: &[&str], config: &str, files: &[(&str, &str)]) -> Self {
        let dir = Scratch::new("prometheus");
        for (name, content) in files.iter().chain(&[("prometheus.yml", config)]) {
            fs::write(dir.path().join(name), content).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        let address = free_address();
        let log = fs::File::create(dir.path().join("log")).expect("log");
        let mut command = Command::new(program);
        command
            .args(flags)
            .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--web.enable-lifecycle")
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = die_with_parent(&mut command).spawn();
        let child = child.unwrap_or_else(|e| panic!("prometheus: {e}; {INSTALL}"));
        let mut server = Self { child, address, dir };
        until("prometheus is ready", || {
            let ended = server.child.try_wait().expect("wait");
            assert!(ended.is_none(), "prometheus does not come up: {ended:?}\n{}", server.log());
            if server.is_ready() { Ok(()) } else { Err(server.log()) }
        });
        server
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has logged from level warn.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn is_ready(&self) -> bool {
        http::get(self.address, "/-/ready", &[], Duration::from_secs(2)).is_ok_and(|r| r.status == 200)
    }

    /// The `data` of an API call, such as `/api/v1/targets`.
    ///
    /// # Panics
    /// If the call fails; with the answer.
    #[must_use]
    pub fn api(&self, path: &str) -> serde_json::Value {
        let response = http::get(self.address, path, &[], QUIET).unwrap_or_else(|e| panic!("{path}: {e}"));
        let answer: serde_json::Value = serde_json::from_slice(&response.body).unwrap_or_default();
        assert!(answer["status"] == "success", "{path}: {}", String::from_utf8_lossy(&response.body));
        answer["data"].clone()
    }

    /// An instant query; a scalar is an element without labels.
    ///
    /// # Panics
    /// If the query fails.
    #[must_use]
    pub fn query(&self, promql: &str) -> Vec<Element> {
        let data = self.api(&format!("/api/v1/query?query={}", http::encode(promql)));
        let value = |pair: &serde_json::Value| {
            let text = pair[1].as_str().unwrap_or_default();
            text.parse().unwrap_or_else(|_| panic!("{promql}: {text:?} is not a number"))
        };
        if data["resultType"] == "scalar" {
            return vec![Element { labels: BTreeMap::new(), value: value(&data["result"]) }];
        }
        let element = |item: &serde_json::Value| {
            let labels = item["metric"].as_object().into_iter().flatten();
            let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
            Element {
                labels: labels.map(|(n, v)| (n.clone(), text(v))).collect(),
                value: value(&item["value"]),
            }
        };
        data["result"].as_array().into_iter().flatten().map(element).collect()
    }

    /// Repeats a query until its result is as wanted; Prometheus scrapes a new target about 5 s after its start.
    ///
    /// # Panics
    /// If there is no progress; with the last result and the log.
    pub fn wait_for(&self, promql: &str, wanted: impl Fn(&[Element]) -> bool) -> Vec<Element> {
        until(promql, || {
            let result = self.query(promql);
            if wanted(&result) { Ok(result) } else { Err(format!("{result:?}\n{}", self.log())) }
        })
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs promtool with a text on its standard input; the exit status and everything it wrote.
///
/// # Panics
/// If it is not installed.
#[must_use]
pub fn promtool(arguments: &[&str], stdin: &str) -> (i32, String) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("promtool: {e}; {INSTALL}"));
    // It may end before it has read all.
    let _ = child.stdin.take().expect("stdin").write_all(stdin.as_bytes());
    let output = child.wait_with_output().expect("promtool");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// `promtool check metrics`: neither an error nor a lint.
///
/// # Errors
/// What promtool says.
pub fn check_metrics(exposition: &str) -> Result<(), String> {
    match promtool(&["check", "metrics"], exposition) {
        (0, said) if said.is_empty() => Ok(()),
        (code, said) => Err(format!("promtool check metrics: status {code}\n{said}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn promtool_judges() {
        check_metrics("# HELP a_total Help.\n# TYPE a_total counter\na_total 1\n").unwrap();
        for bad in ["a 1\n", "# HELP a Help.\n# TYPE a counter\na 1\n", "a{ 1\n"] {
            assert!(check_metrics(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_free_port_is_given_to_nobody_else_and_can_be_listened_on() {
        let free = free_address();
        for _ in 0..100_000 {
            let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            assert_ne!(other.local_addr().unwrap(), free);
        }
        drop(TcpListener::bind(free).unwrap());
    }

    #[test]
    fn a_real_prometheus_scrapes_and_answers() {
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = target.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in target.incoming() {
                let (mut stream, mut buffer) = (stream.unwrap(), [0; 4096]);
                let _ = stream.read(&mut buffer);
                let body = "# TYPE a gauge\na{x=\"\\\"\\n\"} 7\n";
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
                let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            }
        });
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: t\n  static_configs: [{{targets: ['{address}']}}]\n"
        );
        let server = Prometheus::start(&config, &[]);
        assert_eq!(server.query("1 + 1")[0].value, 2.0);
        let found = server.wait_for("a", |r| !r.is_empty());
        assert_eq!((found[0].value, found[0].labels["x"].as_str()), (7.0, "\"\n"));
        let targets = server.api("/api/v1/targets");
        assert_eq!(targets["activeTargets"][0]["health"], "up");
        let address = server.address();
        drop(server);
        assert!(http::get(address, "/-/ready", &[], Duration::from_secs(1)).is_err());
    }
}
