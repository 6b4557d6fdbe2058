//! The coordinators of accounts, as SLURM's accounting has them.

use std::collections::BTreeMap;

use crate::text::harmless;

/// What `sacctmgr` is asked. `--readonly` keeps it from changing anything (src/sacctmgr/sacctmgr.c).
pub const QUESTION: [&str; 7] = [
    "--readonly",
    "--noheader",
    "--parsable2",
    "show",
    "account",
    "withcoord",
    "format=account,coordinators",
];

/// Reads the answer: the coordinators of each account that has some. An account's name has no `|` (src/sacctmgr/account_functions.c).
pub fn parse(answer: &str) -> BTreeMap<String, Vec<String>> {
    let account = |line: &str| {
        let (account, names) = line.split_once('|')?;
        let names: Vec<String> =
            names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(harmless).collect();
        (!names.is_empty()).then(|| (harmless(account), names))
    };
    answer.lines().filter_map(account).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_with_coordinators_are_found() {
        let found = parse("root|\nphysics|alice,bob\nchemistry|carol\nnothing\n|\n");
        let expected = [("chemistry", vec!["carol"]), ("physics", vec!["alice", "bob"])];
        let found: Vec<(&str, Vec<&str>)> = found
            .iter()
            .map(|(account, names)| (account.as_str(), names.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(found, expected);
    }
}
