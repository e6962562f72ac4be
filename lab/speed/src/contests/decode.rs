//! Decoding blocks, beside decompressors and a plain copy.

use std::{cell::OnceCell, hint::black_box, rc::Rc};

use refrain_codec::{
    Block, Decoder, EncodedBlock, LogPosition, SourceCursor, check, geometry::CacheGeometry,
    matching::MatchingAlgorithm, simd::Backend,
};

use super::{
    BLOCK_BYTES, Contest, Inputs, PERIOD, Place, RowName,
    encode::{Encoding, FILE_LOG_BYTES, HOT_LOG_BYTES},
    name_of,
    peers::{self, Lz4, Lz4Flex, Zstd},
    walk::{Circle, Pass, Work, read},
};

/// A round, of which all that a contestant decodes has to lie in memory at once: more than a log
/// reaches.
const HOT_CIRCLE_BYTES: usize = 32 << 20;
const FILE_CIRCLE_BYTES: usize = 96 << 20;

pub(super) fn all<'a>(inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
    let hot = [
        ("random", inputs.random()),
        ("text", inputs.text()),
        ("redundant", inputs.redundant(HOT_LOG_BYTES)),
    ];
    let hot = hot.map(|(data, bytes)| {
        let bytes = &bytes[..bytes.len().min(HOT_CIRCLE_BYTES)];
        let circle = Circle::fetched(bytes);
        contest(data, Place::Hot, &circle, HOT_LOG_BYTES, backends)
    });
    let file = [
        ("random", inputs.random()),
        ("real", inputs.real()),
        ("redundant", inputs.redundant(FILE_LOG_BYTES)),
    ];
    let file = file.map(|(data, bytes)| {
        let bytes = &bytes[..bytes.len().min(FILE_CIRCLE_BYTES)];
        let circle = Circle::streamed(bytes, inputs.evicting());
        contest(data, Place::File, &circle, FILE_LOG_BYTES, backends)
    });
    hot.into_iter().chain(file).collect()
}

fn contest<'a>(
    data: &'static str,
    place: Place,
    circle: &Rc<Circle<'a>>,
    log_bytes: usize,
    backends: &'a [Backend],
) -> Contest<'a> {
    let bytes = circle.bytes();
    let encoded = Rc::new(OnceCell::new());
    let name = RowName {
        kernel: "decode",
        data,
        place,
    };
    let mut contest = Contest::new(name);
    for &backend in backends {
        let encoded = Rc::clone(&encoded);
        contest = contest.with(&name_of(backend.instruction_set()), circle, move || {
            let encoded = encoded.get_or_init(|| encoded_again(bytes, log_bytes));
            Decoding::new(bytes, log_bytes, encoded.clone(), backend)
        });
    }
    contest = peers::with_memcpy(contest, circle, log_bytes);
    contest = peers::with_decompressor::<Lz4>(contest, circle);
    contest = peers::with_decompressor::<Lz4Flex>(contest, circle);
    peers::with_decompressor::<Zstd>(contest, circle)
}

/// What an encoder writes in its second round of a circle: bytes lie at the same distances in
/// all later ones.
fn encoded_again(circle: &[u8], log_bytes: usize) -> Rc<[EncodedBlock]> {
    let matching = MatchingAlgorithm::MaxMatch;
    let mut encoding = Encoding::new(matching, PERIOD, log_bytes, Backend::best());
    for block in circle.chunks(BLOCK_BYTES) {
        encoding.encode(block);
    }
    encoding.begin_flow();
    let blocks = circle.chunks(BLOCK_BYTES);
    blocks.map(|block| encoding.encode(block).clone()).collect()
}

/// A decoder that has the whole circle behind it, and where it stands.
struct Decoding {
    decoder: Decoder,
    head: LogPosition,
    cursor: SourceCursor,
    encoded: Rc<[EncodedBlock]>,
    plain: Vec<u8>,
}

impl Decoding {
    fn new(circle: &[u8], log_bytes: usize, encoded: Rc<[EncodedBlock]>, backend: Backend) -> Self {
        let geometry = CacheGeometry::new(log_bytes).expect("a valid size");
        let mut decoding = Self {
            decoder: Decoder::with_backend(geometry, backend),
            head: LogPosition(0),
            cursor: SourceCursor::default(),
            encoded,
            plain: Vec::new(),
        };
        for block in circle.chunks(BLOCK_BYTES) {
            decoding.decode(&EncodedBlock {
                literals: block.to_vec(),
                check: check(0, block),
                ..EncodedBlock::default()
            });
        }
        decoding
    }

    fn decode(&mut self, encoded: &EncodedBlock) {
        let block = Block {
            number: 0,
            at: self.head,
            len: BLOCK_BYTES,
            tokens: &encoded.tokens,
            literals: &encoded.literals,
            check: encoded.check,
        };
        self.plain.clear();
        self.decoder
            .decode(block, &mut self.cursor, &mut self.plain)
            .expect("what an encoder wrote");
        black_box(&self.plain);
        self.head = self.head + BLOCK_BYTES as u64;
    }
}

impl<'a> Work<'a> for Decoding {
    fn fetch(&mut self, pass: Pass<'a>) {
        for (number, _) in pass.blocks() {
            read(&self.encoded[number].literals);
            read(&self.encoded[number].tokens);
        }
    }

    fn run(&mut self, pass: Pass<'a>) {
        if pass.at == 0 {
            self.cursor = SourceCursor::default();
        }
        let encoded = Rc::clone(&self.encoded);
        for (number, _) in pass.blocks() {
            self.decode(&encoded[number]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round after another: the bytes lie where the encoder says in all of them.
    #[test]
    fn rounds_can_be_decoded() {
        let mut noise = vec![0; 512 << 10];
        super::super::Noise::new(1).fill(&mut noise);
        noise.copy_within(..100_000, 300_000);
        let log_bytes = 1 << 20;
        for circle in [&noise[..], &noise.repeat(4)] {
            let circle_of = Circle::fetched(circle);
            let encoded = encoded_again(circle_of.bytes(), log_bytes);
            let mut decoding = Decoding::new(circle, log_bytes, encoded, Backend::best());
            let mut walk = super::super::walk::Walk::new(circle_of);
            for _ in 0..2 {
                walk.turn(&mut decoding);
            }
        }
    }
}
