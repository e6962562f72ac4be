//! Quantities as people write them: `128MiB`, `20Mbit`, `4s`.
//!
//! One grammar for all: a decimal number and a unit, with nothing or spaces between. What is
//! shown reads back as the same quantity.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes: `128MiB`, `1.5GB`, or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// A rate in bits a second: `20Mbit`, `20M`, `1.5Gbit/s`, or in bytes: `2.5MB/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

/// A length of time, in whole milliseconds: `500ms`, `4s`, `1h`, or a plain number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(pub Duration);

/// Why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// It does not begin with a decimal number.
    #[error("expected a number and a unit, such as {example}")]
    NoNumber {
        /// A quantity that would do.
        example: &'static str,
    },
    /// A number without the unit that it needs.
    #[error("the unit is missing (write, for example, {example})")]
    NoUnit {
        /// A quantity that would do.
        example: &'static str,
    },
    /// A unit of bytes where a rate is needed.
    #[error("not a rate: write {per_second} for bytes, or kbit, Mbit or Gbit for bits")]
    NotARate {
        /// The same unit per second.
        per_second: &'static str,
    },
    /// A unit that this quantity does not have.
    #[error("unknown unit (expected one of {known}; units are case-sensitive)")]
    UnknownUnit {
        /// The units that would do.
        known: &'static str,
    },
    /// More than fits 64 bits.
    #[error("too large")]
    TooLarge,
    /// Not a whole number of the smallest unit.
    #[error("a fraction of the smallest unit (write a larger unit, or a whole number)")]
    TooFine,
}

/// The units of one kind of quantity, the largest first.
struct Scale {
    units: &'static [(&'static str, u64)],
    /// Other spellings, read but never shown.
    aliases: &'static [(&'static str, u64)],
    known: &'static str,
    example: &'static str,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const BYTES: Scale = Scale {
    units: &[
        ("TiB", GIB << 10),
        ("TB", 1_000_000_000_000),
        ("GiB", GIB),
        ("GB", 1_000_000_000),
        ("MiB", MIB),
        ("MB", 1_000_000),
        ("KiB", KIB),
        ("kB", 1_000),
        ("B", 1),
    ],
    aliases: &[
        ("", 1),
        ("KB", 1_000),
        ("T", 1_000_000_000_000),
        ("G", 1_000_000_000),
        ("M", 1_000_000),
        ("k", 1_000),
        ("K", 1_000),
    ],
    known: "B, KiB, MiB, GiB, TiB, kB, KB, MB, GB, TB, k, K, M, G, T",
    example: "128MiB",
};

const BITS_PER_SECOND: Scale = Scale {
    units: &[
        ("Gbit", 1_000_000_000),
        ("Mbit", 1_000_000),
        ("kbit", 1_000),
        ("bit", 1),
    ],
    // Without a unit of its own a prefix counts bits, as networks and their tools do.
    aliases: &[
        ("Gbit/s", 1_000_000_000),
        ("Mbit/s", 1_000_000),
        ("kbit/s", 1_000),
        ("bit/s", 1),
        ("G", 1_000_000_000),
        ("M", 1_000_000),
        ("k", 1_000),
        ("K", 1_000),
        ("Gbps", 1_000_000_000),
        ("Mbps", 1_000_000),
        ("kbps", 1_000),
        ("Kbps", 1_000),
        ("bps", 1),
        ("GiB/s", 8 * GIB),
        ("MiB/s", 8 * MIB),
        ("KiB/s", 8 * KIB),
        ("GB/s", 8_000_000_000),
        ("MB/s", 8_000_000),
        ("kB/s", 8_000),
        ("KB/s", 8_000),
        ("B/s", 8),
    ],
    known: "k, M, G, bit, kbit, Mbit, Gbit, kbps, Mbps, Gbps, or for bytes kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s",
    example: "20Mbit",
};

const MILLISECONDS: Scale = Scale {
    units: &[
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("min", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ],
    aliases: &[("", 1_000), ("m", 60_000)],
    known: "ms, s, m, min, h, d",
    example: "500ms",
};

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<ByteSize, UnitError> {
        BYTES.parse(text).map(ByteSize)
    }
}

impl FromStr for BitRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<BitRate, UnitError> {
        BITS_PER_SECOND.parse(text).map(BitRate)
    }
}

impl FromStr for TimeSpan {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<TimeSpan, UnitError> {
        let millis = MILLISECONDS.parse(text)?;
        Ok(TimeSpan(Duration::from_millis(millis)))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        BYTES.show(self.0, f)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        BITS_PER_SECOND.show(self.0, f)?;
        f.write_str("/s")
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        MILLISECONDS.show(millis, f)
    }
}

impl Scale {
    fn parse(&self, text: &str) -> Result<u64, UnitError> {
        const FRACTION_DIGITS_MAX: usize = 12;
        let text = text.trim();
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let number_end = text.find(|c| !is_number(c)).unwrap_or(text.len());
        let (number, unit) = (&text[..number_end], text[number_end..].trim_start());
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') {
            let example = self.example;
            return Err(UnitError::NoNumber { example });
        }
        let per_unit = u128::from(self.factor(unit)?);
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > FRACTION_DIGITS_MAX {
            return Err(UnitError::TooFine);
        }
        let digits = format!("{whole}{fraction}").parse::<u128>().ok();
        let scaled = digits.and_then(|digits| digits.checked_mul(per_unit));
        let scaled = scaled.ok_or(UnitError::TooLarge)?;
        let divisor = 10u128.pow(fraction.len() as u32);
        let total = u64::try_from(scaled / divisor).map_err(|_| UnitError::TooLarge)?;
        match scaled.is_multiple_of(divisor) {
            true => Ok(total),
            false => Err(UnitError::TooFine),
        }
    }

    fn factor(&self, unit: &str) -> Result<u64, UnitError> {
        let mut spellings = self.units.iter().chain(self.aliases);
        match spellings.find(|(name, _)| *name == unit) {
            Some((_, factor)) => Ok(*factor),
            None if unit.is_empty() => Err(UnitError::NoUnit {
                example: self.example,
            }),
            None => {
                let mut aliases = self.aliases.iter().map(|(name, _)| *name);
                match aliases.find(|name| name.strip_suffix("/s") == Some(unit)) {
                    Some(per_second) => Err(UnitError::NotARate { per_second }),
                    None => Err(UnitError::UnknownUnit { known: self.known }),
                }
            }
        }
    }

    /// Shows the value in the largest unit that divides it.
    fn show(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |(_, factor): &&(&str, u64)| value > 0 && value.is_multiple_of(*factor);
        let smallest = &self.units[self.units.len() - 1];
        let (unit, factor) = self.units.iter().find(divides).unwrap_or(smallest);
        write!(f, "{}{unit}", value / factor)
    }
}

/// Bytes with a decimal unit, three significant digits: to look at, not to read back.
pub fn decimal_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{} {}", three_digits(value), UNITS[unit]),
    }
}

/// A value of less than 1000 with three digits: "1.25", "43.7", "123".
pub fn three_digits(value: f64) -> String {
    let decimals = match value {
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_have_three_digits() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (43_670_000, "43.7 MB"),
            (999_600, "1.00 MB"),
            (123_456_789_012, "123 GB"),
        ] {
            assert_eq!(decimal_bytes(count), text);
        }
    }

    #[test]
    fn quantities_read_as_people_write_them() {
        assert_eq!("128MiB".parse(), Ok(ByteSize(128 << 20)));
        assert_eq!("1.5 GiB".parse(), Ok(ByteSize(3 << 29)));
        assert_eq!("2TiB".parse(), Ok(ByteSize(2 << 40)));
        assert_eq!("9.1TB".parse(), Ok(ByteSize(9_100_000_000_000)));
        for (text, bytes) in [("100G", 100_000_000_000), ("2T", 2 * 10_u64.pow(12))] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)));
        }
        assert_eq!("64M".parse(), "64MB".parse::<ByteSize>());
        assert_eq!("7k".parse(), "7K".parse::<ByteSize>());
        assert_eq!("4096".parse(), Ok(ByteSize(4096)));
        assert_eq!("20Mbit".parse(), Ok(BitRate(20_000_000)));
        assert_eq!("2.5Gbit/s".parse(), Ok(BitRate(2_500_000_000)));
        for ten_megabits in [
            "10M", "10Mbit", "10Mbit/s", "10 Mbps", "10000k", "10000K", "0.01G",
        ] {
            let rate = ten_megabits.parse();
            assert_eq!(rate, Ok(BitRate(10_000_000)), "{ten_megabits}");
        }
        for (text, bits) in [
            ("10MB/s", 80_000_000),
            ("1.5kB/s", 12_000),
            ("1KB/s", 8_000),
            ("1MiB/s", 8 << 20),
            ("2GiB/s", 16 << 30),
            ("100B/s", 800),
        ] {
            assert_eq!(text.parse(), Ok(BitRate(bits)), "{text}");
        }
        for size in [
            "64MB", "100MB", "64MiB", "5kB", "2TiB", "9100GB", "1500MB", "999B", "0B",
        ] {
            assert_eq!(size.parse::<ByteSize>().unwrap().to_string(), size);
        }
        let seconds = |count| Ok(TimeSpan(Duration::from_secs(count)));
        assert_eq!("4s".parse(), seconds(4));
        assert_eq!("4".parse(), seconds(4));
        assert_eq!("0.5h".parse(), seconds(1800));
        assert_eq!("5m".parse(), seconds(300));
    }

    #[test]
    fn each_fault_has_its_error() {
        let size = |text: &str| text.parse::<ByteSize>().unwrap_err();
        assert_eq!(size(""), UnitError::NoNumber { example: "128MiB" });
        assert_eq!(size("-1MiB"), UnitError::NoNumber { example: "128MiB" });
        assert_eq!(size("1.2.3MiB"), UnitError::NoNumber { example: "128MiB" });
        assert_eq!(size("99999999999999999999"), UnitError::TooLarge);
        assert_eq!(size("18446744073709551615GiB"), UnitError::TooLarge);
        assert_eq!(size("0.5B"), UnitError::TooFine);
        assert!(matches!(size("1MIB"), UnitError::UnknownUnit { .. }));
        let rate = "20".parse::<BitRate>().unwrap_err();
        assert_eq!(rate, UnitError::NoUnit { example: "20Mbit" });
        // An amount and not a rate; letters that are bits to some and bytes to others.
        let rate = "20MB".parse::<BitRate>().unwrap_err();
        assert_eq!(rate, UnitError::NotARate { per_second: "MB/s" });
        for text in ["20Mb", "20Mb/s", "20mbit", "20M/s", "20 M B/s"] {
            let error = text.parse::<BitRate>().unwrap_err();
            assert!(matches!(error, UnitError::UnknownUnit { .. }), "{text}");
        }
    }

    #[test]
    fn each_unit_that_an_error_names_is_known() {
        for scale in [&BYTES, &BITS_PER_SECOND, &MILLISECONDS] {
            let words = scale
                .known
                .split([' ', ','])
                .filter(|word| !word.is_empty());
            for unit in words.filter(|word| !["or", "for", "bytes"].contains(word)) {
                assert!(scale.factor(unit).is_ok(), "{unit}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(value in any::<u64>(), shift in 0u32..64, zeros in 0u32..16) {
            let value = (value >> shift) << (shift / 2);
            let decimal = ByteSize(value.saturating_mul(10u64.pow(zeros)));
            prop_assert_eq!(decimal.to_string().parse(), Ok(decimal));
            prop_assert_eq!(ByteSize(value).to_string().parse(), Ok(ByteSize(value)));
            prop_assert_eq!(BitRate(value).to_string().parse(), Ok(BitRate(value)));
            let span = TimeSpan(Duration::from_millis(value));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }

        #[test]
        fn any_text_parses_or_fails(text in "[0-9.]{0,40}[ a-zA-Z/]{0,6}|.{0,40}") {
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<BitRate>();
            let _ = text.parse::<TimeSpan>();
        }
    }
}
