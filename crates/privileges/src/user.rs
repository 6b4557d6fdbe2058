//! The user that a process started as root becomes: who that is, and becoming it.
//!
//! Users are looked for in `/etc/passwd` and `/etc/group` (passwd(5), group(5)) and not asked of the name service: the
//! packages' user is a local one, and a directory server that does not answer must not hold up the start.

use std::fmt;

use rustix::process::{Gid, Uid};

/// The user that the packages make (packaging/sysusers.d).
const OF_THE_PACKAGE: &str = "jobledger";
/// What `nobody` is where no file says so, as in a container without `/etc/passwd`.
const NOBODY: u32 = 65_534;
/// No id: setresuid(2) would leave the present one.
const UNCHANGED: u32 = u32::MAX;

/// The ids of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name, where a file has one.
    pub name: Option<String>,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} (uid {}, gid {})", self.uid, self.gid),
            None => write!(f, "uid {}, gid {}", self.uid, self.gid),
        }
    }
}

/// Why a user cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownUser {
    /// No such name.
    #[error("there is no user {0:?} in /etc/passwd")]
    Name(String),
    /// No ids.
    #[error("{0:?} is neither a user's name nor UID or UID:GID")]
    Ids(String),
}

struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
}

/// The accounts of `/etc/passwd`; lines of another form are passed over, as the C library does.
fn accounts(passwd: &[u8]) -> impl Iterator<Item = Account<'_>> {
    passwd.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = std::str::from_utf8(line).ok()?.split(':');
        let (name, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        Some(Account { name, uid: id(uid)?, gid: id(gid)? }).filter(|account| !account.name.is_empty())
    })
}

/// The groups of `/etc/group` that list a user.
fn groups_of(name: &str, group: &[u8]) -> Vec<u32> {
    let lists = |line: &[u8]| {
        let mut fields = std::str::from_utf8(line).ok()?.split(':');
        let (_, _, gid, members) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let gid = id(gid)?;
        members.split(',').any(|member| member.trim() == name).then_some(gid)
    };
    let mut groups: Vec<u32> = group.split(|byte| *byte == b'\n').filter_map(lists).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn id(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|id| plain && *id != UNCHANGED)
}

impl User {
    fn of(account: &Account<'_>, group: &[u8]) -> Self {
        let name = Some(account.name.to_owned());
        Self { name, uid: account.uid, gid: account.gid, groups: groups_of(account.name, group) }
    }

    /// The user of `NAME`, `UID` or `UID:GID`, by the contents of `/etc/passwd` and `/etc/group`. A uid that is in neither
    /// has the group of the same number; with a GID there are no supplementary groups.
    pub fn find(wanted: &str, passwd: &[u8], group: &[u8]) -> Result<Self, UnknownUser> {
        let bad = || UnknownUser::Ids(wanted.to_owned());
        if let Some((uid, gid)) = wanted.split_once(':') {
            let (uid, gid) = (id(uid).ok_or_else(bad)?, id(gid).ok_or_else(bad)?);
            let name =
                accounts(passwd).find(|account| account.uid == uid).map(|account| account.name.to_owned());
            return Ok(Self { name, uid, gid, groups: Vec::new() });
        }
        if let Some(account) = accounts(passwd).find(|account| account.name == wanted) {
            return Ok(Self::of(&account, group));
        }
        if !wanted.is_empty() && wanted.bytes().all(|byte| byte.is_ascii_digit()) {
            let uid = id(wanted).ok_or_else(bad)?;
            let account = accounts(passwd).find(|account| account.uid == uid);
            let unnamed = Self { name: None, uid, gid: uid, groups: Vec::new() };
            return Ok(account.map_or(unnamed, |account| Self::of(&account, group)));
        }
        Err(UnknownUser::Name(wanted.to_owned()))
    }

    /// The packages' user; else `nobody`, else what that is everywhere.
    pub fn usual(passwd: &[u8], group: &[u8]) -> Self {
        let known = |name: &str| accounts(passwd).find(|account| account.name == name && account.uid != 0);
        let account = known(OF_THE_PACKAGE).or_else(|| known("nobody"));
        let nobody = Self { name: None, uid: NOBODY, gid: NOBODY, groups: Vec::new() };
        account.map_or(nobody, |account| Self::of(&account, group))
    }

    /// Whether this process can become the user: without CAP_SETUID and CAP_SETGID, or where its user namespace has not these
    /// ids, it cannot. Tried on a thread that ends.
    pub fn try_it(&self) -> std::io::Result<()> {
        std::thread::scope(|scope| {
            let tried = std::thread::Builder::new().spawn_scoped(scope, || self.become_it())?;
            let became = tried.join().map_err(|_| std::io::Error::other("the attempt ended early"))?;
            became.map_err(Into::into)
        })
    }

    /// This thread becomes the user. What it may is kept: its permitted capabilities, though none is effective any more.
    pub(crate) fn become_it(&self) -> rustix::io::Result<()> {
        crate::read_auxiliary_vector();
        rustix::thread::set_keep_capabilities(true)?;
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let became = rustix::thread::set_thread_groups(&groups)
            .and_then(|()| rustix::thread::set_thread_res_gid(gid, gid, gid))
            .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid));
        rustix::thread::set_keep_capabilities(false)?;
        became
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/bash\n+::::::\nnobody:x:65533:65532:nobody:/:/bin/false\n\
        jobledger:x:999:998:Jobledger exporter:/:/usr/sbin/nologin\nbroken:x:many:1::\nlast:x:4294967295:1::\n";
    const GROUP: &[u8] =
        b"root:x:0:\nvideo:x:44:alice,jobledger\nrender:x:105:jobledger\nnot:x:45:jobledgers\n\
        twice:x:44:jobledger\nbroken:x:x:jobledger\nshort\n";

    fn user(name: Option<&str>, uid: u32, gid: u32, groups: &[u32]) -> User {
        User { name: name.map(str::to_owned), uid, gid, groups: groups.to_vec() }
    }

    #[test]
    fn a_name_has_its_groups_and_ids_have_none() {
        let find = |wanted: &str| User::find(wanted, PASSWD, GROUP);
        let own = user(Some("jobledger"), 999, 998, &[44, 105]);
        assert_eq!(find("jobledger"), Ok(own.clone()));
        assert_eq!(find("999"), Ok(own));
        assert_eq!(find("999:44"), Ok(user(Some("jobledger"), 999, 44, &[])));
        assert_eq!(find("1234"), Ok(user(None, 1234, 1234, &[])));
        assert_eq!(find("1234:5"), Ok(user(None, 1234, 5, &[])));
        assert_eq!(find("root"), Ok(user(Some("root"), 0, 0, &[])));
        for unknown in ["broken", "last", "", "+", "nobody:x", "1:", ":1", "-1", "+1", "1:-1", "0x0", " 0"] {
            assert!(find(unknown).is_err(), "{unknown:?}");
        }
    }

    /// setresuid(2) takes it for "as it is", which is root.
    #[test]
    fn the_id_that_means_no_change_is_refused() {
        for ids in ["4294967295", "4294967295:1", "1:4294967295", "4294967296", "18446744073709551615"] {
            assert_eq!(User::find(ids, b"", b""), Err(UnknownUser::Ids(ids.to_owned())));
        }
    }

    #[test]
    fn the_usual_user_is_the_packages_or_nobody_and_never_root() {
        assert_eq!(User::usual(PASSWD, GROUP).uid, 999);
        assert_eq!(
            User::usual(b"nobody:x:65533:65532::/:\n", GROUP),
            user(Some("nobody"), 65_533, 65_532, &[])
        );
        assert_eq!(User::usual(b"", b""), user(None, 65_534, 65_534, &[]));
        assert_eq!(User::usual(b"jobledger:x:0:0::/:\nnobody:x:0:0::/:\n", b"").uid, 65_534);
    }
}
