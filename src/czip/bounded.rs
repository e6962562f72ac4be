//! Values of options, in bounds, so that what makes no sense is said at once.

use std::{fmt::Display, str::FromStr, time::Duration};

use clap::builder::RangedU64ValueParser;
use refrain_gateway::units::{ByteSize, TimeSpan};

/// More connections than any machine has use for.
const COUNT_MAX: usize = 1 << 20;
/// Longer is not meant, and clocks end somewhere.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Threads: more than any machine has use for are a mistake.
pub fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1024)
}

/// Requests to a server at a time: more than a few dozen it does not want.
pub fn requests_at_a_time() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=64)
}

/// How many, at least one.
pub fn count(text: &str) -> Result<usize, String> {
    match parse(text)? {
        0 => Err("at least 1 is needed".to_owned()),
        count if count > COUNT_MAX => Err(format!("at most {COUNT_MAX} are allowed")),
        count => Ok(count),
    }
}

/// Bytes, at least one.
pub fn size(text: &str) -> Result<ByteSize, String> {
    match parse(text)? {
        ByteSize(0) => Err("it has to be more than nothing".to_owned()),
        size => Ok(size),
    }
}

/// A time, perhaps none.
pub fn time(text: &str) -> Result<TimeSpan, String> {
    match parse(text)? {
        TimeSpan(time) if time > TIME_MAX => Err("at most a year (365d) is allowed".to_owned()),
        time => Ok(time),
    }
}

/// A time in which something can happen.
pub fn time_to_wait(text: &str) -> Result<TimeSpan, String> {
    match time(text)? {
        TimeSpan(Duration::ZERO) => Err("nothing happens in no time".to_owned()),
        time => Ok(time),
    }
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}
