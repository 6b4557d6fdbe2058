//! The days on which mails are sent.

use jiff::civil::{self, Date};

use super::policies::{Mails, Weekday};

/// Days of a file, such as `2026-12-25`, one a line. `#` begins a comment.
///
/// # Errors
/// A line that is none.
pub fn holidays(text: &str) -> Result<Vec<Date>, String> {
    let lines = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.split('#').next().unwrap_or_default().trim()));
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(at, line)| {
            line.parse().map_err(|_| format!("line {at}: {line:?} is no day such as 2026-12-25"))
        })
        .collect()
}

/// Whether mails are sent on a day.
pub fn is_workday(day: Date, mails: &Mails, holidays: &[Date]) -> bool {
    let weekday = match day.weekday() {
        civil::Weekday::Monday => Weekday::Mon,
        civil::Weekday::Tuesday => Weekday::Tue,
        civil::Weekday::Wednesday => Weekday::Wed,
        civil::Weekday::Thursday => Weekday::Thu,
        civil::Weekday::Friday => Weekday::Fri,
        civil::Weekday::Saturday => Weekday::Sat,
        civil::Weekday::Sunday => Weekday::Sun,
    };
    mails.workdays.contains(&weekday) && !holidays.contains(&day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mails_are_sent_on_workdays() {
        let days = holidays("# Christmas\n2026-12-25  # a Friday\n\n").unwrap();
        let is = |day: &str| is_workday(day.parse().unwrap(), &Mails::default(), &days);
        assert!(is("2026-12-24") && !is("2026-12-25") && !is("2026-12-26") && is("2026-12-28"));
        assert_eq!(
            holidays("2026-12-25\n25.12.").unwrap_err(),
            "line 2: \"25.12.\" is no day such as 2026-12-25"
        );
    }
}
