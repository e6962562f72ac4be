//! Encoding blocks, beside compressors and a plain copy.

use std::{hint::black_box, rc::Rc};

use refrain_codec::{
    EncodedBlock, Encoder, EncoderConfig, SourceCursor,
    geometry::CacheGeometry,
    marker::{MarkerAlgorithm, MarkerFinder},
    matching::{Everything, MatchingAlgorithm},
    reference::max_match::MaxMatch,
    simd::Backend,
};

use super::{
    BLOCK_BYTES, Contest, Inputs, PERIOD, Place, RowName,
    markers::finder,
    name_of,
    peers::{self, Lz4, Lz4Flex, Zstd},
    walk::{Circle, Pass, Work},
};

/// Of hot rows.
pub(super) const HOT_LOG_BYTES: usize = 16 << 20;

/// More than a last-level cache holds.
pub(super) const FILE_LOG_BYTES: usize = 64 << 20;

pub(super) fn all<'a>(inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
    let max_match = Setup {
        kernel: "Max-Match encode p = 64",
        matching: MatchingAlgorithm::MaxMatch,
        period: PERIOD,
    };
    let denser = Setup {
        kernel: "Max-Match encode p = 32",
        period: 32,
        ..max_match
    };
    let chunk_match = Setup {
        kernel: "Chunk-Match encode p = 64",
        matching: MatchingAlgorithm::ChunkMatch,
        ..max_match
    };
    let mut contests = max_match.hot(inputs, backends);
    contests.extend(max_match.file(inputs, backends));
    contests.extend(denser.hot(inputs, backends));
    contests.extend(chunk_match.hot(inputs, backends));
    contests.extend(chunk_match.file(inputs, backends));
    contests
}

/// A kernel of the table.
#[derive(Clone, Copy)]
struct Setup {
    kernel: &'static str,
    matching: MatchingAlgorithm,
    period: usize,
}

impl Setup {
    fn hot<'a>(self, inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
        let known = inputs.redundant(HOT_LOG_BYTES);
        let rows = [
            ("random", inputs.random(), &[][..]),
            ("text", inputs.text(), &[]),
            ("redundant", known, known),
        ];
        let contests = rows.map(|(data, bytes, known)| {
            let circle = Circle::fetched(bytes);
            let contest = self.contest(data, Place::Hot, &circle, HOT_LOG_BYTES, known, backends);
            match self.matching {
                MatchingAlgorithm::MaxMatch => {
                    contest.with_slow("naive twin", &circle, move || {
                        NaiveMaxMatch::new(finder(MarkerAlgorithm::SampleByte, self.period), known)
                    })
                }
                MatchingAlgorithm::ChunkMatch => peers::with_digests(contest, &circle, self.period),
            }
        });
        contests.into()
    }

    fn file<'a>(self, inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
        let known = inputs.redundant(FILE_LOG_BYTES);
        let rows = [
            ("random", inputs.random(), &[][..]),
            ("real", inputs.real(), &[]),
            ("redundant", known, known),
        ];
        let contests = rows.map(|(data, bytes, known)| {
            let circle = Circle::streamed(bytes, inputs.evicting());
            self.contest(data, Place::File, &circle, FILE_LOG_BYTES, known, backends)
        });
        contests.into()
    }

    /// Encoders on all `backends` that have seen `known`, beside what everybody knows.
    fn contest<'a>(
        self,
        data: &'static str,
        place: Place,
        circle: &Rc<Circle<'a>>,
        log_bytes: usize,
        known: &'a [u8],
        backends: &'a [Backend],
    ) -> Contest<'a> {
        let name = RowName {
            kernel: self.kernel,
            data,
            place,
        };
        let mut contest = Contest::new(name);
        for &backend in backends {
            contest = contest.with(&name_of(backend.instruction_set()), circle, move || {
                let mut encoding = Encoding::new(self.matching, self.period, log_bytes, backend);
                encoding.fill(known, log_bytes);
                encoding
            });
        }
        contest = peers::with_memcpy(contest, circle, log_bytes);
        contest = peers::with_compressor::<Lz4>(contest, circle);
        contest = peers::with_compressor::<Lz4Flex>(contest, circle);
        peers::with_compressor::<Zstd>(contest, circle)
    }
}

/// An encoder and the flow that it encodes; each round of the circle is a flow of its own.
pub(super) struct Encoding {
    encoder: Encoder,
    cursor: SourceCursor,
    out: EncodedBlock,
}

impl Encoding {
    pub(super) fn new(
        matching: MatchingAlgorithm,
        period: usize,
        log_bytes: usize,
        backend: Backend,
    ) -> Self {
        let geometry = CacheGeometry::new(log_bytes).expect("a valid size");
        Self {
            encoder: Encoder::new(EncoderConfig {
                matching,
                markers: finder(MarkerAlgorithm::SampleByte, period),
                backend,
                ..EncoderConfig::with_defaults(geometry)
            }),
            cursor: SourceCursor::default(),
            out: EncodedBlock::default(),
        }
    }

    /// Fills the log, so that all of its memory is there, and ends with `known`.
    fn fill(&mut self, known: &[u8], log_bytes: usize) {
        let other = vec![b'x'; BLOCK_BYTES];
        for _ in 0..log_bytes / BLOCK_BYTES {
            self.encode(&other);
        }
        for block in known.chunks(BLOCK_BYTES) {
            self.encode(block);
        }
    }

    /// Takes the next block of a flow.
    pub(super) fn encode(&mut self, block: &[u8]) -> &EncodedBlock {
        self.encoder
            .encode(0, block, &Everything, &mut self.cursor, &mut self.out);
        &self.out
    }

    /// Begins another flow.
    pub(super) fn begin_flow(&mut self) {
        self.cursor = SourceCursor::default();
    }
}

impl<'a> Work<'a> for Encoding {
    fn run(&mut self, pass: Pass<'a>) {
        if pass.at == 0 {
            self.begin_flow();
        }
        for (_, block) in pass.blocks() {
            black_box(self.encode(block));
        }
    }
}

/// Max-Match by the book. It forgets nothing, so it starts anew when it holds a few logs' bytes.
pub(super) struct NaiveMaxMatch<'a> {
    finder: MarkerFinder,
    /// What it has seen before it is measured.
    known: &'a [u8],
    reference: MaxMatch,
    room: usize,
}

impl<'a> NaiveMaxMatch<'a> {
    const HISTORY_BYTES_MAX: usize = 64 << 20;

    pub(super) fn new(finder: MarkerFinder, known: &'a [u8]) -> Self {
        Self {
            reference: MaxMatch::new(finder.clone()),
            finder,
            known,
            room: 0,
        }
    }
}

impl<'a> Work<'a> for NaiveMaxMatch<'a> {
    fn prepare(&mut self) {
        if self.room == 0 {
            self.reference = MaxMatch::new(self.finder.clone());
            for block in self.known.chunks(BLOCK_BYTES) {
                self.reference.encode(block);
            }
            self.room = Self::HISTORY_BYTES_MAX;
        }
    }

    fn run(&mut self, pass: Pass<'a>) {
        for (_, block) in pass.blocks() {
            black_box(self.reference.encode(block));
        }
        self.room = self.room.saturating_sub(pass.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(bytes: &[u8], known: &[u8]) -> f64 {
        let log_bytes = 4 << 20;
        let matching = MatchingAlgorithm::MaxMatch;
        let mut encoding = Encoding::new(matching, PERIOD, log_bytes, Backend::best());
        encoding.fill(known, log_bytes);
        let blocks = bytes.chunks(BLOCK_BYTES);
        let covered: usize = blocks
            .map(|block| encoding.encode(block).region_bytes)
            .sum();
        covered as f64 / bytes.len() as f64
    }

    /// What the rows' names promise.
    #[test]
    fn random_is_new_and_redundant_is_known() {
        let mut noise = vec![0; 2 << 20];
        super::super::Noise::new(1).fill(&mut noise);
        assert!(covered(&noise, &[]) < 0.01);
        assert!(covered(&noise, &noise) > 0.99);
    }
}
