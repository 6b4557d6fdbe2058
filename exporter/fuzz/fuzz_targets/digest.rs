//! Files of policies and of what was sent, and mails to users with any names in them: no control character, and as many lines as with other names.

use jiff::tz::TimeZone;
use jobledger::digest::findings;
use jobledger::digest::letters::{Period, Templates};
use jobledger::digest::policies::Policies;
use jobledger::digest::{calendar, history, idle_gpus};
use jobledger::testing::{self, THRESHOLDS};
use jobledger_exporter_fuzz::typed;

const ALL: &str = "[[policy]]\nname = \"p\"\nadvice = \"gpu_never_used\"\nmeasure = \"gpu_hours_never_used\"\n\
    [[policy]]\nname = \"q\"\nadvice = \"memory_over_asked\"\nmeasure = \"memory_gib_hours\"\n";

pub fn fuzz(bytes: &[u8]) {
    typed(bytes, |(file, name): (String, String)| {
        let _ = calendar::holidays(&file);
        let _ = history::parse(&file);
        let period = Period { from: 0.0, until: 604_800.0, zone: TimeZone::UTC };
        let mail = |policies: &Policies, text: Option<&str>, name: &str| {
            let mut job = testing::named(name);
            // Without a user nobody gets a mail.
            job.identity.user = "u".to_owned();
            let reports = [testing::report(job)];
            let _ = idle_gpus::letter(&reports[0], 60, &period, Some(120));
            let (found, _) = findings::find(policies, &reports, &THRESHOLDS);
            let found: Vec<_> = found.iter().collect();
            let user = &found.first()?.user;
            Templates::new(text, text).and_then(|mails| mails.letter(user, &found, &period, 3, &THRESHOLDS)).ok()
        };
        let policies = Policies::parse(ALL, &THRESHOLDS).expect("there is nothing wrong in it");
        // A template is the site's: it may be wrong, and does no harm.
        let _ = mail(&policies, Some(&file), &name);
        if let Ok(policies) = Policies::parse(&file, &THRESHOLDS) {
            let _ = mail(&policies, None, &name);
        }
        let (mail, plain) = (mail(&policies, None, &name), mail(&policies, None, "n"));
        let (mail, plain) = (mail.expect("it wastes GPUs"), plain.expect("so does this one"));
        assert!(!mail.subject.chars().any(char::is_control));
        assert!(!mail.text.chars().any(|c| c.is_control() && c != '\n'), "{:?}", mail.text);
        let options = |text: &str| text.lines().filter(|line| line.contains(": #SBATCH ")).count();
        assert_eq!(options(&mail.text), options(&plain.text));
    });
}
