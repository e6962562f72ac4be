//! The two numbers that every marker algorithm shares: p and w of EndRE, section 5.1; and the one
//! that anchors have instead.

use core::fmt;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSamplingPeriod {
    /// What was asked for.
    pub bytes: usize,
}

impl fmt::Display for InvalidSamplingPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes } = self;
        write!(
            f,
            "a sampling period is 32, 64, 128, 256 or 512 bytes, not {bytes}"
        )
    }
}

impl core::error::Error for InvalidSamplingPeriod {}

/// w: length of the shortest repeat that is looked for. 12 to 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowBytes(u8);

impl WindowBytes {
    /// The shortest window.
    pub const MIN: Self = Self(12);
    /// The longest window.
    pub const MAX: Self = Self(64);
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidWindow {
    /// What was asked for.
    pub bytes: usize,
}

impl fmt::Display for InvalidWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes } = self;
        write!(f, "a window is 12 to 64 bytes long, not {bytes}")
    }
}

impl core::error::Error for InvalidWindow {}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidAnchorDistance {
    /// What was asked for.
    pub bytes: usize,
}

impl fmt::Display for InvalidAnchorDistance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes } = self;
        write!(
            f,
            "anchors are a power of two from 64 bytes to 1 MiB apart, not {bytes} bytes"
        )
    }
}

impl core::error::Error for InvalidAnchorDistance {}

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
