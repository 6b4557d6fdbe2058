//! Drivers that come, go, fail and are released.

use slurm_jobs::testing::snapshot_of;

use super::*;

#[test]
fn a_node_without_gpus_is_not_asked_twice_and_a_driver_that_comes_later_is_found() {
    let driver = Driver::new(vec![unit(0)]);
    driver.present.store(false, Ordering::Relaxed);
    let mut node = Node::new(&driver);
    let (outcome, text) = node.scrape();
    assert!(matches!(outcome, Err(SourceError::Unsupported { .. })), "{outcome:?}");
    assert_eq!(text.trim(), "# EOF");
    assert_eq!(driver.readings.load(Ordering::Relaxed), 0, "no thread, no call");
    driver.present.store(true, Ordering::Relaxed);
    // The first reading is exported while its thread is still returning, which is "starting".
    let text = node.eventually(|text| {
        is(text, "jobledger_gpu_driver_state{vendor=\"nvidia\",state=\"running\"}", 1.0)
            && is(text, "jobledger_gpu_up{gpu=\"0\",uuid=\"GPU-0\"}", 1.0)
    });
    assert!(
        is(&text, "jobledger_gpu_temperature_celsius{gpu=\"0\",uuid=\"GPU-0\",sensor=\"gpu\"}", 41.0),
        "{text}"
    );
    assert!(is(&text, "jobledger_gpu_jobs{gpu=\"0\",uuid=\"GPU-0\"}", 0.0), "{text}");
}

#[test]
fn a_first_reading_is_exported_although_the_sampler_still_calls_it_under_way() {
    let machine = Machine::new();
    let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
    let mut accounts = Accounts::new(&BuildContext::new(Arc::new(machine.roots()), users));
    let mut emit = |read: bool| {
        if read {
            let now = Instant::now();
            let (units, facts, failed) = (vec![unit(0)], Vec::new(), Vec::new());
            let sample = Sample { vendor: Vendor::Nvidia, began: now, ended: now, units, facts, failed };
            accounts.take(Vendor::Nvidia, Ok(sample));
        }
        let mut section = Section::default();
        let sampler_states = BTreeMap::from([(Vendor::Nvidia, (SamplerState::Starting, Duration::ZERO))]);
        accounts.emit(&snapshot_of(machine.roots(), Vec::new()), &sampler_states, &mut section).unwrap();
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        text
    };
    assert!(!emit(false).contains("jobledger_gpu_up{"), "nothing is known yet");
    let text = emit(true);
    assert!(is(&text, "jobledger_gpu_up{gpu=\"0\",uuid=\"GPU-0\"}", 1.0), "{text}");
    assert!(text.contains("temperature_celsius"), "{text}");
}

#[test]
fn a_gpu_that_is_lost_takes_only_its_own_series_with_it() {
    let driver = Driver::new(vec![unit(0), unit(1)]);
    let mut node = Node::new(&driver);
    node.comes(7, Some(&[0]));
    node.eventually(|text| text.contains("jobledger_job_gpu_info{jobid=\"7\""));
    driver.change(|units| {
        units[0].down = Some("lost");
        units[0].counts.clear();
        units[0].memory = None;
        units[0].facts.clear();
    });
    let text = node.eventually(|text| is(text, "jobledger_gpu_up{gpu=\"0\",uuid=\"GPU-0\"}", 0.0));
    assert!(is(&text, "jobledger_gpu_down_info{gpu=\"0\",uuid=\"GPU-0\",reason=\"lost\"}", 1.0), "{text}");
    assert!(!text.contains("temperature_celsius{gpu=\"0\""), "{text}");
    assert!(
        is(&text, "jobledger_gpu_temperature_celsius{gpu=\"1\",uuid=\"GPU-1\",sensor=\"gpu\"}", 41.0),
        "{text}"
    );
    assert!(
        is(&text, "jobledger_job_gpus{jobid=\"7\",source=\"device_program\"}", 1.0),
        "still allocated\n{text}"
    );
    assert!(!text.contains("jobledger_job_gpu_memory_used_bytes{jobid=\"7\""), "{text}");
}

#[test]
fn a_driver_that_fails_is_reported_and_nothing_stale_is() {
    let driver = Driver::new(vec![unit(0)]);
    let mut node = Node::new(&driver);
    node.eventually(|text| text.contains("temperature"));
    let mismatch = SourceError::Unsupported { needs: "a driver and library of one version".to_owned() };
    *driver.error.lock() = Some(mismatch.clone());
    let text = node
        .eventually(|text| is(text, "jobledger_gpu_driver_state{vendor=\"nvidia\",state=\"failed\"}", 1.0));
    assert!(is(&text, "jobledger_gpu_up{gpu=\"0\",uuid=\"GPU-0\"}", 0.0), "{text}");
    assert!(!text.contains("temperature") && !text.contains("jobledger_gpu_memory_bytes"), "{text}");
    assert!(text.contains("jobledger_gpu_energy_joules_total"), "what was charged is kept\n{text}");
    assert_eq!(node.scrape().0, Err(mismatch));
    *driver.error.lock() = None;
    node.eventually(|text| text.contains("temperature"));
}

#[test]
fn drivers_are_released_on_request_and_read_again() {
    let driver = Driver::new(vec![unit(0)]);
    let mut node = Node::new(&driver);
    node.comes(7, Some(&[0]));
    node.eventually(|text| text.contains("jobledger_job_gpu_info"));
    assert_eq!(node.control.obey(GpuOrder::Release, LONG), Ok("the GPU drivers are released".to_owned()));
    assert_eq!(driver.released.load(Ordering::Relaxed), 1);
    let (outcome, text) = node.scrape();
    assert_eq!(outcome, Ok(()), "by order");
    assert!(is(&text, "jobledger_gpu_driver_state{vendor=\"nvidia\",state=\"released\"}", 1.0), "{text}");
    assert!(
        is(&text, "jobledger_gpu_up{gpu=\"0\",uuid=\"GPU-0\"}", 0.0) && !text.contains("temperature"),
        "{text}"
    );
    assert!(
        text.contains("jobledger_job_gpu_allocated_seconds_total{jobid=\"7\""),
        "the job has it all the same"
    );
    let readings = driver.readings.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(driver.readings.load(Ordering::Relaxed), readings);
    node.control.obey(GpuOrder::Resume, LONG).unwrap();
    node.eventually(|text| text.contains("temperature"));
}

#[test]
fn a_driver_that_is_loaded_anew_counts_from_its_own_beginning() {
    let driver = Driver::new(vec![unit(0)]);
    driver.change(|units| units[0].counts = vec![(Quantity::ENERGY, 100_000_000)]);
    let mut node = Node::new(&driver);
    node.eventually(|text| text.contains("jobledger_gpu_up"));
    node.comes(7, Some(&[0]));
    node.eventually(|text| text.contains("jobledger_job_gpu_info"));
    node.read_anew();
    driver.change(|units| units[0].counts = vec![(Quantity::ENERGY, 103_000_000)]);
    let energy =
        "jobledger_job_gpu_energy_joules_total{jobid=\"7\",gpu=\"0\",uuid=\"GPU-0\",method=\"alone\"}";
    node.eventually(|text| is(text, energy, 3.0));
    driver.change(|units| {
        units[0].epoch = 1;
        units[0].counts = vec![(Quantity::ENERGY, 50_000_000)];
    });
    node.read_anew();
    driver.change(|units| units[0].counts = vec![(Quantity::ENERGY, 51_000_000)]);
    node.eventually(|text| is(text, energy, 4.0));
}
