//! A scrape on one thread, part by part: what remains when nothing is handed from thread to thread.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use exposition::{Section, encode_openmetrics, encode_text};
use flate2::{Compress, Compression, FlushCompress};
use jobledger_exporter::cli::Config;
use jobledger_exporter::collector::devices::energy::EnergyOptions;
use jobledger_exporter::collector::devices::gpu::GpuOptions;
use jobledger_exporter::collector::{BuildContext, Collector};
use slurm_jobs::table::{MOST_RETAINED, Table, TableOptions};
use slurm_jobs::{NodeSnapshot, Users};

use crate::stats::{cost, median};

/// The table of jobs and the collectors, without the engine and its threads.
pub(crate) struct Direct {
    table: Table,
    collectors: Vec<(&'static str, Box<dyn Collector>)>,
    sections: Vec<Section>,
    text: String,
    times: Vec<(&'static str, Vec<f64>)>,
}

impl Direct {
    pub(crate) fn new(config: &Config) -> Self {
        Self::with(config, GpuOptions::default())
    }

    /// On a node with these GPUs.
    pub(crate) fn with(config: &Config, gpu: GpuOptions) -> Self {
        let roots = Arc::new(config.roots.clone());
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let mut context = BuildContext::new(roots.clone(), users.clone());
        context.options.set(EnergyOptions { pause: Duration::ZERO, ..EnergyOptions::default() });
        context.options.set(gpu);
        let (mut collectors, mut hooks) = (Vec::new(), Vec::new());
        for entry in &config.enabled {
            let built = (entry.build)(&context);
            built.source.iter().for_each(|source| context.interval_reader.add(source));
            hooks.extend(built.observer);
            collectors.push((entry.name, built.collector));
        }
        let options = TableOptions {
            retention: config.retention,
            retention_max: Duration::from_secs(3600),
            readers: 1,
            most_retained: MOST_RETAINED,
            stale_after: config.stale_after,
            levels: config.levels,
            job_labels: config.job_labels.clone(),
            jobs_dir: Some(config.jobs_dir.clone()),
            environment_hints: config.environment_hints,
        };
        let table = Table::new(roots, options, users, hooks).keeping_files(config.kept_files);
        Self { table, collectors, sections: Vec::new(), text: String::new(), times: Vec::new() }
    }

    fn note(times: &mut Vec<(&'static str, Vec<f64>)>, name: &'static str, usec: f64) {
        match times.iter_mut().find(|(known, _)| *known == name) {
            Some((_, all)) => all.push(usec),
            None => times.push((name, vec![usec])),
        }
    }

    /// One scrape: the table's snapshot, every collector, the OpenMetrics text.
    pub(crate) fn scrape(&mut self) {
        let mut snapshot = None;
        let usec = cost(|| snapshot = Some(self.table.snapshot()));
        Self::note(&mut self.times, "table of jobs", usec);
        let snapshot = snapshot.unwrap();
        let mut filled = Vec::new();
        for (name, collector) in &mut self.collectors {
            let mut section = self.sections.pop().unwrap_or_default();
            let usec = cost(|| drop(collector.collect(&snapshot, &mut section)));
            Self::note(&mut self.times, name, usec);
            filled.push(Arc::new(section));
        }
        self.text.clear();
        let usec = cost(|| encode_openmetrics(&filled, &mut self.text).unwrap());
        Self::note(&mut self.times, "OpenMetrics text", usec);
        let mut text = String::with_capacity(self.text.len());
        let usec = cost(|| encode_text(&filled, &mut text).unwrap());
        Self::note(&mut self.times, "text 0.0.4, when asked for instead", usec);
        // In reverse, so that each collector gets its own buffers again.
        for section in filled.into_iter().rev() {
            let mut section = Arc::into_inner(section).unwrap();
            section.clear();
            self.sections.push(section);
        }
    }

    /// Who is there.
    pub(crate) fn snapshot(&mut self) -> NodeSnapshot {
        self.table.snapshot()
    }

    /// How many samples the last scrape had.
    pub(crate) fn series(&self) -> usize {
        self.text.lines().filter(|line| !line.starts_with('#')).count()
    }

    /// The median of a part, microseconds.
    pub(crate) fn part(&mut self, wanted: &str) -> f64 {
        self.times.iter_mut().find(|(name, _)| *name == wanted).map_or(0.0, |(_, all)| median(all))
    }

    /// The medians of the parts, microseconds, and what the other forms of the text cost.
    pub(crate) fn parts(&mut self) -> Vec<(&'static str, f64)> {
        let mut parts: Vec<_> = self.times.iter_mut().map(|(name, all)| (*name, median(all))).collect();
        let mut repeated = |name, f: &dyn Fn()| {
            parts.push((name, median(&mut (0..50).map(|_| cost(f)).collect::<Vec<_>>())));
        };
        // As the web side does, which keeps the tables.
        let gzip = RefCell::new(Compress::new_gzip(Compression::new(3), 15));
        repeated("gzip, when asked for", &|| {
            let mut out = Vec::with_capacity(self.text.len());
            gzip.borrow_mut().compress_vec(self.text.as_bytes(), &mut out, FlushCompress::Finish).unwrap();
            gzip.borrow_mut().reset();
        });
        parts
    }
}
