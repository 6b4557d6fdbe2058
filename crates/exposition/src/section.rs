//! What one run of one collector yields. Buffers are reused, so a steady node allocates nothing here.

use std::time::Duration;

use super::{Decimal, Family, Kind, Level, Profile};

/// A sample's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Exact.
    Int(u64),
    /// Exact, in a fraction of the unit: microseconds as seconds.
    Decimal(Decimal),
    /// What is no count: ratios, times.
    Float(f64),
}

/// Whether a family can have this value.
fn is_possible(family: &Family, value: Value) -> bool {
    let can_be = |value: f64| family.kind != Kind::Gauge || family.unit.is_none_or(|unit| unit.can_be(value));
    match value {
        Value::Int(_) | Value::Decimal(_) => can_be(value.to_f64()),
        Value::Float(v) => v.is_finite() && (v >= 0.0 || family.kind != Kind::Counter) && can_be(v),
    }
}

impl Value {
    /// `amount` of what makes one unit `per_unit` times: 1000 for milliseconds exported as seconds. Exact if that is a
    /// power of ten, else the nearest float.
    pub fn parts(amount: u64, per_unit: u64) -> Self {
        match per_unit.checked_ilog10().filter(|places| 10_u64.checked_pow(*places) == Some(per_unit)) {
            Some(0) => Self::Int(amount),
            Some(places) => Self::Decimal(Decimal::new(amount, places)),
            #[expect(
                clippy::cast_precision_loss,
                reason = "no unit of the kernel is divided so, and 2^53 is far"
            )]
            None => Self::Float(amount as f64 / per_unit as f64),
        }
    }

    /// `amount` in millionths: microseconds as seconds, microjoules as joules.
    pub const fn micro(amount: u64) -> Self {
        Self::Decimal(Decimal::new(amount, 6))
    }

    /// `amount` in thousand millionths: nanoseconds as seconds.
    pub const fn nano(amount: u64) -> Self {
        Self::Decimal(Decimal::new(amount, 9))
    }

    /// The nearest float.
    pub fn to_f64(self) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "it is asked for where there are only floats")]
            Self::Int(value) => value as f64,
            Self::Decimal(value) => value.to_f64(),
            Self::Float(value) => value,
        }
    }

    /// In whole parts of the unit, `10^places` of which make one: exact if it has no finer digits, else rounded down; a
    /// float to the nearest part. A negative one is 0.
    pub fn in_parts(self, places: u32) -> u128 {
        let scale = |places: u32| 10_u128.saturating_pow(places);
        match self {
            Self::Int(value) => u128::from(value).saturating_mul(scale(places)),
            Self::Decimal(value) => {
                let (amount, finer) = (u128::from(value.amount()), value.places());
                if finer <= places {
                    amount.saturating_mul(scale(places - finer))
                } else {
                    amount / scale(finer - places)
                }
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "the cast saturates, and a float has no more digits"
            )]
            Self::Float(value) => (value * scale(places) as f64).round() as u128,
        }
    }

    /// So many parts of the unit, `10^places` of which make one: exact, but for what exceeds 64 bits.
    pub fn of_parts(amount: u128, places: u32) -> Self {
        match u64::try_from(amount) {
            Ok(amount) if places == 0 => Self::Int(amount),
            Ok(amount) => Self::Decimal(Decimal::new(amount, places)),
            #[expect(clippy::cast_precision_loss, reason = "the nearest float is what remains")]
            Err(_) => Self::Float(amount as f64 / 10_f64.powf(f64::from(places))),
        }
    }

    /// A time in seconds, exact.
    pub fn seconds(time: Duration) -> Self {
        // 584 years.
        Self::nano(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
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

impl From<Decimal> for Value {
    fn from(v: Decimal) -> Self {
        Self::Decimal(v)
    }
}

/// Names the labels that many samples share (a job's), within one [`Section`], and when their counters began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubjectId(u32);

impl SubjectId {
    /// No labels, the node or the exporter, and a start that is not known.
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
struct Subject {
    labels: Span,
    began: Option<f64>,
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
        let subject =
            self.subject().and_then(|index| section.subjects.get(index)).map(|subject| subject.labels);
        section.labels(subject.unwrap_or(Span { start: 0, end: 0 })).chain(self.own_labels())
    }

    /// Its labels beyond the subject's.
    pub fn own_labels(&self) -> impl Iterator<Item = (&'static str, &'a str)> {
        self.section.labels(self.sample.labels)
    }

    /// The place of its subject in [`Section::subjects`]; `None` for [`SubjectId::NODE`].
    pub fn subject(&self) -> Option<usize> {
        (self.sample.subject != SubjectId::NODE).then_some(self.sample.subject.0 as usize)
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
    subjects: Vec<Subject>,
    families: Vec<(&'static Family, Vec<Sample>)>,
    bad_values: u64,
    restarts: u64,
    /// Families beyond it are left out.
    profile: Profile,
}

fn index(len: usize) -> u32 {
    // 4 GiB of label text or samples are cut off by the series cap long before.
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Section {
    /// Keeps from now on the families of this profile alone; a new section keeps all.
    pub fn select(&mut self, profile: Profile) {
        self.profile = profile;
    }

    /// Whether samples of this family are kept. A source need not read what only others are made of.
    pub fn wants(&self, family: &Family) -> bool {
        family.profile <= self.profile
    }

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

    fn labels(&self, span: Span) -> impl Iterator<Item = (&'static str, &str)> {
        let text =
            |label: &Label| self.text.get(label.start as usize..label.end as usize).unwrap_or_default();
        span.of(&self.labels).iter().map(move |label| (label.key, text(label)))
    }

    /// Stores labels that several samples share. When their counters began is not known.
    pub fn subject<'l>(&mut self, labels: impl IntoIterator<Item = (&'static str, &'l str)>) -> SubjectId {
        self.subject_since(labels, None)
    }

    /// Stores labels that several samples share, and since when their counters count, seconds since the epoch: they were
    /// 0 then. It belongs to counters alone; gauges of the subject have none.
    pub fn subject_since<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'static str, &'l str)>,
        began: Option<f64>,
    ) -> SubjectId {
        let labels = self.span(labels);
        let began = began.filter(|began| began.is_finite() && *began > 0.0);
        self.subjects.push(Subject { labels, began });
        SubjectId(index(self.subjects.len() - 1))
    }

    /// The same without labels: the node or the exporter.
    pub fn node_since(&mut self, began: Option<f64>) -> SubjectId {
        self.subject_since([], began)
    }

    /// The labels of each subject, and when its counters began.
    pub fn subjects(
        &self,
    ) -> impl Iterator<Item = (impl Iterator<Item = (&'static str, &str)>, Option<f64>)> {
        self.subjects.iter().map(|subject| (self.labels(subject.labels), subject.began))
    }

    /// Adds a sample. A value that is no finite number, a negative counter, or what no hardware can have ([`Unit::can_be`](super::Unit::can_be))
    /// is counted and left out: a sensor's nonsense must not be exported. What the profile does not have ([`Section::select`])
    /// is left out, too.
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
        if !self.wants(family) {
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
        let labels = self.subjects.get(subject.0 as usize)?.labels;
        self.labels(labels).find(|(known, _)| *known == key).map(|(_, value)| value)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_keeps_the_families_of_its_profile_and_counts_wrong_values_in_each() {
        static LEAN: Family = Family::gauge("jobledger_job_lean").profile(Profile::Lean).help("Lean");
        static PLAIN: Family = Family::gauge("jobledger_job_plain").help("Plain");
        static FULL: Family = Family::gauge("jobledger_job_full").profile(Profile::Full).help("Full");
        let mut section = Section::default();
        let mut kept = |profile: Option<Profile>| {
            section.clear();
            profile.into_iter().for_each(|profile| section.select(profile));
            let job = section.subject([("jobid", "7")]);
            for family in [&LEAN, &PLAIN, &FULL] {
                section.push(family, job, &[], 1);
                section.push(family, job, &[], f64::NAN);
            }
            assert_eq!(section.bad_values(), 3, "{profile:?}");
            let names: Vec<&str> = section.families().map(|(family, _)| family.name).collect();
            assert_eq!(names.len(), section.len());
            names
        };
        let all = ["jobledger_job_lean", "jobledger_job_plain", "jobledger_job_full"];
        assert_eq!(kept(None), all, "unless it is asked for less");
        assert_eq!(kept(Some(Profile::Lean)), all[..1]);
        assert_eq!(kept(None), all[..1], "also after it was cleared");
        assert_eq!(kept(Some(Profile::Standard)), all[..2]);
        assert_eq!(kept(Some(Profile::Full)), all);
    }

    #[test]
    fn parts_of_a_unit_are_exact_as_far_as_they_go() {
        assert_eq!(Value::Int(7).in_parts(6), 7_000_000);
        assert_eq!(Value::micro(7_000_001).in_parts(6), 7_000_001);
        assert_eq!(Value::micro(7).in_parts(9), 7_000);
        assert_eq!(Value::nano(7_999).in_parts(6), 7, "rounded down");
        assert_eq!(Value::Float(0.1).in_parts(6), 100_000);
        assert_eq!(Value::Float(-1.0).in_parts(6), 0);
        assert_eq!(Value::of_parts(7, 0), Value::Int(7));
        assert_eq!(Value::of_parts(7_000_001, 6), Value::micro(7_000_001));
        assert_eq!(Value::of_parts(1 << 70, 0), Value::Float(2_f64.powi(70)));
        for value in [Value::Int(u64::MAX), Value::micro(u64::MAX), Value::nano(12_345)] {
            assert_eq!(Value::of_parts(value.in_parts(9), 9).to_f64(), value.to_f64());
        }
    }
}
