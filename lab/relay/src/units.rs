//! Rates and durations as people write them: `100Mbit`, `20ms`.
//!
//! A quantity is a decimal number and a unit, with or without a space between. Prefixes follow
//! the standards: `k`, `M`, `G` are powers of 1000 and `Ki`, `Mi`, `Gi` are powers of 1024.
//! Case is free but for the one place where it carries meaning: `b` is never bits here, they
//! are spelled `bit`.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

/// A rate in bits of payload a second; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// A rate of `bits` a second; `None` for zero, at which nothing would ever arrive.
    pub fn bits_per_second(bits: u64) -> Option<Rate> {
        NonZeroU64::new(bits).map(Rate)
    }

    /// A rate of `mbit` million bits a second.
    ///
    /// # Panics
    ///
    /// On zero.
    pub fn mbit(mbit: u32) -> Rate {
        Rate::bits_per_second(u64::from(mbit) * 1_000_000).expect("a link needs a rate above zero")
    }

    /// Bits a second.
    pub fn bits(self) -> u64 {
        self.0.get()
    }

    /// How long `bytes` occupy the link, rounded up to a nanosecond: never faster than the rate.
    pub fn time_for(self, bytes: u64) -> Duration {
        let nanoseconds = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(self.bits().into());
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// How many whole bytes the link takes in `time`.
    pub(crate) fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.bits()).saturating_mul(time.as_nanos()) / 8 / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Rate, UnitError> {
        let bits = parse(text, RATE)?.round();
        // The cast saturates; `parse` has excluded what is negative or not a number.
        Rate::bits_per_second(bits as u64).ok_or_else(|| RATE.refuse(text))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits() as f64;
        match self.bits() {
            1_000_000_000.. => write!(f, "{:.3} Gbit/s", bits / 1e9),
            1_000_000.. => write!(f, "{:.3} Mbit/s", bits / 1e6),
            1_000.. => write!(f, "{:.3} kbit/s", bits / 1e3),
            _ => write!(f, "{bits} bit/s"),
        }
    }
}

/// Parses a duration, such as `20ms`, `1.5s` or `2min`.
///
/// # Errors
///
/// When `text` is no number with a unit of time.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let nanoseconds = parse(text, DURATION)?.round();
    Ok(Duration::from_nanos(nanoseconds as u64))
}

/// A text that is not the quantity that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not {}", self.text, self.expected)
    }
}

impl std::error::Error for UnitError {}

/// A kind of quantity: how to say what is expected, and each unit in lower case with its worth
/// in the base unit.
#[derive(Clone, Copy)]
struct Quantity {
    expected: &'static str,
    units: &'static [(&'static str, f64)],
}

impl Quantity {
    fn refuse(self, text: &str) -> UnitError {
        UnitError {
            text: text.into(),
            expected: self.expected,
        }
    }
}

fn parse(text: &str, quantity: Quantity) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    let unit_start = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(unit_start);
    let unit = unit.trim_start().to_ascii_lowercase();
    let worth = quantity
        .units
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, worth)| worth);
    match (number.parse::<f64>(), worth) {
        (Ok(number), Some(worth)) if number * worth < u64::MAX as f64 => Ok(number * worth),
        _ => Err(quantity.refuse(text)),
    }
}

const KIB: f64 = 1024.0;

/// In bits a second.
const RATE: Quantity = Quantity {
    expected: "a rate greater than zero, such as 100Mbit, 1.5Gbit or 12MB/s",
    units: &[
        ("bit", 1.0),
        ("kbit", 1e3),
        ("mbit", 1e6),
        ("gbit", 1e9),
        ("bit/s", 1.0),
        ("kbit/s", 1e3),
        ("mbit/s", 1e6),
        ("gbit/s", 1e9),
        ("b/s", 8.0),
        ("kb/s", 8e3),
        ("mb/s", 8e6),
        ("gb/s", 8e9),
        ("kib/s", 8.0 * KIB),
        ("mib/s", 8.0 * KIB * KIB),
        ("gib/s", 8.0 * KIB * KIB * KIB),
    ],
};

/// In nanoseconds.
const DURATION: Quantity = Quantity {
    expected: "a duration, such as 250us, 20ms, 1.5s or 2min",
    units: &[
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("min", 60e9),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_as_people_write_them() {
        assert_eq!("100Mbit".parse::<Rate>().unwrap().bits(), 100_000_000);
        assert_eq!("1.5 Gbit/s".parse::<Rate>().unwrap().bits(), 1_500_000_000);
        assert_eq!("12MB/s".parse::<Rate>().unwrap().bits(), 96_000_000);
        assert_eq!("1MiB/s".parse::<Rate>().unwrap().bits(), 8 << 20);
        assert_eq!(parse_duration("20ms").unwrap(), Duration::from_millis(20));
        assert_eq!(parse_duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_duration("2min").unwrap(), Duration::from_secs(120));
        assert_eq!(parse_duration("250µs").unwrap(), Duration::from_micros(250));
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in [
            "", "100", "0Mbit", "-1Mbit", "1e9bit", "NaNbit", "1..2Mbit", "5ms", "é",
        ] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.to_string().contains("100Mbit"), "{text}: {error}");
        }
        for text in ["", "20", "ms", "-1s", "1h30", "99999999999999999s", "."] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn time_and_bytes_are_each_others_inverse() {
        let rate = Rate::mbit(100);
        assert_eq!(rate.time_for(1250), Duration::from_micros(100));
        assert_eq!(rate.bytes_in(Duration::from_micros(100)), 1250);
        assert_eq!(
            Rate::bits_per_second(3).unwrap().time_for(1),
            Duration::from_nanos(2_666_666_667)
        );
    }

    #[test]
    fn extremes_saturate() {
        let slowest = Rate::bits_per_second(1).unwrap();
        assert_eq!(slowest.time_for(u64::MAX), Duration::from_nanos(u64::MAX));
        let fastest = Rate::bits_per_second(u64::MAX).unwrap();
        assert_eq!(fastest.bytes_in(Duration::MAX), u64::MAX);
    }
}
