//! What the receiver of a flow expects.
//!
//! What the flow received enters, and what the history found; requests to the history leave,
//! and offers. A chunk that came and is known leads to a *chain*: what followed it the last time.
//! The chain's chunks are offered, as far ahead as the virtual window allows. One that was
//! offered and comes, confirmed or not, is a hit, and its chain is read onward (PACK, Proc. 4
//! and 5).
//!
//! In window mode an offer has no place. One that was skipped may still come, so it is
//! withdrawn only when the flow has gone on for a while. In aligned mode a chunk that differs
//! from what was offered there resets the window, and another chain is looked for; offers behind
//! it hold, since a change need not move what follows. Where it did, what is on offer comes
//! elsewhere: it is moved, which takes one number, and not offered again.

mod chains;
mod questions;
mod ranges;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use refrain_codec::chunk::hash::ChunkDigest;

use super::{
    dispersion::Dispersion,
    history::{self, Found, FoundChunk, HistoryConfig, HistoryRequest, Predict, RecipeNumber},
    learner::Learner,
    link_history::LinkHistory,
    offers::{Offered, Offers, Said, State, Unconfirmed},
    response_head::HeadEnd,
    window::VirtualWindow,
};
use crate::{
    counters::PredictionCounters,
    frame::{ConfirmFrame, FlowId},
    limits::{OFFER_BYTES_MAX, OFFERS_FLOW_MAX, RECENT_CHUNKS_MAX},
};
use chains::{Chain, Chains};
use questions::{About, Asked, CHUNKS_A_REQUEST, PROBED_CHUNKS, ROOM_BYTES_MIN};

/// Withdrawals are worth a frame of their own from so many on.
const WITHDRAWALS_A_FRAME: u64 = 64;

/// A skipped offer is withdrawn when so many bytes have come since its chain went on behind it,
/// and an aligned one behind its place: until then it may be moved.
const SKIPPED_FOR_BYTES: u64 = 256 << 10;

/// A chain that was not hit while so many bytes came, and as many as it has on offer, is dead.
const DEAD_AFTER_BYTES: u64 = 4 << 20;

/// Dispersion is said when it changed by so much.
const DISPERSION_STEP: u8 = 16;

/// What a flow's receiver knows and expects.
#[derive(Debug)]
pub(crate) struct Predictions {
    flow: FlowId,
    config: Arc<HistoryConfig>,
    learner: Learner,
    /// Flow offset up to which all bytes came and were learnt.
    came: u64,
    /// Flow offset up to which they were cut into chunks.
    cut: u64,
    /// Confirmed chunks that were placed and not yet learnt, by their offsets.
    placed: VecDeque<(u64, FoundChunk)>,
    /// Ranges of the flow that are secret, from their starts to their ends. None has been passed, and none are adjacent.
    secret: BTreeMap<u64, u64>,
    /// Of what comes behind the latest request.
    head: HeadEnd,
    /// Flow offset behind the latest head that was found.
    body_from: u64,
    recipe: Option<RecipeNumber>,
    /// What the next recipe would begin with was not learnt.
    is_torn: bool,
    opening: u64,
    /// The opening that is to be asked for, once the history has answered: this one, or that of alike requests.
    opening_due: Option<u64>,
    /// The chain of an opening, and its key.
    opening_chain: Option<(u32, u64)>,
    offers: Offers,
    chains: Chains,
    asked: Option<Asked>,
    next_request: u64,
    /// The chunks that came last, and where they began.
    recent: VecDeque<(u64, ChunkDigest)>,
    window: VirtualWindow,
    dispersion: Dispersion,
    said_dispersion: u8,
    by_sender: bool,
    /// While the sender drives: chunks that would be expected, to see whether chains hold.
    probe: VecDeque<ChunkDigest>,
    /// The flow is kept out of the history.
    stopped: bool,
    pub(crate) counters: PredictionCounters,
}

impl Predictions {
    pub(crate) fn new(flow: FlowId, config: Arc<HistoryConfig>) -> Self {
        Self {
            flow,
            learner: Learner::new(&config),
            came: 0,
            cut: 0,
            placed: VecDeque::new(),
            secret: BTreeMap::new(),
            head: HeadEnd::default(),
            body_from: 0,
            recipe: None,
            is_torn: false,
            opening: 0,
            opening_due: None,
            opening_chain: None,
            offers: Offers::default(),
            chains: Chains::default(),
            asked: None,
            next_request: 0,
            recent: VecDeque::new(),
            window: VirtualWindow::new(config.predict),
            dispersion: Dispersion::default(),
            said_dispersion: 0,
            by_sender: false,
            probe: VecDeque::new(),
            stopped: false,
            counters: PredictionCounters::default(),
            config,
        }
    }

    /// Whether the flow's sender drives it.
    pub(crate) fn is_by_sender(&self) -> bool {
        self.by_sender
    }

    /// How often chains break, 0 to 255.
    pub(crate) fn dispersion(&self) -> u8 {
        self.dispersion.level()
    }

    /// The flow's sender drives it from now on, or does so no more.
    pub(crate) fn driven(&mut self, by_sender: bool, link: &mut LinkHistory) {
        self.by_sender = by_sender;
        if by_sender {
            self.chains.clear();
            self.withdraw_below(self.offers.end());
        } else {
            self.ask(link);
        }
    }

    /// The flow is to be kept out of the history from now on. What was offered is still held:
    /// it may be confirmed.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        self.chains.clear();
        self.asked = None;
        self.opening_due = None;
        self.withdraw_below(self.offers.end());
    }

    /// What comes next answers what looks like `opening`: a recipe of its own.
    pub(crate) fn opens(&mut self, opening: u64, link: &mut LinkHistory) {
        if self.stopped {
            return;
        }
        self.end_recipe(link);
        self.head = HeadEnd::default();
        self.is_torn = false;
        self.opening = opening;
        self.opening_due = (self.config.predict == Predict::Window).then_some(opening);
        self.opening_chain = None;
        self.ask(link);
    }

    /// The other end has said whether it takes offers.
    pub(crate) fn peer_known(&mut self, link: &mut LinkHistory) {
        self.ask(link);
    }

    /// These bytes of the flow are secret: they are not learnt when they come.
    pub(crate) fn is_secret(&mut self, mut range: Range<u64>) {
        let before = self.secret.range(..range.start).next_back();
        if let Some((&start, &end)) = before
            && end == range.start
        {
            range.start = start;
        }
        if let Some(end) = self.secret.remove(&range.end) {
            range.end = end;
        }
        self.secret.insert(range.start, range.end);
    }

    /// How many of the flow's next `len` bytes are secret, of those in front.
    fn secret_here(&mut self, len: usize) -> usize {
        let first = self.secret.first_entry();
        let Some(first) = first.filter(|first| *first.key() <= self.came) else {
            return 0;
        };
        let (_, end) = first.remove_entry();
        let here = (end - self.came).min(len as u64);
        if self.came + here < end {
            self.secret.insert(self.came + here, end);
        }
        here as usize
    }

    /// The flow's next bytes came, in order.
    pub(crate) fn received(&mut self, mut bytes: &[u8], link: &mut LinkHistory) {
        if self.stopped {
            self.came += bytes.len() as u64;
            self.secret.clear();
            self.tidy(link);
            return;
        }
        while !bytes.is_empty() {
            let secret = self.secret_here(bytes.len());
            if secret > 0 {
                self.cut_here(link);
                // If they are of a head, the next bytes are of a body.
                self.head.pass();
                bytes = &bytes[secret..];
                self.came += secret as u64;
                (self.cut, self.body_from) = (self.came, self.came);
                continue;
            }
            let placed_at = self.placed.front().map(|&(at, _)| at);
            if placed_at == Some(self.came)
                && let Some((_, chunk)) = self.placed.pop_front()
            {
                self.cut_here(link);
                self.head.pass();
                bytes = &bytes[chunk.bytes.len()..];
                self.came += chunk.bytes.len() as u64;
                self.cut = self.came;
                self.learn(chunk, false, link);
                continue;
            }
            let until_placed = placed_at.map_or(u64::MAX, |at| at - self.came);
            let secret_at = self.secret.first_key_value().map(|(&at, _)| at);
            let until_secret = secret_at.map_or(u64::MAX, |at| at - self.came);
            let until = until_placed.min(until_secret).min(bytes.len() as u64);
            let raw = &bytes[..until as usize];
            let head_end = self.head.find(raw);
            let raw = &raw[..head_end.unwrap_or(raw.len())];
            bytes = &bytes[raw.len()..];
            self.came += raw.len() as u64;
            let mut chunks = Vec::new();
            self.learner.feed(raw, &mut chunks);
            for chunk in chunks {
                self.chunk_came(chunk, link);
            }
            if head_end.is_some() {
                self.body_from = self.came;
                self.cut_here(link);
            }
        }
        self.tidy(link);
        self.ask(link);
    }

    /// All of the flow has come.
    pub(crate) fn finish(&mut self, link: &mut LinkHistory) {
        self.end_recipe(link);
        self.release(link);
    }

    /// The flow is over, or shall not be predicted: gives back what is held for it.
    pub(crate) fn release(&mut self, link: &mut LinkHistory) {
        self.close_recipe(link);
        for (number, offered) in self.offers.release_all() {
            self.wasted(number, &offered, link);
        }
        self.chains.clear();
        self.asked = None;
    }

    /// The chunks of a run that was confirmed at `offset`, in order; they are still to be placed.
    pub(crate) fn confirmed(
        &mut self,
        frame: &ConfirmFrame,
        offset: u64,
        link: &mut LinkHistory,
    ) -> Result<Vec<FoundChunk>, Unconfirmed> {
        let run = self.offers.confirm(frame, offset)?;
        if self.offers.is_on_offer(frame.first)
            && let Some(place) = run.first().and_then(|(_, offered)| offered.start)
        {
            self.moved(place, offset);
        }
        let mut chunks = Vec::new();
        let mut chain = None;
        for (number, offered) in run {
            self.counters.confirmed += 1;
            self.counters.confirmed_bytes += offered.len;
            self.window.succeeded(offered.len);
            if self.offers.is_on_offer(number) {
                self.window.released(offered.len);
            }
            link.give_back(offered.len);
            chain = Some(offered.chain);
            for chunk in offered.chunks {
                self.dispersion.chain_went_on();
                chunks.push(chunk);
            }
        }
        if let Some(chain) = chain {
            if let Some((_, key)) = self.opening_chain.filter(|&(opening, _)| opening == chain) {
                link.opening_hit(key);
            }
            self.hit(frame.first, chain);
        }
        Ok(chunks)
    }

    /// Confirmed chunks were placed at `offset`; [`received`](Self::received) comes upon them.
    pub(crate) fn placed(&mut self, mut offset: u64, chunks: Vec<FoundChunk>) {
        let before = self.placed.partition_point(|&(at, _)| at < offset);
        for (index, chunk) in chunks.into_iter().enumerate() {
            let len = chunk.bytes.len() as u64;
            self.placed.insert(before + index, (offset, chunk));
            offset += len;
        }
    }

    /// The sender forgot the offers below `below`; it may have confirmed them up to `offset`.
    pub(crate) fn forgotten(&mut self, below: u64, offset: u64, link: &mut LinkHistory) {
        self.offers.forgotten(below, offset);
        self.tidy(link);
        self.ask(link);
    }

    /// The history answered.
    pub(crate) fn answered(&mut self, request: u64, found: Found, link: &mut LinkHistory) {
        let Some(asked) = self.asked.take_if(|asked| asked.request == request) else {
            return;
        };
        let Found { mut chunks, next } = found;
        let is_dry = chunks.is_empty();
        let chain = match asked.about {
            About::Opening(key) if chunks.is_empty() => {
                self.opening_due = history::alike(key).filter(|&key| link.tries_alike(key));
                None
            }
            About::ChunkEndingAt(_) if chunks.is_empty() => None,
            // The chain on offer holds: what came differs from it, and at most moved what follows.
            About::ChunkEndingAt(end) if self.has_place(&chunks[0].digest, end) => None,
            About::ChunkEndingAt(end) => {
                if self.config.predict == Predict::Aligned {
                    self.withdraw_below(self.offers.end());
                    self.chains.clear();
                }
                let is_hit = true;
                Some(self.chains.found(self.came, end, is_hit))
            }
            About::Opening(key) => {
                let is_hit = false;
                let chain = self.chains.found(self.came, self.came, is_hit);
                self.opening_chain = Some((chain.number, key));
                if key != self.opening {
                    link.offers_alike(key);
                }
                Some(chain)
            }
            About::Chain(number) => self.chains.get(number),
        };
        if self.config.predict == Predict::Window || self.by_sender {
            // What came meanwhile needs no offer.
            let came = |chunk: &FoundChunk| {
                let since = self.recent.iter().rev();
                let mut since = since.take_while(|&&(at, _)| at >= asked.at);
                since.any(|(_, digest)| *digest == chunk.digest)
            };
            let last = chunks.iter().rposition(came);
            chunks.drain(..last.map_or(0, |last| last + 1));
        }
        if self.by_sender {
            self.probe = chunks.iter().map(|chunk| chunk.digest).collect();
        } else if let Some(mut chain) = chain {
            chain.next = next;
            chain.dry_at = is_dry.then_some(self.came);
            match self.config.predict {
                Predict::Window => {
                    let offers = &self.offers;
                    chunks.retain(|chunk| !offers.is_open_elsewhere(&chunk.digest, chain.number));
                    for chunk in chunks {
                        self.offer(vec![chunk], None, &mut chain, link);
                    }
                }
                Predict::Aligned => self.offer_ranges(chunks, &mut chain, link),
            }
            self.chains.remember(chain);
        }
        self.tidy(link);
        self.ask(link);
    }

    /// The next frame of offers and withdrawals for the sender, if there is something to say.
    pub(crate) fn say(&mut self, link: &LinkHistory) -> Option<Said> {
        let key = link.key()?;
        let allowed = self.window.allowed_bytes();
        let is_over = self.by_sender || self.stopped;
        let is_full = self.window.room_bytes() < (allowed / 4).max(ROOM_BYTES_MIN.min(allowed));
        // Without room on the link no offers come that could take withdrawals along.
        let withdrawals_min = if is_over || is_full || !self.has_room(link) {
            1
        } else {
            WITHDRAWALS_A_FRAME
        };
        self.offers.say(key, withdrawals_min)
    }

    /// How far what was offered is moved; to be said before what [`say`](Self::say) gives.
    pub(crate) fn say_moved(&mut self) -> Option<i64> {
        self.offers.say_moved()
    }

    /// The dispersion, if it is worth telling.
    pub(crate) fn say_dispersion(&mut self) -> Option<u8> {
        let level = self.dispersion.level();
        let is_news = level.abs_diff(self.said_dispersion) >= DISPERSION_STEP;
        is_news.then(|| {
            self.said_dispersion = level;
            level
        })
    }

    /// A chunk came as it is.
    fn chunk_came(&mut self, chunk: FoundChunk, link: &mut LinkHistory) {
        let len = chunk.bytes.len() as u64;
        let start = self.cut;
        self.cut += len;
        if self.by_sender {
            match self.probe.pop_front() {
                Some(expected) if expected == chunk.digest => self.dispersion.chain_went_on(),
                Some(_) => {
                    self.dispersion.unexpected();
                    self.probe.clear();
                }
                None => {}
            }
            self.learn(chunk, self.probe.is_empty(), link);
            return;
        }
        if let Some((number, place)) = self.offers.expected(&chunk.digest, start) {
            self.moved(place, start);
            self.expected_came(number, len);
            self.learn(chunk, false, link);
            return;
        }
        self.dispersion.unexpected();
        if self.config.predict == Predict::Aligned {
            let contradicts = self.offers.oldest().is_some_and(|(_, offered)| {
                let start = offered.start;
                start.is_some_and(|start| start < self.cut.cast_signed())
            });
            if contradicts {
                self.window.failed(len);
            }
        }
        // Nothing follows from a head: many answers may have the same.
        self.learn(chunk, self.cut > self.body_from, link);
    }

    /// A chunk of `len` bytes that was offered came as it is.
    fn expected_came(&mut self, number: u64, len: u64) {
        let Some(offered) = self.offers.offered(number) else {
            return;
        };
        let (chain, whole) = (offered.chain, offered.len);
        self.dispersion.chain_went_on();
        self.window.succeeded(len);
        let end = offered.start.map(|start| start + whole.cast_signed());
        if end.is_none_or(|end| end == self.cut.cast_signed()) {
            self.offers.overtaken(number);
        }
        self.hit(number, chain);
    }

    /// Takes a chunk to the history, and asks what followed it if that is wanted.
    fn learn(&mut self, chunk: FoundChunk, may_follow: bool, link: &mut LinkHistory) {
        self.recent
            .push_back((self.cut - chunk.bytes.len() as u64, chunk.digest));
        if self.recent.len() > RECENT_CHUNKS_MAX {
            self.recent.pop_front();
        }
        if !link.takes_chunks() {
            // What follows would be linked to the wrong chunk.
            link.unlearnt += 1;
            self.is_torn = true;
            self.close_recipe(link);
            return;
        }
        let recipe = match self.recipe {
            Some(recipe) => recipe,
            None => {
                let recipe = *self.recipe.insert(link.next_recipe());
                let opening = (!self.is_torn).then_some(self.opening);
                link.ask(HistoryRequest::Begin { recipe, opening });
                recipe
            }
        };
        let is_free = self.asked.is_none() && self.opening_due.is_none();
        let chunks_max = match self.by_sender {
            true => PROBED_CHUNKS,
            false => CHUNKS_A_REQUEST,
        };
        let follow = match may_follow && is_free && link.has_peer() {
            true => self.want(About::ChunkEndingAt(self.cut), chunks_max, link),
            false => None,
        };
        link.ask(HistoryRequest::Learn {
            recipe,
            digest: chunk.digest,
            bytes: chunk.bytes,
            follow,
        });
    }

    fn offer(
        &mut self,
        chunks: Vec<FoundChunk>,
        start: Option<u64>,
        chain: &mut Chain,
        link: &mut LinkHistory,
    ) {
        let len: u64 = chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum();
        let is_possible =
            (1..=OFFER_BYTES_MAX as u64).contains(&len) && self.offers.held() < OFFERS_FLOW_MAX;
        let Some(key) = link.key().cloned() else {
            return;
        };
        if !is_possible || !link.hold(len) {
            return;
        }
        let offered = Offered::new(chunks, start, chain.number, &key);
        chain.end += len;
        self.window.offered(len);
        self.counters.offers += 1;
        self.counters.offered_bytes += len;
        self.offers.add(offered);
    }

    /// Offer `number` of `chain` was right.
    fn hit(&mut self, number: u64, chain: u32) {
        self.offers.hit(number, chain, self.came);
        self.chains.hit(chain, self.came);
    }

    /// Withdraws what is past, and releases what was withdrawn.
    fn tidy(&mut self, link: &mut LinkHistory) {
        for (number, offered) in self.offers.release(self.came) {
            self.wasted(number, &offered, link);
        }
        while let Some((number, offered)) = self.offers.oldest() {
            let is_past = match offered.state {
                State::Overtaken | State::Confirmed => true,
                State::Skipped(at) => self.came.saturating_sub(at) > SKIPPED_FOR_BYTES,
                State::Open => match offered.start {
                    Some(start) => {
                        let skipped = offered.len + SKIPPED_FOR_BYTES;
                        start + skipped.cast_signed() <= self.cut.cast_signed()
                    }
                    None => self.is_dead(offered.chain),
                },
            };
            if !is_past {
                break;
            }
            self.withdraw_below(number + 1);
        }
        let dead_after = self.dead_after_bytes();
        self.chains.drop_idle(dead_after, self.came);
    }

    fn is_dead(&self, chain: u32) -> bool {
        self.chains.idle_bytes(chain, self.came) > self.dead_after_bytes()
    }

    fn dead_after_bytes(&self) -> u64 {
        DEAD_AFTER_BYTES + self.window.outstanding_bytes()
    }

    fn withdraw_below(&mut self, number: u64) {
        let bytes = self.offers.withdraw_below(number);
        self.window.released(bytes);
    }

    /// An offer that was not confirmed is held no more.
    fn wasted(&mut self, number: u64, offered: &Offered, link: &mut LinkHistory) {
        link.give_back(offered.len);
        if self.offers.is_on_offer(number) {
            self.window.released(offered.len);
        }
        if offered.state == State::Overtaken {
            // Not before: until it is released, it may still be confirmed.
            self.counters.overtaken_bytes += offered.len;
            return;
        }
        self.counters.wasted_bytes += offered.len;
        if self.config.predict == Predict::Window {
            self.window.failed(offered.len);
        }
    }

    fn end_recipe(&mut self, link: &mut LinkHistory) {
        self.cut_here(link);
        self.close_recipe(link);
    }

    fn close_recipe(&mut self, link: &mut LinkHistory) {
        if let Some(recipe) = self.recipe.take() {
            link.ask(HistoryRequest::End { recipe });
        }
    }

    /// A chunk ends where the bytes end that came so far.
    fn cut_here(&mut self, link: &mut LinkHistory) {
        let mut chunks = Vec::new();
        self.learner.finish(&mut chunks);
        for chunk in chunks {
            self.chunk_came(chunk, link);
        }
    }
}
