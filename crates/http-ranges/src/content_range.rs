//! What a server says that it sends: `Content-Range` and `Retry-After`, read strictly.

use std::{
    ops::Range,
    time::{Duration, SystemTime},
};

/// The value of a `Content-Range`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContentRange {
    /// The bytes that come. None in an answer with status 416.
    pub(super) range: Option<Range<u64>>,
    /// How long the file is, if it says so.
    pub(super) total: Option<u64>,
}

impl ContentRange {
    /// None if `text` is no such value, or ranges reach beyond what it says is the end.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (unit, rest) = text.trim().split_once(' ')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (range, total) = rest.trim_start().split_once('/')?;
        let total = match total {
            "*" => None,
            digits => Some(number(digits)?),
        };
        if range == "*" {
            return total.is_some().then_some(Self { range: None, total });
        }
        let (first, last) = range.split_once('-')?;
        let range = number(first)?..number(last)?.checked_add(1)?;
        let fits = range.start < range.end && total.is_none_or(|total| range.end <= total);
        let range = Some(range);
        fits.then_some(Self { range, total })
    }
}

/// Digits alone: `parse` would let a sign pass.
pub(super) fn number(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// How long a `Retry-After` asks to wait: seconds, or a date.
pub(super) fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    match number(text.trim()) {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => {
            let date = httpdate::parse_http_date(text).ok()?;
            Some(date.duration_since(now).unwrap_or(Duration::ZERO))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_a_range_is_written_as_is_read(first in 0..u64::MAX, more in 0..1000u64) {
            let last = first.saturating_add(more).min(u64::MAX - 1);
            let range = Some(first..last + 1);
            for total in [None, Some(last + 1), Some(u64::MAX)] {
                let shown = total.map_or("*".to_owned(), |total| total.to_string());
                let read = ContentRange::parse(&format!("bytes {first}-{last}/{shown}"));
                prop_assert_eq!(read, Some(ContentRange { range: range.clone(), total }));
            }
            let beyond = ContentRange::parse(&format!("bytes {first}-{last}/{last}"));
            prop_assert_eq!(beyond, None);
        }

        #[test]
        fn nothing_panics(text in "(bytes )?[-0-9*/ ]{0,50}") {
            let _ = ContentRange::parse(&text);
            let _ = retry_after(&text, SystemTime::now());
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "bytes",
            "bytes 0-1",
            "bytes 1-0/5",
            "bytes +1-2/5",
            "bytes -1/5",
            "bytes */*",
            "bytes 0-18446744073709551615/*",
            "bytes 0-1/99999999999999999999",
            "items 0-1/5",
        ] {
            assert_eq!(ContentRange::parse(text), None, "{text}");
        }
        let total = Some(7);
        let none = ContentRange { range: None, total };
        assert_eq!(ContentRange::parse("bytes */7"), Some(none));
    }

    #[test]
    fn a_server_asks_for_time_in_seconds_or_by_a_date() {
        let noon = httpdate::parse_http_date("Sun, 06 Nov 1994 12:00:00 GMT").unwrap();
        let asks = |text| retry_after(text, noon);
        assert_eq!(asks("120"), Some(Duration::from_secs(120)));
        assert_eq!(
            asks("Sun, 06 Nov 1994 12:00:07 GMT"),
            Some(Duration::from_secs(7))
        );
        assert_eq!(asks("Sun, 06 Nov 1994 11:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(asks("soon"), None);
    }
}
