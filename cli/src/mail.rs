//! Mails: what they are made of, and how they are sent.

pub mod event;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lettre::address::Envelope;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, Message, SmtpTransport, Transport};
use maud::{DOCTYPE, html};
use nix::unistd::{User, geteuid};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::Failure;
use crate::config;
use crate::slurm_command;
use crate::text::{cut, harmless_line};

/// Where mails are handed over if no server is configured.
const SENDMAIL: &str = "/usr/sbin/sendmail";
/// Until a mail has to be taken, if the configuration does not say.
const PATIENCE: u32 = 60;
/// Characters of a subject. It is in the text as a whole where it matters.
const MOST_OF_SUBJECT: usize = 200;
/// A longer word has no place where a line can be folded at 78 characters (RFC 5322, 2.1.1).
const MOST_OF_WORD: usize = 64;
/// Octets of an address (RFC 5321, 4.5.3.1.3).
const MOST_OF_ADDRESS: usize = 254;

/// Sends mails as the configuration says.
#[derive(Debug)]
pub struct Mailer {
    host: String,
    from: Mailbox,
    domain: String,
    by: By,
    patience: Duration,
}

#[derive(Debug)]
enum By {
    Sendmail(PathBuf),
    Server(SmtpTransport),
}

/// A mail that nobody took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsent {
    /// Why.
    pub failure: Failure,
    /// It took too long: it may be taken yet, and the next one would take as long.
    pub late: bool,
}

impl From<Unsent> for Failure {
    fn from(unsent: Unsent) -> Self {
        unsent.failure
    }
}

/// A mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// Its subject.
    pub subject: String,
    /// Its text, in lines that are shown with characters of equal width.
    pub text: String,
}

impl Letter {
    /// For a reader who wants to see it before it is sent.
    pub fn shown(&self, to: &[Address]) -> String {
        let to: Vec<String> = to.iter().map(ToString::to_string).collect();
        format!("To: {}\nSubject: {}\n\n{}\n", to.join(", "), harmless_line(&self.subject), self.text)
    }
}

impl Mailer {
    /// # Errors
    /// A wrong address, URL or file of a password.
    pub fn new(config: &config::Mail) -> Result<Self, Failure> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let from = match &config.from {
            Some(from) => from.clone(),
            None => {
                let user = User::from_uid(geteuid()).ok().flatten().map(|user| user.name);
                format!("{}@{host}", user.as_deref().unwrap_or("jobledger"))
            }
        };
        let patience = Duration::from_secs(config.timeout_seconds.unwrap_or(PATIENCE).into());
        let by = match &config.smtp {
            Some(url) => By::Server(server(url, config, host.clone(), patience)?),
            None => By::Sendmail(config.sendmail.clone().unwrap_or_else(|| SENDMAIL.into())),
        };
        Ok(Self {
            host,
            from: from.parse().map_err(|error| Failure::usage(format!("mail.from {from:?}: {error}")))?,
            domain: config.domain.clone().unwrap_or_else(|| "localhost".to_owned()),
            by,
            patience,
        })
    }

    /// The addresses of a list such as `alice, bob@example.org`, and what is wrong with those that are none. One without a domain gets the site's.
    ///
    /// # Errors
    /// There is none.
    pub fn addresses(&self, list: &str) -> Result<(Vec<Address>, Vec<String>), Failure> {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        let (mut addresses, mut wrong) = (Vec::new(), Vec::new());
        for name in names {
            match self.address(name) {
                Ok(address) => addresses.push(address),
                Err(why) => wrong.push(format!("{:?} is no address of a mail: {why}", harmless_line(name))),
            }
        }
        match (addresses.is_empty(), wrong.is_empty()) {
            (true, true) => Err(Failure::usage("a mail to nobody")),
            (true, false) => Err(Failure::usage(wrong.join("; "))),
            (false, _) => Ok((addresses, wrong)),
        }
    }

    fn address(&self, name: &str) -> Result<Address, String> {
        let whole = if name.contains('@') { name.to_owned() } else { format!("{name}@{}", self.domain) };
        // The mail's head would have it without quotes, and so as another address.
        if whole.contains('"') {
            return Err("it has quotes".to_owned());
        }
        if whole.len() > MOST_OF_ADDRESS {
            return Err(format!("it has more than {MOST_OF_ADDRESS} bytes"));
        }
        whole.parse().map_err(|error: lettre::address::AddressError| error.to_string())
    }

    /// The mail as it is sent: its text, and the same as HTML, for programs that show text with characters of different width.
    ///
    /// # Errors
    /// One that the standards have no form for.
    pub fn message(&self, letter: &Letter, to: &[Address]) -> Result<Message, Failure> {
        let wrong = |error: &dyn std::fmt::Display| Failure::other(format!("the mail: {error}"));
        let page = html! {
            (DOCTYPE)
            html { head { meta charset="utf-8"; } body { pre { (letter.text) } } }
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let id = format!("<{:x}.{:x}@{}>", now.as_nanos(), std::process::id(), self.host);
        let message = Message::builder().from(self.from.clone()).message_id(Some(id));
        let from = Some(self.from.email.clone());
        let envelope = Envelope::new(from, to.to_vec()).map_err(|error| wrong(&error))?;
        // The library writes all of them into one line.
        let to: Vec<&str> = to.iter().map(AsRef::as_ref).collect();
        let header = HeaderName::new_from_ascii_str("To");
        let to = HeaderValue::dangerous_new_pre_encoded(header, to.join(", "), to.join(",\r\n "));
        // RFC 3834: no automatic answers.
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        message
            .subject(subject(&letter.subject))
            .raw_header(to)
            .envelope(envelope)
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
            .multipart(MultiPart::alternative_plain_html(letter.text.clone(), page.into_string()))
            .map_err(|error| wrong(&error))
    }

    /// Hands a mail over. What is returned says which of several recipients the server refused.
    ///
    /// # Errors
    /// The server or the program that did not take it for anybody, or took too long.
    pub async fn send(&self, message: &Message) -> Result<Vec<String>, Unsent> {
        let (all, bytes) = (message.envelope(), message.formatted());
        let refused = match self.hand_over(all, &bytes).await {
            Ok(()) => return Ok(Vec::new()),
            Err(unsent) if unsent.late || all.to().len() < 2 || !matches!(self.by, By::Server(_)) => {
                return Err(unsent);
            }
            Err(refused) => refused,
        };
        // One of them is refused, and with it the mail: the others get theirs.
        let mut wrong = Vec::new();
        for to in all.to() {
            let one = Envelope::new(all.from().cloned(), vec![to.clone()]);
            let Ok(one) = one else { return Err(refused) };
            match self.hand_over(&one, &bytes).await {
                Ok(()) => {}
                Err(unsent) => wrong.push(format!("{to}: {}", unsent.failure.says)),
            }
        }
        if wrong.len() < all.to().len() { Ok(wrong) } else { Err(refused) }
    }

    async fn hand_over(&self, envelope: &Envelope, bytes: &[u8]) -> Result<(), Unsent> {
        let unsent = |late, why: String| Unsent { failure: Failure::other(why), late };
        match &self.by {
            By::Sendmail(program) if !program.exists() => {
                let says = "is not there: mail.smtp names a server, mail.sendmail another program";
                Err(unsent(false, format!("{} {says}", program.display())))
            }
            By::Sendmail(program) => {
                let mut arguments = vec!["-i".to_owned()];
                arguments
                    .extend(envelope.from().into_iter().flat_map(|from| ["-f".to_owned(), from.to_string()]));
                arguments.push("--".to_owned());
                arguments.extend(envelope.to().iter().map(ToString::to_string));
                let taken = slurm_command::ask_about(program.as_os_str(), &arguments, bytes, self.patience);
                let taken = taken.await.map(drop);
                taken.map_err(|error| unsent(error.kind() == io::ErrorKind::TimedOut, error.to_string()))
            }
            // The client has no limit for all of a mail, and cannot be stopped: the program's end stops it.
            By::Server(server) => {
                let (server, envelope, bytes) = (server.clone(), envelope.clone(), bytes.to_owned());
                let (done, answer) = oneshot::channel();
                let sends = move || drop(done.send(server.send_raw(&envelope, &bytes)));
                let thread = std::thread::Builder::new().spawn(sends);
                thread.map_err(|error| unsent(false, error.to_string()))?;
                let says = |why: &dyn std::fmt::Display| format!("the mail's server: {why}");
                match tokio::time::timeout(self.patience, answer).await {
                    Ok(Ok(Ok(_))) => Ok(()),
                    Ok(Ok(Err(error))) => Err(unsent(error.is_timeout(), says(&error))),
                    Ok(Err(_)) => Err(unsent(false, says(&"the client broke off"))),
                    Err(_) => {
                        let late = format!("no answer in {} s", self.patience.as_secs());
                        Err(unsent(true, says(&late)))
                    }
                }
            }
        }
    }
}

/// A subject that a header can have: nobody chooses how long a line of it is.
fn subject(text: &str) -> String {
    let line = harmless_line(text);
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        // Other words are encoded, and so folded.
        words.push(if word.is_ascii() { cut(word, MOST_OF_WORD) } else { word.to_owned() });
    }
    let line = words.join(" ");
    match line.char_indices().nth(MOST_OF_SUBJECT) {
        None => line,
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default().trim_end()),
    }
}

/// `host` is what this one calls itself.
fn server(
    url: &str,
    config: &config::Mail,
    host: String,
    patience: Duration,
) -> Result<SmtpTransport, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("mail.smtp: {error}"));
    if url.contains('@') {
        return Err(wrong(&"a user goes into mail.smtp_user, a password into mail.smtp_password_file"));
    }
    let builder = SmtpTransport::from_url(url).map_err(|error| {
        wrong(&format!("{error}: smtps://HOST, smtp://HOST:587?tls=required, smtp://HOST:25"))
    })?;
    let builder = builder.hello_name(ClientId::Domain(host)).timeout(Some(patience));
    let (user, file) = match (&config.smtp_user, &config.smtp_password_file) {
        (None, None) => return Ok(builder.build()),
        (Some(user), Some(file)) => (user, file),
        _ => return Err(wrong(&"mail.smtp_user and mail.smtp_password_file go together")),
    };
    if !url.starts_with("smtps:") && !url.ends_with("?tls=required") {
        return Err(wrong(&"a password is sent by TLS alone: smtps://HOST, or smtp://HOST:587?tls=required"));
    }
    let password = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    let password = password.trim_end_matches(['\r', '\n']).to_owned();
    Ok(builder.credentials(Credentials::new(user.clone(), password)).build())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mailer() -> Mailer {
        let config = config::Mail { from: Some("Jobs <a@b.example>".to_owned()), ..config::Mail::default() };
        Mailer::new(&config).unwrap()
    }

    /// The lines of the head.
    fn head(subject: &str, to: &str) -> Vec<String> {
        let (to, _) = mailer().addresses(to).unwrap();
        let letter = Letter { subject: subject.to_owned(), text: String::new() };
        let bytes = mailer().message(&letter, &to).unwrap().formatted();
        let text = String::from_utf8(bytes).unwrap();
        text.split("\r\n").take_while(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn a_wrong_address_costs_the_others_nothing() {
        let long = format!("{}@example.org", "x.".repeat(130));
        let (to, wrong) = mailer().addresses(&format!("a, b c, d@e, {long}, ira.k@campus.example")).unwrap();
        let to: Vec<String> = to.iter().map(ToString::to_string).collect();
        assert_eq!(to, ["a@localhost", "d@e", "ira.k@campus.example"]);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(mailer().addresses("b c").is_err() && mailer().addresses(" , ").is_err());
    }

    #[test]
    fn subjects_are_cut_between_characters() {
        assert_eq!(subject("Job 7: done"), "Job 7: done");
        assert_eq!(subject(&"x".repeat(3000)), format!("{}…", "x".repeat(63)));
        assert_eq!(
            subject(&"\u{301}".repeat(3000)).chars().count(),
            MOST_OF_SUBJECT + 1,
            "they have no width"
        );
        assert_eq!(subject(&"計".repeat(3000)), format!("{}…", "計".repeat(200)));
        let all: Vec<String> = (0..60).map(|at| format!("user{at}@example.org")).collect();
        assert_eq!(head("x", &all.join(",")).iter().find(|line| line.len() > 78), None);
    }

    proptest! {
        #[test]
        fn no_line_of_a_head_is_too_long(
            subject in prop_oneof!["[ -~]{0,400}", "(x{0,99} ?){0,9}", "\\PC{0,300}", "[é計 x]{0,300}"],
        ) {
            for line in head(&subject, "alice") {
                prop_assert!(line.len() <= 78 || !line.starts_with([' ', 'S']), "{} {line:?}", line.len());
            }
        }
    }
}
