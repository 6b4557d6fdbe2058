//! Writes a fixed job in every format below a directory: `cargo run -p job-files --example write_sample -- DIR`. tests/report reads them with
//! other programs.

use std::error::Error;
use std::path::PathBuf;

use job_files::table::{By, Layout, Table};
use job_files::{anonymize, atomic, clustercockpit, csv, hdf5, json, parquet, supremm};
use job_report::{Report, Thresholds};

#[path = "../src/sample.rs"]
mod sample;

fn main() -> Result<(), Box<dyn Error>> {
    let to = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: write_sample DIR")?);
    std::fs::create_dir_all(&to)?;
    let job = sample::job();
    for by in [By::Node, By::Gpu, By::Job] {
        let table = Table::new(&job, by).ok_or("the sample has curves")?;
        for layout in [Layout::Wide, Layout::Long] {
            let file = |format| to.join(format!("{}-{}.{format}", layout.word(), by.word()));
            atomic::write(&file("csv"), |out| csv::write(&table, layout, out))?;
            atomic::write(&file("parquet"), |out| parquet::write(&job, &table, layout, out))?;
        }
    }
    let steps = sample::with_steps();
    for by in [By::Step, By::Task] {
        let table = Table::new(&steps, by).ok_or("the sample has curves")?;
        for layout in [Layout::Wide, Layout::Long] {
            let file = |format| to.join(format!("{}-{}.{format}", layout.word(), by.word()));
            atomic::write(&file("csv"), |out| csv::write(&table, layout, out))?;
            atomic::write(&file("parquet"), |out| parquet::write(&steps, &table, layout, out))?;
        }
    }
    let report = Report::new(steps, &Thresholds::shipped()?, Vec::new());
    for (layout, name) in [(hdf5::Layout::Jobledger, "steps.h5"), (hdf5::Layout::Slurm, "steps-slurm.h5")] {
        let about = hdf5::About { source: None, generated: sample::START };
        atomic::write(&to.join(name), |out| hdf5::write(report.clone(), &about, layout, out))?;
    }
    let options = clustercockpit::Options { sub_cluster: "a100".to_owned(), exclusive: Some(1), force: true };
    clustercockpit::write(&job, &options, &to.join("archive"))?;
    let options = supremm::Options { resource_id: 7, created: sample::START };
    atomic::write(&to.join("supremm.json"), |out| supremm::write(&job, &options, out))?;
    let report = Report::new(job, &Thresholds::shipped()?, Vec::new());
    atomic::write(&to.join("report.json"), |out| json::write(&report, out))?;
    let mut nameless = report.job;
    anonymize::anonymize(&mut nameless, b"a key of a site that is secret")?;
    let table = Table::new(&nameless, By::Node).ok_or("the sample has curves")?;
    atomic::write(&to.join("anonymous.csv"), |out| csv::write(&table, Layout::Wide, out))?;
    Ok(())
}
