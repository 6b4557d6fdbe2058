//! A job without the names of people and machines.

use job_report::{Job, Report, Thresholds};
use ring::hmac;

use crate::Error;

/// The shortest key: a shorter one can be guessed, and with it every name.
pub const KEY_BYTES: usize = 16;

/// Replaces user, uid, account, job name, node names and UUIDs of GPUs. The same text with the same key gives the same token, so files of
/// several jobs can be joined; without the key nobody finds the text. What is empty remains so: it is not known.
pub fn anonymize(job: &mut Job, key: &[u8]) -> Result<(), Error> {
    if key.len() < KEY_BYTES {
        return Err(Error::Key(key.len()));
    }
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let identity = &mut job.identity;
    replace(&key, "user", &mut identity.user);
    replace(&key, "uid", &mut identity.uid);
    replace(&key, "account", &mut identity.account);
    replace(&key, "name", &mut identity.name);
    for node in &mut job.nodes {
        replace(&key, "node", &mut node.name);
        for gpu in node.gpus.iter_mut().chain(&mut node.boards) {
            replace(&key, "gpu", &mut gpu.uuid);
        }
    }
    Ok(())
}

/// The same of a report: advice, which names nodes, is derived again, and what the source had to say is left out.
pub fn anonymize_report(report: Report, thresholds: &Thresholds, key: &[u8]) -> Result<Report, Error> {
    let mut job = report.job;
    anonymize(&mut job, key)?;
    Ok(Report::new(job, thresholds, Vec::new()))
}

/// The kind is hashed too: an account that is called like a user has another token.
fn replace(key: &hmac::Key, kind: &str, text: &mut String) {
    if text.is_empty() {
        return;
    }
    let tag = hmac::sign(key, format!("{kind}\0{text}").as_bytes());
    // 64 bits: among a million names two are alike with a probability of 3 in 100 million.
    let token: String = tag.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    *text = format!("{kind}-{token}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    const KEY: &[u8] = b"0123456789abcdef";

    #[test]
    fn tokens_are_hmac_sha256_of_kind_and_text() {
        let mut job = sample::job();
        anonymize(&mut job, KEY).unwrap();
        // printf 'user\0%s' "=cmd|' /C calc'!A0" | openssl dgst -sha256 -hmac 0123456789abcdef
        assert_eq!(job.identity.user, "user-a7b6d9d44cd81dac");
    }

    #[test]
    fn no_name_remains() {
        let (before, mut job) = (sample::job(), sample::job());
        anonymize(&mut job, KEY).unwrap();
        let text = format!("{job:?}");
        let Job { identity, nodes, .. } = &before;
        let mut names = vec![&identity.user, &identity.uid, &identity.account, &identity.name];
        for node in nodes {
            names.push(&node.name);
            names.extend(node.gpus.iter().chain(&node.boards).map(|gpu| &gpu.uuid));
        }
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            let quoted = format!("{name:?}");
            assert!(!text.contains(&quoted), "{quoted}");
        }
        assert_eq!(job.curves.map(|curves| curves.curves.len()), before.curves.map(|c| c.curves.len()));
    }

    #[test]
    fn a_token_depends_on_key_kind_and_text_alone() {
        let (mut one, mut again, mut other) = (sample::job(), sample::job(), sample::job());
        one.identity.account = one.identity.user.clone();
        one.identity.name = String::new();
        anonymize(&mut one, KEY).unwrap();
        anonymize(&mut again, KEY).unwrap();
        anonymize(&mut other, b"fedcba9876543210").unwrap();
        assert_eq!(one.identity.user, again.identity.user);
        assert_ne!(one.identity.user, other.identity.user);
        assert_ne!(
            one.identity.account.trim_start_matches("account"),
            one.identity.user.trim_start_matches("user")
        );
        assert_eq!(one.identity.name, "", "what is not known is not made up");
        assert_ne!(again.nodes[0].name, again.nodes[1].name);
    }

    #[test]
    fn a_key_that_can_be_guessed_is_refused() {
        assert!(matches!(anonymize(&mut sample::job(), b"short"), Err(Error::Key(5))));
    }
}
