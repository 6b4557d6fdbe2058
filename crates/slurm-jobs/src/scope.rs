//! Finding SLURM's roots among the cgroups: `[<node>_]slurmstepd.scope` on v2 in whatever slice or container,
//! `slurm[_<node>]` on v1.
//!
//! Only directories that belong to the owner of the cgroup tree (root) are entered, so that a tree which a user
//! was delegated cannot pose as SLURM's; and nothing is searched below a root, so that a v1 step, which is its
//! user's own directory, cannot either.

use std::collections::BTreeMap;
use std::sync::Arc;

use cgroups::{Cgroup, Controller, DescriptorBudget, Version};
use kernel_files::{Dir, ReadError, Roots};
use rustix::fs::FileType;

use super::names;
use crate::SlurmCgroup;

/// How deep below a mount point a root is looked for: a pod of Kubernetes is at 5, SLURM's scope in it at 7.
const DEPTH: usize = 9;
/// Directories entered in one search, so that a node with very many cgroups costs a bounded time.
const MOST: usize = 20_000;

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Directory below the cgroup mount point, `""` for the mount point itself.
    pub mount: String,
    /// The controllers with files in it.
    pub controllers: Vec<Controller>,
    /// v1 or v2.
    pub version: Version,
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Found {
    /// SLURM's roots.
    pub scopes: Vec<Arc<SlurmCgroup>>,
    /// Why there is none, when there is none.
    pub unavailable: Option<String>,
}

/// The hierarchies below the cgroup mount point: the unified one at it (v2), or at `unified` beside the
/// controllers of v1 (hybrid), which may be mounted alone or joint (`cpu,cpuacct`).
pub fn hierarchies(root: &Dir) -> Result<Vec<Hierarchy>, ReadError> {
    let v2 = |mount: &str| Hierarchy {
        mount: mount.to_owned(),
        controllers: Controller::ALL.to_vec(),
        version: Version::V2,
    };
    if root.has("cgroup.controllers") {
        return Ok(vec![v2("")]);
    }
    let mut entries = root.list()?;
    // Links last: `cpu` is a link to `cpu,cpuacct` on most hosts, which is found already.
    entries.sort_by_key(|entry| entry.kind == FileType::Symlink);
    let mut found: Vec<Hierarchy> = Vec::new();
    let mut seen = Vec::new();
    for entry in entries {
        let controllers: Option<Vec<_>> = entry.name.split(',').map(Controller::from_v1_name).collect();
        let unified = || root.has(&format!("{}/cgroup.controllers", entry.name));
        if controllers.is_none() && !unified() {
            continue;
        }
        let Ok(identity) = root.open_link(&entry.name).and_then(|d| d.stat()).map(|s| (s.device, s.inode))
        else {
            continue;
        };
        if seen.contains(&identity) {
            continue;
        }
        seen.push(identity);
        found.push(match controllers {
            Some(controllers) => Hierarchy { mount: entry.name, controllers, version: Version::V1 },
            None => v2(&entry.name),
        });
    }
    found.sort_by(|a, b| a.mount.cmp(&b.mount));
    Ok(found)
}

/// `a/b`, where `a` may be empty.
pub fn join(a: &str, b: &str) -> String {
    if a.is_empty() { b.to_owned() } else { format!("{a}/{b}") }
}

/// A user's own cgroups: no root of SLURM's is in there, and logins make it change all the time.
const PASSED_OVER: &[&str] = &["user.slice"];

fn search(
    mount: &Dir,
    owner: u32,
    version: Version,
    mut found: impl FnMut(String, &Dir, Option<&str>, u64),
) -> Result<(), ReadError> {
    let mut queue = vec![(String::new(), 0)];
    let mut entered = 0;
    while let Some((path, depth)) = queue.pop() {
        entered += 1;
        if entered > MOST {
            break;
        }
        let listing = if path.is_empty() {
            mount.directories()
        } else {
            mount.open_dir(&path).and_then(|d| d.directories())
        };
        let Ok(entries) = listing else { continue };
        for entry in entries {
            let below = join(&path, &entry.name);
            let name = match version {
                Version::V2 => names::v2_scope(&entry.name),
                Version::V1 => names::v1_root(&entry.name),
            };
            if name.is_none() && (depth + 1 >= DEPTH || PASSED_OVER.contains(&entry.name.as_str())) {
                continue;
            }
            let Ok(dir) = mount.open_dir(&below) else { continue };
            let Ok(stat) = dir.stat() else { continue };
            if stat.uid != owner {
                continue;
            }
            match name {
                Some(node) => found(below.clone(), &dir, node, stat.inode),
                None => queue.push((below, depth + 1)),
            }
        }
    }
    Ok(())
}

/// Searches all hierarchies. Files of what is found are held open within the budget.
pub fn find(roots: &Roots, budget: &Arc<DescriptorBudget>) -> Found {
    let path = roots.cgroup("");
    let shown = path.components().as_path().display();
    let root = match Dir::open(&path) {
        Ok(root) => root,
        Err(error) => return none(format!("no cgroup file system at {shown}: {error}")),
    };
    let (Ok(owner), Ok(hierarchies)) = (root.stat().map(|s| s.uid), hierarchies(&root)) else {
        return none(format!("cannot list {shown}"));
    };
    if hierarchies.is_empty() {
        return none(format!(
            "no cgroup hierarchy at {shown}: neither cgroup.controllers nor v1 controllers"
        ));
    }
    let mut scopes = Vec::new();
    // v1: one root per hierarchy, the same path in each.
    let mut v1: BTreeMap<String, Vec<V1Root>> = BTreeMap::new();
    for hierarchy in &hierarchies {
        let mount = match hierarchy.mount.as_str() {
            "" => Dir::open(&path),
            mount => root.open_link(mount),
        };
        let Ok(mount) = mount else { continue };
        let searched = search(&mount, owner, hierarchy.version, |below, dir, node, inode| {
            let Ok(dir) = dir.open_dir(".") else { return };
            match hierarchy.version {
                Version::V2 => scopes.push(Arc::new(SlurmCgroup {
                    paths: vec![join(&hierarchy.mount, &below)],
                    node: node.map(Arc::from),
                    inode,
                    cgroup: Cgroup::v2(dir).keeping_files(budget),
                })),
                Version::V1 => {
                    v1.entry(below).or_default().push(V1Root {
                        mount: hierarchy.mount.clone(),
                        controllers: hierarchy.controllers.clone(),
                        node: node.map(Arc::from),
                        dir,
                    });
                }
            }
        });
        if searched.is_err() {
            continue;
        }
    }
    scopes.extend(v1.into_iter().filter_map(|(below, roots)| v1_scope(&below, roots, budget)));
    scopes.sort_by(|a, b| a.path().cmp(b.path()));
    let unavailable = scopes.is_empty().then(|| {
        format!("a running slurmd: no slurmstepd.scope (v2) and no slurm directory (v1) below {shown}")
    });
    Found { scopes, unavailable }
}

struct V1Root {
    mount: String,
    controllers: Vec<Controller>,
    node: Option<Arc<str>>,
    dir: Dir,
}

/// The v1 hierarchy that is watched for jobs and read first: the one whose numbers matter at a job's end.
fn preference(controllers: &[Controller]) -> usize {
    const ORDER: [Controller; 5] = [
        Controller::Cpuacct,
        Controller::Memory,
        Controller::Freezer,
        Controller::Cpuset,
        Controller::Devices,
    ];
    ORDER.iter().position(|c| controllers.contains(c)).unwrap_or(ORDER.len())
}

/// SLURM makes its root in a hierarchy when a job first needs it. So the identity of a v1 root is its path, and not
/// the inode in the hierarchy that comes first now.
fn v1_scope(below: &str, mut roots: Vec<V1Root>, budget: &Arc<DescriptorBudget>) -> Option<Arc<SlurmCgroup>> {
    roots.sort_by_key(|root| preference(&root.controllers));
    let node = roots.first()?.node.clone();
    let inode = hash(below);
    let paths = roots.iter().map(|root| join(&root.mount, below)).collect();
    let dirs = roots.into_iter().map(|root| (root.controllers, root.dir)).collect();
    let cgroup = Cgroup::v1(dirs).keeping_files(budget);
    Some(Arc::new(SlurmCgroup { paths, node, inode, cgroup }))
}

/// FNV-1a: the same in every build, since it is saved.
fn hash(path: &str) -> u64 {
    path.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn none(why: String) -> Found {
    Found { scopes: Vec::new(), unavailable: Some(why) }
}
