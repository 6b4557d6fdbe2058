//! The client: what can be asked, and what becomes of the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER};
use hyper::{Method, Response, StatusCode};
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::address::{self, Origin};
use crate::answer::{Answer, Data, LabelSets, NotAnAnswer, QueryResult, Sample, Series, Small, parse_answer};
use crate::credentials::Credentials;
use crate::error::{Error, one_line};
use crate::form::encode;
use crate::http::{Asking, Body, BodyError, Http, Reply, Sender, broken, read_body, read_text};
use crate::labels::Labels;
use crate::options::Options;
use crate::range::{self, Part, Range};
use crate::setup::{self, Setup};

/// Of an answer that is an error.
const MOST_ERROR_BYTES: u64 = 64 << 10;
/// A server that wants to be asked again later than this is not asked again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// As Go's client.
const MOST_REDIRECTS: usize = 10;

/// A request that was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The expression, or what else was asked for.
    pub expr: String,
    /// From the request to the end of the answer.
    pub seconds: f64,
    /// Series of the answer.
    pub series: usize,
    /// Points of the answer.
    pub points: usize,
    /// The size of the answer, decompressed.
    pub bytes: u64,
    /// Warnings of the server, such as of a part that did not answer.
    pub warnings: Vec<String>,
    /// What it remarks of the expression.
    pub infos: Vec<String>,
}

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct BuildInfo {
    /// Its version. `VictoriaMetrics` says that of a Prometheus with the same API.
    pub version: Option<String>,
    /// `Grafana Mimir`; `None` for Prometheus.
    pub application: Option<String>,
}

/// A client of one server. Clones share its connections and its log.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    origin: Origin,
    /// Before `/api/v1`.
    prefix: String,
    http: Http,
    credentials: Credentials,
    follow_redirects: bool,
    timeout: Duration,
    max_points: usize,
    max_series: usize,
    max_bytes: u64,
    at_once: Semaphore,
    log: Mutex<Vec<Asked>>,
    warnings: Vec<String>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("origin", &self.0.origin).finish_non_exhaustive()
    }
}

impl Client {
    /// A client; nothing is asked yet.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let (origin, prefix) = address::base(&options.url).map_err(Error::Url)?;
        let Setup { http, credentials, follow_redirects, mut warnings } = setup::load(options)?;
        if !credentials.is_empty() && !origin.is_private() {
            warnings
                .push(format!("{}: http shows the credentials to the network: use https", origin.authority));
        }
        Ok(Self(Arc::new(Inner {
            origin,
            prefix,
            http,
            credentials,
            follow_redirects,
            timeout: options.timeout,
            max_points: options.max_points,
            max_series: options.max_series,
            max_bytes: options.max_bytes,
            at_once: Semaphore::new(options.at_once.max(1)),
            log: Mutex::default(),
            warnings,
        })))
    }

    /// The values of an expression at a time. A scalar is one sample without labels.
    pub async fn query(&self, expr: &str, at: f64) -> Result<Vec<Sample>, Error> {
        let result = self.instant(expr, at).await?;
        if result.series.is_empty() {
            Ok(result.samples)
        } else {
            Err(Error::WrongType { found: "series", wanted: "single values" })
        }
    }

    /// The values of an expression over time, by labels. What one request may not ask for is asked for in parts.
    pub async fn query_range(&self, expr: &str, range: Range) -> Result<Vec<Series>, Error> {
        let parts = range::parts(range, self.0.max_points)?;
        let mut answers = vec![Vec::new(); parts.len()];
        let mut asking = JoinSet::new();
        for (at, part) in parts.into_iter().enumerate() {
            let (client, expr) = (self.clone(), expr.to_owned());
            asking.spawn(async move { client.part(&expr, part).await.map(|series| (at, series)) });
        }
        while let Some(answer) = asking.join_next().await {
            let ended = |_| Error::Broken { host: self.0.origin.authority.clone(), why: "no end".to_owned() };
            let (at, series) = answer.map_err(ended)??;
            if let Some(place) = answers.get_mut(at) {
                *place = series;
            }
        }
        range::join(answers, self.0.max_series)
    }

    async fn part(&self, expr: &str, part: Part) -> Result<Vec<Series>, Error> {
        let form = [
            ("query", expr),
            ("start", &range::seconds(part.start)),
            ("end", &range::seconds(part.end)),
            ("step", &range::seconds(part.step)),
            ("timeout", &self.timeout()),
            // VictoriaMetrics would move the times to multiples of the step (AdjustStartEnd in app/vmselect/promql/exec.go).
            ("nocache", "1"),
        ];
        let result: QueryResult = self.0.ask(Method::POST, "query_range", &form, expr).await?;
        Ok(result.series)
    }

    /// The samples as they were scraped, in the time after `at - range_seconds` until `at`.
    pub async fn query_samples(
        &self,
        selector: &str,
        range_seconds: f64,
        at: f64,
    ) -> Result<Vec<Series>, Error> {
        let length = range::milliseconds(range_seconds)?;
        if length < 1 {
            return Err(Error::Range("shorter than a millisecond"));
        }
        let mut result = self.instant(&format!("{selector}[{length}ms]"), at).await?;
        if !result.samples.is_empty() {
            return Err(Error::WrongType { found: "single values", wanted: "the samples of series" });
        }
        // Before version 3, Prometheus also gave a sample of just the beginning (migration guide, "Range selectors").
        let after = range::milliseconds(at)? - length;
        for series in &mut result.series {
            series.points.retain(|(time, _)| range::milliseconds(*time).is_ok_and(|time| time > after));
        }
        result.series.retain(|series| !series.points.is_empty());
        Ok(result.series)
    }

    async fn instant(&self, expr: &str, at: f64) -> Result<QueryResult, Error> {
        let time = range::seconds(range::milliseconds(at)?);
        let form = [("query", expr), ("time", &time), ("timeout", &self.timeout())];
        self.0.ask(Method::POST, "query", &form, expr).await
    }

    /// What a server waits, since an answer that comes later is not read.
    fn timeout(&self) -> String {
        format!("{}ms", self.0.timeout.as_millis())
    }

    /// Which series there were in a time.
    pub async fn series(&self, matchers: &[String], start: f64, end: f64) -> Result<Vec<Labels>, Error> {
        let start = range::seconds(range::milliseconds(start)?);
        let end = range::seconds(range::milliseconds(end)?);
        let mut form: Vec<(&str, &str)> = vec![("start", &start), ("end", &end)];
        form.extend(matchers.iter().map(|matcher| ("match[]", matcher.as_str())));
        let what = format!("series: {}", matchers.join(", "));
        let LabelSets(sets) = self.0.ask(Method::POST, "series", &form, &what).await?;
        Ok(sets)
    }

    /// What is at the URL itself, in Prometheus' text format: of an exporter its page.
    pub async fn exposition(&self) -> Result<String, Error> {
        let late = |_| Error::Timeout { host: self.0.host(), limit: self.0.timeout };
        tokio::time::timeout(self.0.timeout, self.0.exposition()).await.map_err(late)?
    }

    /// What the server says of itself: nothing if it has no such page.
    pub async fn build_info(&self) -> Result<BuildInfo, Error> {
        self.page("status/buildinfo").await
    }

    /// The server's flags, such as `storage.tsdb.retention.time`: none if it has no such page.
    pub async fn flags(&self) -> Result<BTreeMap<String, String>, Error> {
        self.page("status/flags").await
    }

    async fn page<T>(&self, path: &str) -> Result<T, Error>
    where
        T: serde::de::DeserializeOwned + Default + Send + 'static,
    {
        match self.0.ask(Method::GET, path, &[], path).await {
            Ok(Small(page)) => Ok(page),
            Err(Error::NotFound { .. } | Error::Refused { status: 405 | 501, .. }) => Ok(T::default()),
            Err(error) => Err(error),
        }
    }

    /// The names of the server's recording rules.
    pub async fn recording_rules(&self) -> Result<BTreeSet<String>, Error> {
        #[derive(serde::Deserialize)]
        struct Groups {
            groups: Vec<Group>,
        }
        #[derive(serde::Deserialize)]
        struct Group {
            rules: Vec<Rule>,
        }
        #[derive(serde::Deserialize)]
        struct Rule {
            name: String,
            r#type: String,
        }
        let Small(Groups { groups }) = self.0.ask(Method::GET, "rules?type=record", &[], "rules").await?;
        let rules = groups.into_iter().flat_map(|group| group.rules);
        Ok(rules.filter(|rule| rule.r#type == "recording").map(|rule| rule.name).collect())
    }

    /// What an administrator should look at, such as a file with a password that others can read.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    /// What was asked and answered so far.
    #[must_use]
    pub fn log(&self) -> Vec<Asked> {
        self.0.log.lock().clone()
    }

    /// The same, and forgets it.
    #[must_use]
    pub fn take_log(&self) -> Vec<Asked> {
        std::mem::take(&mut self.0.log.lock())
    }
}

impl Inner {
    async fn ask<T: Data>(
        &self,
        method: Method,
        path: &str,
        form: &[(&str, &str)],
        what: &str,
    ) -> Result<T, Error> {
        let asking = Asking {
            method,
            origin: self.origin.clone(),
            target: format!("{}/api/v1/{path}", self.prefix),
            form: encode(form.iter().copied()).into(),
            accept: "application/json",
            headers: HeaderMap::new(),
        };
        // The time in the queue is none of the server's.
        let _place = self.at_once.acquire().await;
        let began = Instant::now();
        let answering = tokio::time::timeout(self.timeout, self.answer(&asking)).await;
        let late = |_| Error::Timeout { host: self.host(), limit: self.timeout };
        let (answer, bytes) = answering.map_err(late)??;
        let lines = |texts: &[String]| texts.iter().map(|text| one_line(text)).collect();
        self.log.lock().push(Asked {
            expr: what.to_owned(),
            seconds: began.elapsed().as_secs_f64(),
            series: answer.series,
            points: answer.points,
            bytes,
            warnings: lines(&answer.warnings),
            infos: lines(&answer.infos),
        });
        if !answer.success {
            return Err(self.refused(StatusCode::OK, one_line(&answer.error.unwrap_or_default())));
        }
        answer.data.ok_or_else(|| self.not_prometheus("no data"))
    }

    /// Sends a request, and again to where the server says. Credentials go to no other server.
    async fn send(&self, asking: &Asking) -> Result<(Reply, Origin), Error> {
        let mut asking = asking.clone();
        for _ in 0..=MOST_REDIRECTS {
            asking.headers = if self.origin.is_same_server(&asking.origin) {
                self.credentials.headers().await?
            } else {
                HeaderMap::new()
            };
            let reply = self.http.send(&asking).await?;
            let Some(to) = redirect(&reply.response) else { return Ok((reply, asking.origin)) };
            let refused = |why| Error::Redirect { host: asking.origin.authority.clone(), to: shown(to), why };
            if !self.follow_redirects {
                return Err(refused("follow_redirects is false"));
            }
            let (origin, target) = match address::parse(to) {
                Ok(found) => found,
                Err(_) if to.starts_with('/') && !to.starts_with("//") => {
                    (asking.origin.clone(), to.to_owned())
                }
                Err(_) => return Err(refused("not a URL")),
            };
            if asking.origin.https && !origin.https {
                return Err(refused("it would go on without TLS"));
            }
            (asking.origin, asking.target) = (origin, target);
        }
        Err(Error::Redirect {
            host: self.host(),
            to: shown(&asking.target),
            why: "there is no end of redirects",
        })
    }

    async fn answer<T: Data>(&self, asking: &Asking) -> Result<(Answer<T>, u64), Error> {
        let most_series = self.max_series;
        let (read, head, on) = self.body(asking, move |from| parse_answer(from, most_series)).await?;
        let Body { parsed, bytes, too_large } = read;
        match parsed {
            Ok(answer) => {
                on.keep(&self.http);
                Ok((answer, bytes))
            }
            Err(_) if too_large => Err(Error::TooLarge(self.max_bytes)),
            Err(NotAnAnswer::TooManySeries(most)) => Err(Error::TooManySeries(most)),
            Err(NotAnAnswer::Json(_)) if is_html(&head) => Err(self.not_prometheus("a web page")),
            Err(NotAnAnswer::Json(error)) => Err(self.not_prometheus(&one_line(&error.to_string()))),
        }
    }

    async fn exposition(&self) -> Result<String, Error> {
        let asking = Asking {
            method: Method::GET,
            origin: self.origin.clone(),
            target: if self.prefix.is_empty() { "/".to_owned() } else { self.prefix.clone() },
            form: Bytes::new(),
            accept: "text/plain;version=0.0.4",
            headers: HeaderMap::new(),
        };
        let (Body { parsed, too_large, .. }, head, on) =
            self.body(&asking, |from: &mut dyn Read| io::read_to_string(from)).await?;
        match parsed {
            Ok(text) if !is_html(&head) => {
                on.keep(&self.http);
                Ok(text)
            }
            Ok(_) => Err(self.not_prometheus("a web page")),
            Err(_) if too_large => Err(Error::TooLarge(self.max_bytes)),
            Err(error) => Err(self.not_prometheus(&error.to_string())),
        }
    }

    /// The body of an answer that is no error, its head, and the connection for a next request if all of it was read.
    async fn body<T: Send + 'static>(
        &self,
        asking: &Asking,
        parse: impl FnOnce(&mut dyn Read) -> T + Send + 'static,
    ) -> Result<(Body<T>, HeaderMap, Kept), Error> {
        let (mut reply, mut of) = self.send(asking).await?;
        if let Some(pause) = pause(reply.response.status(), reply.response.headers()) {
            tokio::time::sleep(pause).await;
            (reply, of) = self.send(asking).await?;
        }
        let (status, head) = (reply.response.status(), reply.response.headers().clone());
        if !status.is_success() {
            let text = read_text(reply.response, MOST_ERROR_BYTES).await;
            return Err(self.refusal(status, &head, &text, asking));
        }
        let body = read_body(reply.response, self.max_bytes, parse).await.map_err(|error| match error {
            BodyError::Broken(error) => broken(&of, &error),
            BodyError::Encoding => self.not_prometheus("compressed otherwise than by gzip"),
            BodyError::Parser => self.not_prometheus("it cannot be read"),
        })?;
        Ok((body, head, Kept { of, on: reply.on }))
    }

    /// The error of an answer with a status that says so.
    fn refusal(&self, status: StatusCode, head: &HeaderMap, text: &[u8], asking: &Asking) -> Error {
        let says = match parse_answer::<Small<IgnoredAny>>(text, 0) {
            Ok(answer) => answer.error.unwrap_or_default(),
            // A proxy's page says nothing that its status does not.
            Err(_) if is_html(head) => String::new(),
            Err(_) => String::from_utf8_lossy(text).into_owned(),
        };
        let (host, says) = (self.host(), one_line(&says));
        match status {
            StatusCode::UNAUTHORIZED => Error::Unauthorized { host, says },
            StatusCode::FORBIDDEN => Error::Forbidden { host, says },
            StatusCode::NOT_FOUND => Error::NotFound { host, path: asking.target.clone(), says },
            status => self.refused(status, says),
        }
    }

    /// Servers give the same status for a limit and for other errors: only their text makes the difference.
    fn refused(&self, status: StatusCode, says: String) -> Error {
        const OF_A_LIMIT: [&str; 4] = ["exceed", "too many", "timed out", "-search.max"];
        let limit = status == StatusCode::TOO_MANY_REQUESTS
            || OF_A_LIMIT.iter().any(|part| says.to_lowercase().contains(part));
        if limit {
            return Error::ServerLimit { host: self.host(), says };
        }
        Error::Refused { host: self.host(), status: status.as_u16(), says }
    }

    fn not_prometheus(&self, why: &str) -> Error {
        Error::NotPrometheus { host: self.host(), why: why.to_owned() }
    }

    fn host(&self) -> String {
        self.origin.authority.clone()
    }
}

/// A connection whose answer was read.
struct Kept {
    of: Origin,
    on: Sender,
}

impl Kept {
    fn keep(self, http: &Http) {
        http.keep(&self.of, self.on);
    }
}

/// How long a busy server wants to be left alone, if it says so and that is short.
fn pause(status: StatusCode, head: &HeaderMap) -> Option<Duration> {
    let seconds = head.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    let pause = Duration::from_secs(seconds);
    let busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    (busy && pause <= LONGEST_PAUSE).then_some(pause)
}

fn is_html(head: &HeaderMap) -> bool {
    head.get(CONTENT_TYPE).is_some_and(|of| of.as_bytes().starts_with(b"text/html"))
}

/// Where a server sends the same request. 303 sends another one, such as to a login page (RFC 9110, section 15.4.4).
fn redirect<B>(response: &Response<B>) -> Option<&str> {
    let sends = matches!(response.status().as_u16(), 301 | 302 | 307 | 308);
    response.headers().get(LOCATION).filter(|_| sends)?.to_str().ok()
}

/// Without what may be a secret.
fn shown(url: &str) -> String {
    one_line(url.split(['?', '#']).next().unwrap_or_default())
}
