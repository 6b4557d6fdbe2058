//! Which certificate of a service is accepted: one that an authority issued for its name, or one certain certificate.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use config_files::{authorities, certificate_check, read_config_file};
use ring::digest::{SHA256, digest};
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring as crypto;
use tokio_rustls::rustls::{ClientConfig, Error};

/// How a service proves who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Its certificate is issued for its host by one of these authorities (PEM).
    Authorities(PathBuf),
    /// Its certificate is this one, whatever it says: most controllers have one that they signed themselves.
    Certificate(Fingerprint),
}

/// SHA-256 of a certificate (DER), as `openssl x509 -fingerprint -sha256` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// Why a text is no fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not sha256: and 64 hexadecimal digits, colons between them or not")]
pub struct NoFingerprint;

impl Fingerprint {
    fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(digest(&SHA256, certificate).as_ref()).for_each(|(to, from)| *to = *from);
        Self(bytes)
    }

    /// A certificate's name, its issuer and its dates do not matter: the site says that it is the right one.
    fn check(self, certificate: &[u8]) -> Result<(), Error> {
        let found = Self::of(certificate);
        if found == self {
            return Ok(());
        }
        Err(Error::General(format!("the service's certificate is {found}, not the one that is configured")))
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let digits: String = text.strip_prefix("sha256:").ok_or(NoFingerprint)?.split(':').collect();
        let (mut bytes, pairs) = ([0; 32], digits.as_bytes().chunks(2));
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(NoFingerprint);
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let pair = std::str::from_utf8(pair).map_err(|_| NoFingerprint)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| NoFingerprint)?;
        }
        Ok(Self(bytes))
    }
}

/// A client that accepts no other certificate.
pub(crate) fn client_config(trust: &Trust) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(crypto::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = match trust {
        Trust::Authorities(path) => {
            let pem = read_config_file(path).map_err(|error| error.to_string());
            let roots =
                pem.and_then(|pem| authorities(&pem)).map_err(|why| format!("{}: {why}", path.display()))?;
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::Certificate(fingerprint) => {
            let pinned = *fingerprint;
            let verifier = certificate_check(provider, move |certificate| pinned.check(certificate));
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Each connection shows its certificate.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_written_with_colons_or_without() {
        let hex = "0123456789abcdef".repeat(4);
        let plain: Fingerprint = format!("sha256:{hex}").parse().unwrap();
        assert_eq!(plain.to_string(), format!("sha256:{hex}"));
        let pairs: Vec<_> =
            hex.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).to_uppercase()).collect();
        assert_eq!(format!("sha256:{}", pairs.join(":")).parse(), Ok(plain));
        for bad in [
            hex.clone(),
            format!("sha1:{hex}"),
            format!("sha256:{hex}0"),
            "sha256:".to_owned(),
            format!("sha256:+{}", &hex[1..]),
            format!("sha256:ä{}", &hex[2..]),
        ] {
            assert_eq!(bad.parse::<Fingerprint>(), Err(NoFingerprint), "{bad}");
        }
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Fingerprint::of(b"").to_string(), empty);
    }
}
