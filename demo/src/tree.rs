//! Writes the simulation to files, so that a reader never sees part of a file or of a directory.
//!
//! A new directory is written beside the tree with its content and renamed into it. So is a changed file that is read at any time:
//! lists of processes, files of `/proc` and of the prolog. The other files of groups and of the machine are changed in place, which is
//! cheaper: they are read behind the barrier. `cgroup.events` is changed in place as by the kernel, because its watchers keep it open.
//! When a group is removed, its `cgroup.procs` is removed first; that shows a reader that the group is gone.

use std::fs::{
    DirBuilder, File, OpenOptions, create_dir_all, remove_dir, remove_dir_all, remove_file, rename,
};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use kernel_files::Roots;

use super::group::Group;
use super::process::Process;
use super::world::World;
use super::{files, hardware};

/// The files of a simulated node.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
    staging: PathBuf,
    /// Path and content of the machine's files.
    machine: Vec<(String, String)>,
}

fn create(path: &Path) -> io::Result<File> {
    create_as(path, 0o644)
}

fn create_as(path: &Path, mode: u32) -> io::Result<File> {
    // `Dir::read_owned` accepts only files that no other user can write, so the umask must not matter.
    OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(path)
}

/// Ignores that a file does not exist.
fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes a group and its descendants, `cgroup.procs` first.
fn remove_group(path: &Path) -> io::Result<()> {
    let mut files = vec![path.join("cgroup.procs")];
    for entry in path.read_dir()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_group(&entry.path())?;
        } else if entry.file_name() != "cgroup.procs" {
            files.push(entry.path());
        }
    }
    for file in files {
        ignore_missing(remove_file(file))?;
    }
    remove_dir(path)
}

impl Tree {
    /// Creates the directories and the files that never change.
    pub(super) fn lay_out(root: &Path) -> io::Result<Self> {
        let tree = Self { root: root.to_owned(), staging: root.join("staging"), machine: Vec::new() };
        for name in ["staging", "cgroup", "proc", "sys", "dev", "run", "run/jobledger", "run/jobledger/jobs"]
        {
            make_directory(&root.join(name))?;
        }
        for (path, content) in hardware::fixed_files() {
            tree.write_below(&path, &content)?;
        }
        for (link, target) in hardware::links() {
            let link = root.join(link);
            if let Some(parent) = link.parent() {
                create_dir_all(parent)?;
            }
            symlink(target, link)?;
        }
        create_dir_all(root.join("proc/pressure"))?;
        create_dir_all(root.join("proc/net"))?;
        Ok(tree)
    }

    pub(super) fn roots(&self) -> Roots {
        let [procfs, sysfs, cgroupfs, dev] =
            ["proc", "sys", "cgroup", "dev"].map(|name| self.root.join(name));
        Roots::new(procfs, sysfs, cgroupfs, dev)
    }

    pub(super) fn jobs_directory(&self) -> PathBuf {
        self.root.join("run/jobledger/jobs")
    }

    fn write_below(&self, path: &str, content: &str) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(parent) = path.parent() {
            create_dir_all(parent)?;
        }
        create(&path)?.write_all(content.as_bytes())
    }

    fn replace(&self, path: &Path, content: &str) -> io::Result<()> {
        let new = self.staging.join("file");
        // Readable by root only on a real node (CVE-2020-8694).
        let mode = if path.ends_with("energy_uj") { 0o400 } else { 0o644 };
        create_as(&new, mode)?.write_all(content.as_bytes())?;
        rename(new, path)
    }

    /// The same in place.
    fn rewrite(&self, path: &Path, content: &str) -> io::Result<()> {
        let changing_lists = path.ends_with("cgroup.procs") || path.ends_with("cgroup.threads");
        if changing_lists || path.ends_with("energy_uj") {
            return self.replace(path, content);
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path)?;
        file.write_all_at(content.as_bytes(), 0)?;
        file.set_len(content.len().try_into().unwrap_or(u64::MAX))
    }

    /// Writes the current state to the files. Call it after a tick.
    pub(super) fn publish(&mut self, world: &mut World) -> io::Result<()> {
        let changes = std::mem::take(&mut world.changes);
        for (id, text) in &changes.metadata {
            let path = self.jobs_directory().join(id.to_string());
            match text {
                Some(text) => self.replace(&path, text)?,
                None => ignore_missing(remove_file(path))?,
            }
        }
        // A process's files have to exist before a group lists it.
        self.publish_processes(&mut world.root, "")?;
        // A group that was created again under its old name: the old directory has to be removed first.
        let created_again = |path: &String| world.root.below(&path.split('/').collect::<Vec<_>>()).is_some();
        let (again, gone_groups): (Vec<_>, Vec<_>) = changes.groups.into_iter().partition(created_again);
        let remove = |path: String| remove_group(&self.root.join("cgroup").join(path));
        again.into_iter().try_for_each(remove)?;
        let mut flips = Vec::new();
        let all = world.machine.all.clone();
        self.publish_group(&mut world.root, &self.root.join("cgroup"), &all, &mut flips)?;
        let files = world.machine.changing_files(&world.root, world.forks(), world.node_gpus.energy());
        let before = std::mem::take(&mut self.machine);
        for (n, (path, content)) in files.iter().enumerate() {
            if before.get(n).is_none_or(|(_, was)| was != content) {
                self.rewrite(&self.root.join(path), content)?;
            }
        }
        self.machine = files;
        // Last, so that a woken watcher reads the final numbers.
        for (path, populated) in flips {
            let file = OpenOptions::new().write(true).open(path.join("cgroup.events"))?;
            file.write_all_at(files::events(populated).as_bytes(), 0)?;
        }
        gone_groups.into_iter().try_for_each(remove)?;
        for pid in changes.pids {
            ignore_missing(remove_dir_all(self.root.join(format!("proc/{pid}"))))?;
        }
        Ok(())
    }

    fn publish_processes(&self, group: &mut Group, path: &str) -> io::Result<()> {
        for process in &mut group.processes {
            self.publish_process(process, path)?;
        }
        for child in &mut group.children {
            let below = if path.is_empty() { child.name.clone() } else { format!("{path}/{}", child.name) };
            self.publish_processes(child, &below)?;
        }
        Ok(())
    }

    fn publish_process(&self, process: &mut Process, group: &str) -> io::Result<()> {
        let path = self.root.join(format!("proc/{}", process.pid));
        let files = process.changing_files(process.published);
        if process.published.is_none() {
            let new = self.staging.join("process");
            make_directory(&new)?;
            for (name, content) in process.fixed_files(group).into_iter().chain(files) {
                create(&new.join(name))?.write_all(content.as_bytes())?;
            }
            rename(new, path)?;
        } else {
            for (name, content) in files {
                self.replace(&path.join(name), &content)?;
            }
        }
        process.published = Some(process.shown());
        Ok(())
    }

    fn publish_group(
        &self,
        group: &mut Group,
        path: &Path,
        cpus: &[u32],
        flips: &mut Vec<(PathBuf, bool)>,
    ) -> io::Result<()> {
        let own = group.limits.cpus.clone();
        let cpus = own.as_deref().unwrap_or(cpus);
        let Some(before) = group.published else {
            let new = self.staging.join("group");
            make_directory(&new)?;
            self.fill(group, &new, cpus)?;
            if !group.name.is_empty() {
                return rename(new, path);
            }
            // The mount point exists and may be open, so only its entries are moved.
            for entry in new.read_dir()? {
                let entry = entry?;
                rename(entry.path(), path.join(entry.file_name()))?;
            }
            return remove_dir(new);
        };
        for (name, content) in files::changing(group, Some(&before)) {
            self.rewrite(&path.join(name), &content)?;
        }
        let now = group.now();
        if now.totals.populated() != before.totals.populated() && !group.name.is_empty() {
            flips.push((path.to_owned(), now.totals.populated()));
        }
        group.published = Some(now);
        for child in &mut group.children {
            let below = path.join(&child.name);
            self.publish_group(child, &below, cpus, flips)?;
        }
        Ok(())
    }

    /// Writes a group and its descendants to a new directory.
    fn fill(&self, group: &mut Group, path: &Path, cpus: &[u32]) -> io::Result<()> {
        for (name, content) in files::fixed(group, cpus).into_iter().chain(files::changing(group, None)) {
            create(&path.join(name))?.write_all(content.as_bytes())?;
        }
        group.published = Some(group.now());
        for child in &mut group.children {
            let below = path.join(&child.name);
            make_directory(&below)?;
            let own = child.limits.cpus.clone();
            self.fill(child, &below, own.as_deref().unwrap_or(cpus))?;
        }
        Ok(())
    }
}
