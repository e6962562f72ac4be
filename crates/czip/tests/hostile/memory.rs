//! What a thread's allocations come to.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn took(bytes: usize) {
    let now = NOW.get().wrapping_add(bytes);
    NOW.set(now);
    // A thread that frees what another took is below zero.
    if now <= isize::MAX as usize {
        MOST.set(MOST.get().max(now));
    }
}

fn gave(bytes: usize) {
    NOW.set(NOW.get().wrapping_sub(bytes));
}

// SAFETY: all is the system allocator's; the counters have no destructor and allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What `work` gives, and the most bytes that it had allocated at once on this thread.
pub(crate) fn most_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    NOW.set(0);
    MOST.set(0);
    let result = work();
    (result, MOST.get())
}

#[test]
fn allocations_are_counted() {
    let (_, most) = most_bytes(|| {
        drop(vec![1_u8; 1 << 20]);
        vec![0_u8; 3 << 20].len()
    });
    assert!((3 << 20..4 << 20).contains(&most), "{most}");
}
