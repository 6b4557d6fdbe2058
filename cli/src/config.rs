//! The configuration: TOML, of the site and of the user.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Failure;

/// The site's file.
pub const SITE: &str = "/etc/jobledger/jobledger.toml";

/// The user's file, below `$XDG_CONFIG_HOME` or `~/.config`.
pub const USER: &str = "jobledger/jobledger.toml";

/// What files may set. What one does not set, an earlier one may.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where the data is.
    pub server: Server,
    /// How SLURM is asked.
    pub slurm: Slurm,
    /// What reports show.
    pub report: Report,
    /// How mails are sent.
    pub mail: Mail,
    /// Where slurmctld's mails wait for their reports.
    pub spool: Spool,
    /// Where recordings come from.
    pub record: Record,
    /// Whose jobs are shown. The site's file alone sets it.
    pub privacy: Privacy,
}

/// Where the data is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// The URL of Prometheus, with the path before `/api/v1`.
    pub url: Option<String>,
    /// Credentials and TLS, in the format of promtool's `--http.config.file`.
    pub http_config_file: Option<PathBuf>,
    /// The label that names a cluster, if the server has several; `cluster` if it is not set.
    pub cluster_label: Option<String>,
    /// The cluster that is meant if `--cluster` does not say another.
    pub cluster: Option<String>,
    /// Seconds for a query and its answer.
    pub timeout_seconds: Option<u32>,
}

/// How SLURM is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct Slurm {
    /// `sacct`, to be asked for state and time limit: `never`, or its path; if it is not set, `sacct` if it is there.
    pub sacct: Option<String>,
    /// SLURM's names of clusters (`ClusterName`), by their labels. SLURM's commands are asked for the cluster of a job with `--clusters`, which needs
    /// slurmdbd. Without it they are asked for the cluster of this host.
    pub clusters: Option<BTreeMap<String, String>>,
}

/// What reports show.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct Report {
    /// A link, in which `{jobid}`, `{cluster}`, `{from}` and `{to}` (milliseconds) are replaced.
    pub grafana: Option<String>,
    /// How many nodes a report lists; of more the worst ones. 8 if it is not set.
    pub node_rows: Option<usize>,
    /// Thresholds and texts of advice, of the layout of rules/thresholds.yaml.
    pub thresholds: Option<PathBuf>,
}

/// How mails are sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct Mail {
    /// The sender; the user at this host if it is not set.
    pub from: Option<String>,
    /// The domain of recipients that have none; `localhost` if it is not set.
    pub domain: Option<String>,
    /// The server: `smtps://HOST`, `smtp://HOST:PORT?tls=required`, or without TLS `smtp://HOST:25`. If it is not set, `sendmail` is started.
    pub smtp: Option<String>,
    /// Who logs in there.
    pub smtp_user: Option<String>,
    /// The user's password.
    pub smtp_password_file: Option<PathBuf>,
    /// The program that takes mails; `/usr/sbin/sendmail` if it is not set.
    pub sendmail: Option<PathBuf>,
    /// Seconds until a mail has to be taken; 60 if it is not set.
    pub timeout_seconds: Option<u32>,
}

/// Where slurmctld's mails wait for their reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct Spool {
    /// The directory; `/var/lib/jobledger-spool` if it is not set.
    pub directory: Option<PathBuf>,
    /// Mails and comments that may wait; 10000 if it is not set.
    pub most: Option<usize>,
}

/// Where recordings come from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct Record {
    /// The page of the node's exporter; `http://127.0.0.1:9810/metrics` if it is not set.
    pub exporter: Option<String>,
    /// Credentials and TLS for it, in the format of promtool's `--http.config.file`.
    pub http_config_file: Option<PathBuf>,
    /// NVIDIA's library, where no exporter runs and it is not found as libnvidia-ml.so.1.
    pub nvml_library: Option<PathBuf>,
}

/// Whose jobs are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct Privacy {
    /// Whether a user sees the jobs of others; `allow` if it is not set.
    pub others: Option<Others>,
    /// Members of these groups see all jobs.
    pub staff_groups: Option<Vec<String>>,
}

/// Whether a user sees the jobs of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum Others {
    /// Yes.
    Allow,
    /// No.
    Deny,
}

/// Reads the site's file, then the user's; `chosen` stands for both.
pub fn load(chosen: Option<&Path>, user: Option<&Path>) -> Result<Config, Failure> {
    if let Some(path) = chosen {
        return read(path)?
            .ok_or_else(|| Failure::usage(format!("{}: there is no such file", path.display())));
    }
    let mut config = read(Path::new(SITE))?.unwrap_or_default();
    if let Some(path) = user
        && let Some(own) = read(path)?
    {
        config.overlay(own);
    }
    Ok(config)
}

impl Config {
    fn overlay(&mut self, own: Config) {
        fn over<T>(below: &mut Option<T>, own: Option<T>) {
            if own.is_some() {
                *below = own;
            }
        }
        let Config { server, slurm, report, mail, spool, record, privacy: _ } = own;
        over(&mut self.server.url, server.url);
        over(&mut self.server.http_config_file, server.http_config_file);
        over(&mut self.server.cluster_label, server.cluster_label);
        over(&mut self.server.cluster, server.cluster);
        over(&mut self.server.timeout_seconds, server.timeout_seconds);
        over(&mut self.slurm.sacct, slurm.sacct);
        over(&mut self.slurm.clusters, slurm.clusters);
        over(&mut self.report.grafana, report.grafana);
        over(&mut self.report.node_rows, report.node_rows);
        over(&mut self.report.thresholds, report.thresholds);
        over(&mut self.mail.from, mail.from);
        over(&mut self.mail.domain, mail.domain);
        over(&mut self.mail.smtp, mail.smtp);
        over(&mut self.mail.smtp_user, mail.smtp_user);
        over(&mut self.mail.smtp_password_file, mail.smtp_password_file);
        over(&mut self.mail.sendmail, mail.sendmail);
        over(&mut self.mail.timeout_seconds, mail.timeout_seconds);
        over(&mut self.spool.directory, spool.directory);
        over(&mut self.spool.most, spool.most);
        over(&mut self.record.exporter, record.exporter);
        over(&mut self.record.http_config_file, record.http_config_file);
        over(&mut self.record.nvml_library, record.nvml_library);
    }
}

/// `None` if there is no such file.
fn read(path: &Path) -> Result<Option<Config>, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::usage(format!("{}: {error}", path.display()))),
    };
    parse(&text).map(Some).map_err(|why| Failure::usage(format!("{}: {why}", path.display())))
}

/// Reads TOML; an unknown key is an error. The text is one line.
pub fn parse(text: &str) -> Result<Config, String> {
    toml::from_str(text).map_err(|error| line_of(text, &error))
}

/// What is wrong, with its line, in one line.
pub(crate) fn line_of(text: &str, error: &toml::de::Error) -> String {
    let line =
        error.span().map(|span| 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count());
    let at = line.map(|line| format!("line {line}: ")).unwrap_or_default();
    format!("{at}{}", error.message().replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_file_goes_before_the_sites() {
        let mut config =
            parse("[server]\nurl = \"http://site\"\ncluster = \"a\"\n[report]\nnode_rows = 4\n").unwrap();
        config.overlay(parse("[server]\nurl = \"http://own\"\n").unwrap());
        assert_eq!(config.server.url.as_deref(), Some("http://own"));
        assert_eq!(config.server.cluster.as_deref(), Some("a"));
        assert_eq!(config.report.node_rows, Some(4));
        let mut config = parse("[privacy]\nothers = \"deny\"\n").unwrap();
        config.overlay(parse("[privacy]\nothers = \"allow\"\n").unwrap());
        assert_eq!(config.privacy.others, Some(Others::Deny), "the site's alone");
    }

    #[test]
    fn the_example_has_every_key() {
        let page = include_str!("../../packaging/jobledger.toml.example");
        // A key that is off there is a comment without a space.
        let all: String = page
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        let keys = serde_json::to_value(parse(&all).unwrap()).unwrap();
        for (section, keys) in keys.as_object().unwrap() {
            for (key, value) in keys.as_object().unwrap() {
                assert!(!value.is_null(), "{section}.{key} is not in the example");
            }
        }
        // As it is shipped it sets what a site has to set, and no more.
        let url = "https://prometheus.example.org".to_owned();
        let server = Server { url: Some(url), ..Server::default() };
        assert_eq!(parse(page), Ok(Config { server, ..Config::default() }));
    }

    #[test]
    fn unknown_keys_are_errors_with_their_line() {
        let error = parse("[server]\nurl = \"u\"\nurls = 1\n").unwrap_err();
        assert!(error.starts_with("line 3: unknown field `urls`"), "{error}");
        assert!(!parse("a = [").unwrap_err().contains('\n'));
    }
}
