//! Classifies 64 bytes at a time, with look-ups among 32 bytes.

use alloc::vec::Vec;
use core::arch::aarch64::{
    uint8x16_t, uint8x16x2_t, uint8x16x4_t, vandq_u8, vdupq_n_u8, vdupq_n_u64, vgetq_lane_u64,
    vld1q_u8_x2, vld1q_u8_x4, vpaddq_u8, vqtbl1q_u8, vqtbl2q_u8, vreinterpretq_u8_u64,
    vreinterpretq_u64_u8, vshrq_n_u8, vtstq_u8,
};

use super::{ByteSet, walk};

#[target_feature(enable = "neon")]
pub(super) fn find(set: &ByteSet, candidates: &[u8], stride: usize, markers: &mut Vec<u32>) {
    let rows = load32(&set.bits);
    let bit_of = vreinterpretq_u8_u64(vdupq_n_u64(u64::from_le_bytes([
        1, 2, 4, 8, 16, 32, 64, 128,
    ])));
    // A byte that is in the set turns into its place among eight, any other into 0.
    let classify = |bytes: uint8x16_t| {
        let row = vqtbl2q_u8(rows, vshrq_n_u8::<3>(bytes));
        let bit = vqtbl1q_u8(bit_of, vandq_u8(bytes, vdupq_n_u8(7)));
        vandq_u8(vtstq_u8(row, bit), bit_of)
    };
    walk::find(candidates, stride, markers, |bytes| {
        let uint8x16x4_t(a, b, c, d) = load64(bytes);
        let low = vpaddq_u8(classify(a), classify(b));
        let high = vpaddq_u8(classify(c), classify(d));
        let sums = vpaddq_u8(low, high);
        vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
    });
}

#[target_feature(enable = "neon")]
fn load32(bytes: &[u8; 32]) -> uint8x16x2_t {
    // SAFETY: 32 bytes are there to be read; no alignment is needed.
    unsafe { vld1q_u8_x2(bytes.as_ptr()) }
}

#[target_feature(enable = "neon")]
fn load64(bytes: &[u8; 64]) -> uint8x16x4_t {
    // SAFETY: 64 bytes are there to be read; no alignment is needed.
    unsafe { vld1q_u8_x4(bytes.as_ptr()) }
}
