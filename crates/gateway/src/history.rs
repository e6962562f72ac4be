//! The history of a near end: its chunk store, in a thread of its own.
//!
//! Links' engines say what came and ask what followed it before; the thread keeps and looks up,
//! and calls the links back. A link never waits for the disk: what the thread has no room for
//! waits in the link's engine, which stops learning when that is too much.

mod keeper;
mod neighbour;
mod realms;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    time::Duration,
};

use refrain_proto::by_receiver::history::HistoryRequest;
use refrain_store::{DiskStore, StoreError, StoreStat};

use crate::{
    config::HistoryOptions,
    last_error::{LastError, Trouble},
    link::SharedLink,
};
use keeper::Keeper;
use neighbour::Neighbour;

/// Requests that wait for the thread.
const REQUESTS_WAITING_MAX: usize = 256;

/// How long the end of the program waits for the disk.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// The store and who asks it. The thread ends with it.
pub struct History {
    requests: SyncSender<Request>,
    shared: Arc<Shared>,
    next_link: AtomicU64,
}

/// What the thread and those who ask it have in common.
struct Shared {
    store: PathBuf,
    realm: String,
    stat: Mutex<StoreStat>,
    trouble: Trouble,
    also: Mutex<Vec<NeighbourReport>>,
    /// The thread had no room: it is to look again at the links.
    has_refused: AtomicBool,
}

/// A link that asks the history; detached when dropped.
pub struct Attached {
    link: u64,
    requests: SyncSender<Request>,
    shared: Arc<Shared>,
}

enum Request {
    Attach(u64, Weak<SharedLink>),
    Asked(u64, HistoryRequest),
    Detach(u64),
    Settle(SyncSender<()>),
}

/// What users see of a history.
#[derive(Debug, Clone)]
pub struct HistoryReport {
    /// The store's folder.
    pub store: PathBuf,
    /// The realm that is learnt and answers.
    pub realm: String,
    /// The store as it stands.
    pub stat: StoreStat,
    /// What last went wrong, until it goes well again.
    pub last_error: Option<LastError>,
    /// Stores of neighbours that are read too.
    pub also: Vec<NeighbourReport>,
}

/// What users see of a neighbour's store.
#[derive(Debug, Clone)]
pub struct NeighbourReport {
    /// Its folder.
    pub folder: PathBuf,
    /// The store, if it was ever there to read.
    pub stat: Option<StoreStat>,
    /// What is wrong with it now.
    pub trouble: Option<String>,
}

/// Why a history does not open.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The store does not.
    #[error("the store in {}: {source}", store.display())]
    Store {
        /// Its folder.
        store: PathBuf,
        /// Why.
        source: StoreError,
    },
    /// That of a neighbour is there, and cannot be read as it is.
    #[error("--store-also {}: {source}", store.display())]
    Neighbour {
        /// Its folder.
        store: PathBuf,
        /// Why.
        source: StoreError,
    },
    /// The thread cannot be made.
    #[error("no thread for the store: {0}")]
    Thread(#[from] std::io::Error),
}

impl History {
    /// Opens the store, which may take a second or two when it is large.
    pub async fn open(options: &HistoryOptions) -> Result<Arc<History>, HistoryError> {
        let options = options.clone();
        let opened = tokio::task::spawn_blocking(move || Self::open_now(&options)).await;
        opened.map_err(std::io::Error::other)?
    }

    /// Says what opening would refuse, and changes nothing. For each store of a neighbour, in their
    /// order, whether it can be read now.
    pub fn check(options: &HistoryOptions) -> Result<Vec<Result<(), StoreError>>, HistoryError> {
        let config = options.store_config();
        let own = DiskStore::check(&options.store, config);
        own.map_err(|source| HistoryError::Store {
            store: options.store.clone(),
            source,
        })?;
        let also = options.also.iter().map(|folder| {
            Neighbour::check(folder, config.chunking).map_err(|source| HistoryError::Neighbour {
                store: folder.clone(),
                source,
            })
        });
        also.collect()
    }

    fn open_now(options: &HistoryOptions) -> Result<Arc<History>, HistoryError> {
        let keeper = Keeper::open(options)?;
        let shared = Arc::new(Shared {
            store: options.store.clone(),
            realm: options.realm.clone(),
            stat: Mutex::new(keeper.stat()),
            trouble: Trouble::default(),
            also: Mutex::new(keeper.neighbours()),
            has_refused: AtomicBool::new(false),
        });
        let (requests, asked) = sync_channel(REQUESTS_WAITING_MAX);
        let of_keeper = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("refrain-store".to_owned())
            .spawn(move || keeper.run(&asked, &of_keeper))?;
        Ok(Arc::new(History {
            requests,
            shared,
            next_link: AtomicU64::new(0),
        }))
    }

    /// A link that will ask.
    pub fn attach(&self, link: Weak<SharedLink>) -> Attached {
        let number = self.next_link.fetch_add(1, Ordering::Relaxed);
        // Fails only if the thread is gone, and then nobody answers.
        let _ = self.requests.send(Request::Attach(number, link));
        Attached {
            link: number,
            requests: self.requests.clone(),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Waits until all that came is on disk, before the program ends. Blocks.
    pub fn settle(&self) {
        let (done, settled) = sync_channel(1);
        if self.requests.send(Request::Settle(done)).is_ok() {
            // Fails if the thread is gone, and has settled before.
            let _ = settled.recv_timeout(SETTLE_MAX);
        }
    }

    /// What users see.
    pub fn report(&self) -> HistoryReport {
        HistoryReport {
            store: self.shared.store.clone(),
            realm: self.shared.realm.clone(),
            stat: self.shared.stat.lock().expect("held for a moment").clone(),
            last_error: self.shared.trouble.last(),
            also: self.shared.also.lock().expect("held for a moment").clone(),
        }
    }
}

impl Attached {
    /// Passes on what the link asks, as far as there is room; `unsent` is what there was none for.
    pub(crate) fn pass_on(
        &self,
        unsent: &mut Option<HistoryRequest>,
        mut next: impl FnMut() -> Option<HistoryRequest>,
    ) {
        while let Some(request) = unsent.take().or_else(&mut next) {
            match self.requests.try_send(Request::Asked(self.link, request)) {
                Ok(()) => {}
                Err(TrySendError::Full(Request::Asked(_, request))) => {
                    *unsent = Some(request);
                    self.shared.has_refused.store(true, Ordering::Release);
                    return;
                }
                Err(_) => return,
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Best effort: the thread also notices that the link is gone.
        let _ = self.requests.try_send(Request::Detach(self.link));
    }
}
