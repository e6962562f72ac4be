//! The thread that owns the store.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Instant,
};

use refrain_proto::predictions::history::{
    Found, FoundChunk, HistoryPlace, HistoryRequest, RecipeNumber, Wanted,
};
use refrain_store::{Chain, ChunkSource, OpeningKey, Place, Realm, RecipeId, StoreError};

use super::{
    HistoryError, NeighbourReport, Request, SYNC_INTERVAL, Shared,
    damage::DamageTold,
    neighbour::Neighbour,
    own::{OwnStore, PAUSE_MAX},
    realms,
};
use crate::config::HistoryOptions;

/// The store, others' stores, and the recipes that are being written.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    own: OwnStore,
    also: Vec<Neighbour>,
    recipes: HashMap<(u64, RecipeNumber), RecipeId>,
    has_news: bool,
    /// Whether anything failed since the last tick.
    has_failed: bool,
    damage_told: DamageTold,
}

impl Keeper {
    /// Fails only where somebody has to see to it: traffic goes on without a store that the disk
    /// refuses.
    pub(super) fn open(
        options: &HistoryOptions,
        shared: Arc<Shared>,
    ) -> Result<Keeper, HistoryError> {
        super::refuse_own_neighbour(options)?;
        let store = options.store.clone();
        let (own, opened) =
            OwnStore::open(options).map_err(|source| HistoryError::Store { store, source })?;
        let chunking = options.store_config().chunking;
        let also = options.also.iter().map(|folder| {
            Neighbour::open(folder, chunking).map_err(|source| HistoryError::Neighbour {
                store: folder.clone(),
                source,
            })
        });
        let mut keeper = Keeper {
            also: also.collect::<Result<_, _>>()?,
            shared,
            own,
            recipes: HashMap::new(),
            has_news: false,
            has_failed: false,
            damage_told: DamageTold::default(),
        };
        keeper.note_unopened(opened);
        keeper.tell_realms();
        keeper.show();
        Ok(keeper)
    }

    /// Says how much history there is, unless no store can be read yet.
    fn tell_realms(&self) {
        let (own, also) = (self.own.stat(), self.neighbours());
        if !self.own.is_open() && also.iter().all(|neighbour| neighbour.stat.is_none()) {
            return;
        }
        let names = self.shared.shown().realms.clone();
        for realm in &names {
            realms::tell(realm, &own, &also);
        }
    }

    fn neighbours(&self) -> Vec<NeighbourReport> {
        self.also.iter().map(Neighbour::report).collect()
    }

    /// Lets users see how the stores stand.
    fn show(&mut self) {
        let stat = self.own.stat();
        self.tell_damage(stat.damaged);
        // Neighbours are read from disk, which may hang: users do not wait for that.
        let (is_open, also) = (self.own.is_open(), self.neighbours());
        let mut shown = self.shared.shown();
        shown.is_open = is_open;
        shown.also = also;
        shown.stat = stat;
    }

    /// Answers until nobody can ask any more.
    pub(super) fn run(mut self, asked: &Receiver<Request>) {
        let mut sync_due = Instant::now() + SYNC_INTERVAL;
        loop {
            let left = sync_due.saturating_duration_since(Instant::now());
            match asked.recv_timeout(left) {
                Ok(request) => {
                    let result = self.handle(request);
                    self.note(result);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.shared.has_refused.swap(false, Ordering::AcqRel) {
                self.look_again();
            }
            if Instant::now() >= sync_due {
                self.look_at_own();
                let was_written = self.has_news;
                let result = self.tick();
                self.note(result);
                // A disk that nothing is asked of may be as bad as before.
                let is_well = !std::mem::take(&mut self.has_failed) && was_written;
                if is_well && self.shared.trouble.clear() {
                    tracing::info!("the store can be written again");
                }
                self.show();
                sync_due = Instant::now() + SYNC_INTERVAL;
            }
        }
        if let Some(store) = self.own.into_inner()
            && let Err(error) = store.close()
        {
            tracing::error!("the store was not written completely: {error}");
        }
    }

    fn note(&mut self, result: Result<(), StoreError>) {
        let Err(error) = result else {
            return;
        };
        self.has_failed = true;
        let error = error.to_string();
        if self.shared.trouble.note(error.clone()) {
            tracing::warn!("the store: {error}");
        }
    }

    /// Damage stops nothing, and nobody would look for it.
    fn tell_damage(&mut self, damaged: u64) {
        if let Some(new) = self.damage_told.news(damaged, Instant::now()) {
            tracing::warn!(
                "the store: {new} of its chunks and records were found damaged and dropped: its disk may \
                 be failing (`refrain store verify` searches for more)"
            );
        }
    }

    /// Tries to open the own store, if it is not open and it is time for that.
    fn look_at_own(&mut self) {
        match self.own.look() {
            Some(Ok(())) => {
                self.tell_open();
                self.tell_realms();
            }
            Some(failed) => self.note_unopened(failed),
            None => {}
        }
    }

    /// The near end did not wait for the disk, and has warned.
    pub(super) fn tell_late(&mut self) {
        if self.own.get().is_some() {
            self.tell_open();
        }
    }

    fn tell_open(&self) {
        self.shared.trouble.clear();
        tracing::info!("the store is open now");
    }

    fn note_unopened(&mut self, opened: Result<(), StoreError>) {
        let Err(error) = opened else {
            return;
        };
        let pause = PAUSE_MAX.as_secs();
        let error = format!(
            "{error}; traffic continues without the store, which is tried again within {pause} s"
        );
        if self.shared.trouble.note(format!("not open: {error}")) {
            tracing::error!("cannot open the store: {error}");
        }
    }

    fn handle(&mut self, request: Request) -> Result<(), StoreError> {
        match request {
            Request::Asked(link, realm, request) => self.asked(link, realm, request),
            Request::Detach(link) => self.detach(link),
            Request::Settle(done) => {
                let ended: Vec<RecipeId> = self.recipes.drain().map(|(_, id)| id).collect();
                if let Some(own) = self.own.get() {
                    ended.into_iter().try_for_each(|id| own.end(id))?;
                    own.sync()?;
                }
                // Nobody waits if it took too long.
                let _ = done.send(());
                Ok(())
            }
        }
    }

    fn asked(
        &mut self,
        link: u64,
        realm: Realm,
        request: HistoryRequest,
    ) -> Result<(), StoreError> {
        match request {
            HistoryRequest::Begin { recipe, opening } => {
                if let Some(own) = self.own.get() {
                    let id = own.begin(realm, opening.map(OpeningKey));
                    self.recipes.insert((link, recipe), id);
                }
                Ok(())
            }
            HistoryRequest::Learn {
                recipe,
                digest,
                bytes,
                follow,
            } => {
                if let Some(wanted) = follow {
                    self.answer(link, wanted, |source| source.places_after(realm, &digest));
                }
                let Some(own) = self.own.get() else {
                    return Ok(());
                };
                self.has_news = true;
                match self.recipes.get(&(link, recipe)) {
                    Some(&id) => own.append(id, &digest, &bytes).map(|_| ()),
                    None => Ok(()),
                }
            }
            HistoryRequest::Open { opening, wanted } => {
                self.answer(link, wanted, |source| {
                    source.openings(realm, OpeningKey(opening))
                });
                Ok(())
            }
            HistoryRequest::Read { from, wanted } => {
                let HistoryPlace([source, high, low]) = from;
                let found = self.read(source as usize, Place([high, low]), wanted);
                self.say(link, wanted, found);
                Ok(())
            }
            HistoryRequest::End { recipe } => {
                match (self.recipes.remove(&(link, recipe)), self.own.get()) {
                    (Some(id), Some(own)) => own.end(id),
                    _ => Ok(()),
                }
            }
            HistoryRequest::Forget { digest } => {
                // Nobody knows of which store it was.
                for source in 0..=self.also.len() {
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

    /// The own store, or that of a neighbour, if it is there and open.
    fn source(&mut self, number: usize) -> Option<&mut dyn ChunkSource> {
        match number.checked_sub(1) {
            Some(index) => self.also[index].source(),
            None => self.own.get().map(|own| own as &mut dyn ChunkSource),
        }
    }

    fn read(&mut self, source: usize, place: Place, wanted: Wanted) -> Found {
        let chain = self.source(source).map_or_else(
            || Ok(Chain::default()),
            |source| source.read(place, wanted.chunks_max, wanted.bytes_max),
        );
        let chain = chain.unwrap_or_else(|error| {
            tracing::debug!("cannot read a chain of chunks: {error}");
            Chain::default()
        });
        let next = chain.next.map(|place| {
            let Place([high, low]) = place;
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
        let link = self.shared.links().get(&link).and_then(Weak::upgrade);
        if let Some(link) = link {
            link.answer(wanted, found);
        }
    }

    /// Links have requests for which there was no room.
    fn look_again(&self) {
        let links: Vec<_> = self
            .shared
            .links()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for link in links {
            link.ask_again();
        }
    }

    fn tick(&mut self) -> Result<(), StoreError> {
        let gone: Vec<u64> = {
            let links = self.shared.links();
            let gone = links.iter().filter(|(_, link)| link.strong_count() == 0);
            gone.map(|(&number, _)| number).collect()
        };
        for link in gone {
            self.detach(link)?;
        }
        self.also.iter_mut().for_each(Neighbour::look);
        let Some(own) = self.own.get() else {
            return Ok(());
        };
        own.check_there()?;
        match std::mem::take(&mut self.has_news) {
            true => own.sync(),
            false => Ok(()),
        }
    }

    fn detach(&mut self, link: u64) -> Result<(), StoreError> {
        self.shared.links().remove(&link);
        let recipes = self.recipes.extract_if(|&(of, _), _| of == link);
        let recipes: Vec<RecipeId> = recipes.map(|(_, id)| id).collect();
        match self.own.get() {
            Some(own) => recipes.into_iter().try_for_each(|id| own.end(id)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
