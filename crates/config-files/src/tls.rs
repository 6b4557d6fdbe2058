//! Certificates and keys in PEM, Go's names for the versions of TLS, and errors of TLS in words.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// A TLS version that rustls speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl FromStr for TlsVersion {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "TLS12" => Ok(TlsVersion::Tls12),
            "TLS13" => Ok(TlsVersion::Tls13),
            "TLS10" | "TLS11" => {
                Err(format!("{name} is not supported: it is broken (RFC 8996); use TLS12 or TLS13"))
            }
            _ => Err(format!("unknown TLS version {name:?}: TLS12 or TLS13")),
        }
    }
}

/// The certificates of a PEM text, which has one at least.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| format!("not PEM: {error}"))?;
    if found.is_empty() { Err("holds no certificate".to_owned()) } else { Ok(found) }
}

/// The same as authorities that others are held against.
pub fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|error| format!("not a CA certificate: {error}"))?;
    }
    Ok(roots)
}

/// The private key of a PEM text.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| "holds no private key that is readable without a passphrase".to_owned())
}

/// Has a check decide about a server's certificate instead of its issuer, its name and its dates. That the server has the key is
/// checked as ever.
pub fn certificate_check(
    provider: Arc<CryptoProvider>,
    check: impl Fn(&[u8]) -> Result<(), Error> + Send + Sync + 'static,
) -> Arc<dyn ServerCertVerifier> {
    Arc::new(CertificateCheck { provider, check })
}

struct CertificateCheck<F> {
    provider: Arc<CryptoProvider>,
    check: F,
}

impl<F> fmt::Debug for CertificateCheck<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateCheck")
    }
}

impl<F: Fn(&[u8]) -> Result<(), Error> + Send + Sync> ServerCertVerifier for CertificateCheck<F> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        (self.check)(certificate).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// An error of a client in words that are the same each time: rustls writes the current time into some.
#[must_use]
pub fn tls_error(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the service's certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the service's certificate is not valid yet".to_owned()
            }
            // An authority of the same name as one that is trusted has another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "no authority that is trusted issued the service's certificate".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the service's certificate is not for this host".to_owned()
            }
            error => format!("the service's certificate: {error}"),
        },
        Error::General(says) => says.clone(),
        error => format!("TLS: {error}"),
    }
}
