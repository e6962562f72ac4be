//! The codec's contests: markers, encoding, decoding, the block's check.
//!
//! The plain bytes are read in a circle that is longer than the cache where they must stay
//! new, and shorter where all of them must be known.

use std::{hint::black_box, io};

use refrain_codec::{
    Block, Decoder, EncodedBlock, Encoder, EncoderConfig, LogPosition, SourceCursor, check,
    geometry::CacheGeometry,
    marker::{
        FindMarkers, MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes,
    },
    matching::Everything,
};

use super::{Report, contest::Contest};

const CACHE_BYTES: usize = 32 << 20;
const BLOCK_BYTES: usize = 64 << 10;

/// What one turn of a contest takes: enough that what the turns before it left in the
/// processor's caches hardly matters.
const BLOCKS_A_TURN: usize = 256;

/// Of repeated and new bytes by turns, where half is redundant.
const PIECE_BYTES: usize = 1 << 10;
/// Repeated pieces come back after so many bytes.
const REPEAT_BYTES: usize = 4 << 20;

/// zstd's level: its fastest ordinary one.
const ZSTD_LEVEL: i32 = 1;

/// Adds all contests to `report`.
pub fn measure(report: &mut Report) -> io::Result<()> {
    let new = noise(2 * CACHE_BYTES);
    for algorithm in MarkerAlgorithm::ALL {
        report.add(
            &format!("markers, {algorithm}, p=32"),
            markers(algorithm, &new),
        );
    }
    report.add("check of a block", block_check(&new));
    report.add("decode, 0% redundant, p=64", decode(&new, 64)?);
    for period in [64, 32] {
        let name = format!("encode, 0% redundant, p={period}");
        report.add(&name, encode(&new, period)?);
    }

    let known = &new[..CACHE_BYTES / 2];
    report.add("decode, 100% redundant, p=64", decode(known, 64)?);
    for period in [64, 32] {
        let name = format!("encode, 100% redundant, p={period}");
        report.add(&name, encode(known, period)?);
    }

    let half = half_redundant(new);
    report.add("decode, 50% redundant, p=64", decode(&half, 64)?);
    for period in [64, 32] {
        let name = format!("encode, 50% redundant, p={period}");
        report.add(&name, encode(&half, period)?);
    }
    Ok(())
}

fn markers(algorithm: MarkerAlgorithm, circle: &[u8]) -> Contest<'_> {
    let finder = finder(algorithm, 32);
    let mut found = Vec::new();
    let ours = turn(circle, move |_, block, _| {
        finder.find(block, &mut found);
        black_box(&found);
    });
    Contest::new(ours).beside("read", read(circle))
}

fn block_check(circle: &[u8]) -> Contest<'_> {
    let ours = turn(circle, |_, block, _| {
        black_box(check(0, block));
    });
    Contest::new(ours)
        .beside("read", read(circle))
        .beside("copy", copy(circle))
}

fn encode(circle: &[u8], period: usize) -> io::Result<Contest<'_>> {
    let mut encoder = warm_encoder(circle, period);
    let mut out = EncodedBlock::default();
    let ours = turn(circle, move |_, block, cursor| {
        encoder.encode(0, block, &Everything, cursor, &mut out);
        black_box(&out);
    });
    let mut zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
    let mut packed = vec![0; zstd::zstd_safe::compress_bound(BLOCK_BYTES)];
    let compress = turn(circle, move |_, block, _| {
        let written = zstd.compress_to_buffer(block, &mut packed);
        black_box(written.expect("room for any block"));
    });
    Ok(Contest::new(ours)
        .beside("zstd -1", compress)
        .beside("copy", copy(circle)))
}

/// Each turn of the circle decodes what the encoder wrote in its second one: bytes lie at
/// the same distances in all of them.
fn decode(circle: &[u8], period: usize) -> io::Result<Contest<'_>> {
    let mut encoder = warm_encoder(circle, period);
    let mut walk = Walk::new(circle);
    let mut encoded = Vec::new();
    let mut packed = Vec::new();
    let mut zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
    for _ in 0..circle.len() / BLOCK_BYTES {
        let (_, block, cursor) = walk.step();
        let mut out = EncodedBlock::default();
        encoder.encode(0, block, &Everything, cursor, &mut out);
        encoded.push(out);
        packed.push(zstd.compress(block)?);
    }

    let mut decoder = WarmDecoder::new(circle);
    let ours = turn(circle, move |index, _, cursor| {
        decoder.decode(&encoded[index], cursor);
    });
    let mut zstd = zstd::bulk::Decompressor::new()?;
    let mut plain = vec![0; BLOCK_BYTES];
    let decompress = turn(circle, move |index, _, _| {
        let written = zstd.decompress_to_buffer(&packed[index], &mut plain);
        black_box(written.expect("what zstd wrote"));
    });
    Ok(Contest::new(ours)
        .beside("zstd -1", decompress)
        .beside("copy", copy(circle)))
}

fn read(circle: &[u8]) -> impl FnMut() -> usize {
    turn(circle, |_, block, _| {
        let (words, _) = block.as_chunks::<8>();
        let sum = words.iter().fold(0, |sum: u64, &word| {
            sum.wrapping_add(u64::from_ne_bytes(word))
        });
        black_box(sum);
    })
}

fn copy(circle: &[u8]) -> impl FnMut() -> usize {
    let mut buffer = vec![0; BLOCK_BYTES];
    turn(circle, move |_, block, _| {
        buffer.copy_from_slice(block);
        black_box(&buffer);
    })
}

/// A contestant's turn: the next blocks of its own walk.
fn turn<'a>(
    circle: &'a [u8],
    mut work: impl FnMut(usize, &'a [u8], &mut SourceCursor) + 'a,
) -> impl FnMut() -> usize + 'a {
    let mut walk = Walk::new(circle);
    move || {
        for _ in 0..BLOCKS_A_TURN {
            let (index, block, cursor) = walk.step();
            work(index, block, cursor);
        }
        BLOCKS_A_TURN * BLOCK_BYTES
    }
}

/// Goes round a circle block by block; each time round is a flow of its own.
struct Walk<'a> {
    circle: &'a [u8],
    index: usize,
    cursor: SourceCursor,
}

impl<'a> Walk<'a> {
    fn new(circle: &'a [u8]) -> Self {
        Self {
            circle,
            index: 0,
            cursor: SourceCursor::default(),
        }
    }

    /// The next block, its index, and the cursor to take it with.
    fn step(&mut self) -> (usize, &'a [u8], &mut SourceCursor) {
        let index = self.index;
        if index == 0 {
            self.cursor = SourceCursor::default();
        }
        self.index = (index + 1) % (self.circle.len() / BLOCK_BYTES);
        let block = &self.circle[index * BLOCK_BYTES..][..BLOCK_BYTES];
        (index, block, &mut self.cursor)
    }
}

/// A decoder that has the whole circle behind it, and where it stands.
struct WarmDecoder {
    decoder: Decoder,
    head: LogPosition,
    plain: Vec<u8>,
}

impl WarmDecoder {
    fn new(circle: &[u8]) -> Self {
        let mut warm = Self {
            decoder: Decoder::new(geometry()),
            head: LogPosition(0),
            plain: Vec::new(),
        };
        for block in circle.chunks(BLOCK_BYTES) {
            let literals = EncodedBlock {
                literals: block.to_vec(),
                check: check(0, block),
                ..EncodedBlock::default()
            };
            warm.decode(&literals, &mut SourceCursor::default());
        }
        warm
    }

    fn decode(&mut self, encoded: &EncodedBlock, cursor: &mut SourceCursor) {
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
            .decode(block, cursor, &mut self.plain)
            .expect("what an encoder wrote");
        black_box(&self.plain);
        self.head = self.head + BLOCK_BYTES as u64;
    }
}

/// An encoder that was once around the circle, so that it knows what there is to know.
fn warm_encoder(circle: &[u8], period: usize) -> Encoder {
    let mut encoder = Encoder::new(EncoderConfig {
        markers: finder(MarkerAlgorithm::SampleByte, period),
        ..EncoderConfig::with_defaults(geometry())
    });
    let mut out = EncodedBlock::default();
    let mut cursor = SourceCursor::default();
    for block in circle.chunks(BLOCK_BYTES) {
        encoder.encode(0, block, &Everything, &mut cursor, &mut out);
    }
    encoder
}

fn geometry() -> CacheGeometry {
    CacheGeometry::new(CACHE_BYTES).expect("a valid size")
}

fn finder(algorithm: MarkerAlgorithm, period: usize) -> MarkerFinder {
    MarkerFinder::new(
        algorithm,
        SamplingPeriod::new(period).expect("a valid period"),
        WindowBytes::DEFAULT,
        SampleByteTable::default(),
    )
}

/// Bytes of full entropy (xorshift64).
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.take(len / 8).flat_map(u64::to_le_bytes).collect()
}

/// Every other piece repeats the one at the same place a while before.
fn half_redundant(mut circle: Vec<u8>) -> Vec<u8> {
    for piece in (REPEAT_BYTES..circle.len()).step_by(2 * PIECE_BYTES) {
        let before = piece - REPEAT_BYTES;
        circle.copy_within(before..before + PIECE_BYTES, piece);
    }
    circle
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the names promise.
    #[test]
    fn half_is_redundant_where_half_is_said_to_be() {
        for (circle, expected) in [
            (noise(2 * CACHE_BYTES), 0.0..0.01),
            (half_redundant(noise(2 * CACHE_BYTES)), 0.48..0.52),
            (noise(CACHE_BYTES / 2), 0.99..1.01),
        ] {
            let mut encoder = warm_encoder(&circle, 64);
            let mut walk = Walk::new(&circle);
            let mut out = EncodedBlock::default();
            let mut covered = 0;
            for _ in 0..circle.len() / BLOCK_BYTES {
                let (_, block, cursor) = walk.step();
                encoder.encode(0, block, &Everything, cursor, &mut out);
                covered += out.region_bytes;
            }
            let share = covered as f64 / circle.len() as f64;
            assert!(expected.contains(&share), "{share}");
        }
    }
}
