//! One request: whether its client may ask, and which page answers.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Body;
use hyper::header::{CONNECTION, CONTENT_SECURITY_POLICY, HeaderValue};
use hyper::{Method, Request, StatusCode};
use tokio_rustls::rustls::ServerConfig;

use crate::auth::Verdict;
use crate::reload::Active;
use crate::respond::{self, Answer};
use crate::state::ServerState;
use crate::{Client, deadline, landing, metrics};

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
}

impl ServerState {
    /// Answers one request that came over a connection with this TLS configuration.
    pub(crate) async fn answer<B: Body>(
        &self,
        request: Request<B>,
        tls: Option<&Arc<ServerConfig>>,
        ends: Ends,
    ) -> Answer {
        let active = self.config.fresh().await;
        let mut answer = self.guarded(&request, &active, ends).await;
        for (name, value) in &active.config.headers {
            answer.headers_mut().insert(name, value.clone());
        }
        // A connection ends with this answer if the request has a body, since bodies are never read; if the connection is
        // older than a reload of TLS; and if all places are taken, since others wait for one.
        let outdated = tls.map(Arc::as_ptr) != active.tls.as_ref().map(Arc::as_ptr);
        if !request.body().is_end_stream() || outdated || self.connections.available_permits() == 0 {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    /// Rate limit, then passwords, as in Go's exporter-toolkit. Both hold for every page, `/-/healthy` included.
    async fn guarded<B>(&self, request: &Request<B>, active: &Active, ends: Ends) -> Answer {
        let mut client = Client {
            address: ends.client,
            local: ends.server,
            user: None,
            prometheus: request.headers().contains_key(deadline::HEADER),
            scraper: self.options.is_scraper(ends.client.ip()),
        };
        if active.limiter.as_ref().is_some_and(|limiter| !limiter.allow(std::time::Instant::now())) {
            return respond::text(StatusCode::TOO_MANY_REQUESTS, "Too Many Requests");
        }
        if !active.config.users.is_empty() {
            match self.auth.check(&active.config.users, request.headers()).await {
                Verdict::Allowed(user) => client.user = Some(user),
                Verdict::Denied => return respond::unauthorized(&self.exporter.about().name),
                Verdict::Busy => return respond::unavailable("too many logins at once"),
            }
        }
        self.route(request, client).await
    }

    async fn route<B>(&self, request: &Request<B>, client: Client) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return respond::method_not_allowed();
        }
        match request.uri().path() {
            path if path == self.options.telemetry_path => {
                metrics::metrics(self, request.uri(), request.headers(), client).await
            }
            "/" => self.landing(),
            "/-/healthy" => respond::text(StatusCode::OK, "healthy"),
            "/-/ready" => match self.exporter.ready() {
                Ok(()) => respond::text(StatusCode::OK, "ready"),
                Err(reason) => respond::unavailable(&reason),
            },
            path => match self.exporter.page(path) {
                Some(page) => respond::with_type(StatusCode::OK, page.content_type, page.body),
                None => respond::text(StatusCode::NOT_FOUND, "Not Found"),
            },
        }
    }

    fn landing(&self) -> Answer {
        let page = landing::page(&*self.exporter, &self.options.telemetry_path);
        let mut answer = respond::with_type(StatusCode::OK, "text/html; charset=utf-8", page);
        let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
        answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
        answer
    }
}
