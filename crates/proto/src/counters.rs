//! What users see is counted where it happens (`docs/architecture.md`, 24), so that simulator
//! and gateway agree.

/// Bytes of one direction, layer by layer: each layer's saving is the difference between
/// two neighbours.
///
/// ```text
/// app_bytes ── predictions ─▶ − confirmed_bytes ── Max-Match ─▶ stream_bytes
///     ── zstd ─▶ packed_bytes ── framing ─▶ link_bytes
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerCounters {
    /// Plain bytes of applications.
    pub app_bytes: u64,
    /// Of these, bytes that confirmed predictions stand for.
    pub confirmed_bytes: u64,
    /// Bytes that tokens stand for.
    pub region_bytes: u64,
    /// Tokens and literals, before zstd.
    pub stream_bytes: u64,
    /// Tokens and literals, after zstd.
    pub packed_bytes: u64,
    /// Frames of blocks and of confirmations, headers included.
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

    pub(crate) fn count_confirmed(&mut self, plain: u64, frame: usize) {
        self.app_bytes += plain;
        self.confirmed_bytes += plain;
        self.block_bytes += frame as u64;
    }

    /// Adds `other` to this.
    pub fn add(&mut self, other: &Self) {
        self.app_bytes += other.app_bytes;
        self.confirmed_bytes += other.confirmed_bytes;
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
        self.app_bytes as i64 - self.confirmed_bytes as i64 - self.stream_bytes as i64
    }

    /// What zstd saved of what matching left.
    #[must_use]
    pub fn second_stage_saved_bytes(&self) -> i64 {
        self.stream_bytes as i64 - self.packed_bytes as i64
    }
}

/// What predictions did on one direction of a flow, or of all, as one of its ends counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PredictionCounters {
    /// Offers made, or taken.
    pub offers: u64,
    /// Plain bytes of them.
    pub offered_bytes: u64,
    /// Bytes of their frames.
    pub offer_frame_bytes: u64,
    /// Offers confirmed.
    pub confirmed: u64,
    /// Plain bytes of them.
    pub confirmed_bytes: u64,
    /// Plain bytes of right offers that came too late: the data had left already. Counted when the
    /// offer can no longer be confirmed. Receivers only.
    pub overtaken_bytes: u64,
    /// Plain bytes of offers that were withdrawn, neither confirmed nor overtaken. Receivers only.
    pub wasted_bytes: u64,
    /// Bytes hashed for offers that were right. Senders only.
    pub hashed_true_bytes: u64,
    /// Bytes hashed for offers that were wrong, though their hint was right. Senders only.
    pub hashed_false_bytes: u64,
}

impl PredictionCounters {
    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            offers: self.offers - before.offers,
            offered_bytes: self.offered_bytes - before.offered_bytes,
            offer_frame_bytes: self.offer_frame_bytes - before.offer_frame_bytes,
            confirmed: self.confirmed - before.confirmed,
            confirmed_bytes: self.confirmed_bytes - before.confirmed_bytes,
            overtaken_bytes: self.overtaken_bytes - before.overtaken_bytes,
            wasted_bytes: self.wasted_bytes - before.wasted_bytes,
            hashed_true_bytes: self.hashed_true_bytes - before.hashed_true_bytes,
            hashed_false_bytes: self.hashed_false_bytes - before.hashed_false_bytes,
        }
    }

    /// Adds `other` to this.
    pub fn add(&mut self, other: &Self) {
        self.offers += other.offers;
        self.offered_bytes += other.offered_bytes;
        self.offer_frame_bytes += other.offer_frame_bytes;
        self.confirmed += other.confirmed;
        self.confirmed_bytes += other.confirmed_bytes;
        self.overtaken_bytes += other.overtaken_bytes;
        self.wasted_bytes += other.wasted_bytes;
        self.hashed_true_bytes += other.hashed_true_bytes;
        self.hashed_false_bytes += other.hashed_false_bytes;
    }
}
