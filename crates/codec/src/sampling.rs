//! The numbers that say which positions are markers or anchors; finders and their kernels share
//! them: p and w of EndRE, section 5.1, the modulus of Rabin fingerprints, PACK's masks, and the
//! distance between anchors.

use core::fmt;

use thiserror::Error;

/// The modulus, without its x^64: the first irreducible polynomial of degree 64 from the
/// first 64 bits of pi's fraction on.
pub(crate) const POLYNOMIAL: u64 = 0x243f_6a88_85a3_0907;

/// Length of the window that an anchor depends on.
pub const WINDOW_BYTES: usize = 48;

/// The bits that are set in the rolling value of an anchor: 6 to 15 of them, each of which
/// halves the number of anchors.
///
/// ```
/// use refrain_codec::marker::PackMask;
///
/// let mask = PackMask::default();
/// assert_eq!(mask, PackMask::with_bits(13).expect("6 to 15"));
/// assert_eq!(mask.bits(), 0x8A31_1058_3080);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackMask {
    /// 6 <= count <= 15
    count: u8,
}

impl PackMask {
    /// The paper's: 13 bits, of one window in 8192.
    pub const DEFAULT: Self = Self { count: 13 };

    /// The mask with `count` bits.
    ///
    /// # Errors
    /// If `count` is not 6 to 15.
    pub fn with_bits(count: u8) -> Result<Self, InvalidPackMask> {
        match count {
            6..=15 => Ok(Self { count }),
            _ => Err(InvalidPackMask { count }),
        }
    }

    /// The mask itself.
    #[must_use]
    pub fn bits(self) -> u64 {
        Self::mask_of(self.count)
    }

    /// How many bits it has: in random data, one window in 2 to the power of this is an anchor.
    #[must_use]
    pub fn count(self) -> u8 {
        self.count
    }

    pub(crate) const fn mask_of(count: u8) -> u64 {
        MASKS[count as usize - 6]
    }
}

/// The masks of 6 to 15 bits.
const MASKS: [u64; 10] = [
    0x0010_1048_2080,
    0x0810_1048_2080,
    0x8210_1048_2080,
    0x8211_1048_2080,
    0x8231_1048_2080,
    0x8A31_1048_2080,
    0x8A31_1048_3080,
    0x8A31_1058_3080,
    0x8A31_1058_3280,
    0x8A31_1458_3280,
];

impl Default for PackMask {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A number of mask bits that is not 6 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a PACK mask must have 6 to 15 bits, not {count}")]
pub struct InvalidPackMask {
    /// What was asked for.
    pub count: u8,
}

/// p: about one window in this many is chosen. A power of two from 32 to 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SamplingPeriod(u16);

impl SamplingPeriod {
    /// The densest sampling: most savings, most work.
    pub const MIN: Self = Self(32);
    /// The sparsest sampling: least work.
    pub const MAX: Self = Self(512);
    /// The paper's default.
    pub const DEFAULT: Self = Self(32);

    /// Checks a period.
    ///
    /// # Errors
    /// If `bytes` is not a power of two from 32 to 512.
    pub fn new(bytes: usize) -> Result<Self, InvalidSamplingPeriod> {
        match u16::try_from(bytes) {
            Ok(period) if period.is_power_of_two() && (32..=512).contains(&period) => {
                Ok(Self(period))
            }
            _ => Err(InvalidSamplingPeriod { bytes }),
        }
    }

    /// The period in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0.into()
    }
}

impl Default for SamplingPeriod {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for SamplingPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A sampling period that is not a power of two from 32 to 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a sampling period must be 32, 64, 128, 256 or 512 bytes, not {bytes}")]
pub struct InvalidSamplingPeriod {
    /// What was asked for.
    pub bytes: usize,
}

/// w: length of the shortest repeat that is looked for. 12 to 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowBytes(u8);

impl WindowBytes {
    /// The paper's default.
    pub const DEFAULT: Self = Self(32);

    /// Checks a window's length.
    ///
    /// # Errors
    /// If `bytes` is not 12 to 64.
    pub fn new(bytes: usize) -> Result<Self, InvalidWindow> {
        match u8::try_from(bytes) {
            Ok(window) if (12..=64).contains(&window) => Ok(Self(window)),
            _ => Err(InvalidWindow { bytes }),
        }
    }

    /// The window's length in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0.into()
    }
}

impl Default for WindowBytes {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for WindowBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A window that is not 12 to 64 bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a window must have 12 to 64 bytes, not {bytes}")]
pub struct InvalidWindow {
    /// What was asked for.
    pub bytes: usize,
}

/// One window in so many of a stream is an anchor, where they are chosen like random ones. A power
/// of two from 64 to 1 Mi.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnchorDistance(u32);

impl AnchorDistance {
    /// The nearest anchors.
    pub const MIN: Self = Self(64);
    /// The furthest apart.
    pub const MAX: Self = Self(1 << 20);

    /// Checks a distance.
    ///
    /// # Errors
    /// If `bytes` is not a power of two from 64 to 1 Mi.
    pub fn new(bytes: usize) -> Result<Self, InvalidAnchorDistance> {
        match u32::try_from(bytes) {
            Ok(distance)
                if distance.is_power_of_two()
                    && (Self::MIN.0..=Self::MAX.0).contains(&distance) =>
            {
                Ok(Self(distance))
            }
            _ => Err(InvalidAnchorDistance { bytes }),
        }
    }

    /// The distance in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0 as usize
    }
}

/// A distance of anchors that is not a power of two from 64 to 1 Mi.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the distance of anchors must be a power of two from 64 bytes to 1 MiB, not {bytes} B")]
pub struct InvalidAnchorDistance {
    /// What was asked for.
    pub bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_papers_periods_are_valid() {
        let valid = (0..70_000).filter(|&bytes| SamplingPeriod::new(bytes).is_ok());
        assert!(valid.eq([32, 64, 128, 256, 512]));
    }

    #[test]
    fn only_the_papers_windows_are_valid() {
        let valid = (0..1000).filter(|&bytes| WindowBytes::new(bytes).is_ok());
        assert!(valid.eq(12..=64));
    }

    #[test]
    fn only_powers_of_two_from_64_bytes_to_1_mib_are_distances() {
        let valid = (0..3 << 20).filter(|&bytes| AnchorDistance::new(bytes).is_ok());
        assert!(valid.eq((6..=20).map(|bits| 1 << bits)));
        assert!(AnchorDistance::new(usize::MAX).is_err());
    }
}
