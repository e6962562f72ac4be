//! The chunk store of a receiver: what it has received, and in which order.
//!
//! Chunks enter, flow by flow; the order in which those of a flow arrived is its *recipe*. For
//! each chunk the store remembers the last two [`Place`]s in recipes where it was seen, and a
//! recipe read onward from there, a *chain*, tells what comes next. What leaves was read and
//! checked against its full digest first, so that a prediction which is confirmed can always be
//! delivered. In the order in which a chunk travels:
//!
//! ```text
//! in   words ─▶ disk ─┬─▶ layout ─▶ folder
//!                     └─▶ key ─▶ index
//! out  words ─▶ key ─▶ index ─▶ history ◀─ layout ◀─ folder
//! ```
//!
//! | to | take |
//! |---|---|
//! | keep history on disk, within a bound | [`DiskStore`] |
//! | read the store of another process, also while that one writes | [`ReadOnlyStore`] |
//! | read either | [`ChunkSource`] |
//! | put another disk below, a lying one for example | [`folder::Folder`] |
//!
//! History is kept apart by [`Realm`]: nothing that was learned in one answers in another, and a
//! chunk that two realms have is stored twice.
//!
//! ```
//! use refrain_codec::chunk::hash::ChunkHasher;
//! use refrain_store::{ChunkSource, DiskStore, Realm, StoreConfig};
//!
//! let folder = tempfile::tempdir()?;
//! let mut store = DiskStore::open(folder.path(), StoreConfig::new(64 << 20))?;
//! let realm = Realm::named("https://example.org");
//! let digest = |chunk: &[u8]| ChunkHasher::default().digest(chunk);
//!
//! let recipe = store.begin(realm, None);
//! for chunk in [b"verse one", b"refrain  ", b"verse two"] {
//!     store.append(recipe, &digest(chunk), chunk)?;
//! }
//! store.end(recipe)?;
//!
//! // The refrain comes again: what followed it?
//! let places = store.places_after(realm, &digest(b"refrain  "));
//! let chain = store.read(places[0], 16, 1 << 20)?;
//! assert_eq!(&chain.chunks[0].bytes[..], b"verse two");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod words;

mod disk;
pub mod private;

mod history;
mod index;
mod key;

mod format;
mod layout;
mod names;

pub mod folder;

mod read_only;
mod verify;

mod error;
mod stat;

pub use disk::{AddProgress, AddReport, DiskStore, Lowered, Room, StoreConfig};
pub use error::StoreError;
pub use history::ChunkSource;
pub use read_only::ReadOnlyStore;
pub use stat::{DiskBytes, RealmStat, StoreStat};
pub use verify::{VerifyProgress, VerifyReport};
pub use words::{Appended, Chain, Chunking, OpeningKey, Place, Realm, RecipeId, StoredChunk};
