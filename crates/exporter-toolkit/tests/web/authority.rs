//! Certificates, and the clients that come with them.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::support::{Answer, Dir, Server, ask};

/// A certificate authority that makes what a test needs.
pub(crate) struct Authority(pub(crate) CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Identity {
        self.issue_until(name, usage, 2060)
    }

    pub(crate) fn issue_until(&self, name: &str, usage: ExtendedKeyUsagePurpose, year: i32) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress("127.0.0.1".parse().unwrap()));
        params.extended_key_usages = vec![usage];
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        Identity { cert: cert.pem(), key: key.serialize_pem() }
    }

    pub(crate) fn server(&self) -> Identity {
        self.issue("node", ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub(crate) fn client(&self, name: &str) -> Identity {
        self.issue(name, ExtendedKeyUsagePurpose::ClientAuth)
    }
}

impl Dir {
    pub(crate) fn put_identity(&self, identity: &Identity) {
        self.put("key.pem", &identity.key);
        self.put("cert.pem", &identity.cert);
    }

    pub(crate) fn put_config(&self, more: &str) -> PathBuf {
        self.put(
            "web.yml",
            &format!("tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n{more}"),
        )
    }
}

/// How a client comes.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    pub(crate) provider: CryptoProvider,
    pub(crate) identity: Option<Identity>,
}

impl Default for Client {
    fn default() -> Self {
        Client { versions: vec![&TLS13, &TLS12], provider: ring::default_provider(), identity: None }
    }
}

impl Client {
    pub(crate) fn with(identity: Identity) -> Self {
        Client { identity: Some(identity), ..Client::default() }
    }

    pub(crate) fn connect(
        self,
        server: &Server,
        authority: &Authority,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.0.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(self.provider))
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match self.identity {
            Some(Identity { cert, key }) => {
                let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
                builder
                    .with_client_auth_cert(vec![cert], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
            }
            None => Ok(builder.with_no_client_auth()),
        };
        let name = "node".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config.unwrap()), name).unwrap();
        StreamOwned::new(connection, server.connect())
    }

    pub(crate) fn get(self, server: &Server, authority: &Authority) -> std::io::Result<Answer> {
        ask(&mut self.connect(server, authority), "GET", "/metrics", "")
    }
}

/// A server with a certificate of this authority, whose own is in `ca.pem`.
pub(crate) fn serving(authority: &Authority, more: &str) -> (Dir, Server) {
    let dir = Dir::new();
    dir.put_identity(&authority.server());
    dir.put("ca.pem", authority.0.as_ref().pem().as_str());
    let server = Server::configured(&dir.put_config(more));
    (dir, server)
}
