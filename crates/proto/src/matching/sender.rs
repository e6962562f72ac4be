//! The sending end of one direction of a link.
//!
//! Taking log positions and encoding are one step, and every position that was taken
//! leaves on its lane or becomes a hole (`docs/architecture.md`, 1). A block refers only to
//! what [`Books`] allow, so the receiver never waits for another lane.

use std::collections::{BTreeMap, VecDeque};

use refrain_codec::{
    EncodedBlock, Encoder, EncoderConfig, LogPosition, MissedRepeats, Prefault, check_on,
    geometry::CacheGeometry, marker::SamplingPeriod, simd::Backend,
};

use super::{
    books::Books,
    check_seed,
    second_stage::{Compressor, StreamKind},
};
use crate::{
    counters::{Count, LayerCounters},
    fault::Violation,
    flow::Strand,
    frame::{BlockFrame, FlowId, LaneId, Stream},
    limits::OUTSTANDING_BLOCKS_MAX,
    planted::Bug,
    targets::{Carried, CarriedBytes, RowId, TargetCounts},
    traffic::TrafficClass,
};

/// The sending end of one direction.
pub(crate) struct Sender {
    /// `None`: nothing is kept, and all blocks are bypassed.
    encoder: Option<Encoder>,
    backend: Backend,
    books: Books,
    lanes: BTreeMap<LaneId, SendLane>,
    encoded: EncodedBlock,
    outstanding_blocks: usize,
    level: i32,
    /// What the receiver is known to have.
    delivered: LayerCounters,
}

/// What the sender knows of one lane, alive, or dead and not yet settled.
struct SendLane {
    tokens: Compressor,
    literals: Compressor,
    /// Blocks sent and not acknowledged, in order; confirmations too, if both ends count them.
    outstanding: VecDeque<Outstanding>,
    outstanding_bytes: usize,
    blocks_acked: u64,
    /// End of the last logged block, from which the next one's position is told.
    logged_end: LogPosition,
}

/// A block on its way, or a confirmation. What it counts for is counted when it arrived: it may
/// be lost with its lane, and then the receiver has not counted it either.
#[derive(Clone, Copy)]
pub(crate) struct Outstanding {
    /// Where it lies in the log; `None` for a bypassed one, and for a confirmation.
    start: Option<LogPosition>,
    is_block: bool,
    plain_bytes: u32,
    region_bytes: u32,
    stream_bytes: u32,
    packed_bytes: u32,
    frame_bytes: u32,
    counted: Counted,
}

/// What a block is counted for.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) row: RowId,
    pub(crate) class: TrafficClass,
}

/// How a block travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// Matched, compressed, and written to the log.
    Logged {
        /// Whether zstd is worth a try.
        compress: bool,
    },
    /// Outside of the log: no positions, no references.
    Bypassed {
        /// Whether zstd is worth a try.
        compress: bool,
    },
    /// The same, as it is. Its bytes are secret.
    Secret {
        /// Whether the other end knows the mark.
        is_marked: bool,
    },
}

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Where it lies in the log, unless it was bypassed.
    pub(crate) at: Option<LogPosition>,
    /// Where the longest region's bytes lie.
    pub(crate) longest_source: Option<LogPosition>,
    /// Repeats that a larger cache would have found.
    pub(crate) missed: MissedRepeats,
}

impl Sender {
    pub(crate) fn new(backend: Backend, level: i32) -> Self {
        Self {
            books: Books::new(CacheGeometry::SMALLEST),
            encoder: None,
            backend,
            lanes: BTreeMap::new(),
            encoded: EncodedBlock::default(),
            outstanding_blocks: 0,
            level,
            delivered: LayerCounters::default(),
        }
    }

    /// Keeps a cache from here on. Blocks before it were bypassed.
    pub(crate) fn keep_cache(&mut self, config: EncoderConfig) {
        self.books = Books::new(config.geometry);
        self.encoder = Some(Encoder::new(config));
    }

    pub(crate) fn open_lane(&mut self, lane: LaneId) {
        self.lanes.insert(lane, SendLane::new(self.level));
    }

    pub(crate) fn set_level(&mut self, level: i32) {
        self.level = level;
        for lane in self.lanes.values_mut() {
            lane.tokens.set_level(level);
            lane.literals.set_level(level);
        }
    }

    /// Samples the next block with `period`.
    pub(crate) fn set_period(&mut self, period: SamplingPeriod) {
        if let Some(encoder) = &mut self.encoder {
            encoder.set_period(period);
        }
    }

    /// Whether `plain` repeats something that a block on `lane` may refer to.
    pub(crate) fn repeats(&mut self, lane: LaneId, plain: &[u8]) -> bool {
        let reach = self.books.reach_of(lane);
        let encoder = self.encoder.as_mut();
        encoder.is_some_and(|encoder| encoder.repeats(plain, &reach))
    }

    /// Whether there is a cache at all.
    pub(crate) fn has_cache(&self) -> bool {
        self.encoder.is_some()
    }

    pub(crate) fn wants_prefault(&self) -> bool {
        self.encoder.as_ref().is_some_and(Encoder::wants_prefault)
    }

    pub(crate) fn prefault(&mut self) -> Option<Prefault> {
        self.encoder.as_mut()?.prefault()
    }

    pub(crate) fn books(&self) -> &Books {
        &self.books
    }

    /// Blocks that were sent and neither acknowledged nor lost with their lane.
    pub(crate) fn outstanding_blocks(&self) -> usize {
        self.outstanding_blocks
    }

    /// Bytes of blocks that were sent on `lane` and not acknowledged.
    pub(crate) fn outstanding_bytes(&self, lane: LaneId) -> usize {
        self.lanes
            .get(&lane)
            .map_or(0, |lane| lane.outstanding_bytes)
    }

    /// Whether one more block may be outstanding at all.
    pub(crate) fn has_room_for_a_block(&self) -> bool {
        self.outstanding_blocks < OUTSTANDING_BLOCKS_MAX
    }

    /// What the receiver is known to have.
    pub(crate) fn delivered(&self) -> LayerCounters {
        self.delivered
    }

    /// A confirmation leaves on `lane`, and will be acknowledged.
    pub(crate) fn confirm(&mut self, lane: LaneId, confirmation: Outstanding) {
        let lane = self
            .lanes
            .get_mut(&lane)
            .expect("confirmations are sent on open lanes");
        lane.outstanding.push_back(confirmation);
        lane.outstanding_bytes += confirmation.frame_bytes as usize;
        self.outstanding_blocks += 1;
    }

    /// The receiver is known to have `block`.
    pub(crate) fn count(&mut self, block: &Outstanding, targets: &mut TargetCounts) {
        block.count(&mut self.delivered, targets);
    }

    /// Encodes `plain`, the bytes of `flow` at `offset`, onto `lane`; appends its frame to
    /// `out` and counts it. The frame names the offset unless the lane's `strand` of the flow
    /// ends there.
    #[allow(
        clippy::too_many_arguments,
        reason = "a block, its flow's state, its lane's buffers"
    )]
    pub(crate) fn send(
        &mut self,
        lane_id: LaneId,
        flow: FlowId,
        counted: Counted,
        offset: u64,
        plain: &[u8],
        passage: Passage,
        strand: &mut Strand,
        out: &mut Vec<u8>,
        counters: &mut LayerCounters,
    ) -> Sent {
        let lane = self
            .lanes
            .get_mut(&lane_id)
            .expect("blocks are sent on open lanes");
        let number = lane.blocks_sent();
        let seed = check_seed(number, flow, offset);
        let (at, compress) = match passage {
            Passage::Logged { compress } => {
                let reach = self.books.reach_of(lane_id);
                let encoder = self.encoder.as_mut().expect("a log has an encoder");
                let (cursor, encoded) = (&mut strand.cursor, &mut self.encoded);
                let at = encoder.encode(seed, plain, &reach, cursor, encoded);
                self.books
                    .take(at, plain.len(), lane_id, encoded.oldest_source);
                (Some(at), compress)
            }
            Passage::Bypassed { .. } | Passage::Secret { .. } => {
                self.encoded.tokens.clear();
                self.encoded.literals.clear();
                self.encoded.literals.extend_from_slice(plain);
                self.encoded.check = check_on(self.backend, seed, plain);
                self.encoded.region_bytes = 0;
                self.encoded.longest_source = None;
                (
                    None,
                    matches!(passage, Passage::Bypassed { compress: true }),
                )
            }
        };
        let tokens = lane.tokens.pack(&self.encoded.tokens, true);
        let literals = lane.literals.pack(&self.encoded.literals, compress);
        let frame_start = out.len();
        BlockFrame {
            flow,
            len: plain.len(),
            offset: strand.advance(offset, plain.len()),
            position_step: at.map(|at| at.0.wrapping_sub(lane.logged_end.0) as i64),
            is_secret: matches!(passage, Passage::Secret { is_marked: true }),
            check: self.encoded.check,
            tokens,
            literals,
        }
        .write(out);
        let block = Outstanding {
            start: at,
            is_block: true,
            plain_bytes: plain.len() as u32,
            region_bytes: self.encoded.region_bytes as u32,
            stream_bytes: (self.encoded.tokens.len() + self.encoded.literals.len()) as u32,
            packed_bytes: (tokens.bytes.len() + literals.bytes.len()) as u32,
            frame_bytes: (out.len() - frame_start) as u32,
            counted,
        };
        counters.add(&block.layers());
        if let Some(at) = at {
            lane.logged_end = at + plain.len() as u64;
        }
        lane.outstanding.push_back(block);
        lane.outstanding_bytes += out.len() - frame_start;
        self.outstanding_blocks += 1;
        let encoder = self.encoder.as_mut();
        Sent {
            at,
            longest_source: self.encoded.longest_source,
            missed: encoder.map_or_else(MissedRepeats::default, Encoder::take_missed),
        }
    }

    /// The receiver has applied `blocks` blocks of `lane` since it began. Says whether
    /// that was news.
    pub(crate) fn acknowledged(
        &mut self,
        lane: LaneId,
        blocks: u64,
        targets: &mut TargetCounts,
    ) -> Result<bool, Violation> {
        let Some(lane) = self.lanes.get_mut(&lane) else {
            return Ok(false);
        };
        let news = blocks
            .checked_sub(lane.blocks_acked)
            .ok_or(Violation::AcknowledgedUnsentBlock)?;
        if news > lane.outstanding.len() as u64 {
            return Err(Violation::AcknowledgedUnsentBlock);
        }
        for block in lane.outstanding.drain(..news as usize) {
            self.outstanding_blocks -= 1;
            lane.outstanding_bytes -= block.frame_bytes as usize;
            block.count(&mut self.delivered, targets);
            if let Some(start) = block.start {
                self.books.applied(start);
            }
        }
        lane.blocks_acked = blocks;
        Ok(news > 0)
    }

    /// What [`Bug::EarlyHoles`] does.
    pub(crate) fn settle_unasked(&mut self, lane: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            for block in &mut lane.outstanding {
                if let Some(start) = block.start.take() {
                    self.books.lost(start);
                }
            }
        }
    }

    /// `lane` is dead, and its receiver says that it applied `blocks` blocks and will
    /// apply no more: the rest become holes.
    pub(crate) fn settle_lane(
        &mut self,
        lane: LaneId,
        blocks: u64,
        targets: &mut TargetCounts,
    ) -> Result<(), Violation> {
        self.acknowledged(lane, blocks, targets)?;
        if let Some(lane) = self.lanes.remove(&lane) {
            for block in lane.outstanding {
                self.outstanding_blocks -= 1;
                match block.start {
                    Some(start) if Bug::NoSettlement.is_planted() => {
                        self.books.applied(start);
                    }
                    Some(start) => self.books.lost(start),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Memory of the cache, its table and the second stage, in bytes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        let second_stage: usize = self
            .lanes
            .values()
            .map(|lane| lane.tokens.allocated_bytes() + lane.literals.allocated_bytes())
            .sum();
        let encoder = self.encoder.as_ref().map_or(0, Encoder::allocated_bytes);
        encoder + second_stage
    }

    pub(crate) fn cache_filled_bytes(&self) -> u64 {
        self.encoder.as_ref().map_or(0, |encoder| encoder.head().0)
    }
}

impl Outstanding {
    /// A confirmation that stands for `plain` bytes, in a frame of `frame` bytes.
    pub(crate) fn confirmation(plain: u64, frame: usize, counted: Counted) -> Self {
        Self {
            start: None,
            is_block: false,
            plain_bytes: plain as u32,
            region_bytes: 0,
            stream_bytes: 0,
            packed_bytes: 0,
            frame_bytes: frame as u32,
            counted,
        }
    }

    fn layers(&self) -> LayerCounters {
        if !self.is_block {
            let mut counters = LayerCounters::default();
            counters.count_confirmed(self.plain_bytes.into(), self.frame_bytes as usize);
            return counters;
        }
        LayerCounters {
            app_bytes: self.plain_bytes.into(),
            confirmed_bytes: 0,
            region_bytes: self.region_bytes.into(),
            stream_bytes: self.stream_bytes.into(),
            packed_bytes: self.packed_bytes.into(),
            block_bytes: self.frame_bytes.into(),
            blocks: 1,
            bypassed_blocks: self.start.is_none().into(),
        }
    }

    fn count(&self, delivered: &mut LayerCounters, targets: &mut TargetCounts) {
        delivered.add(&self.layers());
        let sent = CarriedBytes {
            app_bytes: self.plain_bytes.into(),
            link_bytes: self.frame_bytes.into(),
        };
        let Counted { row, class } = self.counted;
        let received = CarriedBytes::default();
        targets.count(Some(row), class, &Carried { sent, received });
    }
}

impl SendLane {
    fn blocks_sent(&self) -> u64 {
        self.blocks_acked + self.outstanding.len() as u64
    }

    fn new(level: i32) -> Self {
        Self {
            tokens: Compressor::new(StreamKind::Tokens, level),
            literals: Compressor::new(StreamKind::Literals, level),
            outstanding: VecDeque::new(),
            outstanding_bytes: 0,
            blocks_acked: 0,
            logged_end: LogPosition(0),
        }
    }
}

impl Compressor {
    fn pack<'a>(&'a mut self, plain: &'a [u8], compress: bool) -> Stream<'a> {
        let compressed = match compress {
            true => self.compress(plain),
            false => None,
        };
        Stream {
            compressed: compressed.is_some(),
            bytes: compressed.unwrap_or(plain),
        }
    }
}
