//! The portable version, with instructions for its bit operations.

use alloc::vec::Vec;

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn append(bitmap: &[u64], first: u32, positions: &mut Vec<u32>) {
    super::portable::append(bitmap, first, positions);
}
