//! The codec's contests: markers, encoding, decoding, the block's check.

use std::{hint::black_box, io};

use refrain_codec::{
    EncodedBlock, SourceCursor, check,
    marker::{FindMarkers, MarkerAlgorithm},
    matching::{Everything, MatchingAlgorithm::MaxMatch},
};

use super::{
    Report,
    contest::Contest,
    workload::{BLOCK_BYTES, Walk, WarmDecoder, circles, encoded_again, finder, warm_encoder},
};

/// What one turn of a contest takes: enough that what the turns before it left in the
/// processor's caches hardly matters.
const BLOCKS_A_TURN: usize = 256;

/// zstd's level: its fastest ordinary one.
const ZSTD_LEVEL: i32 = 1;

/// Adds all contests to `report`.
pub fn measure(report: &mut Report) -> io::Result<()> {
    let circles = circles();
    let (_, new) = &circles[0];
    for algorithm in MarkerAlgorithm::ALL {
        report.add(
            &format!("markers, {algorithm}, p=32"),
            markers(algorithm, new),
        );
    }
    report.add("check of a block", block_check(new));
    for (share, circle) in &circles {
        let name = format!("decode, {share} redundant, p=64");
        report.add(&name, decode(circle, 64)?);
        for period in [64, 32] {
            let name = format!("encode, {share} redundant, p={period}");
            report.add(&name, encode(circle, period)?);
        }
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
    let mut encoder = warm_encoder(circle, MaxMatch, period);
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

fn decode(circle: &[u8], period: usize) -> io::Result<Contest<'_>> {
    let encoded = encoded_again(circle, MaxMatch, period);
    let mut zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
    let packed = circle.chunks(BLOCK_BYTES).map(|block| zstd.compress(block));
    let packed = packed.collect::<io::Result<Vec<_>>>()?;

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

#[cfg(test)]
mod tests {
    use super::*;

    /// What the names promise.
    #[test]
    fn half_is_redundant_where_half_is_said_to_be() {
        let expected = [0.0..0.01, 0.48..0.52, 0.99..1.01];
        for ((share, circle), expected) in circles().iter().zip(expected) {
            let blocks = encoded_again(circle, MaxMatch, 64);
            let covered: usize = blocks.iter().map(|block| block.region_bytes).sum();
            let covered = covered as f64 / circle.len() as f64;
            assert!(expected.contains(&covered), "{share}: {covered}");
        }
    }
}
