//! What each marker algorithm computes, a position at a time.
//!
//! Each takes a block and answers with its markers, as
//! [`MarkerFinder::find`](crate::marker::MarkerFinder::find) does.

use alloc::vec::Vec;

#[cfg(test)]
use crate::sampling::{AnchorDistance, WINDOW_BYTES};
use crate::{
    marker::{MarkerAlgorithm, SampleByteTable},
    sampling::{POLYNOMIAL, SamplingPeriod, WindowBytes},
    simd::maxp::VALUE_BYTES,
};

/// The markers of `block` by `algorithm`.
#[must_use]
pub fn find(
    algorithm: MarkerAlgorithm,
    block: &[u8],
    period: SamplingPeriod,
    window: WindowBytes,
    table: &SampleByteTable,
) -> Vec<u32> {
    match algorithm {
        MarkerAlgorithm::SampleByte => samplebyte(block, period, window, table),
        MarkerAlgorithm::Modp => modp(block, period, window),
        MarkerAlgorithm::Maxp => maxp(block, period, window, VALUE_BYTES),
        MarkerAlgorithm::MaxpBytes => maxp(block, period, window, 1),
        MarkerAlgorithm::Fixed => fixed(block, period, window),
    }
}

/// SAMPLEBYTE, as in Figure 3 of EndRE, to the last window.
#[must_use]
pub(crate) fn samplebyte(
    block: &[u8],
    period: SamplingPeriod,
    window: WindowBytes,
    table: &SampleByteTable,
) -> Vec<u32> {
    let mut markers = Vec::new();
    let mut i = 0;
    while i + window.bytes() <= block.len() {
        if table.contains(block[i]) {
            markers.push(i as u32);
            i += period.bytes() / 2;
        }
        i += 1;
    }
    markers
}

/// MODP, as in Figure 2 of EndRE with the test of [`Modp`](MarkerAlgorithm::Modp), each
/// window's fingerprint from its bits.
#[must_use]
pub(crate) fn modp(block: &[u8], period: SamplingPeriod, window: WindowBytes) -> Vec<u32> {
    let p = period.bytes() as u64;
    let passes: Vec<bool> = block
        .windows(window.bytes())
        .map(|window| rabin_fingerprint(window) % p == p - 1)
        .collect();
    (0..passes.len())
        .filter(|&i| passes[i] && (i == 0 || !passes[i - 1]))
        .map(|i| i as u32)
        .collect()
}

/// The anchors of a whole stream by [`ModpAnchorFinder`](crate::marker::ModpAnchorFinder): the
/// offset of the first byte of each window that is one.
#[must_use]
#[cfg(test)]
pub(crate) fn modp_anchors(stream: &[u8], distance: AnchorDistance) -> Vec<u64> {
    let p = distance.bytes() as u64;
    let windows = stream.windows(WINDOW_BYTES).zip(0..);
    let anchors = windows.filter(|(window, _)| rabin_fingerprint(window) % p == p - 1);
    anchors.map(|(_, position)| position).collect()
}

/// Remainder of a window, as a polynomial over GF(2), times x^64, by the modulus: long
/// division.
pub(crate) fn rabin_fingerprint(window: &[u8]) -> u64 {
    let mut remainder = 0_u64;
    for bit in window
        .iter()
        .chain(&[0; 8])
        .flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1))
    {
        let overflows = remainder >> 63 == 1;
        remainder = remainder << 1 | u64::from(bit);
        if overflows {
            remainder ^= POLYNOMIAL;
        }
    }
    remainder
}

/// MAXP, as [`Maxp`](MarkerAlgorithm::Maxp) defines it, by values of so many bytes.
#[must_use]
pub(crate) fn maxp(
    block: &[u8],
    period: SamplingPeriod,
    window: WindowBytes,
    value_bytes: usize,
) -> Vec<u32> {
    let reach = period.bytes() / 2;
    // Slices compare byte by byte, from the first on.
    let values: Vec<&[u8]> = block
        .windows(window.bytes())
        .map(|window| &window[..value_bytes])
        .collect();
    let mut markers: Vec<u32> = Vec::new();
    for i in 0..values.len() {
        let region = i.saturating_sub(reach)..values.len().min(i + reach + 1);
        let is_maximum = values[region].iter().all(|other| *other <= values[i]);
        let is_shadowed = markers
            .last()
            .is_some_and(|&marker| i - marker as usize <= reach);
        if is_maximum && !is_shadowed {
            markers.push(i as u32);
        }
    }
    markers
}

/// FIXED: every p-th byte.
#[must_use]
pub fn fixed(block: &[u8], period: SamplingPeriod, window: WindowBytes) -> Vec<u32> {
    let mut markers = Vec::new();
    let mut i = 0;
    while i + window.bytes() <= block.len() {
        markers.push(i as u32);
        i += period.bytes();
    }
    markers
}
