//! What the kernels were built to reach: on AVX-512, one core, and in the same run as the peers; on a GPU
//! of the H200's class.

use refrain_codec::simd::InstructionSet;

use crate::contests::{Place, RowName};

/// AVX2 is to reach this share of a speed.
const AVX2_SHARE: f64 = 1.0 / 3.0;

/// What a row is to reach.
#[derive(Debug)]
pub(crate) struct Target {
    kernel: &'static str,
    /// `None` for all data.
    data: Option<&'static str>,
    place: Place,
    /// `None` where ratios alone count.
    gb_per_s: Option<f64>,
    /// Our speed over a peer's.
    ratios: &'static [(&'static str, f64)],
}

#[rustfmt::skip]
const TARGETS: [Target; 17] = [
    target("PACK anchors", None, Place::Hot, Some(20.0), &[("fastcdc", 10.0)]),
    target("PACK anchors", None, Place::File, None, &[("read", 0.7)]),
    target("SAMPLEBYTE p = 64", Some("random"), Place::Hot, Some(15.0), &[]),
    target("SAMPLEBYTE p = 64", Some("text"), Place::Hot, Some(8.0), &[]),
    target("MODP p = 64", None, Place::Hot, Some(5.0), &[]),
    target("MAXP bytes", None, Place::Hot, Some(10.0), &[]),
    target("MAXP 8-byte values", None, Place::Hot, Some(3.0), &[]),
    target("Max-Match encode p = 64", Some("random"), Place::Hot, Some(4.0), &[("naive twin", 5.0)]),
    target("Max-Match encode p = 64", Some("text"), Place::Hot, Some(3.0), &[("naive twin", 5.0), ("lz4 (C)", 2.0)]),
    target("Max-Match encode p = 64", Some("redundant"), Place::Hot, Some(5.0), &[("naive twin", 5.0)]),
    target("Max-Match encode p = 64", None, Place::File, None, &[("memcpy", 0.45)]),
    target("decode", None, Place::Hot, Some(6.0), &[("lz4 (C)", 2.0)]),
    // 40 times what EndRE's paper has.
    target("Chunk-Match encode p = 64", None, Place::Hot, Some(1.0), &[]),
    target("chunk hashes, 2 KiB", None, Place::Hot, None, &[("blake3", 2.0)]),
    target("chunk hashes, 8 KiB", None, Place::Hot, None, &[("blake3", 1.3)]),
    target("GPU MODP anchors", None, Place::Device, Some(500.0), &[]),
    // Whichever is lower.
    target("GPU MODP anchors", None, Place::File, Some(40.0), &[("copy to it", 0.8)]),
];

impl Target {
    /// What `row` is to reach, if anything.
    pub(crate) fn of(row: RowName) -> Option<&'static Self> {
        TARGETS.iter().find(|target| {
            target.kernel == row.kernel
                && target.place == row.place
                && target.data.is_none_or(|data| data == row.data)
        })
    }

    /// Whether it is about a GPU, whatever the processor beside it is.
    fn is_of_gpu(&self) -> bool {
        self.kernel.starts_with("GPU")
    }

    /// The speed to reach with these instructions.
    pub(crate) fn gb_per_s(&self, instructions: InstructionSet) -> Option<f64> {
        match instructions {
            _ if self.is_of_gpu() => self.gb_per_s,
            InstructionSet::Avx512 => self.gb_per_s,
            InstructionSet::Avx2 => Some(self.gb_per_s? * AVX2_SHARE),
            InstructionSet::Neon | InstructionSet::Portable => None,
        }
    }

    /// Our speed over that of `peer`, with these instructions.
    pub(crate) fn ratio(&self, peer: &str, instructions: InstructionSet) -> Option<f64> {
        if instructions != InstructionSet::Avx512 && !self.is_of_gpu() {
            return None;
        }
        let ratio = self.ratios.iter().find(|&&(name, _)| name == peer);
        ratio.map(|&(_, ratio)| ratio)
    }
}

const fn target(
    kernel: &'static str,
    data: Option<&'static str>,
    place: Place,
    gb_per_s: Option<f64>,
    ratios: &'static [(&'static str, f64)],
) -> Target {
    Target {
        kernel,
        data,
        place,
        gb_per_s,
        ratios,
    }
}
