//! Amounts to ask for next time, as sbatch takes them.

use crate::show;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// sbatch's man page: `--mem` takes K, M, G and T, which are powers of 1024.
const MIB: f64 = 1024.0 * 1024.0;
/// Steps of memory that people ask for, in GiB.
const STEPS: [f64; 26] = [
    1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 40.0, 48.0, 64.0, 80.0, 96.0,
    128.0, 160.0, 192.0, 256.0, 320.0, 384.0, 512.0,
];

/// Bytes on a node, rounded up to an amount that people ask for.
pub(super) fn rounded(bytes: f64) -> f64 {
    let gib = bytes / GIB;
    if gib <= 0.5 {
        return (bytes / MIB / 64.0).ceil().max(1.0) * 64.0 * MIB;
    }
    let step = STEPS.iter().copied().find(|step| *step >= gib).unwrap_or_else(|| (gib / 64.0).ceil() * 64.0);
    step * GIB
}

/// `--mem` for so many bytes on a node, rounded.
pub(super) fn memory(bytes: f64) -> String {
    let rounded = rounded(bytes);
    if rounded < GIB { format!("--mem={}M", rounded / MIB) } else { format!("--mem={}G", rounded / GIB) }
}

/// `--time` for so many seconds, rounded up to a quarter of an hour, to hours from twelve on.
pub(super) fn time(seconds: f64) -> String {
    let step = if seconds > 12.0 * 3600.0 { 3600.0 } else { 900.0 };
    format!("--time={}", show::time((seconds / step).ceil() * step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_up() {
        for (bytes, option) in [
            (1.0, "--mem=64M"),
            (200.0 * MIB, "--mem=256M"),
            (0.6 * GIB, "--mem=1G"),
            (8.0 * GIB, "--mem=8G"),
            (8.1 * GIB, "--mem=10G"),
            (500.0 * GIB, "--mem=512G"),
            (513.0 * GIB, "--mem=576G"),
        ] {
            assert_eq!(memory(bytes), option);
        }
        for (seconds, option) in
            [(10.0, "--time=00:15:00"), (3601.0, "--time=01:15:00"), (90_000.0, "--time=1-01:00:00")]
        {
            assert_eq!(time(seconds), option);
        }
    }
}
