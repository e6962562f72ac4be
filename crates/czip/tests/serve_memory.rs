//! What requests take in memory where archives are made of as many pieces as can be.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use refrain_czip::serve::ServeOptions;

#[allow(dead_code)]
#[path = "suite/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "hostile/draft.rs"]
mod draft;
#[allow(dead_code)]
#[path = "suite/running.rs"]
mod running;
#[allow(dead_code)]
#[path = "suite/serve/world.rs"]
mod world;

use draft::{CONTENT, Draft, FIELDS, SHARED, StreamDraft, WEAVE};
use world::World;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: all is the system allocator's; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What `work` gives, and the most bytes that all threads had allocated at once beyond what they had.
fn most_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let result = work();
    (result, MOST.load(Relaxed) - before)
}

/// What answering a request may take, with what its client has of it: 2 MiB of content, and a frame of the
/// weave of twice as many.
const MOST_BYTES: usize = 24 << 20;
/// Bytes of content: some stretches.
const BYTES: usize = 2 << 20;

/// An archive, the path that is asked for, and what is there.
struct Case {
    draft: Draft,
    path: &'static str,
    expected: Vec<u8>,
}

impl Case {
    fn content(mut draft: Draft, plain: Vec<u8>) -> Self {
        draft.catalog(&[(0, b"", plain.len() as u64, b"")]);
        draft.plain_bytes = plain.len() as u64;
        draft.chunk_bytes_max = 8 << 20;
        draft.frame_bytes_max = 8 << 20;
        Self {
            draft,
            path: "/x",
            expected: plain,
        }
    }
}

/// One chunk of a byte, again and again: some hundred bytes of archive.
fn repeated() -> Case {
    let mut draft = Draft::honest(&[b"."]);
    let count = BYTES as u64 - 1;
    (draft.streams[CONTENT].runs).push(((count - 1) << 2 | 2, Some(0)));
    Case::content(draft, vec![b'.'; BYTES])
}

/// Chunks of a byte, each a frame, in turns.
fn in_turns() -> Case {
    let bytes: Vec<u8> = (0..1000).map(|number| number as u8).collect();
    let mut draft = Draft::honest(&bytes.chunks(1).collect::<Vec<_>>());
    draft.flags = SHARED;
    let runs = &mut draft.streams[CONTENT].runs;
    *runs = vec![(999 << 2, None)];
    runs.extend([(999 << 2 | 1, Some(999)); 127]);
    Case::content(draft, bytes.repeat(128))
}

/// Bytes of fields and zeros in turns.
fn woven() -> Case {
    let mut draft = Draft::woven(b".");
    let pairs = BYTES / 2;
    let weave = [&[0, 1], &[1, 1, 3, 1].repeat(pairs)[..]].concat();
    draft.streams[WEAVE] = StreamDraft::default();
    draft.streams[WEAVE].push(&weave);
    draft.streams[FIELDS].push(&vec![b'-'; pairs]);
    let plain = [b".", &b"-\0".repeat(pairs)[..]].concat();
    draft.points = vec![[plain.len() as u64, weave.len() as u64, 1, pairs as u64, 0]];
    Case::content(draft, plain)
}

/// Frames that lie on each other, as often as a root of some hundred KB can say.
fn heaped() -> Case {
    let mut draft = Draft::honest(&[&b"."[..]; 1000]);
    draft.streams[CONTENT].runs = vec![(999 << 2, None)];
    draft.streams[CONTENT].frame_rows_more = 5000;
    Case {
        path: "/x.czip",
        expected: draft.build(),
        draft,
    }
}

#[test]
fn pieces_without_number_take_bounded_memory() {
    let world = World::with(ServeOptions {
        cache_bytes: 1 << 20,
        ..ServeOptions::default()
    });
    for (what, case) in [
        ("repeated", repeated()),
        ("in turns", in_turns()),
        ("woven", woven()),
        ("heaped", heaped()),
    ] {
        let Case {
            draft,
            path,
            expected,
        } = case;
        fs::write(world.path("x.czip"), draft.build()).expect("a new file");
        let (answer, most) = most_bytes(|| world.get(path, &[]));
        assert_eq!(answer.status, 200, "{what}");
        assert!(answer.body == expected, "{what}");
        assert!(most < MOST_BYTES, "{what}: {most}");
        // Where no plan begins.
        let begin = expected.len() / 2 + 7;
        let range = format!("bytes={begin}-{}", begin + 99);
        let answer = world.get(path, &[("Range", &range)]);
        assert!(answer.body == expected[begin..begin + 100], "{what}");
    }
}
