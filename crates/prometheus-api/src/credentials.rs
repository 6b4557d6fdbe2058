//! The headers that say who asks.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use config_files::{Secret, Setting};
use hyper::Method;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use tokio::sync::Mutex;

use crate::address::Origin;
use crate::config::{Auth, HttpConfig, OAuth2, header_value};
use crate::error::Error;
use crate::form::{encode, percent};
use crate::http::{Asking, Http, read_text};
use crate::proxy::Proxies;

/// Of a token's answer.
const MOST_TOKEN_BYTES: u64 = 64 << 10;
/// A token is not used in its last seconds, since a request takes some (golang.org/x/oauth2, `defaultExpiryDelta`).
const BEFORE_EXPIRY: Duration = Duration::from_secs(10);

/// What the configuration adds to each request.
pub(crate) struct Credentials {
    headers: HeaderMap,
    tokens: Option<Tokens>,
}

impl Credentials {
    /// Loads the files of the configuration. `Err` names the key, the file and the reason.
    pub(crate) fn new(config: &HttpConfig, environment: &Proxies) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (name, values) in &config.headers {
            for value in values {
                headers.append(name.clone(), header(value, "", &value.secret()?.0)?);
            }
        }
        let mut tokens = None;
        match &config.auth {
            None => {}
            Some(Auth::Basic { user, password }) => {
                let text = |setting: &Option<Setting>| match setting {
                    Some(setting) => setting.secret(),
                    None => Ok(Secret(String::new())),
                };
                let (user, password) = (text(user)?.0, text(password)?.0);
                if user.contains(':') {
                    return Err("basic_auth: a user name cannot hold a colon (RFC 7617)".to_owned());
                }
                headers.insert(AUTHORIZATION, basic(&user, &password)?);
            }
            Some(Auth::Scheme { scheme, credentials }) => {
                headers.insert(AUTHORIZATION, header(credentials, scheme, &credentials.secret()?.0)?);
            }
            Some(Auth::OAuth2(oauth2)) => tokens = Some(Tokens::new(oauth2, environment)?),
        }
        Ok(Self { headers, tokens })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.headers.is_empty() && self.tokens.is_none()
    }

    /// The headers of a request that is sent now.
    pub(crate) async fn headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = self.headers.clone();
        if let Some(tokens) = &self.tokens {
            headers.insert(AUTHORIZATION, tokens.header().await?);
        }
        Ok(headers)
    }
}

fn header(setting: &Setting, scheme: &str, text: &str) -> Result<HeaderValue, String> {
    let separator = if scheme.is_empty() { "" } else { " " };
    header_value(&format!("{scheme}{separator}{text}")).map_err(|why| setting.error(why))
}

fn basic(user: &str, password: &str) -> Result<HeaderValue, String> {
    header_value(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))).map_err(str::to_owned)
}

/// Tokens of a server for this client (RFC 6749, section 4.4).
struct Tokens {
    http: Http,
    server: (Origin, String),
    id: String,
    secret: Secret,
    /// Grant, scopes and further parameters.
    form: String,
    /// The token, and until when it may be used.
    kept: Mutex<Option<(HeaderValue, Option<Instant>)>>,
}

#[derive(serde::Deserialize)]
struct Token {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<u32>,
}

impl Tokens {
    fn new(config: &OAuth2, environment: &Proxies) -> Result<Self, String> {
        let proxies = config.proxies.clone().or_environment(config.proxy_from_environment, environment);
        let scopes = config.scopes.join(" ");
        let mut form = vec![("grant_type", "client_credentials")];
        if !scopes.is_empty() {
            form.push(("scope", &scopes));
        }
        form.extend(config.parameters.iter().map(|(name, value)| (name.as_str(), value.0.as_str())));
        Ok(Self {
            http: Http::new(&config.tls, proxies)?,
            server: config.server.clone(),
            id: config.id.clone(),
            secret: config.secret.secret()?,
            form: encode(form),
            kept: Mutex::default(),
        })
    }

    /// One request at a time asks for a token, and the others wait for it.
    async fn header(&self) -> Result<HeaderValue, Error> {
        let mut kept = self.kept.lock().await;
        if let Some((header, until)) = &*kept
            && until.is_none_or(|until| Instant::now() < until)
        {
            return Ok(header.clone());
        }
        let now = Instant::now();
        let token = self.ask().await?;
        let scheme = match token.token_type.as_deref() {
            None | Some("") => "Bearer",
            Some(scheme) if scheme.eq_ignore_ascii_case("bearer") => "Bearer",
            Some(scheme) => scheme,
        };
        let header =
            header_value(&format!("{scheme} {}", token.access_token)).map_err(|why| self.error(why))?;
        let until = token
            .expires_in
            .map(|seconds| now + Duration::from_secs(seconds.into()).saturating_sub(BEFORE_EXPIRY));
        *kept = Some((header.clone(), until));
        Ok(header)
    }

    /// Servers want the secret in a header, or in the form: the first is what all have to know (section 2.3.1).
    async fn ask(&self) -> Result<Token, Error> {
        let login = basic(&percent(&self.id), &percent(&self.secret.0)).map_err(|why| self.error(&why))?;
        let in_header = [(AUTHORIZATION, login)].into_iter().collect();
        let (status, text) = self.post(self.form.clone(), in_header).await?;
        let (status, text) = if status.is_client_error() {
            let secret = encode([("client_id", self.id.as_str()), ("client_secret", self.secret.0.as_str())]);
            self.post(format!("{}&{secret}", self.form), HeaderMap::new()).await?
        } else {
            (status, text)
        };
        if !status.is_success() {
            return Err(self.error(&format!("it answers {status}")));
        }
        serde_json::from_slice(&text).map_err(|_| self.error("its answer has no access_token"))
    }

    async fn post(&self, form: String, headers: HeaderMap) -> Result<(StatusCode, Vec<u8>), Error> {
        let (origin, target) = self.server.clone();
        let (form, accept) = (form.into(), "application/json");
        let asking = Asking { method: Method::POST, origin, target, form, accept, headers };
        let reply = self.http.send(&asking).await?;
        Ok((reply.response.status(), read_text(reply.response, MOST_TOKEN_BYTES).await))
    }

    fn error(&self, why: &str) -> Error {
        Error::Token { host: self.server.0.authority.clone(), why: why.to_owned() }
    }
}
