//! Names of groups and times as SLURM writes them.

use std::collections::BTreeSet;

use jiff::Timestamp;

/// The longest name of a group that sh5util has room for (`MAX_GROUP_NAME` of hdf5_api.h, with its end).
const LONGEST: usize = 63;

/// Names of groups, one for each node: letters, digits, `.`, `_` and `-` alone, since sh5util takes names for paths and prints them into
/// CSV as they are. All are different.
pub(super) fn components<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    names
        .map(|name| {
            let safe = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
            let name: String = name.chars().map(|letter| if safe(letter) { letter } else { '_' }).collect();
            let name = if name.trim_matches('.').is_empty() { "_" } else { &name };
            let mut chosen: String = name.chars().take(LONGEST).collect();
            let mut copy = 1;
            while !taken.insert(chosen.clone()) {
                copy += 1;
                let end = format!("_{copy}");
                chosen = name.chars().take(LONGEST - end.len()).chain(end.chars()).collect();
            }
            chosen
        })
        .collect()
}

/// ctime(3) without its line end, in UTC: `Mon Nov 23 08:11:40 2026`. Empty where no calendar reaches.
#[allow(clippy::cast_possible_truncation, reason = "saturates, which is out of range")]
pub(super) fn ctime(seconds: f64) -> String {
    let time = Some(seconds).filter(|seconds| seconds.is_finite());
    time.and_then(|seconds| Timestamp::from_second(seconds.floor() as i64).ok())
        .map(|time| time.strftime("%a %b %e %H:%M:%S %Y").to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_names_that_are_no_paths_and_differ() {
        let long = "n".repeat(80);
        let names = ["n1", "a/b", "a_b", "", ".", "..", "kn\u{f6}del,x", "=1+1\n", &long, &long];
        let found = components(names.into_iter());
        assert_eq!(found[..8], ["n1", "a_b", "a_b_2", "_", "__2", "__3", "kn_del_x", "_1_1_"]);
        assert_eq!(found[8], "n".repeat(63));
        assert_eq!(found[9], format!("{}_2", "n".repeat(61)));
    }

    #[test]
    fn times_are_those_of_ctime() {
        // date -u -d @1795421500 +'%a %b %e %T %Y'
        assert_eq!(ctime(1_795_421_500.9), "Mon Nov 23 08:11:40 2026");
        assert_eq!(ctime(0.0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(ctime(1_709_164_800.0), "Thu Feb 29 00:00:00 2024");
        assert_eq!(ctime(-0.5), "Wed Dec 31 23:59:59 1969");
        for unknown in [f64::NAN, -1e30, 1e30, f64::INFINITY] {
            assert_eq!(ctime(unknown), "");
        }
    }
}
