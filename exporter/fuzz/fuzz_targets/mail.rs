//! Mails of any subject, which has the name that a user gave the job: no line that it made is a header, and no address but those given.

use jobledger::config;
use jobledger::mail::event::Event;
use jobledger::mail::{Letter, Mailer};
use jobledger_exporter_fuzz::typed;

pub fn fuzz(bytes: &[u8]) {
    typed(bytes, |(subject, text, to): (String, String, String)| {
        Event::of(&subject, None, None);
        Event::of("", Some(&subject), Some(&text));
        let mailer = Mailer::new(&config::Mail::default()).expect("there is nothing wrong in it");
        let Ok((to, _)) = mailer.addresses(&to) else { return };
        let message = mailer.message(&Letter { subject, text }, &to).expect("memory takes it");
        assert_eq!(message.envelope().to(), to);
        let bytes = message.formatted();
        let head = bytes.split(|byte| *byte == b'\n').take_while(|line| *line != b"\r");
        for line in head {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            let known: [&[u8]; 8] = [
                b"From",
                b"To",
                b"Subject",
                b"Message-ID",
                b"Auto-Submitted",
                b"MIME-Version",
                b"Date",
                b"Content-Type",
            ];
            assert!(known.contains(&name) || line.starts_with(b" "), "{:?}", String::from_utf8_lossy(line));
        }
    });
}
