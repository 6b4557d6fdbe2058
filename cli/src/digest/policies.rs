//! The file of policies: what is waste, who gets a mail about it, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use job_report::{Piece, Thresholds};
use serde::Deserialize;

use super::bounds::Bounds;
use super::measure::Measure;
use super::number::Number;
use super::which::Which;
use crate::config::line_of;

/// Where it is, if the command line does not say.
pub const FILE: &str = "/etc/jobledger/digest.toml";

/// The file. An unknown key is an error.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policies {
    /// What was sent and done, a line of JSON each.
    pub history: PathBuf,
    /// When mails are sent, and how they look.
    pub mails: Mails,
    /// Addresses of users whose name does not make one.
    pub addresses: BTreeMap<String, String>,
    /// Who gets tables of all.
    pub summary: Summary,
    /// Jobs that nothing here looks at.
    pub except: Vec<Which>,
    /// What is waste.
    pub policy: Vec<Policy>,
    /// GPUs of jobs that run.
    pub idle_gpus: Option<IdleGpus>,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            history: "/var/lib/jobledger-digest/history.jsonl".into(),
            mails: Mails::default(),
            addresses: BTreeMap::new(),
            summary: Summary::default(),
            except: Vec::new(),
            policy: Vec::new(),
            idle_gpus: None,
        }
    }
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "their names are enough")]
pub enum Weekday {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// When mails are sent, and how they look.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mails {
    /// Days on which mails are sent.
    pub workdays: BTreeSet<Weekday>,
    /// A file of days on which none are, such as `2026-12-25`, one a line.
    pub holidays: Option<PathBuf>,
    /// Days until a user gets the next mail by the same policy.
    pub repeat_days: u32,
    /// If a run would send more mails to users, it sends none.
    pub most: usize,
    /// The subject, a template.
    pub subject: Option<String>,
    /// The text, a template.
    pub template: Option<PathBuf>,
    /// Jobs of a finding that are shown.
    pub jobs: usize,
}

impl Default for Mails {
    fn default() -> Self {
        use Weekday::{Fri, Mon, Thu, Tue, Wed};
        Self {
            workdays: [Mon, Tue, Wed, Thu, Fri].into(),
            holidays: None,
            repeat_days: 7,
            most: 200,
            subject: None,
            template: None,
            jobs: 10,
        }
    }
}

/// Who gets tables of all.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Summary {
    /// Of all accounts.
    pub staff: Vec<String>,
    /// Of an account, by its name.
    pub coordinators: BTreeMap<String, Vec<String>>,
    /// Whether SLURM's coordinators of other accounts get them, too.
    pub coordinators_of_slurm: bool,
    /// SLURM's command.
    pub sacctmgr: PathBuf,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            staff: Vec::new(),
            coordinators: BTreeMap::new(),
            coordinators_of_slurm: false,
            sacctmgr: "sacctmgr".into(),
        }
    }
}

/// What is waste, and when its owner gets a mail.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Its name, in tables and in the history.
    pub name: String,
    /// A piece of advice of rules/thresholds.yaml, whose texts and options of sbatch the mail has.
    pub advice: Option<String>,
    /// What the mail says instead of the advice.
    pub says: Option<String>,
    /// What it says to change instead of the advice.
    pub change: Option<String>,
    /// Options of sbatch for each job instead of those of the advice; `{number}` is a number of the job, rounded up.
    pub sbatch: Option<String>,
    /// What is added up.
    pub measure: Measure,
    /// Which jobs are looked at.
    #[serde(default)]
    pub jobs: Which,
    /// Which of them are not.
    #[serde(default)]
    pub except: Vec<Which>,
    /// Whether jobs that run are looked at.
    #[serde(default)]
    pub running: bool,
    /// Who gets a mail: what the jobs of a user have to be together.
    #[serde(default)]
    pub owner: Together,
    /// Who is in the staff's table; as `owner` if it is not set.
    pub staff: Option<Together>,
    /// Whether users get mails of it, or the staff's table alone has it.
    #[serde(default = "yes")]
    pub mail: bool,
    /// Columns of the mail's table.
    #[serde(default)]
    pub columns: Vec<Number>,
    /// Days until a user gets the next mail by it.
    pub repeat_days: Option<u32>,
}

fn yes() -> bool {
    true
}

/// What the jobs of a user are together, by a policy's measure.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Together {
    /// How many they are.
    pub jobs: Option<Bounds>,
    /// Hours that they had.
    pub held: Option<Bounds>,
    /// Hours that were wasted.
    pub wasted: Option<Bounds>,
    /// The part of the hours that was not wasted.
    #[serde(rename = "use")]
    pub use_of_all: Option<Bounds>,
    /// The mean of the jobs' parts.
    pub mean_use: Option<Bounds>,
    /// Their median.
    pub median_use: Option<Bounds>,
    /// What this user's jobs had, of what those of all users had that the policy looks at.
    pub share: Option<Bounds>,
    /// The user's place by what the jobs had, from 1.
    pub rank_held: Option<Bounds>,
    /// The user's place by what was wasted.
    pub rank_wasted: Option<Bounds>,
}

/// What is done about GPUs that jobs do not use while they run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleGpus {
    /// Minutes without use after which the owner gets a mail: one for each number, in their order.
    pub warn_minutes: Vec<u32>,
    /// Minutes after which the job is cancelled. Without it none is.
    pub cancel_minutes: Option<u32>,
    /// Minutes between the last mail and that.
    #[serde(default = "notice")]
    pub notice_minutes: u32,
    /// The part of a job's GPUs that may be used; 0 if all of them have to be idle.
    #[serde(default)]
    pub used_part: f64,
    /// Which jobs are looked at.
    #[serde(default)]
    pub jobs: Which,
    /// Which of them are not.
    #[serde(default)]
    pub except: Vec<Which>,
    /// Which of them get mails and are not cancelled.
    #[serde(default)]
    pub never_cancel: Vec<Which>,
    /// SLURM's commands.
    #[serde(default = "squeue")]
    pub squeue: PathBuf,
    /// The same.
    #[serde(default = "scancel")]
    pub scancel: PathBuf,
}

fn notice() -> u32 {
    15
}

fn squeue() -> PathBuf {
    "squeue".into()
}

fn scancel() -> PathBuf {
    "scancel".into()
}

/// Advice that needs curves, which a digest of all jobs does not ask for.
const NEED_CURVES: [Piece; 2] = [Piece::GpuStopped, Piece::StalledIo];

impl Policies {
    /// Reads TOML. The error is one line.
    pub fn parse(text: &str, thresholds: &Thresholds) -> Result<Self, String> {
        let mut policies: Self = toml::from_str(text).map_err(|error| line_of(text, &error))?;
        let mut names = BTreeSet::new();
        for policy in &mut policies.policy {
            if !names.insert(policy.name.clone()) {
                return Err(format!("two policies have the name {:?}", policy.name));
            }
            policy.fill(thresholds).map_err(|why| format!("policy {:?}: {why}", policy.name))?;
        }
        let mut exceptions =
            policies.except.iter().chain(policies.policy.iter().flat_map(|policy| &policy.except));
        let idle = policies.idle_gpus.iter().flat_map(|idle| idle.except.iter().chain(&idle.never_cancel));
        if exceptions.any(Which::is_all) || idle.clone().any(Which::is_all) {
            return Err("an exception without a condition leaves out all jobs".to_owned());
        }
        if let Some(idle) = &policies.idle_gpus {
            idle.check().map_err(|why| format!("idle_gpus: {why}"))?;
        }
        Ok(policies)
    }

    /// Seconds that a job of any policy ran at least.
    pub fn least_seconds(&self) -> f64 {
        self.policy.iter().map(|policy| policy.jobs.least_seconds()).reduce(f64::min).unwrap_or(0.0)
    }
}

impl Policy {
    /// Days until a user gets the next mail by it.
    pub fn repeat_days(&self, mails: &Mails) -> u32 {
        self.repeat_days.unwrap_or(mails.repeat_days)
    }

    /// The texts of its advice, where it has none itself.
    fn fill(&mut self, thresholds: &Thresholds) -> Result<(), String> {
        if let Some(advice) = &self.advice {
            let texts = thresholds.texts(advice).ok_or_else(|| format!("there is no advice {advice:?}"))?;
            if NEED_CURVES.iter().any(|piece| piece.name() == advice) {
                return Err(format!("the advice {advice:?} is of a job's curve, which is not read here"));
            }
            self.says.get_or_insert_with(|| texts.what.clone());
            self.change.get_or_insert_with(|| texts.change.clone());
        }
        if self.says.is_none() || self.change.is_none() {
            return Err("it needs `advice`, or `says` and `change`".to_owned());
        }
        let placeholders = self.sbatch.iter().flat_map(|text| text.split('{').skip(1));
        for placeholder in placeholders {
            let name = placeholder.split_once('}').map(|(name, _)| name);
            if !Number::ALL.iter().any(|number| Some(number.name()) == name) {
                return Err(format!("sbatch: {{{placeholder} is no number of a job"));
            }
        }
        Ok(())
    }
}

impl IdleGpus {
    fn check(&self) -> Result<(), &'static str> {
        let times: Vec<u32> = self.warn_minutes.iter().copied().chain(self.cancel_minutes).collect();
        if self.warn_minutes.is_empty() {
            Err("warn_minutes has no time: nobody is cancelled without a mail before")
        } else if times.first().is_some_and(|first| *first < 10) {
            Err("warn_minutes: below ten minutes a scrape or two that are missing are a part of it")
        } else if times.windows(2).any(|pair| matches!(pair, [a, b] if a >= b)) {
            Err("the times of warn_minutes and cancel_minutes have to grow")
        } else if !(0.0..1.0).contains(&self.used_part) {
            Err("used_part is from 0 to below 1")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::THRESHOLDS;

    fn wrong(text: &str) -> String {
        Policies::parse(text, &THRESHOLDS).unwrap_err()
    }

    const POLICY: &str = "[[policy]]\nname = \"a\"\nmeasure = \"gpu_hours\"\n";

    #[test]
    fn a_policy_has_the_texts_of_its_advice() {
        let text = format!(
            "{POLICY}advice = \"gpu_never_used\"\nchange = \"Ask us.\"\nowner = {{ wasted = \">= 1\" }}\n"
        );
        let policies = Policies::parse(&text, &THRESHOLDS).unwrap();
        assert_eq!(policies.policy[0].says.as_deref(), Some("GPUs were never used"));
        assert_eq!(policies.policy[0].change.as_deref(), Some("Ask us."));
        assert_eq!(policies.policy[0].repeat_days(&policies.mails), 7);
    }

    #[test]
    fn a_wrong_file_is_refused() {
        assert!(wrong("[[policy]]\nname = 1").starts_with("line 2: "));
        assert!(wrong(&format!("{POLICY}min_gpus = 1")).contains("line 4: unknown field `min_gpus`"));
        assert!(
            wrong(&format!("{POLICY}jobs = {{ num_cores = \"> 1\" }}"))
                .contains("unknown variant `num_cores`")
        );
        assert!(wrong(POLICY).contains("policy \"a\": it needs `advice`"));
        assert!(wrong(&format!("{POLICY}advice = \"gpu_bored\"")).contains("there is no advice"));
        assert!(wrong(&format!("{POLICY}advice = \"gpu_stopped\"")).contains("curve"));
        let named = format!("{POLICY}says = \"x\"\nchange = \"y\"\n");
        assert!(wrong(&format!("{named}{named}")).contains("two policies have the name"));
        assert!(wrong(&format!("{named}sbatch = \"--nodes={{n}}\"")).contains("no number of a job"));
        assert!(wrong(&format!("{named}except = [{{}}]")).contains("leaves out all jobs"));
    }

    #[test]
    fn nobody_is_cancelled_without_a_mail() {
        let idle = |text: &str| wrong(&format!("[idle_gpus]\n{text}"));
        assert!(idle("warn_minutes = []\ncancel_minutes = 60").contains("no time"));
        assert!(idle("warn_minutes = [60, 60]").contains("have to grow"));
        assert!(idle("warn_minutes = [60]\ncancel_minutes = 50").contains("have to grow"));
        assert!(idle("warn_minutes = [5]").contains("ten minutes"));
        assert!(idle("warn_minutes = [60]\nused_part = 1.0").contains("used_part"));
        assert!(idle("warn_minutes = [60]\nnever_cancel = [{}]").contains("leaves out all"));
    }

    /// Job Defense Shield's alerts, each as a policy; and every key that a site can set.
    #[test]
    fn the_example_is_a_file_of_policies() {
        let page = include_str!("../../../packaging/digest.toml.example");
        let shipped = Policies::parse(page, &THRESHOLDS).unwrap();
        let idle = shipped.idle_gpus.as_ref().unwrap();
        assert_eq!(
            (shipped.policy.len(), idle.cancel_minutes),
            (13, None),
            "none is cancelled unless a site says so"
        );
        assert_eq!((idle.notice_minutes, idle.used_part), (15, 0.0));
        assert_eq!(shipped.history, Policies::default().history);
        assert_eq!(
            Mails { jobs: shipped.mails.jobs, ..Mails::default() },
            shipped.mails,
            "the page has the defaults"
        );
        // A key that is off there is a comment without a space.
        let all: String = page
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        let all = Policies::parse(&all, &THRESHOLDS).unwrap();
        assert!(all.mails.holidays.is_some() && all.mails.template.is_some() && all.mails.subject.is_some());
        assert_eq!((all.addresses.len(), all.summary.staff.len(), all.summary.coordinators.len()), (1, 1, 1));
        let idle = all.idle_gpus.unwrap();
        assert_eq!((idle.cancel_minutes, idle.never_cancel.len()), (Some(120), 2));
    }
}
