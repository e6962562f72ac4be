//! Which end finds what repeats.

use core::{fmt, str::FromStr};

/// What an end does about what repeats, as a sender and as a receiver. Each direction does
/// what both its ends want.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Predictions where there is a history, Max-Match and zstd for what they leave; a flow
    /// whose chains keep breaking is left to Max-Match.
    #[default]
    Auto,
    /// The sender alone, against the mirrored cache; and zstd.
    Sender,
    /// Predictions alone. Nothing of what was sent is kept from one flow to the next, and a flow
    /// for which nothing is predicted costs nothing.
    Receiver,
    /// Nothing: bytes are carried as they are.
    Off,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Sender, Self::Receiver, Self::Off];

    /// Whether both directions' caches are kept.
    #[must_use]
    pub fn keeps_caches(self) -> bool {
        matches!(self, Self::Auto | Self::Sender)
    }

    /// Whether blocks are compressed.
    #[must_use]
    pub fn compresses(self) -> bool {
        matches!(self, Self::Auto | Self::Sender)
    }

    /// Whether offers are made and heeded.
    #[must_use]
    pub fn predicts(self) -> bool {
        matches!(self, Self::Auto | Self::Receiver)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Off => "off",
        })
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        let mut modes = Self::ALL.into_iter();
        modes
            .find(|mode| mode.to_string() == name)
            .ok_or(UnknownMode)
    }
}

/// A name that is no mode's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `auto`, `sender`, `receiver` or `off`")]
pub struct UnknownMode;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!("on".parse::<Mode>(), Err(UnknownMode));
    }
}
