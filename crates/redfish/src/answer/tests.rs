use super::*;

const JOULES: Quantity = Quantity::Joules;
const KWH: Quantity = Quantity::KilowattHours;
const WATTS: Quantity = Quantity::Watts;

/// The best quantity and its value, or why there is none.
fn read(text: &str) -> Result<(Quantity, u64), &'static str> {
    let answer = parse_answer(text.as_bytes()).map_err(|error| error.reason)?;
    let best = answer.best().map_err(|error| error.reason)?;
    Ok((best, answer.value(best).unwrap()))
}

fn metrics(properties: &str) -> Result<(Quantity, u64), &'static str> {
    read(&format!(r##"{{"@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics", {properties}}}"##))
}

fn power(controls: &str) -> Result<(Quantity, u64), &'static str> {
    read(&format!(r##"{{"@odata.type": "#Power.v1_7_1.Power", "PowerControl": {controls}}}"##))
}

fn sensor(properties: &str) -> Result<(Quantity, u64), &'static str> {
    read(&format!(r##"{{"@odata.type": "#Sensor.v1_7_0.Sensor", {properties}}}"##))
}

/// tests/answers/README.md says what each is modelled on; none is recorded.
#[test]
fn what_vendors_document() {
    for (file, text, quantity, value) in [
        ("dell_idrac9_power", include_str!("../../tests/answers/dell_idrac9_power.json"), WATTS, 212_000_000),
        (
            "dell_idrac9_sensor",
            include_str!("../../tests/answers/dell_idrac9_sensor.json"),
            WATTS,
            304_000_000,
        ),
        ("hpe_ilo5_power", include_str!("../../tests/answers/hpe_ilo5_power.json"), WATTS, 118_000_000),
        ("supermicro_power", include_str!("../../tests/answers/supermicro_power.json"), WATTS, 163_000_000),
        ("lenovo_xcc_power", include_str!("../../tests/answers/lenovo_xcc_power.json"), WATTS, 69_000_000),
        ("openbmc_metrics", include_str!("../../tests/answers/openbmc_metrics.json"), WATTS, 374_500_000),
        ("openbmc_sensor", include_str!("../../tests/answers/openbmc_sensor.json"), WATTS, 374_500_000),
        (
            "dmtf_metrics",
            include_str!("../../tests/answers/dmtf_metrics.json"),
            JOULES,
            13_019_811_250_125_000,
        ),
    ] {
        assert_eq!(read(text), Ok((quantity, value)), "{file}");
    }
}

#[test]
fn a_counter_goes_before_power_and_joules_before_kilowatt_hours() {
    let joules = r#""EnergyJoules": {"Reading": 129600}"#;
    let kwh = r#""EnergykWh": {"Reading": 36.166}"#;
    let watts = r#""PowerWatts": {"Reading": 374}"#;
    assert_eq!(metrics(&format!("{watts}, {kwh}, {joules}")), Ok((JOULES, 129_600_000_000)));
    assert_eq!(metrics(&format!("{watts}, {kwh}")), Ok((KWH, 130_197_600_000_000)));
    assert_eq!(metrics(watts), Ok((WATTS, 374_000_000)));
    let unknown = r#""EnergyJoules": {"Reading": null}"#;
    assert_eq!(metrics(&format!("{unknown}, {watts}")), Ok((WATTS, 374_000_000)), "what has a value");
}

#[test]
fn a_coarse_counter_of_kilowatt_hours_is_not_used() {
    let watts = r#""PowerWatts": {"Reading": 6438}"#;
    for coarse in ["36166", "36166.2", "36166.25", "3.616625e4"] {
        let kwh = format!(r#""EnergykWh": {{"Reading": {coarse}}}"#);
        assert_eq!(metrics(&format!("{kwh}, {watts}")), Ok((WATTS, 6_438_000_000)), "{coarse}");
        assert_eq!(
            metrics(&kwh),
            Err("EnergykWh is coarser than 0.001 kWh, and there is no power"),
            "{coarse}"
        );
    }
    let text = r##"{"@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics", "EnergykWh": {"Reading": 36166.2}}"##;
    let later = parse_answer(text.as_bytes()).unwrap();
    assert_eq!(
        later.value(KWH),
        Ok(130_198_320_000_000_000),
        "one whose last digits are 0 is as fine as before"
    );
}

#[test]
fn numbers_are_exact() {
    for (text, micro) in [
        ("9007199254740993.25", None),
        ("9007199254.740993", Some(9_007_199_254_740_993)),
        ("345.2500019", Some(345_250_001)),
        ("3.4525e2", Some(345_250_000)),
        ("0.000001", Some(1)),
        ("18446744073709.551615", Some(u64::MAX)),
        ("18446744073709.551616", None),
    ] {
        let found = metrics(&format!(r#""EnergyJoules": {{"Reading": {text}}}"#));
        assert_eq!(found.ok(), micro.map(|micro| (JOULES, micro)), "{text}");
    }
}

#[test]
fn what_is_no_reading_has_a_reason_and_is_never_0() {
    for (reading, reason) in [
        ("null", "the reading is null or absent"),
        (r#""374""#, "the reading is text, not a number"),
        ("true", "the reading is not a number, or has too many digits"),
        ("[374]", "the reading is not a number, or has too many digits"),
        ("-1", "the reading is negative"),
        ("-0.0", "the reading is negative"),
        ("0", "the reading is 0 W, which no running node takes"),
        ("0.0000001", "the reading is 0 W, which no running node takes"),
        ("50000.1", "more power than a node can draw"),
        ("4294967295", "more power than a node can draw"),
        ("1e300", "the reading is too large"),
        ("1e9999", "the reading is not a number, or has too many digits"),
    ] {
        assert_eq!(metrics(&format!(r#""PowerWatts": {{"Reading": {reading}}}"#)), Err(reason), "{reading}");
        let control = format!(r#"[{{"PowerConsumedWatts": {reading}}}]"#);
        assert_eq!(power(&control), Err(reason), "{reading}");
    }
    assert_eq!(metrics(r#""PowerWatts": {}"#), Err("the reading is null or absent"));
    assert_eq!(metrics(r#""EnergyJoules": {"Reading": 0}"#), Err("the counter is 0: it does not count"));
    assert_eq!(metrics(r#""PowerWatts": null"#), Err("no EnergyJoules, EnergykWh or PowerWatts"));
    assert_eq!(metrics(r#""Name": "x""#), Err("no EnergyJoules, EnergykWh or PowerWatts"));
}

#[test]
fn what_is_not_enabled_has_no_reading() {
    let reason = Err("Status.State is not Enabled");
    let watts = r#""PowerWatts": {"Reading": 374}"#;
    for state in ["Disabled", "StandbyOffline", "UnavailableOffline", "Absent"] {
        let status = format!(r#""Status": {{"State": "{state}"}}"#);
        assert_eq!(metrics(&format!("{status}, {watts}")), reason, "{state}");
        assert_eq!(metrics(&format!(r#""PowerWatts": {{"Reading": 374, {status}}}"#)), reason, "{state}");
        assert_eq!(power(&format!(r#"[{{"PowerConsumedWatts": 374, {status}}}]"#)), reason, "{state}");
        let reading = r#""ReadingType": "Power", "ReadingUnits": "W", "Reading": 374"#;
        assert_eq!(sensor(&format!("{reading}, {status}")), reason, "{state}");
    }
    for fine in [r#"{"State": "Enabled", "Health": "Warning"}"#, "{}", "null", r#"{"State": null}"#] {
        assert_eq!(metrics(&format!(r#""Status": {fine}, {watts}"#)), Ok((WATTS, 374_000_000)), "{fine}");
    }
}

#[test]
fn of_several_members_the_one_that_says_so_is_the_nodes() {
    let parts = r#"{"Name": "CPU Sub-system Power", "PowerConsumedWatts": 16}, {"Name": "Memory Sub-system Power", "PowerConsumedWatts": 3}"#;
    for whole in [
        "Server Power Control",
        "System Power Control",
        "chassis power control",
        "System Input Power",
        "Node Power",
    ] {
        let whole = format!(r#"{{"Name": "{whole}", "PowerConsumedWatts": 61}}"#);
        assert_eq!(power(&format!("[{parts}, {whole}]")), Ok((WATTS, 61_000_000)), "{whole}");
    }
    let chassis = r#"{"Name": "Total", "PhysicalContext": "Chassis", "PowerConsumedWatts": 62}"#;
    assert_eq!(power(&format!("[{chassis}, {parts}]")), Ok((WATTS, 62_000_000)));
    assert_eq!(power(&format!("[null, {chassis}]")), Ok((WATTS, 62_000_000)));
    let unknown = Err("PowerControl has several members, and which one is the node's is not known");
    assert_eq!(power(&format!("[{parts}]")), unknown);
    assert_eq!(power(&format!("[{chassis}, {chassis}]")), unknown);
    for part in ["System Board Power", "Server", "Server Fan Power", "Power Control", "systemd power"] {
        let part = format!(r#"{{"Name": "{part}", "PowerConsumedWatts": 61}}"#);
        assert_eq!(power(&format!("[{parts}, {part}]")), unknown, "{part}");
    }
    assert_eq!(power("[]"), Err("PowerControl has no member"));
    assert_eq!(power("null"), Err("PowerControl has no member"));
}

#[test]
fn a_sensor_says_what_it_measures_and_in_which_unit() {
    let of = |kind: &str, unit: &str, reading: &str| {
        sensor(&format!(r#""ReadingType": "{kind}", "ReadingUnits": "{unit}", "Reading": {reading}"#))
    };
    assert_eq!(of("Power", "W", "374.5"), Ok((WATTS, 374_500_000)));
    assert_eq!(of("EnergyJoules", "J", "12.5"), Ok((JOULES, 12_500_000)));
    assert_eq!(of("EnergykWh", "kW.h", "0.001"), Ok((KWH, 3_600_000_000)));
    let other = Err("a sensor of neither Power in W, EnergyJoules in J nor EnergykWh in kW.h");
    for (kind, unit) in
        [("Power", "kW"), ("EnergyJoules", "kJ"), ("EnergykWh", "W.h"), ("Temperature", "Cel"), ("", "")]
    {
        assert_eq!(of(kind, unit, "37"), other, "{kind} {unit}");
    }
    assert_eq!(sensor(r#""Reading": 37"#), other);
}

#[test]
fn other_resources_and_what_is_no_json_are_refused() {
    let kind = Err("@odata.type is not EnvironmentMetrics, Power or Sensor");
    assert_eq!(read(r##"{"@odata.type": "#ThermalMetrics.v1_0_0.ThermalMetrics"}"##), kind);
    assert_eq!(read(r##"{"@odata.type": "#PowerSubsystem.v1_1_0.PowerSubsystem"}"##), kind);
    assert_eq!(read(r##"{"@odata.type": "#SensorCollection.SensorCollection", "Members": []}"##), kind);
    assert_eq!(read(r#"{"PowerWatts": {"Reading": 374}}"#), kind);
    assert_eq!(read(r#"{"@odata.type": "Power", "PowerWatts": {"Reading": 374}}"#), kind);
    assert_eq!(read("{}"), kind);
    assert_eq!(metrics(r#""PowerWatts": 374"#), Err("not of the form that DSP0268 describes"));
    assert_eq!(power(r#"{"PowerConsumedWatts": 374}"#), Err("not of the form that DSP0268 describes"));
    assert_eq!(
        metrics(r#""PowerWatts": {"Reading": 1, "Reading": 2}"#),
        Err("not of the form that DSP0268 describes")
    );
    assert_eq!(read("[]"), Err("not of the form that DSP0268 describes"));
    assert_eq!(read("<html>"), Err("not JSON"));
    assert_eq!(metrics(r#""PowerWatts": {"Reading": NaN}"#), Err("not JSON"));
    assert_eq!(read(""), Err("the JSON ends too early"));
    assert_eq!(read(r#"{"@odata.type""#), Err("the JSON ends too early"));
    assert_eq!(read(&"[".repeat(100_000)), Err("not of the form that DSP0268 describes"));
    assert_eq!(parse_answer(b"{\n\n  <").unwrap_err().line, 3);
}
