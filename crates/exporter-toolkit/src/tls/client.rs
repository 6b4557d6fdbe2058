//! Which client certificates are accepted: Go's five `ClientAuthType`s, and `client_allowed_sans`.

use std::net::IpAddr;
use std::sync::Arc;

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{self, CryptoProvider, WebPkiSupportedAlgorithms};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

use super::x509;
use crate::config::{ClientAuth, Tls};

/// The verifier for a configuration, or `None` when no certificate is asked for.
pub(crate) fn verifier(
    tls: &Tls,
    client_cas: Option<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    if tls.client_auth == ClientAuth::None {
        return Ok(None);
    }
    let chain = match client_cas.filter(|_| tls.client_auth.verifies()) {
        Some(roots) => {
            let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
            Some(builder.build().map_err(|error| format!("tls_server_config: {error}"))?)
        }
        None => None,
    };
    Ok(Some(Arc::new(Policy {
        chain,
        mandatory: tls.client_auth.requires(),
        allowed_sans: tls.client_allowed_sans.clone(),
        algorithms: provider.signature_verification_algorithms,
    })))
}

#[derive(Debug)]
struct Policy {
    /// `None` where any certificate is accepted. The client still proves that it has the key.
    chain: Option<Arc<dyn ClientCertVerifier>>,
    mandatory: bool,
    allowed_sans: Option<Vec<String>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Policy {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.as_ref().map_or(&[], |chain| chain.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(chain) = &self.chain {
            chain.verify_client_cert(end_entity, intermediates, now)?;
        }
        if let Some(allowed) = &self.allowed_sans {
            let facts = x509::facts(end_entity).ok_or(CertificateError::BadEncoding)?;
            if !facts.alt_names.iter().any(|name| allowed.iter().any(|allowed| is_same(name, allowed))) {
                return Err(CertificateError::ApplicationVerificationFailure.into());
            }
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Names match exactly, no wildcards, as in the toolkit; an IP address has several spellings.
fn is_same(name: &str, allowed: &str) -> bool {
    let ip = |text: &str| text.parse::<IpAddr>().ok();
    name == allowed || ip(name).is_some_and(|name| Some(name) == ip(allowed))
}
