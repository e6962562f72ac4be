//! Dispersion: how often a flow's chains break (PACK, section 4.2, equation 1).
//!
//! ```text
//! D ← α D + (1 − α) M
//! ```
//!
//! Equation 1's text sets M to 0 where a chain breaks and to 255 otherwise; Proc. 6 and 7, and
//! the words "ranging from 0 for long smooth chains, up to 255", say the opposite. We follow
//! the procedures: 255 where a chain breaks, 0 for each chunk that goes on with one. α is 7/8.
//!
//! A flow of which nothing is known has no chain that could break: its dispersion stays.

/// How often chains break: 0 for long smooth chains, 255 for none that lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dispersion {
    /// In 256ths.
    level: u16,
    /// Whether the chunk before was expected.
    in_chain: bool,
}

/// 1/(1 − α).
const SMOOTHING: u16 = 8;

impl Dispersion {
    /// A chunk came that was expected.
    pub(crate) fn chain_went_on(&mut self) {
        self.in_chain = true;
        self.smooth(0);
    }

    /// A chunk came that was not expected.
    pub(crate) fn unexpected(&mut self) {
        if core::mem::take(&mut self.in_chain) {
            self.smooth(255);
        }
    }

    /// 0 to 255.
    pub(crate) fn level(&self) -> u8 {
        (self.level >> 8) as u8
    }

    fn smooth(&mut self, sample: u16) {
        let level = u32::from(self.level) * u32::from(SMOOTHING - 1) + (u32::from(sample) << 8);
        self.level = (level / u32::from(SMOOTHING)) as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(chunks: impl Iterator<Item = bool>) -> u8 {
        let mut dispersion = Dispersion::default();
        for expected in chunks {
            match expected {
                true => dispersion.chain_went_on(),
                false => dispersion.unexpected(),
            }
        }
        dispersion.level()
    }

    #[test]
    fn smooth_changes_are_low_and_scattered_ones_high() {
        let smooth = after((0..400).map(|chunk| chunk % 40 != 39));
        let scattered = after((0..400).map(|chunk| chunk % 2 == 0));
        assert!(smooth < 48, "{smooth}");
        assert!((96..160).contains(&scattered), "{scattered}");
    }

    #[test]
    fn one_replaced_stretch_is_one_break() {
        let chunks = (0..100).map(|_| true).chain((0..500).map(|_| false));
        assert!(after(chunks) < 48);
    }

    #[test]
    fn what_was_never_known_has_no_dispersion() {
        assert_eq!(after((0..1000).map(|_| false)), 0);
    }

    #[test]
    fn it_recovers() {
        let scattered = (0..200).map(|chunk| chunk % 2 == 0);
        let smooth = (0..60).map(|_| true);
        assert!(after(scattered.chain(smooth)) < 8);
    }
}
