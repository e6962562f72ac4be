//! What may not be referred to is never referred to.

use std::ops::Range;

use refrain_codec::{
    LogPosition, LogRange,
    marker::MarkerAlgorithm,
    matching::{MatchingAlgorithm, Reach},
};

use crate::{
    content::{Content, Random},
    ends::{BLOCK_BYTES_MAX, CACHE_BYTES, Receiver, Sender, config, markers},
    model::Model,
};

/// Forbids ranges of the log, as holes, bypassed blocks and other lanes' blocks would.
#[derive(Default)]
struct Forbidden {
    ranges: Vec<Range<u64>>,
}

impl Forbidden {
    fn overlaps(&self, source: &Range<u64>) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|range| range.start < source.end && source.start < range.end)
    }
}

impl Reach for Forbidden {
    fn around(&self, at: LogPosition) -> Option<LogRange> {
        let at = at.0;
        if self.ranges.iter().any(|range| range.contains(&at)) {
            return None;
        }
        let before = self.ranges.iter().map(|range| range.end);
        let after = self.ranges.iter().map(|range| range.start);
        let start = before.filter(|&end| end <= at).max().unwrap_or(0);
        let end = after.filter(|&start| start > at).min().unwrap_or(u64::MAX);
        Some(LogPosition(start)..LogPosition(end))
    }
}

fn forbidden_ranges_are_left_alone(matching: MatchingAlgorithm) {
    for seed in 0..6 {
        let algorithm = MarkerAlgorithm::ALL[seed as usize % MarkerAlgorithm::ALL.len()];
        let mut content = Content::new(seed);
        let mut random = Random::new(seed);
        let mut sender = Sender::new(config(matching, markers(algorithm, 32, 32)));
        let mut receiver = Receiver::new();
        let mut model = Model::default();
        let mut forbidden = Forbidden::default();
        let mut head = 0;
        let mut regions = 0;
        while head < 3 * CACHE_BYTES {
            let block = content.block(BLOCK_BYTES_MAX);
            let sent = sender.send(random.below(3) as u8, &block, &forbidden);
            assert_eq!(receiver.receive(&sent).as_ref(), Ok(&block));
            let (modelled, sources) = model.receive(&sent);
            assert_eq!(modelled, block);
            for source in sources.iter().filter(|source| source.end <= sent.at.0) {
                assert!(
                    !forbidden.overlaps(source),
                    "seed {seed}: block {} refers to {source:?}",
                    sent.number
                );
                regions += 1;
            }
            head += block.len();
            if random.one_in(3) {
                // Of the newest bytes, so that it matters at once and for long.
                let start = head - random.below(head.min(CACHE_BYTES / 2));
                let end = head.min(start + random.length(40_000));
                forbidden.ranges.push(start as u64..end as u64);
            }
        }
        let forbidden_bytes: u64 = forbidden.ranges.iter().map(|r| r.end - r.start).sum();
        assert!(forbidden_bytes > CACHE_BYTES as u64 / 10);
        assert!(
            regions > 100 || cfg!(refrain_weak_hashes),
            "{regions} regions"
        );
    }
}

#[test]
fn max_match_leaves_forbidden_ranges_alone() {
    forbidden_ranges_are_left_alone(MatchingAlgorithm::MaxMatch);
}

#[cfg(not(refrain_weak_hashes))]
#[test]
fn chunk_match_leaves_forbidden_ranges_alone() {
    forbidden_ranges_are_left_alone(MatchingAlgorithm::ChunkMatch);
}

/// The same holds for the flow's last source, where it would go on.
#[cfg(not(refrain_weak_hashes))]
#[test]
fn nothing_resumes_in_a_forbidden_range() {
    let verse = Random::new(5).noise(8000);
    let (first, second) = verse.split_at(4000);
    let markers = markers(MarkerAlgorithm::SampleByte, 32, 32);
    for is_forbidden in [false, true] {
        let mut sender = Sender::new(config(MatchingAlgorithm::MaxMatch, markers.clone()));
        let mut forbidden = Forbidden::default();
        sender.send(0, &verse, &forbidden);
        let sent = sender.send(0, first, &forbidden);
        assert_eq!(sent.encoded.region_bytes, first.len());
        if is_forbidden {
            forbidden.ranges.push(0..sent.at.0);
        }
        let sent = sender.send(0, second, &forbidden);
        let expected = if is_forbidden { 0 } else { second.len() };
        assert_eq!(sent.encoded.region_bytes, expected);
    }
}
