//! What a client is made of: the HTTP configuration file, the files that it names, and the environment.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use config_files::{ConfigError, Setting, Source, read_config_file};

use crate::config::{Auth, HttpConfig};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::http::Http;
use crate::options::Options;
use crate::proxy::Proxies;

/// Readable or writable by all users.
const BY_OTHERS: u32 = 0o006;

/// The parts of a client.
pub(crate) struct Setup {
    pub(crate) http: Http,
    pub(crate) credentials: Credentials,
    pub(crate) follow_redirects: bool,
    pub(crate) warnings: Vec<String>,
}

/// Reads all files.
pub(crate) fn load(options: &Options) -> Result<Setup, Error> {
    let path = options.http_config_file.as_deref();
    let config = match path {
        None => HttpConfig::default(),
        Some(path) => {
            let bytes = read_config_file(path).map_err(|error| ConfigError::new(path, error.to_string()))?;
            HttpConfig::parse(&bytes, path)?
        }
    };
    let environment = if config.uses_environment() {
        let [http, https, none_for] =
            [&options.proxies.http_proxy, &options.proxies.https_proxy, &options.proxies.no_proxy];
        Proxies::of_environment(http.as_deref(), https.as_deref(), none_for.as_deref())
            .map_err(Error::Environment)?
    } else {
        Proxies::default()
    };
    let proxies = config.proxies.clone().or_environment(config.proxy_from_environment, &environment);
    let wrong = |why| ConfigError::new(path.unwrap_or(Path::new("")), why);
    let http = Http::new(&config.tls, proxies).map_err(wrong)?;
    let credentials = Credentials::new(&config, &environment).map_err(wrong)?;
    let mut warnings: Vec<_> = secret_files(&config).filter_map(open_to_others).collect();
    if config.has_secret() {
        warnings.extend(path.and_then(open_to_others));
    }
    if let Some(Auth::OAuth2(oauth2)) = &config.auth
        && !oauth2.server.0.is_private()
    {
        warnings.push("oauth2.token_url: http shows the secret to the network: use https".to_owned());
    }
    Ok(Setup { http, credentials, follow_redirects: config.follow_redirects, warnings })
}

/// Prometheus' programs read such a file without a word, so it is no error here.
fn open_to_others(path: &Path) -> Option<String> {
    let open = std::fs::metadata(path).is_ok_and(|state| state.mode() & BY_OTHERS != 0);
    let shown = path.display();
    open.then(|| format!("{shown} has a secret, and all users may read or write it: chmod o= {shown}"))
}

fn secret_files(config: &HttpConfig) -> impl Iterator<Item = &Path> {
    config.secrets().into_iter().filter_map(|setting: &Setting| match &setting.source {
        Source::File(path) => Some(path.as_path()),
        Source::Inline(_) => None,
    })
}
