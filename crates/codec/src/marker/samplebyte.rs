//! SAMPLEBYTE: bytes of a few values, then a skip (EndRE, section 5.1.4, Figure 3).
//!
//! ```text
//! i = 0
//! while a window begins at i:
//!     if table[block[i]]:
//!         marker at i
//!         i += p / 2        # against over-sampling where such bytes are frequent
//!     i += 1
//! ```
//!
//! Content chooses the marker, so an insertion moves it along with its content, once the
//! walks with and without the insertion have met on one marker. In random data that takes a
//! few markers. Where nearly every third byte is in the table, as in text, both walks take
//! about p/2 + 3 bytes a step, and meet the later the longer p is: within tens of markers at
//! p = 32, hundreds to thousands at p = 512.
//!
//! At most one byte in p/2 + 1 is a marker, and a block without any byte of the table has
//! none.
//!
//! Deviation: the paper's loop ends at `len - w`, exclusive, and never looks at the
//! last window; this one does.

use alloc::{
    borrow::ToOwned,
    boxed::Box,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

use thiserror::Error;

use super::{FindMarkers, Sampling, candidates};
use crate::simd::samplebyte::{self, ByteSet};

/// Finds SAMPLEBYTE markers.
#[derive(Clone, Debug)]
pub(super) struct SampleByte(pub(super) Box<SampleByteTable>);

impl FindMarkers for SampleByte {
    fn find(&self, sampling: Sampling, block: &[u8], markers: &mut Vec<u32>) {
        let candidates = candidates(block, sampling.window);
        let stride = sampling.period.bytes() / 2 + 1;
        samplebyte::find(sampling.backend, &self.0.0, candidates, stride, markers);
    }
}

/// The byte values that SAMPLEBYTE takes for markers; at least one.
///
/// The default are the eight that the paper's authors found by training on an
/// enterprise's traffic: 0, 32, 48, 101, 105, 115, 116 and 255.
#[derive(Clone, PartialEq, Eq)]
pub struct SampleByteTable(ByteSet);

impl SampleByteTable {
    /// The table of these values, in any order; repeated ones count once.
    ///
    /// # Errors
    /// [`TableError::Empty`] if there are none: such a table finds nothing, ever.
    pub fn from_bytes(values: &[u8]) -> Result<Self, TableError> {
        if values.is_empty() {
            return Err(TableError::Empty);
        }
        Ok(Self::of(values))
    }

    /// Reads a table from a text: byte values, decimal or hexadecimal with `0x`, between
    /// white space or commas; `#` begins a comment that ends with its line.
    ///
    /// ```
    /// use refrain_codec::marker::SampleByteTable;
    ///
    /// let table = SampleByteTable::parse("0, 32, 0x30  # NUL, space, zero\n255\n")?;
    /// assert_eq!(table, SampleByteTable::from_bytes(&[0, 32, 48, 255])?);
    /// # Ok::<(), refrain_codec::marker::TableError>(())
    /// ```
    ///
    /// # Errors
    /// If a word is not a byte's value, or there are none.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let mut values = [false; 256];
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default();
            let words = content.split(|c: char| c == ',' || c.is_whitespace());
            for word in words.filter(|word| !word.is_empty()) {
                values[usize::from(parse_byte(word, index + 1)?)] = true;
            }
        }
        if values.contains(&true) {
            Ok(Self(ByteSet::new(values)))
        } else {
            Err(TableError::Empty)
        }
    }

    /// Whether a byte of this value may be a marker.
    #[must_use]
    pub fn contains(&self, value: u8) -> bool {
        self.0.contains(value)
    }

    const fn of(values: &[u8]) -> Self {
        let mut table = [false; 256];
        let mut index = 0;
        while index < values.len() {
            table[values[index] as usize] = true;
            index += 1;
        }
        Self(ByteSet::new(table))
    }
}

impl Default for SampleByteTable {
    fn default() -> Self {
        const { Self::of(&[0, 32, 48, 101, 105, 115, 116, 255]) }
    }
}

impl fmt::Debug for SampleByteTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries((0..=255).filter(|&value| self.contains(value)))
            .finish()
    }
}

/// Why a SAMPLEBYTE table could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// It names no value at all.
    #[error("the table is empty")]
    Empty,
    /// A word is neither a decimal nor a hexadecimal number.
    #[error("line {line}: `{word}` is neither a decimal nor a 0x number")]
    NotANumber {
        /// Its line, counted from 1.
        line: usize,
        /// The word, or its beginning.
        word: String,
    },
    /// A number is above 255.
    #[error("line {line}: {word} is above 255, the largest byte value")]
    AboveByte {
        /// Its line, counted from 1.
        line: usize,
        /// The number as written, or its beginning.
        word: String,
    },
}

/// Longest part of a wrong word that an error repeats.
const QUOTED_CHARS_MAX: usize = 24;

fn parse_byte(word: &str, line: usize) -> Result<u8, TableError> {
    let quoted = || match word.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => word[..end].to_owned() + "...",
        None => word.to_string(),
    };
    let (digits, radix) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (word, 10),
    };
    // `from_str_radix` would take a sign.
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(TableError::NotANumber {
            line,
            word: quoted(),
        });
    }
    u8::from_str_radix(digits, radix).map_err(|_| TableError::AboveByte {
        line,
        word: quoted(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_gives_the_table_it_names() {
        let text = "# the paper's\n0 32\t48,101 ,105\r\n0x73, 0X74 # s t\n\n,255, 0xff 0x0020";
        assert_eq!(SampleByteTable::parse(text), Ok(SampleByteTable::default()));
    }

    #[test]
    fn an_error_names_the_line_and_the_word() {
        let error = |text| SampleByteTable::parse(text).expect_err(text);
        let above = |line, word: &str| TableError::AboveByte {
            line,
            word: word.to_owned(),
        };
        let tab = TableError::NotANumber {
            line: 2,
            word: "tab".to_owned(),
        };
        for (text, expected, parts) in [
            ("1\n2 tab 3", tab, ["line 2", "`tab`"]),
            ("1\n\n256", above(3, "256"), ["line 3", " 256 "]),
            ("0x1ff", above(1, "0x1ff"), ["line 1", " 0x1ff "]),
        ] {
            let error = error(text);
            assert_eq!(error, expected);
            let shown = error.to_string();
            assert!(parts.iter().all(|part| shown.contains(part)), "{shown}");
        }
        assert_eq!(error("# 1\n # 2"), TableError::Empty);
        for word in ["-1", "+1", "0x", "1f", "0x+1", "ı", "1;2"] {
            let error = SampleByteTable::parse(word).expect_err(word);
            assert!(
                matches!(error, TableError::NotANumber { line: 1, .. }),
                "{word}: {error}"
            );
        }
        let long = "9".repeat(1 << 16);
        let shown = error(&long).to_string();
        assert!(shown.len() < 100, "an error stays legible");
    }

    #[test]
    fn no_values_are_no_table() {
        assert_eq!(SampleByteTable::from_bytes(&[]), Err(TableError::Empty));
        assert_eq!(SampleByteTable::parse(""), Err(TableError::Empty));
    }
}
