//! The structure of the file.

use std::collections::BTreeMap;

use config_files::Secret;

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(super) struct File {
    pub(super) basic_auth: Option<BasicAuth>,
    pub(super) authorization: Option<Authorization>,
    pub(super) oauth2: Option<OAuth2>,
    pub(super) tls_config: Option<Tls>,
    pub(super) follow_redirects: Option<bool>,
    /// Accepted and not used: this client speaks HTTP/1.1 only, as every server of HTTP/2 does.
    #[serde(rename = "enable_http2")]
    _enable_http2: Option<bool>,
    pub(super) proxy_url: Option<Secret>,
    pub(super) no_proxy: Option<String>,
    pub(super) proxy_from_environment: Option<bool>,
    pub(super) proxy_connect_header: Option<BTreeMap<String, Vec<Secret>>>,
    pub(super) http_headers: Option<BTreeMap<String, Header>>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(super) struct BasicAuth {
    pub(super) username: Option<String>,
    pub(super) username_file: Option<String>,
    pub(super) password: Option<String>,
    pub(super) password_file: Option<String>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(super) struct Authorization {
    pub(super) r#type: Option<String>,
    pub(super) credentials: Option<String>,
    pub(super) credentials_file: Option<String>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(super) struct OAuth2 {
    pub(super) client_id: Option<String>,
    pub(super) client_secret: Option<String>,
    pub(super) client_secret_file: Option<String>,
    pub(super) scopes: Option<Vec<String>>,
    pub(super) token_url: Option<String>,
    pub(super) endpoint_params: Option<BTreeMap<String, Secret>>,
    pub(super) tls_config: Option<Tls>,
    pub(super) proxy_url: Option<Secret>,
    pub(super) no_proxy: Option<String>,
    pub(super) proxy_from_environment: Option<bool>,
    pub(super) proxy_connect_header: Option<BTreeMap<String, Vec<Secret>>>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(super) struct Tls {
    pub(super) ca: Option<String>,
    pub(super) ca_file: Option<String>,
    pub(super) cert: Option<String>,
    pub(super) cert_file: Option<String>,
    pub(super) key: Option<String>,
    pub(super) key_file: Option<String>,
    pub(super) server_name: Option<String>,
    pub(super) insecure_skip_verify: Option<bool>,
    pub(super) min_version: Option<String>,
    pub(super) max_version: Option<String>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(super) struct Header {
    pub(super) values: Option<Vec<String>>,
    pub(super) secrets: Option<Vec<String>>,
    pub(super) files: Option<Vec<String>>,
}
