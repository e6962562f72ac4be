//! What everybody knows, to stand beside: plain memory, compressors, hashes, chunkers.

use std::{hint::black_box, rc::Rc};

use refrain_codec::marker::RabinTables;

use super::{
    BLOCK_BYTES, Contest,
    walk::{Circle, Pass, Work, read},
};

/// zstd's level: its fastest ordinary one.
const ZSTD_LEVEL: i32 = 1;

/// Beside reading the same bytes.
pub(super) fn with_read<'a>(contest: Contest<'a>, circle: &Rc<Circle<'a>>) -> Contest<'a> {
    contest.with("read", circle, || |pass: Pass<'a>| read(pass.bytes))
}

/// Beside copying the same bytes, block by block, into a ring of `ring_bytes`, as a log is one.
pub(super) fn with_memcpy<'a>(
    contest: Contest<'a>,
    circle: &Rc<Circle<'a>>,
    ring_bytes: usize,
) -> Contest<'a> {
    contest.with("memcpy", circle, move || {
        let mut ring = vec![1; ring_bytes];
        let mut at = 0;
        move |pass: Pass<'a>| {
            for (_, block) in pass.blocks() {
                ring[at..][..block.len()].copy_from_slice(block);
                black_box(&ring);
                at = (at + BLOCK_BYTES) % ring_bytes;
            }
        }
    })
}

/// A compressor of single blocks.
pub(super) trait Compressor {
    const NAME: &'static str;
    fn new() -> Self;
    fn bound() -> usize;
    /// Compresses `block` into `out`, of [`bound`](Self::bound) bytes; says how many it wrote.
    fn compress(&mut self, block: &[u8], out: &mut [u8]) -> usize;
    /// Back into `out`, which has the block's length.
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]);
}

/// Beside compressing the same blocks.
pub(super) fn with_compressor<'a, C: Compressor + 'a>(
    contest: Contest<'a>,
    circle: &Rc<Circle<'a>>,
) -> Contest<'a> {
    contest.with(C::NAME, circle, || {
        let mut compressor = C::new();
        let mut out = vec![0; C::bound()];
        move |pass: Pass<'a>| {
            for (_, block) in pass.blocks() {
                black_box(compressor.compress(block, &mut out));
            }
        }
    })
}

/// Beside restoring the same blocks.
pub(super) fn with_decompressor<'a, C: Compressor + 'a>(
    contest: Contest<'a>,
    circle: &Rc<Circle<'a>>,
) -> Contest<'a> {
    let bytes = circle.bytes();
    contest.with(C::NAME, circle, || Decompressing::<C>::new(bytes))
}

struct Decompressing<C> {
    compressor: C,
    packed: Vec<Vec<u8>>,
    out: Vec<u8>,
}

impl<C: Compressor> Decompressing<C> {
    fn new(bytes: &[u8]) -> Self {
        let mut compressor = C::new();
        let mut out = vec![0; C::bound()];
        let packed = bytes.chunks(BLOCK_BYTES).map(|block| {
            let written = compressor.compress(block, &mut out);
            out[..written].to_vec()
        });
        Self {
            packed: packed.collect(),
            compressor,
            out: vec![0; BLOCK_BYTES],
        }
    }
}

impl<'a, C: Compressor> Work<'a> for Decompressing<C> {
    fn fetch(&mut self, pass: Pass<'a>) {
        for (number, _) in pass.blocks() {
            read(&self.packed[number]);
        }
    }

    fn run(&mut self, pass: Pass<'a>) {
        for (number, _) in pass.blocks() {
            self.compressor
                .decompress(&self.packed[number], &mut self.out);
            black_box(&self.out);
        }
    }
}

/// The C library.
pub(super) struct Lz4;

impl Compressor for Lz4 {
    const NAME: &'static str = "lz4 (C)";

    fn new() -> Self {
        Self
    }

    fn bound() -> usize {
        lz4::block::compress_bound(BLOCK_BYTES).expect("a block's length")
    }

    fn compress(&mut self, block: &[u8], out: &mut [u8]) -> usize {
        lz4::block::compress_to_buffer(block, None, false, out).expect("room for any block")
    }

    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) {
        let len = i32::try_from(out.len()).expect("a block's length");
        lz4::block::decompress_to_buffer(packed, Some(len), out).expect("what lz4 wrote");
    }
}

pub(super) struct Lz4Flex(lz4_flex::block::CompressTable);

impl Compressor for Lz4Flex {
    const NAME: &'static str = "lz4_flex";

    fn new() -> Self {
        // Blocks are a byte too long for the small one.
        Self(lz4_flex::block::CompressTable::large())
    }

    fn bound() -> usize {
        lz4_flex::block::get_maximum_output_size(BLOCK_BYTES)
    }

    fn compress(&mut self, block: &[u8], out: &mut [u8]) -> usize {
        lz4_flex::block::compress_into_with_table(block, out, &mut self.0)
            .expect("room for any block")
    }

    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) {
        lz4_flex::block::decompress_into(packed, out).expect("what lz4 wrote");
    }
}

pub(super) struct Zstd {
    compressor: zstd::bulk::Compressor<'static>,
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl Compressor for Zstd {
    const NAME: &'static str = "zstd -1";

    fn new() -> Self {
        Self {
            compressor: zstd::bulk::Compressor::new(ZSTD_LEVEL).expect("a valid level"),
            decompressor: zstd::bulk::Decompressor::new().expect("memory"),
        }
    }

    fn bound() -> usize {
        zstd::zstd_safe::compress_bound(BLOCK_BYTES)
    }

    fn compress(&mut self, block: &[u8], out: &mut [u8]) -> usize {
        self.compressor
            .compress_to_buffer(block, out)
            .expect("room for any block")
    }

    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) {
        self.decompressor
            .decompress_to_buffer(packed, out)
            .expect("what zstd wrote");
    }
}

/// Beside the chunkers that others cut streams with, at about 8 KiB.
pub(super) fn with_chunkers<'a>(contest: Contest<'a>, circle: &Rc<Circle<'a>>) -> Contest<'a> {
    const CHUNK_BYTES: usize = 8 << 10;
    /// As many bits as chunks of [`CHUNK_BYTES`] take.
    const MASK: u64 = !(u64::MAX >> CHUNK_BYTES.ilog2());
    let fastcdc = || {
        |pass: Pass<'a>| {
            let (min, max) = (CHUNK_BYTES / 4, CHUNK_BYTES * 8);
            let chunks = fastcdc::v2020::FastCDC::new(pass.bytes, min, CHUNK_BYTES, max);
            black_box(chunks.count());
        }
    };
    let gearhash = || {
        |pass: Pass<'a>| {
            let mut hasher = gearhash::Hasher::default();
            let mut rest = pass.bytes;
            while let Some(boundary) = hasher.next_match(rest, MASK) {
                rest = &rest[boundary..];
            }
            black_box(rest);
        }
    };
    contest
        .with("fastcdc", circle, fastcdc)
        .with("gearhash", circle, gearhash)
}

/// Beside digests of pieces of `piece_bytes`, one after another.
pub(super) fn with_digests<'a>(
    contest: Contest<'a>,
    circle: &Rc<Circle<'a>>,
    piece_bytes: usize,
) -> Contest<'a> {
    let blake3 = move || {
        move |pass: Pass<'a>| {
            for piece in pass.bytes.chunks(piece_bytes) {
                black_box(blake3::hash(piece));
            }
        }
    };
    let sha1 = move || {
        move |pass: Pass<'a>| {
            for piece in pass.bytes.chunks(piece_bytes) {
                black_box(<sha1::Sha1 as sha1::Digest>::digest(piece));
            }
        }
    };
    contest
        .with("blake3", circle, blake3)
        .with("sha1", circle, sha1)
}

/// Beside what else HARENS compares as names of chunks (Figure 1), of which neither resists who means to
/// deceive.
pub(super) fn with_weak_hashes<'a>(
    contest: Contest<'a>,
    circle: &Rc<Circle<'a>>,
    piece_bytes: usize,
) -> Contest<'a> {
    let md5 = move || {
        move |pass: Pass<'a>| {
            for piece in pass.bytes.chunks(piece_bytes) {
                black_box(<md5::Md5 as md5::Digest>::digest(piece));
            }
        }
    };
    let rabin = move || {
        let RabinTables { entering, .. } = RabinTables::new();
        move |pass: Pass<'a>| {
            for piece in pass.bytes.chunks(piece_bytes) {
                let fingerprint = piece.iter().fold(0_u64, |fingerprint, byte| {
                    let highest = (fingerprint >> 56) as u8 ^ byte.reverse_bits();
                    fingerprint << 8 ^ entering[usize::from(highest)]
                });
                black_box(fingerprint);
            }
        }
    };
    contest
        .with("md5", circle, md5)
        .with("Rabin, by a table", circle, rabin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_comes_back<C: Compressor>() {
        let block = b"refrain ".repeat(BLOCK_BYTES / 8);
        let (mut packed, mut plain) = (vec![0; C::bound()], vec![0; BLOCK_BYTES]);
        let mut compressor = C::new();
        for _ in 0..2 {
            let written = compressor.compress(&block, &mut packed);
            assert!(written < block.len() / 10, "{}: {written}", C::NAME);
            compressor.decompress(&packed[..written], &mut plain);
            assert!(plain == block, "{}", C::NAME);
        }
    }

    #[test]
    fn blocks_come_back() {
        block_comes_back::<Lz4>();
        block_comes_back::<Lz4Flex>();
        block_comes_back::<Zstd>();
    }
}
