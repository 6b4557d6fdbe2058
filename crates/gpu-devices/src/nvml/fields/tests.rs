use super::*;

fn answers(batch: &Batch, values: &[(u32, u32, Number)]) -> Vec<Result<Number, NvmlError>> {
    let of = |field: &Field| values.iter().find(|(id, scope, _)| (*id, *scope) == (field.id, field.scope));
    batch.fields().iter().map(|field| of(field).map(|(_, _, n)| *n).ok_or(NvmlError::NotSupported)).collect()
}

fn text(facts: &[Fact]) -> Vec<String> {
    facts.iter().map(|f| format!("{} {:?} {:?}", f.family.name, f.labels, f.value)).collect()
}

#[test]
fn answers_are_reported_in_base_units_and_what_is_not_there_is_not_asked_for_again() {
    let mut batch = Batch::default();
    let all = batch.fields().len();
    let values = [
        (185, 0, Number::Unsigned(350_500, 32)),
        (185, 1, Number::Unsigned(700_000, 32)),
        (74, 0, Number::Unsigned(2_500_000_000, 64)),
        (82, 0, Number::Float(f64::NAN)),
    ];
    let mut counts = Counts::new();
    let first = batch.take(&answers(&batch, &values), Since::default(), &mut counts);
    assert_eq!(
        text(&first.facts),
        [
            "jobledger_gpu_power_watts [(\"scope\", \"gpu\")] Float(350.5)",
            "jobledger_gpu_power_watts [(\"scope\", \"module\")] Float(700.0)",
            "jobledger_gpu_throttle_seconds_total [(\"reason\", \"sw_power_cap\")] Float(2.5)",
        ]
    );
    assert!(all > 15 && batch.fields().len() == values.len(), "{} of {all}", batch.fields().len());
    let again = batch.take(&answers(&batch, &values), Since::default(), &mut counts);
    assert_eq!(text(&again.facts), text(&first.facts), "answers go with their fields");
    let mut batch = Batch::lasting();
    let values = [(194, 0, Number::Signed(-2)), (230, 0, Number::Unsigned(1, 32))];
    let answers = answers(&batch, &values);
    assert_eq!(
        text(&batch.take(&answers, Since::default(), &mut counts).facts),
        [
            "jobledger_gpu_temperature_margin_limit_celsius [(\"limit\", \"slowdown\")] Float(-2.0)",
            "jobledger_gpu_recovery_action [(\"action\", \"none\")] Int(0)",
            "jobledger_gpu_recovery_action [(\"action\", \"gpu_reset\")] Int(1)",
            "jobledger_gpu_recovery_action [(\"action\", \"node_reboot\")] Int(0)",
            "jobledger_gpu_recovery_action [(\"action\", \"drain_p2p\")] Int(0)",
            "jobledger_gpu_recovery_action [(\"action\", \"drain_and_reset\")] Int(0)",
        ]
    );
}

#[test]
fn a_counter_that_wraps_between_any_two_samples_is_not_asked_for_again() {
    let run = |pcie: u64| {
        let (mut batch, mut counts) = (Batch::default(), Counts::new());
        let values = [(197, 0, Number::Unsigned(7, 32)), (83, 0, Number::Unsigned(1, 64))];
        let since = Since { passed: Some(Duration::from_secs(10)), pcie: Some(pcie) };
        let answers = answers(&batch, &values);
        batch.take(&answers, since, &mut counts);
        batch.fields().iter().map(|field| field.id).collect::<Vec<_>>()
    };
    // 16 lanes of the fifth generation; eight of the third, which half a second does not wrap.
    assert_eq!(run(64_000_000_000), [83]);
    assert_eq!(run(8_000_000_000), [83, 197]);
}

#[test]
fn counters_wrap_by_their_type_and_as_often_as_they_can_have() {
    let run = |field: (u32, u32), bits, readings: [u64; 2], pcie: Option<u64>| {
        let since = Since { passed: Some(Duration::from_secs(1)), pcie };
        let mut counts = Counts::new();
        for reading in readings {
            let mut batch = Batch::default();
            let answers = answers(&batch, &[(field.0, field.1, Number::Unsigned(reading, bits))]);
            batch.take(&answers, since, &mut counts);
        }
        counts.take()
    };
    let wrapped = [u64::from(u32::MAX), 99];
    assert_eq!(run((197, 0), 32, wrapped, Some(1 << 20)), [(Quantity::PCIE_TRANSMITTED, 100)]);
    assert_eq!(run((197, 0), 32, wrapped, Some(1 << 33)), [], "it may have wrapped twice");
    assert_eq!(run((197, 0), 32, wrapped, None), []);
    assert_eq!(run((198, 0), 64, [7, 1 << 40], None), [(Quantity::PCIE_RECEIVED, (1 << 40) - 7)]);
    assert_eq!(run((139, u32::MAX), 64, [7, 9], None), [(Quantity::NVLINK_RECEIVED, 2048)]);
    assert_eq!(run((83, 0), 64, [7, 9], None), [(Quantity::ENERGY, 2000)]);
    assert_eq!(run((83, 0), 32, [9, 7], Some(1)), [(Quantity::ENERGY, 0)], "the driver was loaded anew");
}

#[test]
fn links_are_added_up_and_one_that_failed_spoils_the_sum() {
    let fields = of_links(3);
    let one = |id: u32, scope: u32| match (id, scope) {
        (165, 2) => Ok(Number::Unsigned(0, 32)),
        (165, _) => Ok(Number::Unsigned(1, 32)),
        (161, 2) => Err(NvmlError::NotSupported),
        (161, _) => Ok(Number::Unsigned(5, 64)),
        (162, 1) => Err(NvmlError::Unknown),
        (162, _) => Ok(Number::Unsigned(1, 64)),
        _ => Err(NvmlError::NotSupported),
    };
    let answers: Vec<_> = fields.iter().map(|f| one(f.id, f.scope)).collect();
    assert_eq!(
        text(&link_facts(&fields, &answers)),
        [
            "jobledger_gpu_nvlink_active_links [] Int(2)",
            "jobledger_gpu_nvlink_errors_total [(\"type\", \"replay\")] Int(10)",
        ]
    );
    assert!(link_facts(&of_links(0), &[]).is_empty());
    for (answer, links) in [
        (Ok(Number::Unsigned(18, 32)), Some(18)),
        (Ok(Number::Unsigned(99, 32)), None),
        (Err(NvmlError::NotSupported), None),
    ] {
        assert_eq!(number_of_links(&[answer]), links);
    }
    assert_eq!(number_of_links(&[]), None);
}
