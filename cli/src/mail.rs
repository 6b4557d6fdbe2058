//! Mails: what they are made of, and how they are sent.

pub mod event;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, Message, SendmailTransport, SmtpTransport, Transport};
use maud::{DOCTYPE, html};
use nix::unistd::{User, geteuid};

use crate::Failure;
use crate::config;
use crate::text::harmless_line;

/// Where mails are handed over if no server is configured.
const SENDMAIL: &str = "/usr/sbin/sendmail";
/// How long a server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends mails as the configuration says.
#[derive(Debug)]
pub struct Mailer {
    host: String,
    from: Mailbox,
    domain: String,
    by: By,
}

#[derive(Debug)]
enum By {
    Sendmail(PathBuf),
    Server(SmtpTransport),
}

/// A mail.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        let by = match &config.smtp {
            Some(url) => By::Server(server(url, config, host.clone())?),
            None => By::Sendmail(config.sendmail.clone().unwrap_or_else(|| SENDMAIL.into())),
        };
        Ok(Self {
            host,
            from: from.parse().map_err(|error| Failure::usage(format!("mail.from {from:?}: {error}")))?,
            domain: config.domain.clone().unwrap_or_else(|| "localhost".to_owned()),
            by,
        })
    }

    /// The addresses of a list such as `alice, bob@example.org`. One without a domain gets the site's.
    ///
    /// # Errors
    /// One that is none.
    pub fn addresses(&self, list: &str) -> Result<Vec<Address>, Failure> {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        let addresses = names.map(|name| {
            let whole = if name.contains('@') { name.to_owned() } else { format!("{name}@{}", self.domain) };
            let wrong = |why: &dyn std::fmt::Display| {
                Failure::usage(format!("{:?} is no address of a mail: {why}", harmless_line(name)))
            };
            // The mail's head would have it without quotes, and so as another address.
            if whole.contains('"') {
                return Err(wrong(&"it has quotes"));
            }
            whole.parse().map_err(|error| wrong(&error))
        });
        let addresses: Vec<Address> = addresses.collect::<Result<_, _>>()?;
        if addresses.is_empty() { Err(Failure::usage("a mail to nobody")) } else { Ok(addresses) }
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
        let mut message = Message::builder().from(self.from.clone()).message_id(Some(id));
        for address in to {
            message = message.to(Mailbox::new(None, address.clone()));
        }
        // RFC 3834: no automatic answers.
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        message
            .subject(harmless_line(&letter.subject))
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
            .multipart(MultiPart::alternative_plain_html(letter.text.clone(), page.into_string()))
            .map_err(|error| wrong(&error))
    }

    /// Hands a mail over.
    ///
    /// # Errors
    /// The server or the program that did not take it.
    pub fn send(&self, message: &Message) -> Result<(), Failure> {
        match &self.by {
            By::Sendmail(program) if !program.exists() => Err(Failure::other(format!(
                "{} is not there: mail.smtp names a server, mail.sendmail another program",
                program.display()
            ))),
            By::Sendmail(program) => SendmailTransport::new_with_command(program)
                .send(message)
                .map_err(|error| Failure::other(format!("{}: {error}", program.display()))),
            By::Server(server) => server
                .send(message)
                .map(drop)
                .map_err(|error| Failure::other(format!("the mail's server: {error}"))),
        }
    }
}

/// `host` is what this one calls itself.
fn server(url: &str, config: &config::Mail, host: String) -> Result<SmtpTransport, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("mail.smtp: {error}"));
    if url.contains('@') {
        return Err(wrong(&"a user goes into mail.smtp_user, a password into mail.smtp_password_file"));
    }
    let builder = SmtpTransport::from_url(url).map_err(|error| {
        wrong(&format!("{error}: smtps://HOST, smtp://HOST:587?tls=required, smtp://HOST:25"))
    })?;
    let builder = builder.hello_name(ClientId::Domain(host)).timeout(Some(PATIENCE));
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
