//! The job directories of SLURM's cgroup: their names and inodes, and whether there can be others since they were listed.

use std::collections::{BTreeSet, HashMap};

use cgroups::Version;
use kernel_files::{Dir, ReadError};

use crate::scope::join;
use crate::{SlurmCgroup, names};

/// How many subdirectories the directories had before they were listed: their link counts, which the kernel's cgroup
/// file systems keep (fs/kernfs/inode.c, `kernfs_refresh_inode`). One that was made or removed changes them; that one
/// was made and another removed is known by the kernel's events alone.
#[derive(Debug, Default)]
pub(super) struct Links {
    hierarchies: Vec<Hierarchy>,
}

#[derive(Debug)]
struct Hierarchy {
    own: u64,
    /// v1: those of the users' directories.
    users: Vec<(String, u64)>,
}

impl Hierarchy {
    fn is_as_before(&self, dir: &Dir) -> bool {
        let user = |(name, links): &(String, u64)| dir.stat_of(name).is_ok_and(|stat| stat.links == *links);
        dir.stat().is_ok_and(|stat| stat.links == self.own) && self.users.iter().all(user)
    }
}

impl Links {
    /// Whether no number of subdirectories has changed since.
    pub(super) fn are_as_before(&self, scope: &SlurmCgroup) -> bool {
        let same = || scope.cgroup.dirs().zip(&self.hierarchies).all(|(dir, known)| known.is_as_before(dir));
        !self.hierarchies.is_empty() && self.hierarchies.len() == scope.cgroup.dirs().count() && same()
    }
}

/// Lists the job directories by their path below SLURM's cgroup, with their inodes. The links are `None` on a file system
/// that does not count them.
pub(super) fn list(scope: &SlurmCgroup) -> Result<(HashMap<String, u64>, Option<Links>), ReadError> {
    let (mut there, mut links) = (HashMap::new(), Links::default());
    for dir in scope.cgroup.dirs() {
        links.hierarchies.push(list_one(scope.cgroup.version(), dir, &mut there)?);
    }
    let counted = scope.cgroup.dirs().all(Dir::is_cgroup);
    Ok((there, counted.then_some(links)))
}

/// Lists the hierarchy that comes first: the one that counts CPU time, where there is one.
pub(super) fn list_first(scope: &SlurmCgroup) -> Result<HashMap<String, u64>, ReadError> {
    let mut there = HashMap::new();
    if let Some(dir) = scope.cgroup.dirs().next() {
        list_one(scope.cgroup.version(), dir, &mut there)?;
    }
    Ok(there)
}

/// The hierarchy that is watched comes first, and its inode is the one that counts.
fn list_one(version: Version, dir: &Dir, there: &mut HashMap<String, u64>) -> Result<Hierarchy, ReadError> {
    let own = dir.stat()?.links;
    let mut users = Vec::new();
    match version {
        Version::V2 => each_name(dir, ".", |name, inode| {
            if names::job(name).is_some() {
                there.insert(name.to_owned(), inode);
            }
        })?,
        Version::V1 => {
            for user in users_of(dir)? {
                let links = list_user(dir, &user, there)?;
                users.push((user, links));
            }
        }
    }
    Ok(Hierarchy { own, users })
}

/// Adds the job directories of a user of v1; returns how many links the user's had before.
pub(super) fn list_user(dir: &Dir, user: &str, there: &mut HashMap<String, u64>) -> Result<u64, ReadError> {
    let links = dir.stat_of(user)?.links;
    each_name(dir, user, |name, inode| {
        if names::job(name).is_some() {
            there.entry(join(user, name)).or_insert(inode);
        }
    })?;
    Ok(links)
}

/// The users of v1 in any hierarchy.
pub(super) fn v1_users(scope: &SlurmCgroup) -> BTreeSet<String> {
    // What cannot be listed has none.
    scope.cgroup.dirs().filter_map(|dir| users_of(dir).ok()).flatten().collect()
}

fn users_of(dir: &Dir) -> Result<Vec<String>, ReadError> {
    let mut users = Vec::new();
    each_name(dir, ".", |name, _| users.extend(names::v1_user(name).map(|_| name.to_owned())))?;
    Ok(users)
}

/// Calls `f` with the name and inode of each entry of a directory in this one.
fn each_name(dir: &Dir, below: &str, mut f: impl FnMut(&str, u64)) -> Result<(), ReadError> {
    dir.for_each_below(below, |name, inode, _| {
        if let Ok(name) = std::str::from_utf8(name) {
            f(name, inode);
        }
    })
}
