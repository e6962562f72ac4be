//! Which end finds what repeats.

use refrain_codec::names;

names! {
    /// What an end does about what repeats, as a sender and as a receiver. Each direction does
    /// what both its ends want.
    #[derive(Default)]
    pub enum Mode {
        /// Predictions where there is a history, Max-Match and zstd for what they leave; a flow
        /// whose chains keep breaking is left to Max-Match.
        #[default]
        Auto = "auto",
        /// The sender alone, against the mirrored cache; and zstd.
        Sender = "sender",
        /// Predictions, and zstd for the rest. The sender keeps only zstd's history, which ends with the
        /// lane.
        Receiver = "receiver",
        /// Nothing: bytes are carried as they are.
        Off = "off",
    }
}

names! {
    /// How a sender compresses the bytes that matching leaves.
    #[derive(Default)]
    pub enum SecondStage {
        /// By zstd, at the level of the moment.
        #[default]
        Zstd = "zstd",
        /// Not at all.
        Off = "off",
    }
}

impl Mode {
    /// Whether both directions' caches are kept.
    #[must_use]
    pub fn keeps_caches(self) -> bool {
        matches!(self, Self::Auto | Self::Sender)
    }

    /// Whether blocks are compressed.
    #[must_use]
    pub fn compresses(self) -> bool {
        self != Self::Off
    }

    /// Whether offers are made and heeded.
    #[must_use]
    pub fn predicts(self) -> bool {
        matches!(self, Self::Auto | Self::Receiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("on".parse::<Mode>().is_err());
    }
}
