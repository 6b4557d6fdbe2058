//! Whom a server's certificate has to be of, and who this client is.

use std::sync::Arc;

use config_files::{Setting, TlsVersion, certificate_check};
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::config::Tls;

/// Loads the files of the configuration. `Err` names the key, the file and the reason.
pub(super) fn client_config(tls: &Tls) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let versions: &[_] = match (tls.min_version, tls.max_version) {
        (TlsVersion::Tls13, _) => &[&TLS13],
        (_, TlsVersion::Tls12) => &[&TLS12],
        _ => &[&TLS13, &TLS12],
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| format!("tls_config: {error}"))?;
    let authorities = tls.ca.as_ref().map(Setting::authorities).transpose()?;
    let builder = if tls.insecure_skip_verify {
        let any = certificate_check(provider, |_| Ok(()));
        builder.dangerous().with_custom_certificate_verifier(any)
    } else {
        builder.with_root_certificates(authorities.unwrap_or_else(of_system))
    };
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(cert.certificates()?, key.private_key()?)
            .map_err(|error| key.error(format_args!("does not fit the certificate: {error}")))?,
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(4);
    Ok(Arc::new(config))
}

/// The authorities that the administrator trusts. A list in this program instead would be that of its release: it knows neither the
/// site's own authority nor one that is not trusted any more. Without any, each server is one of an unknown authority.
fn of_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}
