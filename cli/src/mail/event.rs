//! What SLURM's mail is about. slurmctld starts its MailProg with `-s SUBJECT RECIPIENT`, and from 21.08 on with variables of the job
//! (`mail_job_info` and `_build_mail_env`, src/slurmctld/agent.c).

use crate::job_id::JobId;

/// What SLURM's mail is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The job, if it has one.
    pub about: Option<About>,
    /// What happened to it.
    pub what: What,
    /// Its number, as series have it. Of a whole array it is none.
    pub number: Option<u64>,
}

/// Whose report belongs into the mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// A job, or an element of an array.
    Job(JobId),
    /// A whole array.
    Array(u64),
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A run of it ended.
    Ended,
    /// It runs, and its time limit comes near.
    Runs,
    /// Something of which there is no report.
    Other,
}

/// The words of `_mail_type_str`, which are in subjects and in `SLURM_JOB_MAIL_TYPE`.
const TYPES: [(&str, What); 7] = [
    ("Ended", What::Ended),
    ("Failed", What::Ended),
    ("Requeued", What::Ended),
    ("Reached", What::Runs),
    ("Began", What::Other),
    ("StageOut", What::Other),
    ("Invalid dependency", What::Other),
];

impl Event {
    /// From the subject and `SLURM_JOB_MAIL_TYPE`, where that is set. `job_id` is `SLURM_JOB_ID`, for a subject that names no job.
    ///
    /// A subject is `Slurm Job_id=7 Name=x Ended, Run time …`, `Slurm Array Task Job_id=7_3 (12) Name=…` or
    /// `Slurm Array Summary Job_id=7_* (7) Name=…`. The name is the user's and may have any words in it.
    pub fn of(subject: &str, mail_type: Option<&str>, job_id: Option<&str>) -> Self {
        let job = subject.split_once("Job_id=").and_then(|(_, rest)| rest.split_whitespace().next());
        let about = job.and_then(|job| match job.strip_suffix("_*") {
            Some(array) => array.parse().ok().map(About::Array),
            None => job.parse().ok().map(About::Job),
        });
        let about = about.or_else(|| job_id?.parse().ok().map(About::Job));
        let what = match mail_type {
            Some(mail_type) => TYPES.into_iter().find(|(word, _)| mail_type.starts_with(word)),
            // The last one: those before are the name's.
            None => TYPES
                .into_iter()
                .filter_map(|(word, what)| Some((subject.rfind(&format!(" {word}"))?, word, what)))
                .max_by_key(|(at, ..)| *at)
                .map(|(_, word, what)| (word, what)),
        };
        let number = match &about {
            Some(About::Job(JobId::Number(number))) => Some(*number),
            Some(About::Job(_)) => number_of_part(subject).or_else(|| job_id?.parse().ok()),
            Some(About::Array(_)) | None => None,
        };
        Self { about, what: what.map_or(What::Other, |(_, what)| what), number }
    }
}

/// That of an element or a component is in parentheses behind its name: `Job_id=7_3 (12)`.
fn number_of_part(subject: &str) -> Option<u64> {
    let (_, rest) = subject.split_once("Job_id=")?;
    rest.split_whitespace().nth(1)?.strip_prefix('(')?.strip_suffix(')')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(subject: &str) -> (Option<About>, What) {
        let event = Event::of(subject, None, None);
        (event.about, event.what)
    }

    #[test]
    fn subjects_of_slurm_say_what_they_are_about() {
        let job = |name: &str| Some(About::Job(name.parse().unwrap()));
        let ended = "Slurm Job_id=39891831 Name=L_R38_3 Ended, Run time 1-11:30:27, COMPLETED, ExitCode 0";
        assert_eq!(of(ended), (job("39891831"), What::Ended));
        let began = "Slurm Job_id=7 Name=x Began, Queued time 2-00:04:18";
        assert_eq!(of(began), (job("7"), What::Other));
        let task = "Slurm Array Task Job_id=7_3 (12) Name=x Failed, Run time 00:00:01, FAILED, ExitCode 1";
        assert_eq!(of(task), (job("7_3"), What::Ended));
        let all = "Slurm Array Summary Job_id=7_* (7) Name=x Ended, COMPLETED, ExitCode [0-0]";
        assert_eq!(of(all), (Some(About::Array(7)), What::Ended));
        let limit = "Slurm Job_id=7 Name=x Reached 80% of time limit, Run time 00:48:00";
        assert_eq!(of(limit), (job("7"), What::Runs));
        let named = "Slurm Job_id=7 Name=Job_id=8 Ended, Run time Began, Queued time 00:00:01";
        assert_eq!(of(named), (job("7"), What::Other), "the name of a job is its user's");
        assert_eq!(of("Reports"), (None, What::Other));
    }

    #[test]
    fn variables_go_before_words() {
        let subject = "Slurm Job_id=7 Name=x Ended, Run time 00:00:10, COMPLETED, ExitCode 0";
        let event = Event::of(subject, Some("Reached 90% of time limit"), Some("9"));
        let about = |number| Some(About::Job(JobId::Number(number)));
        assert_eq!(event, Event { about: about(7), what: What::Runs, number: Some(7) });
        let event = Event::of("Job 9 is over", Some("Ended"), Some("9"));
        assert_eq!(event, Event { about: about(9), what: What::Ended, number: Some(9) });
        assert_eq!(
            Event::of("", Some("Invalid dependency"), Some("x")),
            Event { about: None, what: What::Other, number: None }
        );
    }

    #[test]
    fn elements_and_components_have_a_number_of_their_own() {
        let of = |subject: &str, job_id| Event::of(subject, None, job_id).number;
        let task = "Slurm Array Task Job_id=7_3 (12) Name=(8) Failed, Run time 00:00:01, FAILED, ExitCode 1";
        assert_eq!((of(task, None), of(task, Some("12"))), (Some(12), Some(12)));
        assert_eq!(of("Slurm Job_id=7+1 (8) Name=x Ended, Run time 00:00:01", None), Some(8));
        assert_eq!(of("Slurm Job_id=7_3 Name=(8) Ended, Run time 00:00:01", Some("12")), Some(12));
        assert_eq!(of("Slurm Array Summary Job_id=7_* (12) Name=x Ended", Some("12")), None);
    }

    proptest! {
        #[test]
        fn any_subject_is_read(subject: String, mail_type: Option<String>, job_id: Option<String>) {
            Event::of(&subject, mail_type.as_deref(), job_id.as_deref());
        }
    }
}
