//! Every bound of the protocol, in one place (house rule). What a peer sends is held
//! against these before anything is allocated for it.

use core::time::Duration;

/// Most plain bytes in one block (`docs/architecture.md`, 12: reads are taken as they come).
pub const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Most bytes in a block's token stream: a region of 8 plain bytes takes at most 16.
pub const TOKEN_BYTES_MAX: usize = 2 * BLOCK_BYTES_MAX;

/// Most bytes in a frame's body: literals and tokens that did not compress, and a header.
pub const FRAME_BYTES_MAX: usize = BLOCK_BYTES_MAX + TOKEN_BYTES_MAX + 1024;

/// Most bytes in the body of a hello.
pub const HELLO_BYTES_MAX: usize = 512;

/// Most bytes in a target's name as an open frame carries it.
pub const TARGET_BYTES_MAX: usize = 300;

/// Most bytes of text beside a refusal or an abort.
pub const REASON_BYTES_MAX: usize = 200;

/// Most bytes of padding in a ping or its answer.
pub const PADDING_BYTES_MAX: usize = 16 << 10;

/// Most lanes of a link alive at once.
pub const LANES_MAX: usize = 16;

/// Most lanes that a link instance ever has; their final counts are kept.
pub(crate) const LANES_EVER_MAX: u32 = 1 << 16;

/// Most blocks that a link may have outstanding in one direction.
pub(crate) const OUTSTANDING_BLOCKS_MAX: usize = 1 << 15;

/// Most blocks from the lowest one on its way to the head of a log, applied ones and holes among them.
pub(crate) const EXTENTS_MAX: usize = 2 * OUTSTANDING_BLOCKS_MAX;

/// Most holes that a sender tells apart; beyond, neighbours are merged into one.
pub(crate) const HOLES_MAX: usize = 1024;

/// Extents that are looked at, each way, to widen a reach.
pub(crate) const REACH_EXTENTS_MAX: usize = 64;

/// Most extents of full entropy that a sender tells apart until something refers to them; beyond,
/// the latest are taken as one.
pub(crate) const UNPROVEN_EXTENTS_MAX: usize = 4096;

/// Most targets whose bytes are counted apart, in a link and in a gateway.
pub(crate) const TARGETS_MAX: usize = 64;

/// Most flows of a link at once, whoever opened them, unless configured lower.
pub const FLOWS_MAX: usize = 10_000;

/// A lane carries blocks of at most so many times as many flows as may be open at once: of
/// those that were reset here, blocks come for another round trip.
pub(crate) const STRANDS_TIMES_FLOWS: usize = 4;

/// The other end may open more flows than this one takes before it hears that they are refused: a
/// lane carries blocks of so many flows at least, times [`STRANDS_TIMES_FLOWS`].
pub(crate) const STRANDS_FLOWS_MIN: usize = 1 << 10;

/// Plain bytes that each flow may have on their way to their reader, whatever the others have.
pub const CREDIT_FLOOR_BYTES: u64 = 16 << 10;

/// Most plain bytes that a floor may be widened to by a peer of wire version 1.
pub(crate) const FLOOR_BYTES_MAX: u64 = 32 << 20;

/// Most plain bytes that all flows of a link's direction may have on their way to their readers, beyond
/// their floors.
pub const WINDOW_BYTES_MAX: u64 = 128 << 20;

/// Plain bytes of one direction of a flow: offsets, and what they are moved by, fit in 64 bits.
pub const FLOW_BYTES_MAX: u64 = i64::MAX as u64;

/// Plain bytes that one flow may have waiting for its lane: a block that is being sent, and what is
/// read meanwhile. With one block alone, lane and application would wake each other for each.
pub const PENDING_BYTES_MAX: usize = 4 * BLOCK_BYTES_MAX;

/// Plain bytes that all flows of a link may have waiting for their lanes.
pub const PENDING_BYTES_LINK_MAX: usize = 16 << 20;

/// Control bytes that a lane may have waiting; a peer that makes us exceed it floods us.
pub(crate) const CONTROL_BYTES_MAX: usize = 1 << 20;

/// Longest wait of an acknowledgement while something is outstanding.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(10);

/// A block of so many plain bytes is acknowledged at once if nothing was for [`ACK_DELAY`].
pub(crate) const ACK_AT_ONCE_BYTES: usize = 4 << 10;

/// An acknowledgement goes out at once when this share of the window is unacknowledged.
pub(crate) const ACK_WINDOW_SHARE: u64 = 8;

/// Longest wait for a full window, whatever the round trip was measured as.
pub(crate) const WINDOW_WAIT_MAX: Duration = Duration::from_secs(1);

/// Shortest wait for a full window: threads of a busy machine pause for so long. With 20 ms, four flows of tars over
/// two cores had up to 7 % of their blocks bypassed, and sent up to 1.6 times the bytes.
pub(crate) const WINDOW_WAIT_MIN: Duration = Duration::from_millis(100);

/// For so long after loss slowed down a lane, flows take any lane that is free: the way between
/// two sites does not mend in a minute.
pub const LOSS_REMEMBERED: Duration = Duration::from_secs(300);

/// How often an end that sees loss asks for further lanes.
pub(crate) const WANT_LANES_AGAIN: Duration = Duration::from_secs(1);

/// For so long users see that loss held up a lane.
pub(crate) const HELD_UP_SHOWN: Duration = Duration::from_secs(10);

/// A silent lane is dead after so many times the dead-after time, while others are not silent.
pub(crate) const PATIENCE_TIMES: u32 = 4;

/// Between pings while flows are open.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(1);

/// Between pings of an idle link.
pub(crate) const PING_INTERVAL_IDLE: Duration = Duration::from_secs(15);

/// Window of the second stage's streams, as a power of two: 2 MiB at either end.
pub(crate) const SECOND_STAGE_WINDOW_LOG: u32 = 21;

/// Window of the token stream of the second stage: tokens repeat nearby or not at all.
pub(crate) const TOKEN_STAGE_WINDOW_LOG: u32 = 17;

/// Most memory that a lane takes at one end: its second stage both ways, at the highest
/// level, and the frames that it reads and writes.
pub const LANE_MEMORY_BYTES_MAX: usize = 20 << 20;

/// Most plain bytes of one offer: a chunk, or in aligned mode a range of several.
pub const OFFER_BYTES_MAX: usize = 64 << 10;

/// Most offers of a flow that its sender keeps.
pub const OFFERS_FLOW_MAX: usize = 8 << 10;

/// Most offers of all flows of a link that a sender keeps.
pub const OFFERS_LINK_MAX: usize = 64 << 10;

/// Most offers in a frame.
pub const OFFERS_FRAME_MAX: usize = 1 << 10;

/// Most plain bytes that a receiver holds for the offers of one flow.
pub(crate) const OFFERED_BYTES_FLOW_MAX: u64 = 32 << 20;

/// Plain bytes that a flow for which there are offers may be ahead of its reader, where the direction has no cache: half
/// of what a receiver offers, so that offers stay ahead of the flow. One that uses them all up at once sends as it is what
/// follows, for a round trip and as long as the other end's store takes.
pub(crate) const PREDICTED_AHEAD_BYTES_MAX: u64 = OFFERED_BYTES_FLOW_MAX / 2;

/// Plain bytes that a receiver holds for the offers of all flows of a link, unless configured
/// otherwise.
pub const OFFERED_BYTES_LINK: u64 = 128 << 20;

/// Plain bytes that a sender hashes on false hints, one after the other, before it heeds a
/// flow's offers no more until another comes (`docs/architecture.md`, 17).
pub(crate) const FALSE_HASH_BYTES_MAX: u64 = 256 << 10;

/// Bytes of a flow in which its sender looks for offers without finding any, before it leaves them
/// alone until others come.
pub(crate) const VAIN_SEARCH_BYTES_MAX: u64 = 16 << 20;

/// Bytes wait so long, after the last one came, for the rest of an expected chunk.
pub(crate) const HOLD_AFTER_LAST: Duration = Duration::from_millis(2);

/// And no longer than this in all.
pub const HOLD_MAX: Duration = Duration::from_millis(20);

/// Bytes of chunks that wait to be taken to the history, unless configured otherwise; beyond,
/// chunks are not learnt.
pub const LEARNING_BYTES: usize = 32 << 20;

/// Questions to the history that have no answer yet.
pub const QUESTIONS_LINK_MAX: usize = 1 << 10;

/// Opening keys whose hits a link remembers.
pub(crate) const OPENING_KEYS_MAX: usize = 4 << 10;

/// Longest head of an HTTP/1 request or response that is looked through.
pub(crate) const HTTP_HEAD_BYTES_MAX: usize = 16 << 10;

/// Plain bytes that may be offered on a first hit. PACK starts at the receiver's flow control window (section 4.1); a
/// flow here may use half of 128 MiB, of which most would be read in vain.
pub(crate) const PREDICTED_BYTES_START: u64 = 1 << 20;

/// Chains of a flow that are remembered.
pub(crate) const CHAINS_FLOW_MAX: usize = 4;

/// Chunks of a flow that are remembered, to know what came while the history was asked.
pub(crate) const RECENT_CHUNKS_MAX: usize = 1024;

/// Latest moves of aligned offers whose places are tried.
pub(crate) const MOVES_MAX: usize = 4;

/// Offers with the same prefix that are tried at one place, the one that is next in turn included.
pub(crate) const CANDIDATES_MAX: usize = 2;
