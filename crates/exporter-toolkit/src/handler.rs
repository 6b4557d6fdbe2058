//! One request: whether its client may ask, and which page answers.

use std::sync::Arc;

use hyper::body::Body;
use hyper::header::{CONNECTION, CONTENT_SECURITY_POLICY, HeaderValue};
use hyper::{Method, Request, StatusCode};
use tokio_rustls::rustls::ServerConfig;

use crate::auth::Verdict;
use crate::reload::Active;
use crate::respond::{self, Answer};
use crate::state::ServerState;
use crate::{landing, metrics};

impl ServerState {
    /// Answers one request that came over a connection with this TLS configuration.
    pub(crate) async fn answer<B: Body>(
        &self,
        request: Request<B>,
        tls: Option<&Arc<ServerConfig>>,
    ) -> Answer {
        let active = self.config.fresh().await;
        let mut answer = self.guarded(&request, &active).await;
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
    async fn guarded<B>(&self, request: &Request<B>, active: &Active) -> Answer {
        if active.limiter.as_ref().is_some_and(|limiter| !limiter.allow(std::time::Instant::now())) {
            return respond::text(StatusCode::TOO_MANY_REQUESTS, "Too Many Requests");
        }
        if !active.config.users.is_empty() {
            match self.auth.check(&active.config.users, request.headers()).await {
                Verdict::Allowed => {}
                Verdict::Denied => return respond::unauthorized(&self.exporter.about().name),
                Verdict::Busy => return respond::unavailable("too many logins at once"),
            }
        }
        self.route(request).await
    }

    async fn route<B>(&self, request: &Request<B>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return respond::method_not_allowed();
        }
        match request.uri().path() {
            path if path == self.options.telemetry_path => {
                metrics::metrics(self, request.uri(), request.headers()).await
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
