//! Requests over HTTP/1.1, and the connections that they share.

mod body;
mod connect;
mod tls;

use std::io;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT,
};
use hyper::{Method, Request, Response};
use parking_lot::Mutex;

use self::connect::{Connector, of_tls};
use crate::address::Origin;
use crate::config::Tls;
use crate::error::Error;
use crate::proxy::Proxies;

pub(crate) use self::body::{Body, BodyError, read_body, read_text};

pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// A request that may be sent again.
#[derive(Clone)]
pub(crate) struct Asking {
    pub(crate) method: Method,
    pub(crate) origin: Origin,
    pub(crate) target: String,
    /// Of a POST.
    pub(crate) form: Bytes,
    /// The format of the answer.
    pub(crate) accept: &'static str,
    /// Credentials and what else the configuration adds.
    pub(crate) headers: HeaderMap,
}

/// An answer whose body is still to come, and the connection that it comes on.
pub(crate) struct Reply {
    pub(crate) response: Response<Incoming>,
    pub(crate) on: Sender,
}

/// Sends requests.
pub(crate) struct Http {
    connector: Connector,
    kept: Mutex<Vec<(Origin, Sender)>>,
}

impl Http {
    /// Loads the files of the configuration. `Err` names the key, the file and the reason.
    pub(crate) fn new(tls: &Tls, proxies: Proxies) -> Result<Self, String> {
        Ok(Self { connector: Connector::new(tls, proxies)?, kept: Mutex::default() })
    }

    /// Sends a request. A server may close a connection that rests at any time, also while it is asked: then a new one is made.
    pub(crate) async fn send(&self, asking: &Asking) -> Result<Reply, Error> {
        let request = self.request(asking)?;
        if let Some(mut kept) = self.take(&asking.origin)
            && kept.ready().await.is_ok()
            && let Ok(response) = kept.send_request(request.clone()).await
        {
            return Ok(Reply { response, on: kept });
        }
        let mut on = self.connector.connect(&asking.origin).await?;
        let response = on.send_request(request).await.map_err(|error| broken(&asking.origin, &error))?;
        Ok(Reply { response, on })
    }

    fn request(&self, asking: &Asking) -> Result<Request<Full<Bytes>>, Error> {
        let Asking { method, origin, target, form, accept, headers } = asking;
        // A proxy is asked for the whole URL, unless there is a tunnel (RFC 9112, section 3.2.2).
        let proxy = self.connector.proxies.of(origin).filter(|_| !origin.https);
        let uri = match proxy {
            Some(_) => format!("http://{}{target}", origin.authority),
            None => target.clone(),
        };
        let mut request = Request::builder()
            .method(method.clone())
            .uri(uri)
            .header(HOST, &origin.authority)
            .header(USER_AGENT, concat!("jobledger/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, *accept)
            .header(ACCEPT_ENCODING, "gzip")
            .body(Full::new(form.clone()))
            .map_err(|_| Error::Url("no request can be made of it"))?;
        let all = request.headers_mut();
        if method == Method::POST {
            all.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        }
        if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.clone()) {
            all.insert(PROXY_AUTHORIZATION, authorization);
        }
        all.extend(headers.clone());
        Ok(request)
    }

    /// Keeps a connection whose answer was read to its end.
    pub(crate) fn keep(&self, origin: &Origin, on: Sender) {
        if !on.is_closed() {
            self.kept.lock().push((origin.clone(), on));
        }
    }

    fn take(&self, origin: &Origin) -> Option<Sender> {
        let mut kept = self.kept.lock();
        kept.retain(|(_, on)| !on.is_closed());
        let at = kept.iter().position(|(of, _)| of == origin)?;
        Some(kept.swap_remove(at).1)
    }
}

/// hyper's error and what it was caused by.
pub(crate) fn broken(origin: &Origin, error: &hyper::Error) -> Error {
    let host = origin.authority.clone();
    let Some(cause) = std::error::Error::source(error) else {
        return Error::Broken { host, why: error.to_string() };
    };
    // TLS 1.3 refuses a client's certificate after the handshake.
    match cause.downcast_ref::<io::Error>().and_then(of_tls) {
        Some(cause) => Error::Tls { host, why: config_files::tls_error(cause) },
        None => Error::Broken { host, why: format!("{error}: {cause}") },
    }
}
