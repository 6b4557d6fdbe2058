//! What one run of one collector yields. Buffers are reused, so a steady node allocates nothing here.

use super::{Family, Kind, Level};

/// A sample's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Exact.
    Int(u64),
    /// Seconds, ratios and the like.
    Float(f64),
}

/// Whether a family can have this value.
fn is_possible(family: &Family, value: Value) -> bool {
    let gauge = family.kind == Kind::Gauge;
    let can_be = |v: f64| !gauge || family.unit.is_none_or(|unit| unit.can_be(v));
    match value {
        #[expect(clippy::cast_precision_loss, reason = "compared with bounds far below 2^53")]
        Value::Int(v) => can_be(v as f64),
        Value::Float(v) => v.is_finite() && (v >= 0.0 || family.kind != Kind::Counter) && can_be(v),
    }
}

impl From<u64> for Value {
    fn from(v: u64) -> Self {
        Self::Int(v)
    }
}

impl From<f64> for Value {
    fn from(v: f64) -> Self {
        Self::Float(v)
    }
}

/// Names the labels that many samples share (a job's), within one [`Section`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubjectId(u32);

impl SubjectId {
    /// No labels: the node or the exporter.
    pub const NODE: Self = Self(u32::MAX);
}

#[derive(Debug, Clone, Copy)]
struct Label {
    key: &'static str,
    start: u32,
    end: u32,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn of<T>(self, slice: &[T]) -> &[T] {
        slice.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    subject: SubjectId,
    labels: Span,
    value: Value,
}

/// One sample as the encoder sees it.
#[derive(Debug)]
pub struct SampleRef<'a> {
    section: &'a Section,
    sample: Sample,
}

impl<'a> SampleRef<'a> {
    /// Its value.
    pub fn value(&self) -> Value {
        self.sample.value
    }

    /// Its labels: the subject's, then its own.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, &'a str)> {
        let section = self.section;
        let subject = section.subjects.get(self.sample.subject.0 as usize).map(|s| s.of(&section.labels));
        let own = self.sample.labels.of(&section.labels);
        subject
            .unwrap_or_default()
            .iter()
            .chain(own)
            .map(|l| (l.key, section.text.get(l.start as usize..l.end as usize).unwrap_or_default()))
    }

    /// Value of a label, if it has it.
    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.labels().find(|(known, _)| *known == key).map(|(_, value)| value)
    }
}

/// What [`Section::truncate_jobs`] left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// How many samples.
    pub samples: usize,
    /// Of each family that lost some, the subject of the first.
    pub first: Vec<SubjectId>,
}

/// The samples of one collector, family by family.
#[derive(Debug, Default, Clone)]
pub struct Section {
    text: String,
    labels: Vec<Label>,
    subjects: Vec<Span>,
    families: Vec<(&'static Family, Vec<Sample>)>,
    bad_values: u64,
    restarts: u64,
}

fn index(len: usize) -> u32 {
    // 4 GiB of label text or samples are cut off by the series cap long before.
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Section {
    /// Forgets the samples and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.labels.clear();
        self.subjects.clear();
        self.bad_values = 0;
        self.restarts = 0;
        for (_, samples) in &mut self.families {
            samples.clear();
        }
    }

    fn span<'l>(&mut self, labels: impl IntoIterator<Item = (&'static str, &'l str)>) -> Span {
        let first = index(self.labels.len());
        for (key, value) in labels {
            let start = index(self.text.len());
            self.text.push_str(value);
            self.labels.push(Label { key, start, end: index(self.text.len()) });
        }
        Span { start: first, end: index(self.labels.len()) }
    }

    /// Stores labels that several samples share.
    pub fn subject<'l>(&mut self, labels: impl IntoIterator<Item = (&'static str, &'l str)>) -> SubjectId {
        let span = self.span(labels);
        self.subjects.push(span);
        SubjectId(index(self.subjects.len() - 1))
    }

    /// Adds a sample. A value that is no finite number, a negative counter, or what no hardware can have ([`Unit::can_be`](super::Unit::can_be))
    /// is counted and left out: a sensor's nonsense must not be exported.
    pub fn push(
        &mut self,
        family: &'static Family,
        subject: SubjectId,
        labels: &[(&'static str, &str)],
        value: impl Into<Value>,
    ) {
        let value = value.into();
        if !is_possible(family, value) {
            self.bad_values += 1;
            return;
        }
        let labels = self.span(labels.iter().copied());
        let sample = Sample { subject, labels, value };
        match self.families.iter_mut().find(|(f, _)| std::ptr::eq(*f, family)) {
            Some((_, samples)) => samples.push(sample),
            None => self.families.push((family, vec![sample])),
        }
    }

    /// Fixes the order in which families are exported. Ignored by a section that has samples.
    pub fn expect(&mut self, families: impl IntoIterator<Item = &'static Family>) {
        if self.families.is_empty() {
            self.families.extend(families.into_iter().map(|family| (family, Vec::new())));
        }
    }

    /// The families that have samples.
    pub fn families(&self) -> impl Iterator<Item = (&'static Family, impl Iterator<Item = SampleRef<'_>>)> {
        self.families.iter().filter(|(_, samples)| !samples.is_empty()).map(|(family, samples)| {
            (*family, samples.iter().map(|sample| SampleRef { section: self, sample: *sample }))
        })
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.families.iter().map(|(_, samples)| samples.len()).sum()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many values were left out because they were no number.
    pub fn bad_values(&self) -> u64 {
        self.bad_values
    }

    /// Notes counters of the node that went back without a wrap, so that what they counted meanwhile is lost.
    pub fn note_restarts(&mut self, counters: u64) {
        self.restarts += counters;
    }

    /// How many counters of the node went back without a wrap.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Drops all samples of a level and says how many they were.
    pub fn drop_level(&mut self, level: Level) -> usize {
        let before = self.len();
        for (_, samples) in self.families.iter_mut().filter(|(f, _)| f.level == level) {
            samples.clear();
        }
        before - self.len()
    }

    /// Keeps at most the first `room` samples of this section's job families, in the order they were pushed (jobs
    /// come sorted by id) and cut between two jobs, and says what was dropped.
    pub fn truncate_jobs(&mut self, room: usize) -> Cut {
        let (before, mut first) = (self.len(), Vec::new());
        let fixed =
            self.families.iter().filter(|(f, _)| f.level < Level::Job).map(|(_, s)| s.len()).sum::<usize>();
        let wanted = before - fixed;
        let room = room.saturating_sub(fixed);
        if wanted > room && wanted > 0 {
            for (_, samples) in self.families.iter_mut().filter(|(f, _)| f.level >= Level::Job) {
                let mut kept = samples.len() * room / wanted;
                let of = |at: usize| samples.get(at).map(|sample| sample.subject);
                while kept > 0 && of(kept).is_some() && of(kept) == of(kept - 1) {
                    kept -= 1;
                }
                first.extend(of(kept));
                samples.truncate(kept);
            }
        }
        Cut { samples: before - self.len(), first }
    }

    /// Value of a label that the samples of a subject share.
    pub fn label_of(&self, subject: SubjectId, key: &str) -> Option<&str> {
        let labels = self.subjects.get(subject.0 as usize)?.of(&self.labels);
        let label = labels.iter().find(|label| label.key == key)?;
        self.text.get(label.start as usize..label.end as usize)
    }

    /// A copy with some of the samples.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&SampleRef<'_>) -> bool) -> Self {
        let mut copy = self.clone();
        for ((_, all), (_, kept)) in self.families.iter().zip(&mut copy.families) {
            kept.clear();
            kept.extend(all.iter().filter(|sample| keep(&SampleRef { section: self, sample: **sample })));
        }
        copy
    }
}
