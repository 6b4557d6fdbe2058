//! Jobs as HDF5: whatever the names and values, there is a file, and it says what went in.

use hdf5_pure::File;
use job_files::hdf5::{About, Layout, write};
use job_report::{Curve, Curves, Gpu, Identity, Job, Node, Part, Report, Thresholds, metric};
use jobledger_exporter_fuzz::typed;

/// Of a node: its name, those of its GPUs, and values of its curves.
type Input = (String, Vec<(String, String)>, Vec<f64>);

pub fn fuzz(bytes: &[u8]) {
    typed(bytes, |(nodes, user, start, end): (Vec<Input>, String, f64, f64)| {
        let nodes: Vec<Input> = nodes.into_iter().take(4).collect();
        // A job of at most some bins.
        let mut curves = Curves::new(start, end, (end - start).abs() / 7.0);
        let mut metrics = metric::ALL.iter().copied().cycle();
        for (index, (_, gpus, values)) in nodes.iter().enumerate() {
            for values in values.chunks(5).take(20) {
                let Some(metric) = metrics.next() else { return };
                let gpu = (metric.level == metric::Level::Gpu).then_some(gpus.len() / 2);
                let curve = |gpu, part| Curve { metric, node: Some(index), gpu, part, values: values.to_vec() };
                curves.curves.push(curve(gpu, None));
                curves.of_parts.push(curve(None, Some(0)));
            }
        }
        if curves.bins() > 16 {
            return;
        }
        let bins = curves.bins();
        let clean = |text: &str| text.replace('\0', "\u{fffd}");
        let names: Vec<String> = nodes.iter().map(|(name, ..)| clean(name)).collect();
        let gpu = |(index, uuid): (String, String)| Gpu { index, uuid, ..Gpu::default() };
        let node = |(name, gpus, _): Input| Node {
            // A step of a node has a name of its own.
            parts: gpus.first().map(|(step, _)| Part { step: step.clone(), ..Part::default() }).into_iter().collect(),
            name,
            gpus: gpus.into_iter().take(3).map(gpu).collect(),
            ..Node::default()
        };
        let job = Job {
            id: 7,
            cluster: Some(user.clone()),
            identity: Identity { user, ..Identity::default() },
            run: 1,
            runs: 1,
            ended: None,
            time_limit: None,
            nodes_allocated: None,
            queued_seconds: None,
            nodes: nodes.into_iter().map(node).collect(),
            curves: Some(curves),
            grams_per_joule: None,
            restarts: None,
            evidence: job_report::Evidence::default(),
        };
        let thresholds = Thresholds::shipped().expect("those are right");
        let report = Report::new(job, &thresholds, vec![String::new()]);
        for layout in [Layout::Jobledger, Layout::Slurm] {
            let mut bytes = Vec::new();
            match write(report.clone(), &About::default(), layout, &mut bytes) {
                Ok(()) => {}
                Err(error) => {
                    assert!(layout == Layout::Slurm && names.is_empty(), "{error}");
                    continue;
                }
            }
            let file = File::from_bytes(bytes).expect("it is a file");
            if layout == Layout::Jobledger {
                assert_eq!(file.dataset("nodes").and_then(|nodes| nodes.read_string()).expect("strings"), names);
                assert_eq!(file.dataset("time").and_then(|time| time.shape()).expect("times"), [bins as u64]);
            } else {
                let steps = file.group("Steps").and_then(|steps| steps.groups()).expect("groups");
                let nodes = |step: &String| {
                    let nodes = file.group(&format!("Steps/{step}/Nodes")).and_then(|nodes| nodes.groups());
                    nodes.expect("groups").len()
                };
                assert_eq!(steps.iter().map(nodes).sum::<usize>(), names.len());
            }
        }
    });
}
