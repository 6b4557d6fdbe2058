//! The messages between the exporter and its device helper, either of which may have been taken over; and
//! `devices.list`.

use gpu_devices::DeviceNode;
use gpu_binding::DeviceAccess;
use gpu_binding::devices_list::{DevicesList, parse_devices_list};
use gpu_binding::helper::protocol::{LONGEST_ANSWER, LONGEST_QUESTION, MOST_CGROUPS, Question, Ready, parse_answer, write_answer};
use jobledger_exporter_fuzz::prefixes_are_read;

pub fn fuzz(bytes: &[u8]) {
    let count = usize::from(bytes.get(1).copied().unwrap_or(0));
    if let Ok(question) = Question::parse(bytes, count) {
        assert!(question.cgroups == count && count <= MOST_CGROUPS && bytes.len() <= LONGEST_QUESTION);
        assert_eq!(question.write().as_deref(), Some(bytes), "one message, one meaning");
        assert!(Question::parse(bytes, count + 1).is_err());
    }
    for nodes in [0, 1, 8, 9, 1024] {
        if let Ok((number, answers)) = parse_answer(bytes, count, nodes) {
            assert_eq!(answers.len(), count);
            for device_access in answers.iter().flatten() {
                if let DeviceAccess::Allowed { nodes: allowed, programs } = device_access {
                    assert!(allowed.len() == nodes && !programs.is_empty());
                }
            }
            assert_eq!(write_answer(number, &answers), bytes, "one message, one meaning");
            assert!(count > MOST_CGROUPS || bytes.len() <= LONGEST_ANSWER);
        }
    }
    if let Ok(ready) = Ready::parse(bytes) {
        assert_eq!(Ready::parse(&ready.write()), Ok(ready));
    }

    prefixes_are_read(bytes, parse_devices_list);
    if let Ok(list) = parse_devices_list(bytes) {
        let nodes = [DeviceNode { major: 195, minor: 0 }, DeviceNode { major: u32::MAX, minor: u32::MAX }];
        match list.device_access(&nodes) {
            DeviceAccess::Allowed { nodes: allowed, programs } => {
                assert!(allowed.len() == 2 && programs.is_empty() && matches!(list, DevicesList::Only(_)));
                // What is allowed is allowed by a line.
                assert!(allowed == [false, false] || bytes.contains(&b'w'));
            }
            device_access => assert_eq!((device_access, &list), (DeviceAccess::NoProgram, &DevicesList::ByDefault)),
        }
    }
}
