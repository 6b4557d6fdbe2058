//! Whose jobs are shown, where a site wants each user to see their own. It is a courtesy: Prometheus has no rights per user, and who may ask it
//! sees all jobs there (docs/install.md).

use job_report::Identity;
use nix::unistd::{Group, Uid, User};
use rustix::process::{getgroups, getuid};

use crate::config::{self, Others};
use crate::{Failure, Kind};

/// Whose jobs are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Privacy {
    /// Everybody's.
    Off,
    /// Those of this user.
    Own {
        /// The number.
        uid: u32,
        /// The name.
        user: String,
    },
}

impl Privacy {
    /// That of this process. Root and members of the staff's groups see all.
    pub fn of_this_process(config: &config::Privacy) -> Result<Self, Failure> {
        let uid = getuid();
        if config.others != Some(Others::Deny) || uid.is_root() {
            return Ok(Privacy::Off);
        }
        let groups =
            getgroups().map_err(|error| Failure::other(format!("the groups of this user: {error}")))?;
        let is_staff = |name: &String| match Group::from_name(name) {
            Ok(Some(group)) => groups.iter().any(|own| own.as_raw() == group.gid.as_raw()),
            _ => false,
        };
        if config.staff_groups.iter().flatten().any(is_staff) {
            return Ok(Privacy::Off);
        }
        let user = User::from_uid(Uid::from_raw(uid.as_raw())).ok().flatten();
        let user = user.ok_or_else(|| Failure::other(format!("uid {} has no name", uid.as_raw())))?;
        Ok(Privacy::Own { uid: uid.as_raw(), user: user.name })
    }

    /// Fails if the job is another user's, or if it is not known whose it is.
    pub fn check(&self, id: u64, who: &Identity) -> Result<(), Failure> {
        match self {
            Privacy::Own { uid, .. } if who.uid.parse() != Ok(*uid) => Err(Failure::new(
                Kind::NotAllowed,
                format!("job {id} is not yours, and this site shows users their own jobs"),
            )),
            _ => Ok(()),
        }
    }

    /// Whose jobs a query over many is of, of whom it was asked for; `None` is everybody.
    pub fn owner(&self, asked: Option<String>) -> Result<Option<String>, Failure> {
        match self {
            Privacy::Off => Ok(asked),
            Privacy::Own { user, .. } if asked.as_ref().is_none_or(|asked| asked == user) => {
                Ok(Some(user.clone()))
            }
            Privacy::Own { .. } => {
                Err(Failure::new(Kind::NotAllowed, "this site shows users their own jobs: leave out --user"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uid: &str) -> Identity {
        Identity { uid: uid.to_owned(), ..Identity::default() }
    }

    #[test]
    fn another_users_job_is_not_shown_where_the_site_denies_it() {
        let own = Privacy::Own { uid: 1001, user: "alice".to_owned() };
        assert_eq!(own.check(7, &of("1001")), Ok(()));
        for other in ["1002", "", "01001x"] {
            assert_eq!(own.check(7, &of(other)).unwrap_err().kind, Kind::NotAllowed, "{other}");
        }
        assert_eq!(Privacy::Off.check(7, &of("1002")), Ok(()));
    }

    #[test]
    fn a_query_over_many_is_of_the_user() {
        let own = Privacy::Own { uid: 1001, user: "alice".to_owned() };
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(own.owner(None), Ok(named("alice")));
        assert_eq!(own.owner(named("alice")), Ok(named("alice")));
        assert_eq!(own.owner(named("all")).unwrap_err().kind, Kind::NotAllowed);
        assert_eq!(Privacy::Off.owner(None), Ok(None));
        assert_eq!(Privacy::Off.owner(named("bob")), Ok(named("bob")));
    }

    #[test]
    fn nothing_is_denied_unless_the_site_says_so() {
        assert_eq!(Privacy::of_this_process(&config::Privacy::default()), Ok(Privacy::Off));
    }
}
