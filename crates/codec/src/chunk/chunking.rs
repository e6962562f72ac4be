//! How a file is to be cut: what a user may ask for.

use thiserror::Error;

names! {
    /// What decides where chunks end.
    #[derive(Default)]
    pub enum ChunkingMethod {
        /// Position: all chunks are as long as the average. For content in which nothing is ever
        /// inserted.
        Fixed = "fixed",
        /// Rabin fingerprints, as in CZIP and HARENS: [`ModpAnchorFinder`](crate::marker::ModpAnchorFinder).
        Modp = "modp",
        /// The rolling value of PACK, which costs least: [`sparse`](crate::marker::sparse).
        #[default]
        Pack = "pack",
    }
}

/// A method, and how long chunks are to be.
///
/// ```
/// use refrain_codec::chunk::chunking::{Chunking, ChunkingMethod};
///
/// let chunking = Chunking::new(ChunkingMethod::Modp, 64 << 10)?;
/// assert_eq!((chunking.min_bytes(), chunking.max_bytes()), (16 << 10, 256 << 10));
/// let tighter = chunking.with_bounds(32 << 10, 128 << 10)?;
/// assert_eq!(tighter.average_bytes(), 64 << 10);
/// # Ok::<(), refrain_codec::chunk::chunking::InvalidChunking>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chunking {
    method: ChunkingMethod,
    /// A power of two; `AVERAGE_BYTES_MIN <= average_bytes <= AVERAGE_BYTES_MAX`
    average_bytes: u32,
    /// `BYTES_MIN <= min_bytes <= average_bytes <= max_bytes <= BYTES_MAX`
    min_bytes: u32,
    max_bytes: u32,
}

impl Chunking {
    /// The shortest average that may be asked for.
    pub const AVERAGE_BYTES_MIN: u32 = 1 << 10;
    /// The longest average that may be asked for.
    pub const AVERAGE_BYTES_MAX: u32 = 1 << 20;
    /// The average by default, that of CZIP's paper.
    pub(crate) const AVERAGE_BYTES: u32 = 32 << 10;
    /// No shortest chunk may be shorter.
    pub const BYTES_MIN: u32 = 64;
    /// No chunk may be longer.
    pub const BYTES_MAX: u32 = 8 << 20;

    /// Chunks of about `average_bytes`, from a quarter of it to four times as much. Fixed ones are
    /// no longer than it.
    ///
    /// # Errors
    /// If it is not a power of two from 1 KiB to 1 MiB.
    pub fn new(method: ChunkingMethod, average_bytes: u32) -> Result<Self, InvalidChunking> {
        let is_in_range =
            (Self::AVERAGE_BYTES_MIN..=Self::AVERAGE_BYTES_MAX).contains(&average_bytes);
        if !average_bytes.is_power_of_two() || !is_in_range {
            return Err(InvalidChunking::Average { average_bytes });
        }
        Ok(Self {
            method,
            average_bytes,
            min_bytes: average_bytes / 4,
            max_bytes: match method {
                ChunkingMethod::Fixed => average_bytes,
                ChunkingMethod::Modp | ChunkingMethod::Pack => 4 * average_bytes,
            },
        })
    }

    /// The same with other bounds. Fixed chunks have no longest but the average.
    ///
    /// # Errors
    /// If not 64 <= `min_bytes` <= the average <= `max_bytes` <= 8 MiB.
    pub fn with_bounds(self, min_bytes: u32, max_bytes: u32) -> Result<Self, InvalidChunking> {
        let average_bytes = self.average_bytes;
        let is_valid = (Self::BYTES_MIN..=average_bytes).contains(&min_bytes)
            && (average_bytes..=Self::BYTES_MAX).contains(&max_bytes);
        if !is_valid {
            return Err(InvalidChunking::Bounds {
                min_bytes,
                average_bytes,
                max_bytes,
            });
        }
        Ok(Self {
            min_bytes,
            max_bytes: match self.method {
                ChunkingMethod::Fixed => average_bytes,
                ChunkingMethod::Modp | ChunkingMethod::Pack => max_bytes,
            },
            ..self
        })
    }

    /// The same for a stream of small things: if its average is longer, it is the greatest power of
    /// two up to `average_bytes`, but 1 KiB at least, and its bounds shrink with it.
    #[must_use]
    pub fn at_most(self, average_bytes: u32) -> Self {
        let average_bytes = average_bytes.max(Self::AVERAGE_BYTES_MIN);
        let shift = self
            .average_bytes
            .ilog2()
            .saturating_sub(average_bytes.ilog2());
        Self {
            method: self.method,
            average_bytes: self.average_bytes >> shift,
            min_bytes: (self.min_bytes >> shift).max(Self::BYTES_MIN),
            max_bytes: self.max_bytes >> shift,
        }
    }

    /// What decides where chunks end.
    #[must_use]
    pub fn method(self) -> ChunkingMethod {
        self.method
    }

    /// The average that was asked for. Chunks of random data are longer: what is in the
    /// shortest one comes on top.
    #[must_use]
    pub fn average_bytes(self) -> u32 {
        self.average_bytes
    }

    /// The shortest chunk, but for those that end where the stream does, or at a boundary.
    #[must_use]
    pub fn min_bytes(self) -> u32 {
        self.min_bytes
    }

    /// The longest chunk.
    #[must_use]
    pub fn max_bytes(self) -> u32 {
        self.max_bytes
    }
}

impl Default for Chunking {
    /// The default method, 32 KiB.
    fn default() -> Self {
        let method = ChunkingMethod::default();
        Self::new(method, Self::AVERAGE_BYTES).expect("the default is valid")
    }
}

/// Lengths that chunks cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidChunking {
    /// An average out of range.
    #[error("the average chunk must be a power of two from 1 KiB to 1 MiB, not {average_bytes} B")]
    Average {
        /// What was asked for.
        average_bytes: u32,
    },
    /// Bounds out of order, or out of range.
    #[error(
        "chunks must have 64 bytes to 8 MiB, their average between the shortest and the longest; \
         not {min_bytes}, {average_bytes} and {max_bytes} bytes"
    )]
    Bounds {
        /// The shortest chunk that was asked for.
        min_bytes: u32,
        /// The average.
        average_bytes: u32,
        /// The longest chunk that was asked for.
        max_bytes: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_are_read_back() {
        let names = ChunkingMethod::ALL.map(|method| method.to_string());
        assert_eq!(names, ["fixed", "modp", "pack"]);
        for method in ChunkingMethod::ALL {
            assert_eq!(method.to_string().parse(), Ok(method));
        }
        assert!("gear".parse::<ChunkingMethod>().is_err());
    }

    #[test]
    fn averages_are_powers_of_two_from_1_kib_to_1_mib() {
        for method in ChunkingMethod::ALL {
            let valid = (0..1 << 22).filter(|&bytes| Chunking::new(method, bytes).is_ok());
            assert!(valid.eq((10..=20).map(|bits| 1 << bits)));
            assert!(Chunking::new(method, u32::MAX).is_err());
        }
    }

    #[test]
    fn bounds_out_of_order_or_range_are_refused() {
        for method in ChunkingMethod::ALL {
            let chunking = Chunking::new(method, 4096).expect("valid");
            let is_valid = |min, max| chunking.with_bounds(min, max).is_ok();
            assert!(is_valid(64, 8 << 20) && is_valid(4096, 4096));
            assert!(!is_valid(63, 4096) && !is_valid(64, (8 << 20) + 1));
            assert!(!is_valid(4097, 8192) && !is_valid(64, 4095));
            assert!(!is_valid(0, u32::MAX));
        }
    }

    #[test]
    fn bounds_by_default_are_a_quarter_and_four_times_the_average() {
        let bounds = |method, average| {
            let chunking = Chunking::new(method, average).expect("valid");
            (chunking.min_bytes(), chunking.max_bytes())
        };
        for method in [ChunkingMethod::Modp, ChunkingMethod::Pack] {
            assert_eq!(bounds(method, 1 << 10), (256, 4 << 10));
            assert_eq!(bounds(method, 1 << 20), (256 << 10, 4 << 20));
        }
        assert_eq!(bounds(ChunkingMethod::Fixed, 1 << 20), (256 << 10, 1 << 20));
    }

    #[test]
    fn at_most_shrinks_all_lengths_alike_and_lengthens_none() {
        for method in ChunkingMethod::ALL {
            let of = |average| Chunking::new(method, average).expect("valid");
            assert_eq!(of(1 << 20).at_most(9000), of(8 << 10));
            assert_eq!(of(4 << 10).at_most(8 << 10), of(4 << 10));
            assert_eq!(of(4 << 10).at_most(0), of(1 << 10));
            let tight = of(1 << 20).with_bounds(64, (1 << 20) + 1);
            let tight = tight.expect("valid").at_most(1 << 10);
            assert_eq!((tight.min_bytes(), tight.max_bytes()), (64, 1 << 10));
        }
    }
}
