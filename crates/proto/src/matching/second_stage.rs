//! The second stage: zstd over what the matcher leaves (EndRE, section 9.1, adds GZIP;
//! `docs/decisions/0005-zstd-along-the-lane.md` has why its history runs along the lane).
//!
//! A lane has two zstd streams a direction, one of tokens and one of literals. Each
//! block's share ends with a flush, not with a frame, so that what came before on the
//! lane stays usable as history.

use zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, zstd_sys::ZSTD_EndDirective,
};

use crate::{
    fault::Violation,
    limits::{SECOND_STAGE_WINDOW_LOG, TOKEN_STAGE_WINDOW_LOG},
    planted::Bug,
};

/// Streams shorter than this go as they are: a flush costs more than it saves.
const COMPRESSED_BYTES_MIN: usize = 24;

/// Which of a lane's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Tokens,
    Literals,
}

impl StreamKind {
    fn window_log(self) -> u32 {
        match self {
            Self::Tokens => TOKEN_STAGE_WINDOW_LOG,
            Self::Literals => SECOND_STAGE_WINDOW_LOG,
        }
    }
}

/// The sending end of one stream.
pub(crate) struct Compressor {
    kind: StreamKind,
    context: Option<CCtx<'static>>,
    level: i32,
    wanted_level: i32,
    out: Vec<u8>,
}

/// The receiving end of one stream.
pub(crate) struct Decompressor {
    kind: StreamKind,
    context: Option<DCtx<'static>>,
    out: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new(kind: StreamKind, level: i32) -> Self {
        Self {
            kind,
            context: None,
            level,
            wanted_level: level,
            out: Vec::new(),
        }
    }

    /// Compresses with `level` from the next block on. A zstd frame has one level, so the
    /// stream's history ends there.
    pub(crate) fn set_level(&mut self, level: i32) {
        self.wanted_level = level;
    }

    /// The stream's next bytes for `plain`, or `None` where it goes as it is and stays
    /// out of the stream.
    pub(crate) fn compress(&mut self, plain: &[u8]) -> Option<&[u8]> {
        if plain.len() < COMPRESSED_BYTES_MIN {
            return None;
        }
        self.out.clear();
        let is_changed = self.level != self.wanted_level;
        self.level = self.wanted_level;
        if self.context.is_some() && is_changed {
            self.run(&[], ZSTD_EndDirective::ZSTD_e_end);
        }
        if self.context.is_none() || is_changed {
            // The same context: it keeps its memory, and new memory costs more than compressing a block.
            let context = self.context.get_or_insert_with(CCtx::create);
            set_parameters(context, self.kind, self.level);
        }
        self.run(plain, ZSTD_EndDirective::ZSTD_e_flush);
        Some(&self.out)
    }

    /// Memory of the stream, in bytes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.context.as_ref().map_or(0, CCtx::sizeof) + self.out.capacity()
    }

    fn run(&mut self, plain: &[u8], directive: ZSTD_EndDirective) {
        let Some(context) = &mut self.context else {
            return;
        };
        let mut input = InBuffer::around(plain);
        loop {
            self.out
                .reserve(zstd_safe::compress_bound(plain.len()) + 32);
            let written = self.out.len();
            let mut output = OutBuffer::around_pos(&mut self.out, written);
            let left = context
                .compress_stream2(&mut output, &mut input, directive)
                .expect("a compressor fails on bad parameters alone");
            if left == 0 && input.pos() == plain.len() {
                return;
            }
        }
    }
}

/// From here on zstd's tables, which it sizes for windows of its own choice, have many
/// times the entries that ours have positions.
const LEVEL_OF_LARGE_TABLES: i32 = 9;

/// Of the next frame. The context is between two frames.
fn set_parameters(context: &mut CCtx<'_>, kind: StreamKind, level: i32) {
    // Half a percent of output for a quarter of the memory at level 12. Zero is zstd's choice.
    let table_log = match level >= LEVEL_OF_LARGE_TABLES {
        true => kind.window_log() - 1,
        false => 0,
    };
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::WindowLog(kind.window_log()),
        CParameter::HashLog(table_log),
        CParameter::ChainLog(table_log),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
    ] {
        context
            .set_parameter(parameter)
            .expect("parameters within zstd's bounds");
    }
}

impl Decompressor {
    pub(crate) fn new(kind: StreamKind) -> Self {
        Self {
            kind,
            context: None,
            out: Vec::new(),
        }
    }

    /// Unpacks the stream's next bytes, to at most `bytes_max` plain ones.
    pub(crate) fn decompress(
        &mut self,
        packed: &[u8],
        bytes_max: usize,
    ) -> Result<&[u8], Violation> {
        let is_unbounded = Bug::UnboundedStage.is_planted();
        let bytes_max = if is_unbounded { 64 << 20 } else { bytes_max };
        let kind = self.kind;
        let context = self.context.get_or_insert_with(|| {
            let mut context = DCtx::create();
            context
                .set_parameter(DParameter::WindowLogMax(kind.window_log()))
                .expect("a parameter within zstd's bounds");
            context
        });
        self.out.clear();
        self.out.reserve(bytes_max + 1);
        let mut input = InBuffer::around(packed);
        loop {
            let (consumed, written) = (input.pos(), self.out.len());
            if written > bytes_max {
                return Err(Violation::DamagedSecondStage);
            }
            let mut output = OutBuffer::around_pos(&mut self.out, written);
            context
                .decompress_stream(&mut output, &mut input)
                .map_err(|_| Violation::DamagedSecondStage)?;
            let full = self.out.len() == self.out.capacity();
            if input.pos() == packed.len() && !full {
                return if self.out.len() > bytes_max {
                    Err(Violation::DamagedSecondStage)
                } else {
                    Ok(&self.out)
                };
            }
            if input.pos() == consumed && self.out.len() == written {
                return Err(Violation::DamagedSecondStage);
            }
        }
    }

    /// Memory of the stream, in bytes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.context.as_ref().map_or(0, DCtx::sizeof) + self.out.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        effort::LADDER,
        limits::{CONTROL_BYTES_MAX, FRAME_BYTES_MAX, LANE_MEMORY_BYTES_MAX, TOKEN_BYTES_MAX},
    };

    fn pair() -> (Compressor, Decompressor) {
        (
            Compressor::new(StreamKind::Literals, 3),
            Decompressor::new(StreamKind::Literals),
        )
    }

    #[test]
    fn history_runs_from_block_to_block() {
        let (mut near, mut far) = pair();
        let block: Vec<u8> = (0..5000u32)
            .flat_map(|n| (n.wrapping_mul(0x9e37_79b9)).to_le_bytes())
            .collect();
        let first = near.compress(&block).expect("long enough").to_vec();
        assert_eq!(far.decompress(&first, block.len()), Ok(&block[..]));
        let second = near.compress(&block).expect("long enough").to_vec();
        assert_eq!(far.decompress(&second, block.len()), Ok(&block[..]));
        assert!(second.len() * 20 < first.len());
    }

    #[test]
    fn a_change_of_level_is_invisible_to_the_receiver() {
        let (mut near, mut far) = pair();
        let block = b"a block of text, compressed at one level and then at another".repeat(9);
        for level in [3, 9, 1, 1] {
            near.set_level(level);
            let packed = near.compress(&block).expect("long enough").to_vec();
            assert_eq!(far.decompress(&packed, block.len()), Ok(&block[..]));
        }
    }

    #[test]
    fn a_lane_keeps_within_its_memory_at_every_level() {
        let frames_both_ways = 4 * FRAME_BYTES_MAX + 2 * CONTROL_BYTES_MAX;
        let most = LADDER[LADDER.len() - 1].level;
        for level in LADDER.map(|effort| effort.level) {
            let mut allocated = frames_both_ways;
            for kind in [StreamKind::Tokens, StreamKind::Literals] {
                // A context that had another level before.
                let (mut near, mut far) = (Compressor::new(kind, most), Decompressor::new(kind));
                for block in 0..50u32 {
                    if block == 10 {
                        near.set_level(level);
                    }
                    let block: Vec<u8> = (0..TOKEN_BYTES_MAX as u32)
                        .map(|at| ((block << 17 | at).wrapping_mul(0x9e37_79b9) >> 25) as u8)
                        .collect();
                    let packed = near.compress(&block).expect("long enough").to_vec();
                    assert_eq!(far.decompress(&packed, block.len()), Ok(&block[..]));
                }
                allocated += near.allocated_bytes() + far.allocated_bytes();
            }
            assert!(
                allocated <= LANE_MEMORY_BYTES_MAX,
                "level {level}: {allocated} bytes"
            );
        }
    }

    #[test]
    fn a_bomb_is_refused_at_its_bound() {
        let (mut near, mut far) = pair();
        let packed = near
            .compress(&vec![0; 1 << 20])
            .expect("long enough")
            .to_vec();
        assert_eq!(
            far.decompress(&packed, 1000),
            Err(Violation::DamagedSecondStage)
        );
    }

    #[test]
    fn damage_is_refused_or_gives_other_bytes_within_bounds() {
        let (mut near, _) = pair();
        let block = b"what is not there cannot be damaged, what is there can be".repeat(20);
        let packed = near.compress(&block).expect("long enough").to_vec();
        for at in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x55;
            let (_, mut far) = pair();
            let _ = far.decompress(&damaged, block.len());
            let (_, mut far) = pair();
            let _ = far.decompress(&packed[..at], block.len());
        }
    }
}
