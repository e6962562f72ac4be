//! The sender's cache of a column, which grows before it has to forget.
//!
//! Most pairs of machines exchange little. A cache that has its full size at once would cost them more time, for the memory
//! that its table touches, than their bytes do.

use refrain_codec::{
    EncodedBlock, Encoder, EncoderConfig, LogPosition, SourceCursor, geometry::CacheGeometry,
    matching::Everything,
};

/// The size at the beginning.
const FIRST_BYTES: usize = 1 << 20;

/// From one size to the next.
const GROWTH: usize = 8;

pub(super) struct Cache {
    encoder: Encoder,
    bytes: usize,
    /// All blocks so far, while it can grow.
    blocks: Vec<Vec<u8>>,
    kept_bytes: usize,
}

impl Cache {
    pub(super) fn new(config: &EncoderConfig) -> Self {
        Self {
            encoder: encoder(config, FIRST_BYTES),
            bytes: FIRST_BYTES,
            blocks: Vec::new(),
            kept_bytes: 0,
        }
    }

    /// Encodes the next block. The cache has `limit` bytes at most. Returns the block's position.
    pub(super) fn encode(
        &mut self,
        block: &[u8],
        limit: usize,
        config: &EncoderConfig,
        cursor: &mut SourceCursor,
        encoded: &mut EncodedBlock,
    ) -> LogPosition {
        if self.bytes < limit {
            self.kept_bytes += block.len();
            if self.kept_bytes > self.bytes / 2 {
                self.grow(limit, config);
            }
            match self.bytes < limit {
                true => self.blocks.push(block.to_vec()),
                false => self.blocks = Vec::new(),
            }
        }
        self.encoder.encode(0, block, &Everything, cursor, encoded)
    }

    /// Memory that it takes, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let kept: usize = self.blocks.iter().map(Vec::len).sum();
        (self.encoder.allocated_bytes() + kept) as u64
    }

    /// The size of its log, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn grow(&mut self, limit: usize, config: &EncoderConfig) {
        while self.bytes < limit && self.kept_bytes > self.bytes / 2 {
            self.bytes = self.bytes.saturating_mul(GROWTH).min(limit);
        }
        self.encoder = encoder(config, self.bytes);
        let mut encoded = EncodedBlock::default();
        for block in &self.blocks {
            let cursor = &mut SourceCursor::default();
            self.encoder
                .encode(0, block, &Everything, cursor, &mut encoded);
        }
    }
}

fn encoder(config: &EncoderConfig, bytes: usize) -> Encoder {
    Encoder::new(EncoderConfig {
        geometry: CacheGeometry::new(bytes).expect("a valid size"),
        ..config.clone()
    })
}

#[cfg(test)]
mod tests {
    use refrain_codec::geometry::CACHE_BYTES_MIN;

    use super::*;

    #[test]
    fn finds_as_much_as_a_cache_of_full_size() {
        const LIMIT: usize = 64 << 20;
        assert_eq!(FIRST_BYTES, CACHE_BYTES_MIN);
        let config = EncoderConfig::with_defaults(CacheGeometry::SMALLEST);
        let (mut growing, mut full) = (Cache::new(&config), encoder(&config, LIMIT));
        let (mut one, mut other) = (EncodedBlock::default(), EncodedBlock::default());
        let (mut cursor, mut full_cursor) = <(SourceCursor, SourceCursor)>::default();
        let mut random = 1_u64;
        let mut block = vec![0; 40_000];
        let (mut sent, mut sent_by_full) = (0, 0);
        for _ in 0..400 {
            // Half of each block is new. The rest repeats the one before.
            for byte in &mut block[..20_000] {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *byte = (random >> 56) as u8;
            }
            block.rotate_left(9_000);
            let at = growing.encode(&block, LIMIT, &config, &mut cursor, &mut one);
            assert_eq!(
                at,
                full.encode(0, &block, &Everything, &mut full_cursor, &mut other)
            );
            sent += one.tokens.len() + one.literals.len();
            sent_by_full += other.tokens.len() + other.literals.len();
        }
        // A block that is learnt again may have other matches, and so other fingerprints.
        assert!(
            sent.abs_diff(sent_by_full) * 500 < sent_by_full,
            "{sent} {sent_by_full}"
        );
        assert_eq!(growing.bytes(), LIMIT);
    }
}
