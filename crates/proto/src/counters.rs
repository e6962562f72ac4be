//! What users see is counted where it happens (`docs/architecture.md`, 24), so that simulator
//! and gateway agree.

/// Bytes of one direction, layer by layer: each layer's saving is the difference between
/// two neighbours.
///
/// ```text
/// app_bytes ── Max-Match ─▶ stream_bytes ── zstd ─▶ packed_bytes ── framing ─▶ link_bytes
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerCounters {
    /// Plain bytes of applications.
    pub app_bytes: u64,
    /// Of these, bytes that tokens stand for.
    pub region_bytes: u64,
    /// Tokens and literals, before zstd.
    pub stream_bytes: u64,
    /// Tokens and literals, after zstd.
    pub packed_bytes: u64,
    /// Frames of blocks, headers included.
    pub block_bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Of these, blocks outside of the log.
    pub bypassed_blocks: u64,
}

impl LayerCounters {
    pub(crate) fn count_block(
        &mut self,
        plain: usize,
        regions: usize,
        streams: usize,
        packed: usize,
        frame: usize,
        bypassed: bool,
    ) {
        self.app_bytes += plain as u64;
        self.region_bytes += regions as u64;
        self.stream_bytes += streams as u64;
        self.packed_bytes += packed as u64;
        self.block_bytes += frame as u64;
        self.blocks += 1;
        self.bypassed_blocks += u64::from(bypassed);
    }

    /// Adds `other` to this.
    pub fn add(&mut self, other: &Self) {
        self.app_bytes += other.app_bytes;
        self.region_bytes += other.region_bytes;
        self.stream_bytes += other.stream_bytes;
        self.packed_bytes += other.packed_bytes;
        self.block_bytes += other.block_bytes;
        self.blocks += other.blocks;
        self.bypassed_blocks += other.bypassed_blocks;
    }

    /// What matching saved, net of its tokens.
    #[must_use]
    pub fn matching_saved_bytes(&self) -> i64 {
        self.app_bytes as i64 - self.stream_bytes as i64
    }

    /// What zstd saved of what matching left.
    #[must_use]
    pub fn second_stage_saved_bytes(&self) -> i64 {
        self.stream_bytes as i64 - self.packed_bytes as i64
    }
}
