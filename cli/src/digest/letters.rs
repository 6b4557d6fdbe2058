//! The text of mails to users, by a template that a site can replace.

use jiff::tz::TimeZone;
use job_report::Thresholds;
use job_report::show::digits;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::Serialize;

use super::findings::{Finding, User, Wasteful};
use super::measure::Measure;
use super::number::Number;
use crate::formats::moment;
use crate::formats::table::{self, Head};
use crate::mail::Letter;
use crate::text::{harmless_line, wrapped};

const SUBJECT: &str = "Your jobs{% if cluster %} on {{ cluster }}{% endif %}: {{ findings[0].wasted }} {{ findings[0].unit }} were not used";
const TEXT: &str = include_str!("mail.txt");
/// Options are shown of so many jobs.
const OPTIONS: usize = 3;

/// The time that is looked at.
#[derive(Debug, Clone)]
pub struct Period {
    /// Seconds since the epoch.
    pub from: f64,
    /// The same.
    pub until: f64,
    /// Of the dates in mails.
    pub zone: TimeZone,
}

impl Period {
    /// A moment of it as mails show it.
    pub(super) fn show(&self, at: f64) -> String {
        moment(at, &self.zone, "%a %-d %b %H:%M")
    }
}

/// The templates of subject and text.
#[derive(Debug)]
pub struct Templates(Environment<'static>);

/// What a template sees.
#[derive(Debug, Serialize)]
struct Page<'a> {
    user: &'a str,
    cluster: Option<&'a str>,
    from: String,
    until: String,
    days: String,
    findings: Vec<Part>,
}

#[derive(Debug, Serialize)]
struct Part {
    policy: String,
    says: String,
    change: String,
    held: String,
    wasted: String,
    unit: &'static str,
    things: &'static str,
    /// What was wasted, by the time in which these jobs ran: since the first began, if that was before the time that is looked at.
    steady: String,
    /// When that first one began; nothing if all began in the time that is looked at.
    since: Option<String>,
    jobs: usize,
    /// The one that wasted most.
    job: String,
    table: String,
    /// Jobs that the table leaves out; nothing if it has all.
    more: Option<usize>,
    options: Vec<Options>,
}

#[derive(Debug, Serialize)]
struct Options {
    job: String,
    sbatch: String,
}

impl Templates {
    /// Reads them; those that are not given are the shipped ones.
    ///
    /// # Errors
    /// What is wrong in one of them.
    pub fn new(subject: Option<&str>, text: Option<&str>) -> Result<Self, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(true)
            .build()
            .map_err(|error| error.to_string())?;
        environment.set_syntax(syntax);
        // A name that does not exist is an error and no empty text.
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.add_filter("wrapped", |text: String, columns: usize| wrapped(&text, columns).join("\n"));
        for (name, template) in [("subject", subject.unwrap_or(SUBJECT)), ("text", text.unwrap_or(TEXT))] {
            environment
                .add_template_owned(name, template.to_owned())
                .map_err(|error| format!("the template of the {name}: {error}"))?;
        }
        Ok(Self(environment))
    }

    /// The mail to a user about what was found.
    ///
    /// # Errors
    /// A template that asks for what is not there.
    pub fn letter(
        &self,
        user: &User,
        findings: &[&Finding<'_>],
        period: &Period,
        most_jobs: usize,
        thresholds: &Thresholds,
    ) -> Result<Letter, String> {
        let page = Value::from(Serde(Page {
            user: &user.name,
            cluster: user.cluster.as_deref(),
            from: period.show(period.from),
            until: period.show(period.until),
            days: digits((period.until - period.from) / 86_400.0),
            findings: findings.iter().map(|finding| part(finding, period, most_jobs, thresholds)).collect(),
        }));
        let render = |name: &str| {
            let template = self.0.get_template(name).map_err(|error| error.to_string())?;
            template.render(page.clone()).map_err(|error| format!("the template of the {name}: {error}"))
        };
        Ok(Letter { subject: harmless_line(render("subject")?.trim()), text: render("text")? })
    }
}

fn part(finding: &Finding<'_>, period: &Period, most_jobs: usize, thresholds: &Thresholds) -> Part {
    let policy = finding.policy;
    let shown = || finding.jobs.iter().take(most_jobs);
    let (unit, things) = policy.measure.units();
    // A job counts whole.
    let first = finding.jobs.iter().map(|job| job.report.job.start()).reduce(f64::min);
    let since = first.filter(|first| *first < period.from);
    let hours = (period.until - since.unwrap_or(period.from)) / 3600.0;
    let options =
        |job: &Wasteful<'_>| Some(Options { job: job.name(), sbatch: job.sbatch(policy, thresholds)? });
    Part {
        policy: policy.name.clone(),
        says: policy.says.clone().unwrap_or_default(),
        change: policy.change.clone().unwrap_or_default(),
        held: digits(finding.hours.held),
        wasted: digits(finding.hours.wasted),
        unit,
        things,
        steady: digits(finding.hours.wasted / hours),
        since: since.map(|since| period.show(since)),
        jobs: finding.jobs.len(),
        job: finding.jobs.first().map(Wasteful::name).unwrap_or_default(),
        table: jobs_table(finding, most_jobs, thresholds),
        more: Some(finding.jobs.len().saturating_sub(most_jobs)).filter(|more| *more > 0),
        options: shown().filter_map(options).take(OPTIONS).collect(),
    }
}

/// Of jobs, in lines that begin with two spaces.
fn jobs_table(finding: &Finding<'_>, most_jobs: usize, thresholds: &Thresholds) -> String {
    let columns = columns(finding);
    let mut heads = vec![Head { name: "job", number: false }, Head { name: "name", number: false }];
    heads.extend(columns.iter().map(|number| Head { name: number.head(), number: true }));
    heads.push(Head { name: "wasted h", number: true });
    let row = |job: &Wasteful<'_>| {
        let mut row = vec![Some(job.name()), Some(name(job)).filter(|name| !name.is_empty())];
        let shown = |number: &Number| Some(number.show(number.of(job.report, thresholds)?));
        row.extend(columns.iter().map(shown));
        row.push(Some(digits(job.hours.wasted)));
        row
    };
    let rows: Vec<table::Row> = finding.jobs.iter().take(most_jobs).map(row).collect();
    let text = table::text(&heads, &rows);
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Names may be long, and a mail has 78 columns.
fn name(job: &Wasteful<'_>) -> String {
    crate::text::cut(&job.report.job.identity.name, 16)
}

fn columns(finding: &Finding<'_>) -> Vec<Number> {
    let policy = finding.policy;
    if !policy.columns.is_empty() {
        return policy.columns.clone();
    }
    let of_measure: &[Number] = match policy.measure {
        Measure::GpuHours => &[Number::Gpus, Number::GpuUse],
        Measure::GpuHoursNeverUsed => &[Number::Gpus, Number::GpusNeverUsed],
        Measure::CoreHours | Measure::CoreHoursBeyondOne => &[Number::Cores, Number::CoresUsed],
        Measure::MemoryGibHours => &[Number::MemoryGib, Number::MemoryPeakGib],
        Measure::LimitCoreHours => &[Number::LimitMinutes, Number::Cores],
        Measure::LimitGpuHours => &[Number::LimitMinutes, Number::Gpus],
    };
    [&[Number::RunMinutes], of_measure].concat()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jobledger_testkit::golden::assert_golden;

    use super::*;
    use crate::digest::findings;
    use crate::digest::policies::Policies;
    use crate::testing::{self, THRESHOLDS};

    const POLICIES: &str = "[[policy]]\nname = \"gpus\"\nadvice = \"gpu_never_used\"\nmeasure = \"gpu_hours_never_used\"\n\
        [[policy]]\nname = \"memory\"\nadvice = \"memory_over_asked\"\nmeasure = \"memory_gib_hours\"\n";

    fn letter(subject: Option<&str>, text: Option<&str>) -> Result<Letter, String> {
        letter_from(1_646_000_000.0, subject, text)
    }

    fn letter_from(from: f64, subject: Option<&str>, text: Option<&str>) -> Result<Letter, String> {
        let policies = Policies::parse(POLICIES, &THRESHOLDS).unwrap();
        let of = |id: u64| {
            let mut job = testing::job();
            job.id = id;
            testing::report(job)
        };
        let reports: Vec<_> = (101..104).map(of).collect();
        let (findings, _) = findings::find(&policies, &reports, &THRESHOLDS);
        let findings: Vec<_> = findings.iter().collect();
        let user = findings[0].user.clone();
        let zone = TimeZone::get("America/New_York").unwrap();
        let period = Period { from, until: 1_646_604_800.0, zone };
        Templates::new(subject, text)?.letter(&user, &findings, &period, 2, &THRESHOLDS)
    }

    /// Of each of three jobs of 18.7 hours one GPU was never used.
    #[test]
    fn a_job_that_began_earlier_counts_whole_and_for_all_of_its_time() {
        let began = testing::job().start();
        let text = |from| {
            let text = "{% for f in findings[:1] %}{{ f.wasted }} {{ f.steady }} {{ f.since }}{% endfor %}";
            letter_from(from, None, Some(text)).unwrap().text
        };
        let until = 1_646_604_800.0;
        let steady = digits(56.0976 / ((until - began) / 3600.0));
        assert_eq!(text(began + 3600.0), format!("56.1 {steady} Fri 4 Mar 06:56"));
        assert_eq!(text(began), format!("56.1 {steady} None"));
    }

    #[test]
    fn a_mail_says_what_was_wasted_and_what_to_change() {
        let letter = letter(None, None).unwrap();
        assert_eq!(letter.subject, "Your jobs on della: 56.1 GPU-hours were not used");
        assert!(letter.text.lines().all(|line| crate::text::width(line) <= 80), "{}", letter.text);
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/digest.txt");
        assert_golden(&golden, &letter.text);
    }

    #[test]
    fn a_site_has_its_own_words() {
        let letter = letter(
            Some("{{ user }}: {{ findings | length }}\nBcc: eve"),
            Some(
                "{% for f in findings %}{{ f.policy }} {{ f.wasted }}/{{ f.held }} {{ f.jobs }} {% endfor %}",
            ),
        );
        let letter = letter.unwrap();
        assert_eq!(letter.subject, "aturing: 2\u{fffd}Bcc: eve");
        assert_eq!(letter.text, "gpus 56.1/224 3 memory 12919/14361 3 ");
    }

    #[test]
    fn a_template_that_asks_for_nothing_known_is_an_error() {
        let error = |subject, text| letter(subject, text).unwrap_err();
        assert!(error(None, Some("{{ usr }}")).starts_with("the template of the text: undefined value"));
        assert!(error(Some("{% if %}"), None).starts_with("the template of the subject: syntax error"));
    }
}
