//! Memory for logs and tables: zeroed, taken from the system only as it is touched, and in huge
//! pages where the system has them.
//!
//! Look-ups go everywhere in logs and tables of many megabytes. With pages of 4 KiB the
//! processor's address translation misses as often as its caches do; with 2 MiB it does not.

use alloc::{vec, vec::Vec};

/// The size of a huge page on most processors.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// `len` zeros.
///
/// Allocators map this much memory anew, so that what is never written takes none.
pub(crate) fn zeroed<T: Zeroed>(len: usize) -> Vec<T> {
    let mut memory = vec![T::ZERO; len];
    advise_huge_pages(&mut memory);
    memory
}

/// Numbers whose zero is all bits zero.
pub(crate) trait Zeroed: Copy {
    const ZERO: Self;
}

impl Zeroed for u8 {
    const ZERO: Self = 0;
}

impl Zeroed for u32 {
    const ZERO: Self = 0;
}

impl<const WORDS: usize> Zeroed for [u64; WORDS] {
    const ZERO: Self = [0; WORDS];
}

/// Asks the system to back the whole huge pages within `memory` by such.
#[cfg(all(target_os = "linux", not(miri)))]
fn advise_huge_pages<T>(memory: &mut [T]) {
    use rustix::mm::{Advice, madvise};

    let bytes = size_of_val(memory);
    let start = memory.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(HUGE_PAGE_BYTES);
    let whole = bytes.saturating_sub(skipped) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if whole > 0 {
        // SAFETY: the range lies within `memory`, which is borrowed for writing, and this advice
        // changes no byte of it.
        let advised = unsafe { madvise(start.add(skipped).cast(), whole, Advice::LinuxHugepage) };
        // A kernel without huge pages says so; then there are none.
        let _ = advised;
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn advise_huge_pages<T>(_memory: &mut [T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_any_size_is_zero_and_can_be_written() {
        for len in [
            0,
            1,
            5000,
            HUGE_PAGE_BYTES - 1,
            2 * HUGE_PAGE_BYTES,
            5_000_001,
        ] {
            let mut bytes: Vec<u8> = zeroed(len);
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(1);
            let words: Vec<u32> = zeroed(len);
            assert_eq!((bytes.len(), words.len()), (len, len));
            assert!(words.iter().all(|&word| word == 0));
        }
    }
}
