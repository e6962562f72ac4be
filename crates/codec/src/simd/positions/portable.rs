//! Four positions a batch.

use alloc::vec::Vec;

const BATCH: usize = 4;

/// Always inlined, for [`avx2`](super::avx2) to compile it with its bit instructions.
#[inline(always)]
pub(super) fn append(bitmap: &[u64], first: u32, positions: &mut Vec<u32>) {
    let found: usize = bitmap.iter().map(|word| word.count_ones() as usize).sum();
    let mut end = positions.len();
    // What the last batch writes too much has room as well.
    positions.resize(end + found + BATCH, 0);
    for (index, &word) in bitmap.iter().enumerate() {
        let base = first + 64 * index as u32;
        let mut rest = word;
        let mut batch_start = end;
        loop {
            for position in &mut positions[batch_start..][..BATCH] {
                *position = base.wrapping_add(rest.trailing_zeros());
                rest &= rest.wrapping_sub(1);
            }
            if rest == 0 {
                break;
            }
            batch_start += BATCH;
        }
        end += word.count_ones() as usize;
    }
    positions.truncate(end);
}
