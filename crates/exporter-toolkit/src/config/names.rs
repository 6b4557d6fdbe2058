//! Go's names for TLS settings (<https://pkg.go.dev/crypto/tls#pkg-constants>), and rustls' counterparts.

use tokio_rustls::rustls::SupportedCipherSuite;
use tokio_rustls::rustls::crypto::SupportedKxGroup;
use tokio_rustls::rustls::crypto::ring::{cipher_suite as suite, kx_group};

use super::file::FromText;

const SUITES: [(&str, SupportedCipherSuite); 9] = [
    ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", suite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

impl FromText for SupportedCipherSuite {
    fn from_text(name: &str) -> Result<Self, String> {
        match SUITES.iter().find(|(known, _)| *known == name) {
            Some((_, suite)) => Ok(*suite),
            None if name.starts_with("TLS_RSA_") || name.contains("_CBC_") || name.contains("_RC4_") => {
                Err(format!(
                    "cipher suite {name:?} is not supported: no forward secrecy, or no authenticated encryption"
                ))
            }
            None => Err(format!("unknown cipher suite {name:?}")),
        }
    }
}

/// A key exchange group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Curve(pub(crate) &'static dyn SupportedKxGroup);

impl PartialEq for Curve {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl FromText for Curve {
    fn from_text(name: &str) -> Result<Self, String> {
        match name {
            "X25519" => Ok(Curve(kx_group::X25519)),
            "CurveP256" => Ok(Curve(kx_group::SECP256R1)),
            "CurveP384" => Ok(Curve(kx_group::SECP384R1)),
            "CurveP521" => {
                Err("curve CurveP521 is not supported: use CurveP384, CurveP256 or X25519".to_owned())
            }
            _ => Err(format!("unknown curve {name:?}: X25519, CurveP256 or CurveP384")),
        }
    }
}

/// When a certificate is asked of a client (<https://pkg.go.dev/crypto/tls#ClientAuthType>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    /// Not asked for.
    None,
    /// Asked for, never checked.
    Request,
    /// Demanded, not checked.
    RequireAny,
    /// Checked if there is one.
    VerifyIfGiven,
    /// Demanded and checked.
    RequireAndVerify,
}

impl FromText for ClientAuth {
    fn from_text(name: &str) -> Result<Self, String> {
        match name {
            "" | "NoClientCert" => Ok(ClientAuth::None),
            "RequestClientCert" => Ok(ClientAuth::Request),
            // The second is the toolkit's own older name.
            "RequireAnyClientCert" | "RequireClientCert" => Ok(ClientAuth::RequireAny),
            "VerifyClientCertIfGiven" => Ok(ClientAuth::VerifyIfGiven),
            "RequireAndVerifyClientCert" => Ok(ClientAuth::RequireAndVerify),
            _ => Err(format!("unknown client_auth_type {name:?}")),
        }
    }
}

impl ClientAuth {
    /// Whether certificates are held against the client CA.
    pub(crate) fn verifies(self) -> bool {
        matches!(self, ClientAuth::VerifyIfGiven | ClientAuth::RequireAndVerify)
    }

    /// Whether a client without a certificate is refused.
    pub(crate) fn requires(self) -> bool {
        matches!(self, ClientAuth::RequireAny | ClientAuth::RequireAndVerify)
    }
}
