//! Answers of a BMC to questions for its maker, the node's power and Lenovo's count of energy; and the messages between the exporter
//! and the helper that asks it, either of which may have been taken over.

use energy_meters::bmc_protocol::{ANSWER_LENGTH, Answer, QUESTION_LENGTH, Question};
use energy_meters::{IpmiAnswerError, IpmiFlaw, parse_dcmi_power_reading, parse_ipmi_device_id, parse_xcc_energy};
use readings::LARGEST_POWER;

pub fn fuzz(bytes: &[u8]) {
    let number = |at: usize, length: usize| {
        let bytes = bytes.iter().skip(at).take(length);
        bytes.rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if let Ok((number, question)) = Question::parse(bytes) {
        assert_eq!(bytes.len(), QUESTION_LENGTH);
        assert_eq!(question.write(number), bytes, "one message, one meaning");
    }
    if let Ok(answer) = Answer::parse(bytes) {
        assert_eq!(bytes.len(), ANSWER_LENGTH);
        assert_eq!(answer.write(), bytes, "one message, one meaning");
    }

    let code = bytes.first().copied();
    let power = parse_dcmi_power_reading(bytes);
    let energy = parse_xcc_energy(bytes);
    let maker = parse_ipmi_device_id(bytes);

    if code != Some(0) {
        let error = code.map_or(IpmiAnswerError::Unusable(IpmiFlaw::Empty), IpmiAnswerError::Refused);
        assert_eq!((power, energy, maker), (Err(error), Err(error), Err(error)));
        return;
    }
    match power {
        Ok(reading) => {
            assert_eq!((bytes.len(), bytes[1]), (19, 0xdc));
            assert_eq!(u64::from(reading.watts), number(2, 2));
            assert!((1..=LARGEST_POWER / 1_000_000).contains(&u64::from(reading.watts)));
            assert!(bytes[18] & 0x40 != 0 || reading.time_stamp.is_none());
            if let Some(stamp) = reading.time_stamp {
                assert_eq!(u64::from(stamp), number(10, 4));
            }
        }
        Err(error) => assert_eq!(
            matches!(error, IpmiAnswerError::Unusable(flaw) if flaw.is_malformed()),
            bytes.len() != 19 || bytes[1] != 0xdc,
            "an answer of the right form is refused for its values only"
        ),
    }
    if let Ok(reading) = energy {
        assert_eq!(bytes.len(), 15);
        assert_eq!(reading.microjoules / 1_000_000, number(3, 4));
        assert_eq!(reading.microjoules % 1_000_000, number(7, 2) * 1000);
    }
    assert_eq!(maker.is_ok(), bytes.len() >= 12);
    if let Ok(maker) = maker {
        assert_eq!(u64::from(maker), number(7, 3) & 0xf_ffff);
    }
}
