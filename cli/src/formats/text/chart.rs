//! Bars and curves of block characters.

const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII_HEIGHTS: [char; 8] = ['_', '.', '.', '-', '-', '=', '=', '#'];

/// A bar of so many columns that is full at 1.
pub(super) fn bar(part: f64, columns: usize, ascii: bool) -> String {
    let filled = part.clamp(0.0, 1.0) * columns as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the columns")]
    let (whole, eighth) = (filled.floor() as usize, (filled.fract() * 8.0).round() as usize);
    let (mut bar, rest) = if ascii { ("#".repeat(whole), '.') } else { ("█".repeat(whole), '·') };
    if !ascii && let Some(part) = eighth.checked_sub(1).and_then(|eighth| EIGHTHS.get(eighth)) {
        bar.push(*part);
    }
    let used = bar.chars().count();
    bar.extend(std::iter::repeat_n(rest, columns.saturating_sub(used)));
    bar
}

/// A curve from 0 to its greatest value. A column has the mean of its bins, and a space where nothing was seen.
pub(super) fn sparkline(values: &[f64], columns: usize, ascii: bool) -> String {
    let columns = columns.min(values.len()).max(1);
    let means: Vec<Option<f64>> = (0..columns)
        .map(|column| {
            let (from, until) = (column * values.len() / columns, (column + 1) * values.len() / columns);
            let seen: Vec<f64> = values
                .get(from..until)
                .unwrap_or_default()
                .iter()
                .copied()
                .filter(|value| value.is_finite())
                .collect();
            (!seen.is_empty()).then(|| seen.iter().sum::<f64>() / seen.len() as f64)
        })
        .collect();
    let most = means.iter().flatten().copied().fold(0.0, f64::max);
    let heights = if ascii { ASCII_HEIGHTS } else { HEIGHTS };
    means
        .iter()
        .map(|mean| {
            let Some(mean) = mean else { return ' ' };
            let part = if most > 0.0 { (mean / most).clamp(0.0, 1.0) } else { 0.0 };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
            let height = (part * 7.0).round() as usize;
            heights.get(height).copied().unwrap_or(' ')
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_eighths() {
        assert_eq!(bar(0.5, 4, false), "██··");
        assert_eq!(bar(0.53125, 4, false), "██▏·");
        assert_eq!(bar(1.7, 4, false), "████");
        assert_eq!(bar(0.99, 4, false), "████");
        assert_eq!(bar(0.5, 4, true), "##..");
        assert_eq!(bar(f64::NAN, 2, true), "..");
    }

    #[test]
    fn curves_have_gaps() {
        assert_eq!(sparkline(&[0.0, 1.0, f64::NAN, 7.0], 4, false), "▁▂ █");
        assert_eq!(sparkline(&[0.0, 2.0, f64::NAN, 7.0], 2, false), "▂█");
        assert_eq!(sparkline(&[0.0, 0.0], 9, false), "▁▁");
        assert_eq!(sparkline(&[0.0, 7.0], 9, true), "_#");
    }
}
