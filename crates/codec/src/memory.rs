//! Memory for logs and tables: zeroed, taken from the system only as it is touched, given back when
//! it goes, and in huge pages where the system has them.
//!
//! Look-ups go everywhere in logs and tables of many megabytes. With pages of 4 KiB the
//! processor's address translation misses as often as its caches do; with 2 MiB it does not.
//!
//! An allocator promises none of this: glibc's takes what was freed before for it, and clears it.

use core::fmt;

pub(crate) use imp::Pages;
pub use imp::Prefault;

/// The size of a huge page on most processors.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Numbers, and arrays of them.
///
/// # Safety
/// All bits zero, what a mapping begins with, must be a value of the type: its default.
pub(crate) unsafe trait Zeroed: Copy + Default {}

// SAFETY: zero is all bits zero.
unsafe impl Zeroed for u8 {}
// SAFETY: as above.
unsafe impl Zeroed for u32 {}
// SAFETY: as above.
unsafe impl Zeroed for [u64; 3] {}

impl<T: Zeroed> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} numbers", self.len())
    }
}

/// A mapping of our own.
#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use alloc::sync::{Arc, Weak};
    use core::{
        marker::PhantomData,
        ops::{Deref, DerefMut, Range},
        ptr::NonNull,
        slice,
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    };

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{HUGE_PAGE_BYTES, Zeroed};

    /// A fixed number of numbers, all zero at first: `len` from `start` on, within a mapping that no other numbers lie
    /// in. Without a number there is no mapping.
    pub(crate) struct Pages<T> {
        start: NonNull<T>,
        len: usize,
        mapping: Option<Arc<Mapping>>,
        owns: PhantomData<T>,
    }

    // SAFETY: it owns its numbers, as a vector does.
    unsafe impl<T: Send> Send for Pages<T> {}
    // SAFETY: as above.
    unsafe impl<T: Sync> Sync for Pages<T> {}

    /// `bytes` of address space from `start` on, until dropped.
    #[derive(Debug)]
    struct Mapping {
        start: *mut u8,
        bytes: usize,
        /// How far it was prefaulted.
        prefaulted: AtomicUsize,
        /// Whether the system refused to.
        refuses: AtomicBool,
    }

    // SAFETY: it reads and writes nothing of its memory.
    unsafe impl Send for Mapping {}
    // SAFETY: as above.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        fn new(bytes: usize) -> Self {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new mapping, where the system finds room, aliases nothing.
            let start = unsafe { mmap_anonymous(core::ptr::null_mut(), bytes, access, flags) };
            Self {
                start: start.expect("room for a cache").cast(),
                bytes,
                prefaulted: AtomicUsize::new(0),
                refuses: AtomicBool::new(false),
            }
        }

        /// Advises the system about a range of it.
        ///
        /// # Safety
        /// The advice changes no byte.
        unsafe fn advise(&self, range: Range<usize>, advice: Advice) -> rustix::io::Result<()> {
            assert!(range.start <= range.end && range.end <= self.bytes);
            // SAFETY: the range lies within the mapping, and its caller chose the advice.
            unsafe { madvise(self.start.add(range.start).cast(), range.len(), advice) }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: it is the whole mapping, and its last owner.
            let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
            debug_assert!(unmapped.is_ok());
        }
    }

    /// A piece of memory that will be written next. The system clears it before it gives it, which another thread can have
    /// it do before.
    #[derive(Debug)]
    pub struct Prefault {
        mapping: Weak<Mapping>,
        range: Range<usize>,
    }

    impl Prefault {
        /// Has the system give it, in huge pages where there are any. Its owner may read, write and drop it meanwhile.
        pub fn run(self) {
            let Some(mapping) = self.mapping.upgrade() else {
                return;
            };
            let end = self.range.end;
            // SAFETY: pages are given as the first write to them would have them given.
            let given = unsafe { mapping.advise(self.range, Advice::LinuxPopulateWrite) };
            if given.is_ok() {
                mapping.prefaulted.fetch_max(end, Ordering::Relaxed);
            } else {
                // A kernel that is older than the advice, or has no memory left: pages are given as they are written.
                mapping.refuses.store(true, Ordering::Relaxed);
            }
        }
    }

    impl<T: Zeroed> Pages<T> {
        pub(crate) fn zeroed(len: usize) -> Self {
            let bytes = size_of::<T>().checked_mul(len).expect("a length that fits");
            if bytes == 0 {
                return Self {
                    start: NonNull::dangling(),
                    len,
                    mapping: None,
                    owns: PhantomData,
                };
            }
            // As much more as it takes to begin with a huge page.
            let spare = if bytes < HUGE_PAGE_BYTES {
                0
            } else {
                HUGE_PAGE_BYTES
            };
            let mapping = Mapping::new(bytes.checked_add(spare).expect("a length that fits"));
            let skipped = match spare {
                0 => 0,
                _ => mapping.start.align_offset(HUGE_PAGE_BYTES),
            };
            assert!(skipped <= spare);
            // SAFETY: `skipped + bytes` bytes were mapped.
            let start = unsafe { mapping.start.add(skipped) };
            let whole = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
            if whole > 0 {
                // A kernel without huge pages says so; then there are none.
                // SAFETY: the advice is about pages that are given later.
                let _ = unsafe { mapping.advise(skipped..skipped + whole, Advice::LinuxHugepage) };
            }
            Self {
                start: NonNull::new(start.cast()).expect("a mapping is nowhere near 0"),
                len,
                mapping: Some(Arc::new(mapping)),
                owns: PhantomData,
            }
        }

        /// How many bytes from the first on were prefaulted.
        pub(crate) fn prefaulted_bytes(&self) -> usize {
            let until = |mapping: &Arc<Mapping>| {
                let until = mapping.prefaulted.load(Ordering::Relaxed);
                until.saturating_sub(self.skipped(mapping))
            };
            self.mapping.as_ref().map_or(0, until)
        }

        /// Whether bytes can be prefaulted, as far as is known.
        pub(crate) fn can_prefault(&self) -> bool {
            let refuses = |mapping: &Arc<Mapping>| mapping.refuses.load(Ordering::Relaxed);
            !self.mapping.as_ref().is_none_or(refuses)
        }

        /// A range of bytes, for another thread to prefault.
        pub(crate) fn prefault(&self, range: Range<usize>) -> Option<Prefault> {
            assert!(range.end <= size_of::<T>() * self.len);
            let mapping = self.mapping.as_ref()?;
            let skipped = self.skipped(mapping);
            Some(Prefault {
                mapping: Arc::downgrade(mapping),
                range: skipped + range.start..skipped + range.end,
            })
        }

        /// Bytes of the mapping before the first number.
        fn skipped(&self, mapping: &Mapping) -> usize {
            self.start.as_ptr().addr() - mapping.start.addr()
        }
    }

    impl<T: Zeroed> Deref for Pages<T> {
        type Target = [T];

        #[inline(always)]
        fn deref(&self) -> &[T] {
            // SAFETY: `len` numbers are mapped from `start` on, aligned to a page, initialised
            // as zeros, which `Zeroed` makes values, and borrowed as `self` is.
            unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
        }
    }

    impl<T: Zeroed> DerefMut for Pages<T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut [T] {
            // SAFETY: as above.
            unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
        }
    }
}

/// What the allocator gives.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    use alloc::{vec, vec::Vec};
    use core::ops::{Deref, DerefMut, Range};

    use super::Zeroed;

    /// A piece of memory that will be written next: none is made here, where the allocator gives all at once.
    #[derive(Debug)]
    pub struct Prefault(());

    impl Prefault {
        /// Has the system give it.
        pub fn run(self) {}
    }

    /// A fixed number of numbers, all zero at first.
    pub(crate) struct Pages<T>(Vec<T>);

    impl<T: Zeroed> Pages<T> {
        pub(crate) fn zeroed(len: usize) -> Self {
            Self(vec![T::default(); len])
        }

        pub(crate) fn prefaulted_bytes(&self) -> usize {
            0
        }

        pub(crate) fn can_prefault(&self) -> bool {
            false
        }

        pub(crate) fn prefault(&self, _: Range<usize>) -> Option<Prefault> {
            None
        }
    }

    impl<T: Zeroed> Deref for Pages<T> {
        type Target = [T];

        fn deref(&self) -> &[T] {
            &self.0
        }
    }

    impl<T: Zeroed> DerefMut for Pages<T> {
        fn deref_mut(&mut self) -> &mut [T] {
            &mut self.0
        }
    }
}

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
            let mut bytes: Pages<u8> = Pages::zeroed(len);
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(1);
            let words: Pages<u32> = Pages::zeroed(len);
            assert_eq!((bytes.len(), words.len()), (len, len));
            assert!(words.iter().all(|&word| word == 0));
        }
    }

    /// Bytes that are resident of the mapping around `address`. Not of the process: other tests run
    /// beside this one.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn resident_bytes(address: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
        let mut is_in_it = false;
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (first, second) = (words.next(), words.next());
            if first == Some("Rss:") && is_in_it {
                let resident = second.and_then(|count| count.parse::<usize>().ok());
                return resident.expect("kilobytes") << 10;
            }
            let bounds = first.and_then(|range| range.split_once('-'));
            let bounds =
                bounds.map(|(from, to)| [from, to].map(|it| usize::from_str_radix(it, 16)));
            if let Some([Ok(from), Ok(to)]) = bounds {
                is_in_it = (from..to).contains(&address);
            }
        }
        0
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn what_is_not_touched_takes_no_memory_and_what_goes_is_given_back() {
        const BYTES: usize = 512 << 20;
        let mut pages: Pages<u8> = Pages::zeroed(BYTES);
        let address = pages.as_ptr().addr() + BYTES / 4;
        assert!(resident_bytes(address) < BYTES / 4, "untouched");
        pages[..BYTES / 2].fill(1);
        assert!(resident_bytes(address) >= BYTES / 2, "touched");
        drop(pages);
        assert!(resident_bytes(address) < BYTES / 4, "given back");
    }

    // Where it is emulated, the kernel's advice has no effect.
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
    #[test]
    fn what_is_prefaulted_is_there_and_as_it_was() {
        const BYTES: usize = 64 << 20;
        let mut pages: Pages<u8> = Pages::zeroed(BYTES);
        let address = pages.as_ptr().addr() + BYTES / 4;
        pages[..BYTES / 4].fill(1);
        let prefault = pages.prefault(0..BYTES / 2).expect("mapped");
        std::thread::spawn(|| prefault.run())
            .join()
            .expect("it may");
        assert_eq!(pages.prefaulted_bytes(), BYTES / 2);
        assert!(resident_bytes(address) >= BYTES / 2);
        assert!(pages[..BYTES / 4].iter().all(|&byte| byte == 1));
        assert!(pages[BYTES / 4..].iter().all(|&byte| byte == 0));
        let late = pages.prefault(0..BYTES).expect("mapped");
        drop(pages);
        assert!(resident_bytes(address) < BYTES / 4, "given back");
        late.run();
    }
}
