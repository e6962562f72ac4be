//! What `refrain bulk` finds, as history in a chunk store.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use refrain_bulk::{Chunks, Failed, Item, Sink};
use refrain_codec::chunk::chunking::{self, ChunkingMethod};
use refrain_store::{
    Appended, ChunkSource, DiskStore, Realm, RecipeId, StoreConfig, StoreError,
    private::{KEY, STORE, begins_like_a_key, is_named_like_a_key, is_store},
};
use serde::Serialize;

use crate::{
    stderr::warn,
    store::tell_new_realm,
    table::{bytes, printable_path},
};

/// So much is lost at a power cut, at most, and read again by the next run.
const UNSYNCED_BYTES_MAX: u64 = 256 << 20;

/// How a store cuts, in the words of who cuts for it.
pub(super) fn chunking(config: &StoreConfig) -> anyhow::Result<chunking::Chunking> {
    let of_store = config.chunking;
    let average = 1_u32 << of_store.mask_bits;
    let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let (shortest, longest) = (
        bytes(of_store.bounds.bytes_min()),
        bytes(of_store.bounds.bytes_max()),
    );
    let chunking = chunking::Chunking::new(ChunkingMethod::Pack, average)
        .and_then(|chunking| chunking.with_bounds(shortest, longest));
    chunking.context("`bulk` cannot cut chunks as this store does")
}

/// History that is being written.
pub(super) struct History {
    path: PathBuf,
    config: StoreConfig,
    /// Open once there is something to keep: until then nothing is made or changed.
    store: Option<DiskStore>,
    /// Where the store is, once it is there.
    folder: Option<PathBuf>,
    realm: Realm,
    takes_private: bool,
    /// The file that is being read.
    file: Option<OpenFile>,
    /// A folder that is passed over with all that is in it.
    passed_over: Option<Arc<Path>>,
    unsynced_bytes: u64,
    kept: Kept,
    failed: Option<StoreError>,
}

/// What a chunk store was given, and has.
#[derive(Default, Serialize)]
pub(super) struct Kept {
    pub(super) realm: String,
    pub(super) files: u64,
    new_chunks: u64,
    pub(super) new_bytes: u64,
    known_chunks: u64,
    pub(super) known_bytes: u64,
    /// All that the store has now: less than what is new where that found no room.
    pub(super) held_bytes: u64,
    /// Private keys and chunk stores.
    passed_over: u64,
}

struct OpenFile {
    path: Arc<Path>,
    bytes: u64,
    /// Once something came.
    recipe: Option<RecipeId>,
}

impl History {
    /// Says what opening the store in `folder`, or making one, would refuse. It is opened, for this process
    /// alone, when there is something to keep.
    pub(super) fn new(
        folder: &Path,
        config: StoreConfig,
        realm: &str,
        takes_private: bool,
    ) -> Result<Self, StoreError> {
        DiskStore::check(folder, config)?;
        DiskStore::check_writable(folder)?;
        DiskStore::check_free(folder)?;
        Ok(Self {
            path: folder.to_owned(),
            config,
            store: None,
            folder: folder.canonicalize().ok(),
            realm: Realm::named(realm),
            takes_private,
            file: None,
            passed_over: None,
            unsynced_bytes: 0,
            kept: Kept {
                realm: realm.to_owned(),
                ..Kept::default()
            },
            failed: None,
        })
    }

    fn open(&mut self) -> Result<&mut DiskStore, StoreError> {
        if self.store.is_none() {
            let mut store = DiskStore::open(&self.path, self.config)?;
            tell_new_realm(&store.stat(), &self.kept.realm);
            store.name_realm(&self.kept.realm)?;
            self.folder = self.path.canonicalize().ok();
            self.store = Some(store);
        }
        Ok(self.store.as_mut().expect("it was just opened"))
    }

    /// Whether something is not to become history, and what it is.
    fn is_private(&self, item: &Item) -> Option<&'static str> {
        let metadata = item.metadata.as_ref()?;
        let path = &*item.path;
        let is_own = || self.folder.is_some() && fs::canonicalize(path).ok() == self.folder;
        let is_key = || is_named_like_a_key(path, metadata.len());
        // The store itself grows by what is read of it.
        if metadata.is_dir() {
            (is_own() || !self.takes_private && is_store(path)).then_some(STORE)
        } else {
            (metadata.is_file() && !self.takes_private && is_key()).then_some(KEY)
        }
    }

    fn pass_over(&mut self, path: &Path, what: &str) {
        self.kept.passed_over += 1;
        let path = printable_path(path);
        warn(format_args!("not stored: \"{path}\": {what}"));
    }

    fn flow(&mut self, done: Result<(), StoreError>) -> ControlFlow<()> {
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn append(&mut self, chunks: &Chunks<'_>) -> Result<(), StoreError> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if file.recipe.is_none()
            && !self.takes_private
            && begins_like_a_key(chunks.bytes(), file.bytes)
        {
            let path = file.path.clone();
            self.file = None;
            self.pass_over(&path, KEY);
            return Ok(());
        }
        self.open()?;
        let (Some(store), Some(file)) = (&mut self.store, &mut self.file) else {
            return Ok(());
        };
        let recipe = *(file.recipe).get_or_insert_with(|| store.begin(self.realm, None));
        for (digest, chunk) in chunks.iter() {
            let kept = &mut self.kept;
            let (chunks, bytes) = match store.append(recipe, digest, chunk)? {
                Appended::Stored => (&mut kept.new_chunks, &mut kept.new_bytes),
                Appended::Known => (&mut kept.known_chunks, &mut kept.known_bytes),
            };
            *chunks += 1;
            *bytes += chunk.len() as u64;
        }
        self.unsynced_bytes += chunks.bytes().len() as u64;
        if self.unsynced_bytes >= UNSYNCED_BYTES_MAX {
            self.unsynced_bytes = 0;
            store.sync()?;
        }
        Ok(())
    }

    /// All was given: keeps it for good, and says what came of it.
    ///
    /// # Errors
    /// What went wrong, now or before.
    pub(super) fn finish(self) -> anyhow::Result<Kept> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let Some(store) = self.store else {
            bail!("nothing to store: the inputs have no content that becomes history");
        };
        let stat = store.stat();
        store.close()?;
        let mut kept = self.kept;
        kept.held_bytes = stat.disk.chunks;
        if kept.new_bytes > kept.held_bytes {
            let [new, held, bound] =
                [kept.new_bytes, kept.held_bytes, stat.disk_bytes_max].map(bytes);
            // The bound is kept by segments: near it is at it.
            let why = match kept.held_bytes < stat.disk_bytes_max / 2 {
                true => "its disk is full".to_owned(),
                false => format!("its limit is {bound}, see --store-size"),
            };
            warn(format_args!(
                "of {new} of new data, the store has only the latest {held}: {why}"
            ));
        }
        Ok(kept)
    }
}

impl Sink for History {
    fn begin(&mut self, item: Item) -> ControlFlow<()> {
        self.file = None;
        if let Some(folder) = &self.passed_over
            && item.path.starts_with(folder)
        {
            return ControlFlow::Continue(());
        }
        if let Some(what) = self.is_private(&item) {
            self.pass_over(&item.path, what);
            self.passed_over = Some(item.path);
            return ControlFlow::Continue(());
        }
        self.file = Some(OpenFile {
            bytes: item.metadata.map_or(u64::MAX, |metadata| metadata.len()),
            path: item.path,
            recipe: None,
        });
        ControlFlow::Continue(())
    }

    fn chunks(&mut self, chunks: &Chunks<'_>) -> ControlFlow<()> {
        let appended = self.append(chunks);
        self.flow(appended)
    }

    fn end(&mut self, _: Option<&Failed>) -> ControlFlow<()> {
        let recipe = self.file.take().and_then(|file| file.recipe);
        let ended = match recipe {
            Some(recipe) => {
                self.kept.files += 1;
                self.open().and_then(|store| store.end(recipe))
            }
            None => Ok(()),
        };
        self.flow(ended)
    }
}
