//! Bytes that nothing can be saved of.

/// A source of bytes of full entropy (xorshift64), the same for the same seed.
pub(super) struct Noise(u64);

impl Noise {
    pub(super) fn new(seed: u64) -> Self {
        // The state must not be 0.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next bytes, eight by eight.
    pub(super) fn fill(&mut self, out: &mut [u8]) {
        for word in out.chunks_exact_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_le_bytes());
        }
    }

    pub(super) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        self.fill(&mut taken);
        taken
    }
}
