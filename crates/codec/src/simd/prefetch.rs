//! Asking for memory before it is needed.

/// Asks the processor for the cache line of `slice[index]`, which need not exist: a hint, of
/// which nothing but speed depends.
#[inline]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    // Miri has no caches to warm.
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program could see, and faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slice.as_ptr().wrapping_add(index).cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
    let _ = (slice, index);
}
