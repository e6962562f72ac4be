//! The history of a near end: its chunk store, in a thread of its own.
//!
//! Links' engines say what came and ask what followed it before; the thread keeps and looks up,
//! and calls the links back. A link never waits for the disk: what the thread has no room for
//! waits in the link's engine, which stops learning when that is too much.

mod damage;
mod keeper;
mod neighbour;
mod own;
mod realms;

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SendError, SyncSender, TrySendError, sync_channel},
    },
    time::{Duration, Instant},
};

use refrain_proto::planted::Bug;
use refrain_proto::predictions::history::{Found, HistoryRequest, Wanted};
use refrain_store::{ChunkSource, DiskStore, ReadOnlyStore, Realm, StoreError, StoreStat};

use crate::{
    config::HistoryOptions,
    last_error::{LastError, Trouble},
};
use keeper::Keeper;
use neighbour::Neighbour;

/// Requests that wait for the thread.
const REQUESTS_WAITING_MAX: usize = 256;

/// How much of what came a power cut may take, and how old what is seen of others' stores is.
const SYNC_INTERVAL: Duration = Duration::from_secs(2);

/// How long the start of a near end waits for the disks: one that hangs stops no traffic.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// How long the end of the program waits for the disk, and how often it asks.
const SETTLE_MAX: Duration = Duration::from_secs(10);
const SETTLE_INTERVAL: Duration = Duration::from_millis(10);

/// The store and who asks it. The thread ends with it.
pub struct History {
    requests: SyncSender<Request>,
    shared: Arc<Shared>,
    next_link: AtomicU64,
}

/// What the thread and those who ask it have in common.
struct Shared {
    /// What users see, but for errors.
    shown: Mutex<HistoryReport>,
    trouble: Trouble,
    /// The thread had no room: it is to look again at the links.
    has_refused: AtomicBool,
    links: Mutex<HashMap<u64, Weak<dyn Asker>>>,
}

/// A link, as the history sees it.
pub(crate) trait Asker: Send + Sync {
    /// What was found for it.
    fn answer(&self, wanted: Wanted, found: Found);

    /// There is room again for what it wants to ask.
    fn ask_again(&self);
}

/// A link that asks the history; detached when dropped.
pub struct Attached {
    link: u64,
    realm: Realm,
    requests: SyncSender<Request>,
    shared: Arc<Shared>,
}

enum Request {
    Asked(u64, Realm, HistoryRequest),
    Detach(u64),
    Settle(SyncSender<()>),
}

/// What users see of a history.
#[derive(Debug, Clone, Default)]
pub struct HistoryReport {
    /// The store's folder.
    pub store: PathBuf,
    /// The realms that are learnt and answer.
    pub realms: Vec<String>,
    /// The store as it stands.
    pub stat: StoreStat,
    /// Whether it is open: one that the disk refuses is tried again.
    pub is_open: bool,
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
#[non_exhaustive]
pub enum HistoryError {
    /// The store does not.
    #[error("--store: {source}")]
    Store {
        /// Its folder.
        store: PathBuf,
        /// Why.
        source: StoreError,
    },
    /// That of a neighbour is there, and cannot be read as it is.
    #[error("--store-also: {source}")]
    Neighbour {
        /// Its folder.
        store: PathBuf,
        /// Why.
        source: StoreError,
    },
    /// The store is to be its own neighbour.
    #[error(
        "--store-also {} is the store itself (name only stores of others)",
        store.display()
    )]
    OwnNeighbour {
        /// Its folder.
        store: PathBuf,
    },
    /// The thread cannot be made.
    #[error("cannot start a thread for the store: {0}")]
    Thread(#[from] std::io::Error),
}

impl History {
    /// Opens the store, which may take a second or two when it is large. One that the disk refuses,
    /// or that takes longer than a few seconds, is opened later, and is missed until then.
    pub async fn open(options: &HistoryOptions) -> Result<Arc<History>, HistoryError> {
        let options = options.clone();
        let open = move || Self::open_within(OPEN_MAX, &options, Keeper::open);
        let opened = tokio::task::spawn_blocking(open).await;
        opened.map_err(std::io::Error::other)?
    }

    /// Says what opening would refuse, and changes nothing. For each store of a neighbour, in their
    /// order, whether it can be read now.
    pub fn check(options: &HistoryOptions) -> Result<Vec<Result<(), StoreError>>, HistoryError> {
        let config = options.store_config();
        let own = DiskStore::check(&options.store, config)
            .and_then(|()| DiskStore::check_writable(&options.store));
        own.map_err(|source| HistoryError::Store {
            store: options.store.clone(),
            source,
        })?;
        refuse_own_neighbour(options)?;
        let also = options.also.iter().map(|folder| {
            Neighbour::check(folder, config.chunking).map_err(|source| HistoryError::Neighbour {
                store: folder.clone(),
                source,
            })
        });
        also.collect()
    }

    /// What the start would warn of where the stores have history, and none of a realm. Loads what
    /// they have, and changes nothing.
    pub fn unknown_realms(options: &HistoryOptions) -> Vec<String> {
        let chunking = options.store_config().chunking;
        let also = options.also.iter();
        let also = also.filter_map(|folder| ReadOnlyStore::open(folder, chunking).ok());
        let own = ReadOnlyStore::inspect(&options.store).ok();
        let stats: Vec<StoreStat> = own.into_iter().chain(also).map(|it| it.stat()).collect();
        let (realms, stats) = (options.realm_names(), stats.iter().collect::<Vec<_>>());
        let unknown = realms
            .into_iter()
            .filter_map(|realm| realms::unknown(realm, &stats));
        unknown.collect()
    }

    fn open_within(
        within: Duration,
        options: &HistoryOptions,
        open: impl FnOnce(&HistoryOptions, Arc<Shared>) -> Result<Keeper, HistoryError> + Send + 'static,
    ) -> Result<Arc<History>, HistoryError> {
        let shared = Arc::new(Shared::new(options));
        let (requests, asked) = sync_channel(REQUESTS_WAITING_MAX);
        // With no room: what is sent is taken, or nobody waits any more.
        let (tell_opened, opened) = sync_channel(0);
        let (options, of_keeper) = (options.clone(), Arc::clone(&shared));
        std::thread::Builder::new()
            .name("refrain-store".to_owned())
            .spawn(move || {
                report_panic(&of_keeper, || {
                    let opened = open(&options, Arc::clone(&of_keeper));
                    keep(opened, &of_keeper, &asked, &tell_opened)
                });
            })?;
        match opened.recv_timeout(within) {
            Ok(opened) => opened?,
            Err(RecvTimeoutError::Timeout) => shared.tell(format!(
                "not open after {within:?}: its disk or a neighbour's is slow or hangs (traffic \
                 continues without it until it is open)"
            )),
            // It panicked, and has said so.
            Err(RecvTimeoutError::Disconnected) => {}
        }
        Ok(Arc::new(History {
            requests,
            shared,
            next_link: AtomicU64::new(0),
        }))
    }

    /// A link that will ask, of this realm.
    pub(crate) fn attach(&self, link: Weak<dyn Asker>, realm: &str) -> Attached {
        let number = self.next_link.fetch_add(1, Ordering::Relaxed);
        self.shared.links().insert(number, link);
        Attached {
            link: number,
            realm: match Bug::OneRealm.is_planted() {
                true => Realm::named(""),
                false => Realm::named(realm),
            },
            requests: self.requests.clone(),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Waits until all that came is on disk, before the program ends, and no longer than some
    /// seconds. Blocks.
    pub fn settle(&self) {
        if !self.settle_within(SETTLE_MAX) {
            tracing::warn!(
                "the store: its disk did not write all received data within {SETTLE_MAX:?}"
            );
        }
    }

    /// Whether the disk took all in time, or nobody is there to write.
    fn settle_within(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let left = || deadline.saturating_duration_since(Instant::now());
        let (done, settled) = sync_channel(1);
        let mut request = Request::Settle(done);
        while let Err(TrySendError::Full(refused)) = self.requests.try_send(request) {
            if left().is_zero() {
                return false;
            }
            request = refused;
            std::thread::sleep(SETTLE_INTERVAL);
        }
        !matches!(settled.recv_timeout(left()), Err(RecvTimeoutError::Timeout))
    }

    /// What users see.
    pub fn report(&self) -> HistoryReport {
        HistoryReport {
            last_error: self.shared.trouble.last(),
            ..self.shared.shown().clone()
        }
    }
}

impl Shared {
    fn new(options: &HistoryOptions) -> Self {
        let realms = options.realm_names().into_iter().map(str::to_owned);
        let shown = HistoryReport {
            store: options.store.clone(),
            realms: realms.collect(),
            ..HistoryReport::default()
        };
        Self {
            shown: Mutex::new(shown),
            trouble: Trouble::default(),
            has_refused: AtomicBool::new(false),
            links: Mutex::default(),
        }
    }

    fn shown(&self) -> MutexGuard<'_, HistoryReport> {
        self.shown.lock().expect("held for a moment")
    }

    fn links(&self) -> MutexGuard<'_, HashMap<u64, Weak<dyn Asker>>> {
        self.links.lock().expect("held for a moment")
    }

    /// Says in the log and in the status what is wrong.
    fn tell(&self, error: String) {
        tracing::error!("the store: {error}");
        self.trouble.note(error);
    }
}

/// The thread, once the stores are open or not: tells which, and answers.
fn keep(
    opened: Result<Keeper, HistoryError>,
    shared: &Shared,
    asked: &Receiver<Request>,
    tell_opened: &SyncSender<Result<(), HistoryError>>,
) {
    match opened {
        Ok(mut keeper) => {
            if tell_opened.send(Ok(())).is_err() {
                keeper.tell_late();
            }
            keeper.run(asked);
        }
        Err(error) => {
            if let Err(SendError(Err(error))) = tell_opened.send(Err(error)) {
                shared.tell(format!("{error}; nothing is predicted until a restart"));
            }
        }
    }
}

/// Says so if `thread` panics: nobody else would see that predictions have ended.
fn report_panic(shared: &Shared, thread: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(thread)).is_err() {
        shared.tell(
            "its thread ended because of a bug (please report it): traffic continues, but nothing \
             is predicted until a restart"
                .to_owned(),
        );
    }
}

/// Refuses the store as a neighbour of itself, under whatever name: it would be read twice, and never
/// tell more.
fn refuse_own_neighbour(options: &HistoryOptions) -> Result<(), HistoryError> {
    let place = |folder: &PathBuf| {
        folder
            .canonicalize()
            .or_else(|_| std::path::absolute(folder))
    };
    let own = place(&options.store).ok();
    let mut also = options.also.iter();
    match also.find(|folder| own.is_some() && place(folder).ok() == own) {
        Some(store) => Err(HistoryError::OwnNeighbour {
            store: store.clone(),
        }),
        None => Ok(()),
    }
}

/// Whether an error is for whoever runs the near end to see to, at once. Any other is the disk's, and
/// stops no traffic.
fn needs_somebody(error: &StoreError) -> bool {
    use std::io::ErrorKind::{AlreadyExists, NotADirectory, PermissionDenied};
    match error {
        StoreError::OtherChunking { .. }
        | StoreError::OtherVersion { .. }
        | StoreError::InUse { .. }
        | StoreError::TooSmall { .. }
        | StoreError::NotADirectory { .. }
        | StoreError::NotAStore { .. } => true,
        // A file is where a folder should be, or this user may not write there. No disk gets over that. One that is
        // read-only may have failed, and stops no traffic.
        StoreError::Io { source, .. } => {
            [PermissionDenied, NotADirectory, AlreadyExists].contains(&source.kind())
        }
        _ => false,
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
            match self
                .requests
                .try_send(Request::Asked(self.link, self.realm, request))
            {
                Ok(()) => {}
                Err(TrySendError::Full(Request::Asked(.., request))) => {
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

#[cfg(test)]
mod tests;
