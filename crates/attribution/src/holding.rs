//! Who holds a device that several jobs of a node may open, interval by interval, from looks at who has it open and from
//! word of each opening and closing in between.
//!
//! A look alone proves nothing: what was opened after one and closed before the next leaves no trace in either. So an interval
//! is a job's only if nobody else had the device open when it began, and nobody opened it since. That an opening was the
//! job's own cannot be told: the word of it does not say whose it was, and words that are alike are merged into one.

use std::time::{Duration, Instant};

use slurm_jobs::LifeId;

/// How much a descriptor may differ from the word of it: that of an opening comes before it is in its process's table
/// (fs/open.c, `do_sys_openat2`), that of a closing after it is gone from there (fs/file_table.c, `fput`), and the process
/// may not get a CPU in between. So two looks are relied on that agree and are this far apart, the first this long after
/// the last word, and no word between them: what the first did not find was closed before it, and the word of that is in.
pub const SETTLE: Duration = Duration::from_secs(1);

/// Who has the device open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holders {
    /// Nobody.
    Nobody,
    /// Processes of this job, and no others.
    One(LifeId),
    /// Several jobs, a process of no job, or it could not be seen.
    Others,
}

/// What was heard of the device since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heard {
    /// It was opened, or what happened is not known.
    opened: bool,
    /// When something was heard last.
    last: Option<Instant>,
}

impl Heard {
    /// It was opened, once or more; or words were lost, or it is listened to only from now on.
    pub fn opened(&mut self, at: Instant) {
        self.opened = true;
        self.last = Some(at);
    }

    /// It was closed: the last descriptor and the last mapping of one opening.
    pub fn closed(&mut self, at: Instant) {
        self.last = Some(at);
    }

    /// Whether anything was heard.
    pub fn is_silence(&self) -> bool {
        self.last.is_none()
    }
}

/// A look at who has the device open.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// When the reading began that goes with it; the look comes after it.
    pub read: Instant,
    /// When the look was over.
    pub over: Instant,
    /// Whom it found.
    pub holders: Holders,
    /// What was heard from the end of the look before to the end of this one.
    pub heard: Heard,
}

/// What the looks at a device say.
#[derive(Debug, Clone, Copy, Default)]
pub struct Holding {
    /// When something was heard last.
    heard: Option<Instant>,
    /// Whom the looks have found, and since when they agree.
    found: Option<(Holders, Instant)>,
    /// Who had it, for certain, when the last reading was made.
    certain: Option<Holders>,
    /// When another look would tell more.
    settles: Option<Instant>,
}

impl Holding {
    /// Takes a look, and says whose the interval from the reading before to this one is, if it is a job's.
    pub fn look(&mut self, look: &Look) -> Option<LifeId> {
        let before = self.certain;
        self.heard = look.heard.last.or(self.heard);
        let quiet = self.heard.map(|heard| heard + SETTLE);
        let agreed = self.found.filter(|(found, _)| *found == look.holders && look.heard.last.is_none());
        self.found = match agreed {
            Some(agreed) => Some(agreed),
            None if quiet.is_none_or(|quiet| quiet <= look.read) => Some((look.holders, look.over)),
            None => None,
        };
        let settled = self.found.map(|(_, since)| since + SETTLE);
        let certain = settled.is_some_and(|settled| settled <= look.read);
        self.certain = certain.then_some(look.holders);
        self.settles = if certain { None } else { settled.or(quiet) };
        match (before?, look.holders) {
            (Holders::One(one), Holders::One(other)) if one == other && !look.heard.opened => Some(one),
            // Nobody else could close it.
            (Holders::One(one), Holders::Nobody) if !look.heard.opened => Some(one),
            _ => None,
        }
    }

    /// A reading without a look, or with one that could not be completed: nothing is known any more.
    pub fn unseen(&mut self) {
        *self = Self { heard: self.heard, ..Self::default() };
    }

    /// Whether the interval that has begun may become a job's.
    pub fn is_certain(&self) -> bool {
        self.certain.is_some()
    }

    /// When another look would tell more than this one did.
    pub fn settles(&self) -> Option<Instant> {
        self.settles
    }
}

#[cfg(test)]
mod tests;
