//! Looks only at bytes that no skip passes over.

use alloc::vec::Vec;

use super::ByteSet;

pub(super) fn find(set: &ByteSet, candidates: &[u8], stride: usize, markers: &mut Vec<u32>) {
    markers.clear();
    let mut position = 0;
    while let Some(rest) = candidates.get(position..) {
        let Some(offset) = first_in(set, rest) else {
            break;
        };
        markers.push((position + offset) as u32);
        position += offset + stride;
    }
}

/// Index of the first byte that is in the set.
///
/// Eight bytes a branch: with one a byte, a processor guesses wrong at nearly every marker. The
/// first has its own, which it guesses right along a run of one value.
#[inline]
fn first_in(set: &ByteSet, bytes: &[u8]) -> Option<usize> {
    if set.contains(*bytes.first()?) {
        return Some(0);
    }
    let (groups, rest) = bytes.as_chunks::<8>();
    for (index, group) in groups.iter().enumerate() {
        let bits = group.iter().rev().fold(0, |bits: u32, &byte| {
            bits << 1 | u32::from(set.contains(byte))
        });
        if bits != 0 {
            return Some(index * group.len() + bits.trailing_zeros() as usize);
        }
    }
    let offset = rest.iter().position(|&byte| set.contains(byte))?;
    Some(bytes.len() - rest.len() + offset)
}
