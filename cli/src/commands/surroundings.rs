//! What commands work with: the server, the time, the terminal.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};
use job_report::{Job, Report, Thresholds};
use prometheus_api::{Client, Options, ProxyEnvironment};

use crate::arguments::{Ascii, Common, When, Whose};
use crate::config::{self, Config};
use crate::output::Progress;
use crate::own_job::{Visible, place};
use crate::privacy::Privacy;
use crate::source::accounting::Sacct;
use crate::source::prometheus::{Prometheus, Scope, Selection};
use crate::source::recordings::Recordings;
use crate::source::{Source, Wanted};
use crate::{Failure, Kind};

/// What the environment has: it is read once.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `$SLURM_JOB_ID`
    pub job_id: Option<String>,
    /// `$PBS_JOBID` or `$OAR_JOB_ID`
    pub other_job: Option<String>,
    /// What the batch system says of the job: labels of `jobledger_job_info`.
    pub identity: Vec<(&'static str, String)>,
    /// Which GPUs programs are to use.
    pub visible_gpus: Visible,
    /// This node: `$SLURMD_NODENAME`, else the host's name.
    pub node: String,
    /// `$SLURM_JOB_MAIL_TYPE`
    pub mail_type: Option<String>,
    /// `$SLURM_CLUSTER_NAME`
    pub cluster: Option<String>,
    /// `$USER`
    pub user: Option<String>,
    /// `$NO_COLOR`
    pub no_color: bool,
    /// The locale of characters is one without UTF-8.
    pub ascii: bool,
    /// The user's configuration file.
    pub user_config: Option<PathBuf>,
    /// Proxies.
    pub proxies: ProxyEnvironment,
}

impl Environment {
    /// That of this process.
    pub fn of_this_process() -> Self {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let either = |upper: &str, lower: &str| get(upper).or_else(|| get(lower));
        let home = || get("HOME").map(|home| PathBuf::from(home).join(".config"));
        Self {
            job_id: get("SLURM_JOB_ID"),
            other_job: get("PBS_JOBID").or_else(|| get("OAR_JOB_ID")),
            identity: place::identity(get),
            visible_gpus: Visible::of(|name| std::env::var(name).ok()),
            node: get("SLURMD_NODENAME")
                .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned()),
            mail_type: get("SLURM_JOB_MAIL_TYPE"),
            cluster: get("SLURM_CLUSTER_NAME"),
            user: get("USER"),
            no_color: get("NO_COLOR").is_some(),
            ascii: is_ascii(get),
            user_config: get("XDG_CONFIG_HOME")
                .map(PathBuf::from)
                .or_else(home)
                .map(|dir| dir.join(config::USER)),
            proxies: ProxyEnvironment {
                http_proxy: either("HTTP_PROXY", "http_proxy"),
                https_proxy: either("HTTPS_PROXY", "https_proxy"),
                no_proxy: either("NO_PROXY", "no_proxy"),
            },
        }
    }
}

/// What commands work with.
#[derive(Debug)]
pub struct Surroundings<S = Prometheus> {
    /// The configuration.
    pub config: Config,
    /// Where reports come from: a server, or recordings.
    pub source: S,
    /// Of advice.
    pub thresholds: Thresholds,
    /// Of times.
    pub zone: TimeZone,
    /// The environment.
    pub environment: Environment,
    /// Whose jobs are shown.
    pub privacy: Privacy,
    /// Columns of text.
    pub width: usize,
    /// ASCII alone.
    pub ascii: bool,
    color: When,
    verbose: bool,
}

/// Between two questions whether a job's end was scraped.
const PAUSE: Duration = Duration::from_secs(5);
/// Series of one answer: 1000 nodes have some fifty of a job, and four GPUs each.
const MOST_SERIES: usize = 400_000;

impl Surroundings {
    /// Reads the configuration. Nothing is asked yet. `since` is the earliest time if the command line has none.
    pub fn new(common: &Common, environment: &Environment, since: &str) -> Result<Self, Failure> {
        let config = config::load(common.config.as_deref(), environment.user_config.as_deref())?;
        let (zone, now) = (zone(common)?, now());
        let until = moment("--until", &common.until, now, &zone)?;
        let since = moment("--since", common.since.as_deref().unwrap_or(since), now, &zone)?;
        if since >= until {
            return Err(Failure::usage("--since has to be before --until"));
        }
        let server = &config.server;
        let url = common.url.clone().or_else(|| server.url.clone()).ok_or_else(|| {
            Failure::usage(format!(
                "no server is configured: --url, $JOBLEDGER_URL, or server.url in {}",
                config::SITE
            ))
        })?;
        let options = Options {
            url,
            http_config_file: common.http_config_file.clone().or_else(|| server.http_config_file.clone()),
            proxies: environment.proxies.clone(),
            timeout: Duration::from_secs(common.timeout.or(server.timeout_seconds).unwrap_or(30).into()),
            max_series: MOST_SERIES,
            ..Options::default()
        };
        let scope = Scope {
            cluster_label: server.cluster_label.clone().unwrap_or_else(|| "cluster".to_owned()),
            cluster: common.cluster.clone().or_else(|| server.cluster.clone()),
        };
        let thresholds = thresholds(&config)?;
        let source = Prometheus {
            client: Client::new(&options)?,
            scope,
            window: until - since,
            until,
            thresholds: thresholds.clone(),
            sacct: if common.no_sacct { None } else { Sacct::configured(&config.slurm) },
        };
        for warning in source.client.warnings() {
            warn(warning);
        }
        Self::with(source, thresholds, config, common, environment)
    }

    /// The report of a job once its end was scraped, or what is known after that time.
    pub async fn report_after(&self, wait: Duration, wanted: &Wanted<'_>) -> Result<Report, Failure> {
        let has_ended = |report: &Report| report.job.end_was_seen();
        self.patiently(wait, async |server| self.report_by(server, wanted).await, has_ended).await
    }

    /// Reports of many jobs without curves, if the user may see all of them.
    pub async fn reports(&self, selection: &Selection) -> Result<Vec<Report>, Failure> {
        self.reports_by(&self.source, selection).await
    }

    /// Reports of all jobs whose cluster's label and number are wanted, without curves, if the user may see all jobs.
    pub async fn all_reports(
        &self,
        is_wanted: impl Fn(&(String, u64)) -> bool,
    ) -> Result<Vec<Report>, Failure> {
        if self.privacy != Privacy::Off {
            let says = "this is of all users' jobs, and this site shows users their own";
            return Err(Failure::new(Kind::NotAllowed, says));
        }
        let jobs = self.source.list(&Selection::default(), is_wanted).await?;
        Ok(self.reports_of(jobs))
    }

    /// Jobs of a cluster, of those that the user may see.
    pub(super) fn selection(&self, whose: &Whose) -> Result<Selection, Failure> {
        Ok(Selection {
            user: self.privacy.owner(whose.user.clone())?,
            account: whose.account.clone(),
            partition: whose.partition.clone(),
            ..Selection::default()
        })
    }

    fn reports_of(&self, jobs: Vec<Job>) -> Vec<Report> {
        jobs.into_iter().map(|job| Report::new(job, &self.thresholds, Vec::new())).collect()
    }

    /// The same once the ends of all were scraped, or what is known after that time.
    pub async fn reports_after(&self, wait: Duration, selection: &Selection) -> Result<Vec<Report>, Failure> {
        let have_ended =
            |all: &Vec<Report>| !all.is_empty() && all.iter().all(|report| report.job.end_was_seen());
        self.patiently(wait, async |server| self.reports_by(server, selection).await, have_ended).await
    }

    async fn reports_by(&self, server: &Prometheus, selection: &Selection) -> Result<Vec<Report>, Failure> {
        let jobs = server.list(selection, |_| true).await?;
        jobs.iter().try_for_each(|job| self.privacy.check(job.id, &job.identity))?;
        Ok(self.reports_of(jobs))
    }

    /// Asks again and again, with a later end of time, until the answer is whole. A failure that time does not change ends it.
    async fn patiently<T>(
        &self,
        wait: Duration,
        ask: impl AsyncFn(&Prometheus) -> Result<T, Failure>,
        is_whole: impl Fn(&T) -> bool,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        loop {
            let until = self.source.until + begun.elapsed().as_secs_f64();
            let answer = ask(&Prometheus { until, ..self.source.clone() }).await;
            let is_last = match &answer {
                Ok(answer) => is_whole(answer),
                Err(failure) => !matches!(failure.kind, Kind::NotFound | Kind::Other),
            };
            let left = wait.saturating_sub(begun.elapsed());
            if is_last || left.is_zero() {
                return answer;
            }
            tokio::time::sleep(left.min(PAUSE)).await;
        }
    }

    /// Shows what was asked since it was shown last, with --verbose, what the server remarked, and why sacct failed.
    #[allow(clippy::print_stderr, reason = "that is what it is for")]
    pub fn show_log(&self) {
        for asked in self.source.client.take_log() {
            if self.verbose {
                let (seconds, series, points, bytes) =
                    (asked.seconds, asked.series, asked.points, asked.bytes);
                eprintln!("{seconds:.3} s, {series} series, {points} points, {bytes} bytes: {}", asked.expr);
            }
            for remark in asked.warnings.iter().chain(&asked.infos) {
                warn(remark);
            }
        }
        if let Some(failure) = self.source.sacct.as_ref().and_then(Sacct::failure) {
            warn(&format!("{failure}. With --no-sacct, or slurm.sacct = \"never\", it is not asked."));
        }
    }
}

impl Surroundings<Recordings> {
    /// Reads the configuration and recordings: no server is needed.
    pub fn of_recordings(
        common: &Common,
        environment: &Environment,
        files: &[PathBuf],
    ) -> Result<Self, Failure> {
        let config = config::load(common.config.as_deref(), environment.user_config.as_deref())?;
        let thresholds = thresholds(&config)?;
        let source = Recordings::read(files, thresholds.clone(), now())?;
        Self::with(source, thresholds, config, common, environment)
    }
}

impl Surroundings<()> {
    /// Reads the configuration.
    pub fn without_source(common: &Common, environment: &Environment) -> Result<Self, Failure> {
        let config = config::load(common.config.as_deref(), environment.user_config.as_deref())?;
        Self::with((), thresholds(&config)?, config, common, environment)
    }
}

impl<S> Surroundings<S> {
    fn with(
        source: S,
        thresholds: Thresholds,
        config: Config,
        common: &Common,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let privacy = Privacy::of_this_process(&config.privacy)?;
        let (zone, environment) = (zone(common)?, environment.clone());
        let width = common.width.or_else(terminal_width).map_or(80, usize::from);
        let ascii = match common.ascii {
            Ascii::Auto => environment.ascii,
            Ascii::Always => true,
            Ascii::Never => false,
        };
        let (color, verbose) = (common.color, common.verbose);
        Ok(Self { config, source, thresholds, zone, environment, privacy, width, ascii, color, verbose })
    }

    /// The report of a job, if the user may see it.
    pub async fn report(&self, wanted: &Wanted<'_>) -> Result<Report, Failure>
    where
        S: Source,
    {
        self.report_by(&self.source, wanted).await
    }

    /// The same from another source, such as a server at another time.
    pub(super) async fn report_by(
        &self,
        source: &impl Source,
        wanted: &Wanted<'_>,
    ) -> Result<Report, Failure> {
        let report = source.report(wanted).await?;
        self.privacy.check(report.job.id, &report.job.identity)?;
        Ok(report)
    }

    /// Whether to colour what goes to the standard output.
    pub fn colour(&self) -> bool {
        match self.color {
            When::Always => true,
            When::Never => false,
            When::Auto => !self.environment.no_color && std::io::stdout().is_terminal(),
        }
    }
}

/// Whether the locale of characters is known and is not of UTF-8 (locale(7)). A daemon or a container has none, and what it writes is read elsewhere.
fn is_ascii(get: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(get);
    let is_utf8 = |locale: String| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    };
    locale.is_some_and(|locale| !is_utf8(locale))
}

/// A report is not drawn narrower or wider than this.
const WIDTHS: (u16, u16) = (60, 120);

fn terminal_width() -> Option<u16> {
    let is_terminal = std::io::stdout().is_terminal();
    let (columns, _) = is_terminal.then(ratatui::crossterm::terminal::size)?.ok()?;
    (columns > 0).then(|| columns.clamp(WIDTHS.0, WIDTHS.1))
}

fn zone(common: &Common) -> Result<TimeZone, Failure> {
    match &common.tz {
        Some(name) => TimeZone::get(name)
            .map_err(|_| Failure::usage(format!("--tz={name}: there is no such time zone"))),
        None => Ok(TimeZone::system()),
    }
}

#[allow(clippy::print_stderr, reason = "a warning")]
pub(super) fn warn(text: &str) {
    Progress::erase();
    eprintln!("jobledger: {text}");
}

fn thresholds(config: &Config) -> Result<Thresholds, Failure> {
    let Some(path) = &config.report.thresholds else {
        return Thresholds::shipped().map_err(|error| Failure::other(error.to_string()));
    };
    let wrong = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    Thresholds::parse(&text).map_err(|error| wrong(error.to_string()))
}

pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A time: `now`, RFC 3339, a date or a date and time in the zone, or how long before now: `30d`, `1h 30m`.
fn moment(flag: &str, text: &str, now: f64, zone: &TimeZone) -> Result<f64, Failure> {
    if text == "now" {
        return Ok(now);
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.as_duration().as_secs_f64());
    }
    if let Ok(at) = text.parse::<DateTime>() {
        let at = zone.to_zoned(at).map_err(|error| Failure::usage(format!("{flag}={text}: {error}")))?;
        return Ok(at.timestamp().as_duration().as_secs_f64());
    }
    let ago = text
        .parse::<Span>()
        .ok()
        .and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok());
    match ago.filter(|ago| *ago > SignedDuration::ZERO) {
        Some(ago) => Ok(now - ago.as_secs_f64()),
        None => Err(Failure::usage(format!(
            "{flag}={text}: no time such as 2026-11-01, 2026-11-01T08:00, 12h or 30d"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_of_characters_says_whether_they_are_ascii() {
        let of = |variables: &[(&str, &str)]| {
            is_ascii(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        for variables in
            [&[("LANG", "C")][..], &[("LC_ALL", "POSIX"), ("LANG", "C.UTF-8")], &[("LC_CTYPE", "de_DE@euro")]]
        {
            assert!(of(variables), "{variables:?}");
        }
        for variables in [
            &[][..],
            &[("LANG", "en_US.utf8")],
            &[("LC_CTYPE", "C.UTF-8"), ("LANG", "C")],
            &[("LC_COLLATE", "C")],
        ] {
            assert!(!of(variables), "{variables:?}");
        }
    }

    #[test]
    fn times_are_absolute_or_ago() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let of = |text| moment("--since", text, 1e9, &zone).map_err(|failure| failure.says);
        assert_eq!(of("now"), Ok(1e9));
        assert_eq!(of("2h"), Ok(1e9 - 7200.0));
        assert_eq!(of("30d"), Ok(1e9 - 30.0 * 86_400.0));
        assert_eq!(of("1d 2h"), Ok(1e9 - 26.0 * 3600.0));
        assert_eq!(of("2001-09-09T01:46:40Z"), Ok(1e9));
        assert_eq!(of("2001-09-09T03:46:40"), Ok(1e9));
        assert_eq!(of("2001-09-09"), Ok(1e9 - 3600.0 * 3.0 - 46.0 * 60.0 - 40.0));
        for wrong in ["", "yesterday?", "-1h", "5"] {
            assert!(of(wrong).unwrap_err().contains("no time such as"), "{wrong}");
        }
    }
}
