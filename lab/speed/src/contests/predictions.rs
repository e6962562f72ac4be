//! What predictions cost either end's engine, beside what elimination by the sender costs it
//! (PACK, section 6.1, Figure 11).
//!
//! The paper compares a server that checks predictions with one that hashes all it sends, as
//! EndRE's Chunk-Match does; it counts SHA-1 over everything and leaves the chunking out. Both
//! stand here: Chunk-Match as our own sender does it, and SHA-1 alone. Either side is measured
//! through the public engine, [`Link`](refrain_proto::Link), and not through the part of it that
//! checks offers: a part would leave out what a confirmation costs beside that, the check over
//! its bytes and the frame, and it is whole senders that are to be compared. What all of them pay
//! stands beside them, as mode `off`.
//!
//! *Redundant*: every chunk is predicted in time, and the cache has it too. *Random*: nothing
//! is, though the receiver offers what came before.

use std::time::{Duration, Instant};

use refrain_codec::{
    chunk::hash::ChunkHasher, geometry::CacheGeometry, marker::MarkerAlgorithm,
    matching::MatchingAlgorithm, simd::Backend,
};
use refrain_proto::{LinkConfig, Mode, predictions::history::HistoryConfig};
use std::hint::black_box;

use super::{
    CHUNK_BYTES, Contest, Inputs, Place, RowName,
    encode::FILE_LOG_BYTES,
    ends::{Ends, Spent},
    markers::finder,
    name_of,
    walk::read,
};

/// A flow.
const FLOW_BYTES: usize = 8 << 20;

/// p of Chunk-Match: as in EndRE, and the sparsest that there is, which is quicker and leaves a
/// third of what is redundant.
const PERIODS: [(&str, usize); 2] = [("Chunk-Match p = 64", 64), ("Chunk-Match p = 512", 512)];

/// Whose time is told.
type End = fn(Spent) -> Duration;

pub(super) fn all<'a>(inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
    let (known, other) = inputs.random().split_at(FLOW_BYTES);
    let mut contests = Vec::new();
    for (kernel, end) in [
        ("sender, predictions", (|spent| spent.sender) as End),
        ("receiver, predictions", |spent| spent.receiver),
    ] {
        for (data, content) in [("redundant", known), ("random", other)] {
            let name = RowName {
                kernel,
                data,
                place: Place::Hot,
            };
            let contest = Contest::new(name).of_chunks(CHUNK_BYTES);
            let contest = by_ends(contest, end, known, content, backends[0]);
            contests.push(match kernel {
                "sender, predictions" => with_digests_of_all(contest, content),
                _ => contest,
            });
        }
    }
    contests
}

/// Flows of `content`, one after another; `known` has come before.
fn by_ends<'a>(
    mut contest: Contest<'a>,
    end: End,
    known: &'a [u8],
    content: &'a [u8],
    backend: Backend,
) -> Contest<'a> {
    let ours = name_of(backend.instruction_set());
    let mut ways = vec![
        (ours.as_str(), by_receiver(backend)),
        ("mode off", off(backend)),
    ];
    ways.extend(PERIODS.map(|(name, period)| (name, by_sender(backend, period))));
    for (name, config) in ways {
        contest = contest.lazily(
            name,
            FLOW_BYTES,
            move || {
                let mut ends = Ends::new(config, known);
                ends.transfer(known);
                (ends, flows(content))
            },
            move |(ends, flows)| end(ends.transfer(flows.next().expect("without end"))),
        );
    }
    contest
}

/// Beside hashing all that is sent, in pieces as long as chunks are.
fn with_digests_of_all<'a>(mut contest: Contest<'a>, content: &'a [u8]) -> Contest<'a> {
    for (name, hasher) in [
        ("sha1 of all", ChunkHasher::Sha1),
        ("blake3 of all", ChunkHasher::Blake3),
    ] {
        let digest_all = move |flow: &[u8]| {
            let mut spent = Duration::ZERO;
            for piece in flow.chunks(CHUNK_BYTES) {
                read(piece);
                let start = Instant::now();
                black_box(hasher.digest(piece));
                spent += start.elapsed();
            }
            spent
        };
        contest = contest.lazily(
            name,
            FLOW_BYTES,
            || flows(content),
            move |flows| digest_all(flows.next().expect("without end")),
        );
    }
    contest
}

/// Round and round.
fn flows(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.chunks_exact(FLOW_BYTES).cycle()
}

fn by_receiver(backend: Backend) -> LinkConfig {
    LinkConfig {
        mode: Mode::Receiver,
        history: Some(HistoryConfig::default()),
        ..link(backend)
    }
}

fn off(backend: Backend) -> LinkConfig {
    LinkConfig {
        mode: Mode::Off,
        ..link(backend)
    }
}

fn by_sender(backend: Backend, period: usize) -> LinkConfig {
    LinkConfig {
        mode: Mode::Sender,
        matching: MatchingAlgorithm::ChunkMatch,
        markers: finder(MarkerAlgorithm::SampleByte, period),
        ..link(backend)
    }
}

fn link(backend: Backend) -> LinkConfig {
    LinkConfig {
        backend,
        ..LinkConfig::with_cache(CacheGeometry::new(FILE_LOG_BYTES).expect("a valid size"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Noise;
    use super::*;

    /// Bytes on the link, as a share of the content's, once `known` has come.
    fn left(config: LinkConfig, known: &[u8], content: &[u8]) -> f64 {
        let mut ends = Ends::new(config, known);
        ends.transfer(known);
        ends.link_bytes = 0;
        ends.transfer(content);
        ends.link_bytes as f64 / content.len() as f64
    }

    /// What the rows' names promise.
    #[test]
    fn redundant_is_predicted_and_random_is_not() {
        let mut noise = vec![0; 2 * FLOW_BYTES];
        Noise::new(1).fill(&mut noise);
        let (known, other) = noise.split_at(FLOW_BYTES);
        let backend = Backend::best();
        assert!(left(by_receiver(backend), known, known) < 0.001);
        assert!(left(by_receiver(backend), known, other) > 1.0);
        assert!(left(off(backend), known, known) > 1.0);
        for (name, period) in PERIODS {
            let left_of = |content| left(by_sender(backend, period), known, content);
            let (known, other) = (left_of(known), left_of(other));
            assert!(known < 0.5 && other > 0.99, "{name}: {known}, {other}");
        }
    }
}
