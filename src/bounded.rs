//! Values of options, in bounds, so that what makes no sense is said at once.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr, time::Duration};

use clap::builder::RangedU64ValueParser;
use refrain_codec::chunk::chunking::Chunking;
use refrain_gateway::units::{ByteSize, TimeSpan};
use refrain_http_ranges::{RemoteError, check_address};

use crate::table;

/// More connections than any machine has use for.
const COUNT_MAX: u64 = 1 << 20;
/// Longer is not meant, and clocks end somewhere.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const TOO_LONG: &str = "must be at most a year (365d)";

/// Threads: more than any machine has use for are a mistake.
pub(crate) fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1024)
}

/// Requests to a server at a time: more than a few dozen it does not want.
pub(crate) fn requests_at_a_time() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=64)
}

/// How many, at least one.
pub(crate) fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=COUNT_MAX)
}

/// Bytes, at least one.
pub(crate) fn size(text: &str) -> Result<ByteSize, String> {
    match parse(text)? {
        ByteSize(0) => Err("must be greater than zero".to_owned()),
        size => Ok(size),
    }
}

/// Bytes of a cache on disk: less keeps hardly anything.
pub(crate) fn disk_cache(text: &str) -> Result<ByteSize, String> {
    size_from("1MB", text, "GiB")
}

/// Bytes of a chunk store: a few segments.
pub(crate) fn store_size(text: &str) -> Result<ByteSize, String> {
    size_from("16MiB", text, "GB")
}

/// Bytes, at least `least`.
pub(crate) fn size_from(least: &str, text: &str, unit: &str) -> Result<ByteSize, String> {
    let ByteSize(bytes_min) = parse(least)?;
    match size(text)? {
        ByteSize(bytes) if bytes < bytes_min => {
            let hint = unit_hint(text, bytes_min..=u64::MAX, unit);
            Err(format!("must be at least {least}{hint}"))
        }
        size => Ok(size),
    }
}

/// What the error of a size outside `range` adds, if it has no unit: that was most likely forgotten. It suggests
/// `unit`, or a larger one, with which the size is inside.
pub(crate) fn unit_hint(text: &str, range: RangeInclusive<u64>, unit: &str) -> String {
    let Ok(number) = text.trim().parse::<u64>() else {
        return String::new();
    };
    let sizes = [unit, "MiB", "GiB"].map(|unit| format!("{number}{unit}"));
    let is_inside = |size: &String| {
        let parsed = size.parse::<ByteSize>();
        parsed.is_ok_and(|ByteSize(bytes)| range.contains(&bytes))
    };
    match sizes.into_iter().find(is_inside) {
        Some(size) => {
            let bytes = table::count(number, "byte", "bytes");
            format!(" ({number} means {bytes}: add a unit, such as {size})")
        }
        None => String::new(),
    }
}

/// An average chunk: the nearest power of two.
pub(crate) fn chunk_size(text: &str) -> Result<u32, String> {
    let ByteSize(asked) = parse(text)?;
    let range = u64::from(Chunking::AVERAGE_BYTES_MIN)..=u64::from(Chunking::AVERAGE_BYTES_MAX);
    let above = asked.checked_next_power_of_two().unwrap_or(u64::MAX);
    let nearest = match above - asked > asked - above / 2 {
        true => above / 2,
        false => above,
    };
    match range.contains(&nearest) {
        true => Ok(nearest as u32),
        false => {
            let hint = unit_hint(text, range, "KiB");
            Err(format!("must be from 1KiB to 1MiB{hint}"))
        }
    }
}

/// An http or https address, as it was given.
pub(crate) fn web_address(text: &str) -> Result<String, RemoteError> {
    check_address(text).map(|()| text.to_owned())
}

/// A time, perhaps none.
pub(crate) fn time(text: &str) -> Result<TimeSpan, String> {
    match parse(text)? {
        TimeSpan(time) if time > TIME_MAX => Err(TOO_LONG.to_owned()),
        time => Ok(time),
    }
}

/// A time in which something can happen.
pub(crate) fn time_to_wait(text: &str) -> Result<TimeSpan, String> {
    match time(text)? {
        TimeSpan(Duration::ZERO) => Err("must be greater than zero".to_owned()),
        time => Ok(time),
    }
}

/// A time of `least` or more.
pub(crate) fn time_from(least: Duration) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| match time(text)? {
        TimeSpan(time) if time < least => Err(format!("must be at least {}", TimeSpan(least))),
        TimeSpan(time) => Ok(time),
    }
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_bounds() {
        let any = time_from(Duration::ZERO);
        for (text, ms) in [("0", 0), ("0.5", 500), ("5s", 5000), ("500ms", 500)] {
            assert_eq!(any(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["-1", "NaN", "inf", "1e300", "1e9", "366d", "soon", ""] {
            assert!(any(text).is_err(), "{text}");
        }
        let longer = time_from(Duration::from_millis(100));
        assert_eq!(longer("0.1"), Ok(Duration::from_millis(100)));
        for text in ["0", "0.01", "50ms"] {
            assert!(longer(text).is_err_and(|error| error.ends_with(" 100ms")));
        }
    }

    #[test]
    fn a_size_without_its_unit_is_called_bytes() {
        assert_eq!(disk_cache("1M"), Ok(ByteSize(1_000_000)));
        for (text, said) in [
            (
                "5",
                "at least 1MB (5 means 5 bytes: add a unit, such as 5GiB)",
            ),
            ("1", "(1 means 1 byte: "),
            ("999kB", "must be at least 1MB"),
            ("0", "must be greater than zero"),
        ] {
            let error = disk_cache(text).expect_err(text);
            assert!(error.contains(said), "{error}");
            assert_eq!(error.contains("means"), said.contains("means"), "{error}");
        }
        let error = chunk_size("32").expect_err("too small");
        assert!(error.ends_with("such as 32KiB)"), "{error}");
        let error = store_size("100").expect_err("too small");
        assert!(error.ends_with("such as 100GB)"), "{error}");
        // What it suggests is inside the bounds.
        for (number, suggested) in [("1", "1MiB)"), ("4", "4KiB)"), ("2000000", "")] {
            let hint = unit_hint(number, 4 << 10..=1 << 30, "KiB");
            assert!(hint.ends_with(suggested), "{hint}");
            assert_eq!(hint.is_empty(), suggested.is_empty(), "{hint}");
        }
        for text in ["0", "32B", "3000000"] {
            let error = chunk_size(text).expect_err(text);
            assert!(error.ends_with("1MiB"), "{error}");
        }
    }

    #[test]
    fn chunks_are_as_long_as_the_nearest_power_of_two() {
        for (text, bytes) in [
            ("32K", 32 << 10),
            ("32KiB", 32 << 10),
            ("1k", 1 << 10),
            ("1MB", 1 << 20),
            ("49000", 32 << 10),
            ("50000", 64 << 10),
        ] {
            assert_eq!(chunk_size(text), Ok(bytes), "{text}");
        }
        for text in ["0", "1", "500", "2MiB", "18446744073709551615", "x"] {
            assert!(chunk_size(text).is_err(), "{text}");
        }
    }
}
