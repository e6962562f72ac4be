//! The thread that owns the store.

use std::{
    collections::HashMap,
    sync::{
        Weak,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use refrain_proto::by_receiver::history::{
    Found, FoundChunk, HistoryPlace, HistoryRequest, RecipeNumber, Wanted,
};
use refrain_store::{
    Chain, ChunkSource, ChunkStore, DiskStore, OpeningKey, Place, Realm, RecipeId, StoreError,
    StoreStat,
};

use super::{HistoryError, NeighbourReport, Request, Shared, neighbour::Neighbour, realms};
use crate::{config::HistoryOptions, link::SharedLink};

/// How much of what came a power cut may take, and how old what is seen of others' stores is.
const SYNC_INTERVAL: Duration = Duration::from_secs(2);

/// The store, others' stores, and the recipes that are being written.
pub(super) struct Keeper {
    own: DiskStore,
    also: Vec<Neighbour>,
    realm: Realm,
    links: HashMap<u64, Weak<SharedLink>>,
    recipes: HashMap<(u64, RecipeNumber), RecipeId>,
    has_news: bool,
    /// Whether anything failed since the last tick.
    has_failed: bool,
}

impl Keeper {
    pub(super) fn open(options: &HistoryOptions) -> Result<Keeper, HistoryError> {
        let config = options.store_config();
        let own =
            DiskStore::open(&options.store, config).map_err(|source| HistoryError::Store {
                store: options.store.clone(),
                source,
            })?;
        let also = options.also.iter().map(|folder| {
            Neighbour::open(folder, config.chunking).map_err(|source| HistoryError::Neighbour {
                store: folder.clone(),
                source,
            })
        });
        let mut keeper = Keeper {
            also: also.collect::<Result<_, _>>()?,
            own,
            realm: Realm::named(&options.realm),
            links: HashMap::new(),
            recipes: HashMap::new(),
            has_news: false,
            has_failed: false,
        };
        if let Err(error) = keeper.own.name_realm(&options.realm) {
            tracing::warn!("the store: {error}");
        }
        realms::tell(&options.realm, &keeper.stat(), &keeper.neighbours());
        Ok(keeper)
    }

    pub(super) fn stat(&self) -> StoreStat {
        self.own.stat()
    }

    pub(super) fn neighbours(&self) -> Vec<NeighbourReport> {
        self.also.iter().map(Neighbour::report).collect()
    }

    /// Answers until nobody can ask any more.
    pub(super) fn run(mut self, asked: &Receiver<Request>, shared: &Shared) {
        let mut sync_due = Instant::now() + SYNC_INTERVAL;
        loop {
            let left = sync_due.saturating_duration_since(Instant::now());
            match asked.recv_timeout(left) {
                Ok(request) => {
                    let result = self.handle(request);
                    self.note(result, shared);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if shared.has_refused.swap(false, Ordering::AcqRel) {
                self.look_again();
            }
            if Instant::now() >= sync_due {
                let was_written = self.has_news;
                let result = self.tick();
                self.note(result, shared);
                // A disk that nothing is asked of may be as bad as before.
                let is_well = !std::mem::take(&mut self.has_failed) && was_written;
                if is_well && shared.trouble.clear() {
                    tracing::info!("the store: it can be written again");
                }
                *shared.also.lock().expect("held for a moment") = self.neighbours();
                *shared.stat.lock().expect("held for a moment") = self.own.stat();
                sync_due = Instant::now() + SYNC_INTERVAL;
            }
        }
        if let Err(error) = self.own.close() {
            tracing::error!("the store was not written to its end: {error}");
        }
    }

    fn note(&mut self, result: Result<(), StoreError>, shared: &Shared) {
        let Err(error) = result else {
            return;
        };
        self.has_failed = true;
        let error = error.to_string();
        if shared.trouble.note(error.clone()) {
            tracing::warn!("the store: {error}");
        }
    }

    fn handle(&mut self, request: Request) -> Result<(), StoreError> {
        match request {
            Request::Attach(number, link) => {
                self.links.insert(number, link);
                Ok(())
            }
            Request::Asked(link, request) => self.asked(link, request),
            Request::Detach(link) => self.detach(link),
            Request::Settle(done) => {
                let ended: Vec<RecipeId> = self.recipes.drain().map(|(_, id)| id).collect();
                ended.into_iter().try_for_each(|id| self.own.end(id))?;
                self.own.sync()?;
                // Nobody waits if it took too long.
                let _ = done.send(());
                Ok(())
            }
        }
    }

    fn asked(&mut self, link: u64, request: HistoryRequest) -> Result<(), StoreError> {
        match request {
            HistoryRequest::Begin { recipe, opening } => {
                let id = self.own.begin(self.realm, opening.map(OpeningKey));
                self.recipes.insert((link, recipe), id);
                Ok(())
            }
            HistoryRequest::Learn {
                recipe,
                digest,
                bytes,
                follow,
            } => {
                if let Some(wanted) = follow {
                    let realm = self.realm;
                    self.answer(link, wanted, |source| {
                        source.places_after(realm, &digest).to_vec()
                    });
                }
                self.has_news = true;
                match self.recipes.get(&(link, recipe)) {
                    Some(&id) => self.own.append(id, &digest, &bytes).map(|_| ()),
                    None => Ok(()),
                }
            }
            HistoryRequest::Open { opening, wanted } => {
                let realm = self.realm;
                self.answer(link, wanted, |source| {
                    source.openings(realm, OpeningKey(opening)).to_vec()
                });
                Ok(())
            }
            HistoryRequest::Read { from, wanted } => {
                let HistoryPlace([source, high, low]) = from;
                let found = self.read(source as usize, Place::from_numbers([high, low]), wanted);
                self.say(link, wanted, found);
                Ok(())
            }
            HistoryRequest::End { recipe } => match self.recipes.remove(&(link, recipe)) {
                Some(id) => self.own.end(id),
                None => Ok(()),
            },
            HistoryRequest::Forget { digest } => {
                // Nobody knows of which store it was.
                for source in 0..=self.also.len() {
                    let realm = self.realm;
                    if let Some(source) = self.source(source) {
                        source.forget(realm, &digest);
                    }
                }
                Ok(())
            }
        }
    }

    /// Answers with the first chain that says something: the own store's latest, then others'.
    fn answer(
        &mut self,
        link: u64,
        wanted: Wanted,
        places: impl Fn(&dyn ChunkSource) -> Vec<Place>,
    ) {
        let mut found = Found::default();
        'sources: for source in 0..=self.also.len() {
            let places = self.source(source).map(|source| places(source));
            for place in places.unwrap_or_default() {
                found = self.read(source, place, wanted);
                if !found.chunks.is_empty() {
                    break 'sources;
                }
            }
        }
        self.say(link, wanted, found);
    }

    /// The own store, or that of a neighbour, if it is there.
    fn source(&mut self, number: usize) -> Option<&mut dyn ChunkSource> {
        match number.checked_sub(1) {
            Some(index) => self.also[index].source(),
            None => Some(&mut self.own),
        }
    }

    fn read(&mut self, source: usize, place: Place, wanted: Wanted) -> Found {
        let chain = self.source(source).map_or_else(
            || Ok(Chain::default()),
            |source| source.read(place, wanted.chunks_max, wanted.bytes_max),
        );
        let chain = chain.unwrap_or_else(|error| {
            tracing::debug!("a chain could not be read: {error}");
            Chain::default()
        });
        let next = chain.next.map(|place| {
            let [high, low] = place.to_numbers();
            HistoryPlace([source as u64, high, low])
        });
        let chunks = chain.chunks.into_iter().map(|chunk| FoundChunk {
            digest: chunk.digest,
            bytes: chunk.bytes,
        });
        Found {
            chunks: chunks.collect(),
            next,
        }
    }

    fn say(&self, link: u64, wanted: Wanted, found: Found) {
        if let Some(link) = self.links.get(&link).and_then(Weak::upgrade) {
            link.with(|link, _| link.history_answered(wanted.flow, wanted.request, found));
        }
    }

    /// Links have requests for which there was no room.
    fn look_again(&self) {
        for link in self.links.values().filter_map(Weak::upgrade) {
            link.with(|_, _| ());
        }
    }

    fn tick(&mut self) -> Result<(), StoreError> {
        let gone = self
            .links
            .iter()
            .filter(|(_, link)| link.strong_count() == 0);
        let gone: Vec<u64> = gone.map(|(&number, _)| number).collect();
        for link in gone {
            self.detach(link)?;
        }
        self.also.iter_mut().for_each(Neighbour::look);
        self.own.check_there()?;
        match std::mem::take(&mut self.has_news) {
            true => self.own.sync(),
            false => Ok(()),
        }
    }

    fn detach(&mut self, link: u64) -> Result<(), StoreError> {
        self.links.remove(&link);
        let recipes = self.recipes.extract_if(|&(of, _), _| of == link);
        let recipes: Vec<RecipeId> = recipes.map(|(_, id)| id).collect();
        recipes.into_iter().try_for_each(|id| self.own.end(id))
    }
}

#[cfg(test)]
mod tests;
