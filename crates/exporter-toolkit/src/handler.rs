//! One request: whether its client may ask, and which page answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use config_files::Secret;
use hyper::body::Body;
use hyper::header::{CONNECTION, CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use tokio_rustls::rustls::ServerConfig;

use crate::admission::Place;
use crate::auth::Verdict;
use crate::reload::Active;
use crate::respond::{self, Answer};
use crate::state::ServerState;
use crate::{Client, deadline, landing, metrics};

/// How long a password may wait for its check, whatever its client asks for.
const LONGEST_LOGIN: Duration = Duration::from_secs(30);

impl ServerState {
    /// Answers one request that came over a connection with this TLS configuration.
    pub(crate) async fn answer<B: Body>(
        &self,
        request: Request<B>,
        tls: Option<&Arc<ServerConfig>>,
        place: &Place,
    ) -> Answer {
        let active = self.config.fresh().await;
        let mut answer = self.guarded(&request, &active, place).await;
        for (name, value) in &active.config.headers {
            answer.headers_mut().insert(name, value.clone());
        }
        // A connection ends with this answer if the request has a body, since bodies are never read, and if the connection is
        // older than a reload of TLS.
        let outdated = tls.map(Arc::as_ptr) != active.tls.as_ref().map(Arc::as_ptr);
        if !request.body().is_end_stream() || outdated {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    /// Rate limit, then passwords, as in Go's exporter-toolkit. Both hold for every page, `/-/healthy` included.
    async fn guarded<B>(&self, request: &Request<B>, active: &Active, place: &Place) -> Answer {
        let mut client = Client {
            address: place.client,
            local: place.local,
            user: None,
            prometheus: request.headers().contains_key(deadline::HEADER),
            scraper: place.scraper,
        };
        // The one bucket is for all, so that anybody can empty it: the site's scrapers are not in it.
        let limiter = active.limiter.as_ref().filter(|_| !place.scraper);
        if limiter.is_some_and(|limiter| !limiter.allow(Instant::now())) {
            self.refusals.rate.fetch_add(1, Ordering::Relaxed);
            return respond::text(StatusCode::TOO_MANY_REQUESTS, "Too Many Requests");
        }
        if !active.config.users.is_empty() {
            match self.login(&active.config.users, request.headers(), place).await {
                Ok(user) => client.user = Some(user),
                Err(answer) => return answer,
            }
        }
        self.route(request, client, place).await
    }

    /// The user who has logged in, or the answer to one who has not.
    async fn login(
        &self,
        users: &BTreeMap<String, Secret>,
        headers: &HeaderMap,
        place: &Place,
    ) -> Result<String, Answer> {
        let patience = deadline::patience(headers, &self.options).min(LONGEST_LOGIN);
        match tokio::time::timeout(patience, self.auth.check(users, headers, place)).await {
            Ok(Verdict::Allowed(user)) => Ok(user),
            Ok(Verdict::Denied) => {
                self.refusals.password.fetch_add(1, Ordering::Relaxed);
                Err(respond::unauthorized(&self.exporter.about().name))
            }
            Err(_) => {
                self.refusals.login.fetch_add(1, Ordering::Relaxed);
                Err(respond::unavailable("too many logins at once"))
            }
        }
    }

    async fn route<B>(&self, request: &Request<B>, client: Client, place: &Place) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return respond::method_not_allowed();
        }
        match request.uri().path() {
            path if path == self.options.telemetry_path => {
                metrics::metrics(self, request.uri(), request.headers(), client, place).await
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
