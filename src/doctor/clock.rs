//! The clock. Keys and links have no dates: it matters to the times of logs, and to certificates of web servers, which
//! `refrain czip get` verifies.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::{Date, Month};

use super::{Finding, context::Context};

/// Whether the clock is behind the commit of this program. Where the commit is unknown, nothing is.
pub(super) fn clock(_: &Context) -> Vec<Finding> {
    let Some(made) = date_in(env!("REFRAIN_COMMIT")) else {
        return Vec::new();
    };
    vec![match SystemTime::now() + Duration::from_secs(86_400) < made {
        false => Finding::ok("plausible: later than the commit of this program"),
        true => Finding::note(
            "before the commit of this program: log times are wrong, and https:// addresses of `refrain czip` fail",
        )
        .advise("set the clock, and have it synchronised"),
    }]
}

/// The day in `abcdef012345 (2026-11-28)`.
fn date_in(commit: &str) -> Option<SystemTime> {
    let (_, date) = commit.split_once('(')?;
    let mut numbers = date.trim_end_matches(')').split('-');
    let year = numbers.next()?.parse().ok()?;
    let month: u8 = numbers.next()?.parse().ok()?;
    let day = numbers.next()?.parse().ok()?;
    let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
    let seconds = date.midnight().assume_utc().unix_timestamp();
    Some(UNIX_EPOCH + Duration::from_secs(seconds.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_of_a_commit_is_read() {
        let day = date_in("abc (1970-01-03)");
        assert_eq!(day, Some(UNIX_EPOCH + Duration::from_secs(2 * 86_400)));
        for text in [
            "",
            "unknown",
            "a (2026)",
            "a (2026-13-01)",
            "a (1960-01-01)",
            "a (-é-1-1)",
        ] {
            assert_eq!(date_in(text), None, "{text}");
        }
    }
}
