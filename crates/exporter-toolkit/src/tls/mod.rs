//! The TLS part of the web configuration: a rustls server from its PEM.

mod client;
mod x509;

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use config_files::{Setting, TlsVersion};
use rustls_pki_types::CertificateDer;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ServerConfig, SupportedProtocolVersion};

use crate::config::Tls;

/// Whether clients that look refuse a certificate by now, whose validity ends then (Unix time).
pub(crate) fn has_expired(not_after: i64) -> bool {
    let now = clocks::wall().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    i64::try_from(now).unwrap_or(i64::MAX) > not_after
}

/// Builds the server from the files and texts of the configuration, with the first end of validity in its chain (Unix
/// time). `Err` names the key, the file and the reason.
///
/// A certificate that has expired is served, as exporter-toolkit in Go does: a client decides whether it takes it. An
/// end here would be the end of a node's metrics until somebody starts the exporter again, also where just the clock is
/// wrong after a boot. A renewed certificate is read while it runs.
pub(crate) fn server(tls: &Tls) -> Result<(Arc<ServerConfig>, i64), String> {
    let chain = tls.cert.certificates()?;
    let not_after = first_end(&chain).map_err(|reason| tls.cert.error(reason))?;
    let key = tls.key.private_key()?;
    let client_cas = tls.client_ca.as_ref().map(Setting::authorities).transpose()?;

    let provider = Arc::new(provider(tls));
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(tls))
        .map_err(|error| format!("tls_server_config: {error}"))?;
    let builder = match client::verifier(tls, client_cas, &provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut server = builder
        .with_single_cert(chain, key)
        .map_err(|error| tls.key.error(format_args!("does not fit the certificate: {error}")))?;
    server.ignore_client_order = tls.prefer_server_cipher_suites;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A resumed session would skip the check of the client's certificate. Scrapers keep their connections, so that
    // full handshakes are rare.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    if has_expired(not_after) {
        let cert = tls.cert.error("the certificate has expired");
        tracing::warn!("{cert}: clients refuse it until it is renewed");
    }
    Ok((Arc::new(server), not_after))
}

/// The first end of validity in a chain: with an intermediate the server's own certificate is worth nothing, either.
fn first_end(chain: &[CertificateDer<'_>]) -> Result<i64, String> {
    let leaf = chain.first().and_then(|leaf| x509::facts(leaf)).ok_or("not an X.509 certificate")?;
    let others = chain.iter().skip(1).filter_map(|other| x509::facts(other));
    Ok(others.map(|facts| facts.not_after).fold(leaf.not_after, i64::min))
}

fn provider(tls: &Tls) -> CryptoProvider {
    let mut provider = ring::default_provider();
    if !tls.cipher_suites.is_empty() {
        // As in Go, the list is about TLS 1.2 only: the suites of 1.3 are always enabled.
        provider.cipher_suites.retain(|suite| suite.tls13().is_some());
        provider.cipher_suites.extend(tls.cipher_suites.iter().filter(|suite| suite.tls13().is_none()));
    }
    if !tls.curves.is_empty() {
        provider.kx_groups = tls.curves.iter().map(|curve| curve.0).collect();
    }
    provider
}

fn versions(tls: &Tls) -> Vec<&'static SupportedProtocolVersion> {
    let no_suite_of_12 =
        !tls.cipher_suites.is_empty() && tls.cipher_suites.iter().all(|suite| suite.tls13().is_some());
    let mut versions = Vec::new();
    if tls.max_version == TlsVersion::Tls13 {
        versions.push(&TLS13);
    }
    if tls.min_version == TlsVersion::Tls12 && !no_suite_of_12 {
        versions.push(&TLS12);
    }
    versions
}
