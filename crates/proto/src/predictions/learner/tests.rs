//! Chunks cover a flow and do not depend on how it came, also where confirmed ones lie between.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample::Index};
use refrain_codec::{
    chunk::stream::{ChunkBounds, StreamChunks},
    marker::PackMask,
};

use super::*;
use crate::{
    frame::FlowId,
    predictions::{history::HistoryRequest, link_history::LinkHistory, receiver::Predictions},
};

/// Anchors one in 64, and chunks of 64 to 512 bytes.
fn config() -> HistoryConfig {
    HistoryConfig {
        mask: PackMask::with_bits(6).expect("6 to 15"),
        bounds: ChunkBounds::new(64, 512).expect("in order"),
        ..HistoryConfig::default()
    }
}

/// Some bytes of a flow.
#[derive(Clone, Debug)]
enum Part {
    /// They came as they are.
    Raw(Vec<u8>),
    /// They were confirmed as a chunk.
    Confirmed(Vec<u8>),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Raw(bytes) | Self::Confirmed(bytes) => bytes,
        }
    }
}

fn bytes(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    let noise = (1_u64.., len.clone()).prop_map(|(seed, len)| {
        let mut state = seed;
        let next = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..len).map(next).collect()
    });
    // All anchors, and none.
    let run = (prop_oneof![Just(7_u8), Just(5)], len).prop_map(|(byte, len)| vec![byte; len]);
    prop_oneof![4 => noise, 1 => run]
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        bytes(0..3000).prop_map(Part::Raw),
        bytes(1..600).prop_map(Part::Confirmed),
    ]
}

fn digest(bytes: &[u8]) -> FoundChunk {
    FoundChunk {
        digest: ChunkHasher::default().digest(bytes),
        bytes: bytes.into(),
    }
}

/// The chunks of a flow, with one cutter for all bytes between two confirmed chunks.
fn expected(parts: &[Part]) -> Vec<FoundChunk> {
    let mut chunks = Vec::new();
    let mut raw = Vec::new();
    for part in parts.iter().chain([&Part::Confirmed(Vec::new())]) {
        match part {
            Part::Raw(bytes) => raw.extend_from_slice(bytes),
            Part::Confirmed(bytes) => {
                let mut ranges = Vec::new();
                let mut cutter = StreamChunks::new(config().mask, config().bounds);
                cutter.feed(&raw, &mut ranges);
                cutter.finish(&mut ranges);
                let cut =
                    |range: Range<u64>| digest(&raw[range.start as usize..range.end as usize]);
                chunks.extend(ranges.into_iter().map(cut));
                raw.clear();
                chunks.extend((!bytes.is_empty()).then(|| digest(bytes)));
            }
        }
    }
    chunks
}

/// Where a flow of `parts` may come in two pieces: not within a confirmed chunk, which is placed
/// as a whole.
fn places_to_cut(parts: &[Part]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut at = 0;
    for part in parts {
        if let Part::Raw(bytes) = part {
            places.extend(at..at + bytes.len());
        }
        places.push(at);
        at += part.bytes().len();
    }
    places
}

/// What the history is given to learn of a flow that comes in pieces.
fn learnt(parts: &[Part], cuts: &[Index]) -> Vec<FoundChunk> {
    let mut link = LinkHistory::new(config());
    let mut predictions = Predictions::new(FlowId(0), Arc::clone(&link.config));
    let mut at = 0;
    let mut flow = Vec::new();
    let mut placed = Vec::new();
    for part in parts {
        if let Part::Confirmed(bytes) = part {
            placed.push((at, digest(bytes)));
        }
        flow.extend_from_slice(part.bytes());
        at += part.bytes().len() as u64;
    }
    // On another lane they may come in any order, ahead of what lies before.
    for (offset, chunk) in placed.into_iter().rev() {
        predictions.placed(offset, vec![chunk]);
    }
    let places = places_to_cut(parts);
    let ends: Vec<usize> = cuts
        .iter()
        .filter(|_| !places.is_empty())
        .map(|cut| places[cut.index(places.len())])
        .chain([flow.len()])
        .collect();
    learnt_in_pieces(predictions, &mut link, &flow, ends)
}

/// The same of a flow that comes in pieces with these ends.
fn learnt_in_pieces(
    mut predictions: Predictions,
    link: &mut LinkHistory,
    flow: &[u8],
    mut ends: Vec<usize>,
) -> Vec<FoundChunk> {
    ends.sort_unstable();
    let mut from = 0;
    for end in ends {
        predictions.received(&flow[from..end], link);
        from = end;
    }
    predictions.finish(link);
    let requests = core::iter::from_fn(|| link.poll());
    let learnt = requests.filter_map(|request| match request {
        HistoryRequest::Learn { digest, bytes, .. } => Some(FoundChunk { digest, bytes }),
        _ => None,
    });
    learnt.collect()
}

proptest! {
    #[test]
    fn chunks_cover_what_came_however_it_came(
        parts in vec(bytes(0..3000), 0..5),
        pieces in vec(1_usize..700, 1..6),
    ) {
        let mut learner = Learner::new(&config());
        let mut chunks = Vec::new();
        let mut expected_chunks = Vec::new();
        for part in &parts {
            let mut rest = &part[..];
            for &piece in pieces.iter().cycle() {
                let (next, later) = rest.split_at(piece.min(rest.len()));
                learner.feed(next, &mut chunks);
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            // As where a confirmed chunk lies: cutting begins anew behind it.
            learner.finish(&mut chunks);
            expected_chunks.extend(expected(&[Part::Raw(part.clone())]));
            prop_assert!(learner.uncut.is_empty());
        }
        let covered: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk.bytes[..]).collect();
        prop_assert_eq!(covered.concat(), parts.concat());
        prop_assert_eq!(chunks, expected_chunks);
    }

    #[test]
    fn what_is_learnt_does_not_depend_on_what_was_confirmed_when(
        parts in vec(part(), 0..8),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let learnt = learnt(&parts, &cuts);
        let all: Vec<&[u8]> = parts.iter().map(Part::bytes).collect();
        let covered: Vec<&[u8]> = learnt.iter().map(|chunk| &chunk.bytes[..]).collect();
        prop_assert_eq!(covered.concat(), all.concat());
        prop_assert_eq!(learnt, expected(&parts));
    }

    #[test]
    fn secret_bytes_are_not_learnt_however_they_came(
        parts in vec((bytes(1..3000), any::<bool>()), 0..8),
        cuts in vec(any::<Index>(), 0..12),
        backwards: bool,
    ) {
        let mut link = LinkHistory::new(config());
        let mut predictions = Predictions::new(FlowId(0), Arc::clone(&link.config));
        let (mut flow, mut secrets, mut runs) = (Vec::new(), Vec::new(), vec![Vec::new()]);
        for (bytes, is_secret) in &parts {
            let start = flow.len() as u64;
            flow.extend_from_slice(bytes);
            match is_secret {
                true => {
                    secrets.push(start..flow.len() as u64);
                    runs.push(Vec::new());
                }
                false => runs.last_mut().expect("one").extend_from_slice(bytes),
            }
        }
        // Blocks come on several lanes, in any order.
        if backwards {
            secrets.reverse();
        }
        secrets.into_iter().for_each(|secret| predictions.is_secret(secret));
        let ends: Vec<usize> = cuts
            .iter()
            .map(|cut| cut.index(flow.len() + 1))
            .chain([flow.len()])
            .collect();
        let learnt = learnt_in_pieces(predictions, &mut link, &flow, ends);
        let expected: Vec<_> = runs
            .into_iter()
            .flat_map(|run| expected(&[Part::Raw(run)]))
            .collect();
        prop_assert_eq!(learnt, expected);
    }
}
