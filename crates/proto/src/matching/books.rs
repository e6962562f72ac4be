//! The sender's books: which log positions were applied, which are on their way on which
//! lane, and which are holes.
//!
//! *head* is the next position, *done* the lowest position that is neither known to be
//! applied nor a hole. From *done* to *head* lies one [`Extent`] a block; below *done*
//! only the holes are remembered, until they leave the cache.

use std::{collections::VecDeque, ops::Range};

use refrain_codec::{LogPosition, LogRange, geometry::CacheGeometry, matching::Reach};

use crate::{
    frame::LaneId,
    limits::{EXTENTS_MAX, HOLES_MAX, REACH_EXTENTS_MAX},
    planted::Bug,
};

/// The state of every position that a block may still refer to.
#[derive(Debug)]
pub(crate) struct Books {
    geometry: CacheGeometry,
    head: LogPosition,
    /// Adjacent, in order, ending at `head`; the first is always on its way.
    extents: VecDeque<Extent>,
    /// Disjoint, in order, never adjacent.
    holes: Vec<LogRange>,
    /// The oldest sources that blocks from *done* on refer to, by the blocks' positions. Both ascend: a block with an
    /// older source covers those before it.
    sources: VecDeque<(LogPosition, LogPosition)>,
}

/// One block's positions.
#[derive(Clone, Copy, Debug)]
struct Extent {
    start: LogPosition,
    end: LogPosition,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    OnItsWay(LaneId),
    Applied,
    Hole,
}

impl Books {
    pub(crate) fn new(geometry: CacheGeometry) -> Self {
        Self {
            geometry,
            head: LogPosition(0),
            extents: VecDeque::new(),
            holes: Vec::new(),
            sources: VecDeque::new(),
        }
    }

    /// The lowest position not known to be applied or a hole.
    pub(crate) fn done(&self) -> LogPosition {
        self.extents
            .front()
            .map_or(self.head, |extent| extent.start)
    }

    /// The next position.
    pub(crate) fn head(&self) -> LogPosition {
        self.head
    }

    /// Whether `len` more bytes keep within the guard window. Or within the span, if they overwrite nothing that a block
    /// from *done* on refers to: its receiver may have it after them.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        if self.extents.len() >= EXTENTS_MAX {
            return false;
        }
        let head = self.head + len as u64;
        let ahead = head.since(self.done());
        let oldest = self
            .sources
            .front()
            .map_or(self.done(), |&(_, source)| source);
        let overwrites = head.since(oldest) > self.geometry.cache_bytes() as u64
            && !Bug::SpanOverwrites.is_planted();
        ahead <= self.geometry.window_bytes() as u64
            || ahead <= self.geometry.span_bytes() as u64 && !overwrites
    }

    /// Plain bytes of the log that are not known to be applied.
    pub(crate) fn outstanding_bytes(&self) -> u64 {
        self.head.since(self.done())
    }

    pub(crate) fn holes(&self) -> usize {
        self.holes.len()
    }

    /// A block of `len` bytes at `at`, the head, leaves on `lane`. It refers to nothing before `oldest_source`.
    pub(crate) fn take(
        &mut self,
        at: LogPosition,
        len: usize,
        lane: LaneId,
        oldest_source: Option<LogPosition>,
    ) {
        assert_eq!(at, self.head, "books and encoder count the same positions");
        self.head = at + len as u64;
        self.extents.push_back(Extent {
            start: at,
            end: self.head,
            state: State::OnItsWay(lane),
        });
        if let Some(source) = oldest_source {
            while self
                .sources
                .pop_back_if(|(_, older)| *older >= source)
                .is_some()
            {}
            self.sources.push_back((at, source));
        }
        let oldest = self.head.back(self.geometry.cache_bytes() as u64);
        let gone = self.holes.partition_point(|hole| hole.end <= oldest);
        self.holes.drain(..gone);
    }

    /// The block at `start` was applied at the other end.
    pub(crate) fn applied(&mut self, start: LogPosition) {
        self.settle(start, State::Applied);
    }

    /// The block at `start` will never be applied.
    pub(crate) fn lost(&mut self, start: LogPosition) {
        if let Some(extent) = self.settle(start, State::Hole) {
            self.add_hole(extent.start..extent.end);
        }
    }

    /// What blocks on `lane` may refer to.
    pub(crate) fn reach_of(&self, lane: LaneId) -> LaneReach<'_> {
        LaneReach { books: self, lane }
    }

    fn settle(&mut self, start: LogPosition, state: State) -> Option<Extent> {
        let index = self
            .extents
            .binary_search_by_key(&start, |extent| extent.start)
            .ok()?;
        self.extents[index].state = state;
        let settled = self.extents[index];
        while let Some(first) = self.extents.front() {
            if matches!(first.state, State::OnItsWay(_)) {
                break;
            }
            self.extents.pop_front();
        }
        let done = self.done();
        while self.sources.pop_front_if(|(at, _)| *at < done).is_some() {}
        Some(settled)
    }

    fn add_hole(&mut self, mut hole: LogRange) {
        let from = self.holes.partition_point(|other| other.end < hole.start);
        let to = self.holes.partition_point(|other| other.start <= hole.end);
        if let Some(first) = self.holes[from..to].first() {
            hole.start = hole.start.min(first.start);
        }
        if let Some(last) = self.holes[from..to].last() {
            hole.end = hole.end.max(last.end);
        }
        self.holes.splice(from..to, [hole]);
        if self.holes.len() > HOLES_MAX {
            self.merge_closest_holes();
        }
    }

    /// A hole may be widened at will: nothing refers to it, and nothing is sent for it.
    fn merge_closest_holes(&mut self) {
        let closest = (1..self.holes.len())
            .min_by_key(|&index| self.holes[index].start.since(self.holes[index - 1].end));
        if let Some(index) = closest {
            self.holes[index - 1].end = self.holes[index].end;
            self.holes.remove(index);
        }
    }

    /// Below *done*: the stretch between two holes around `at`.
    fn between_holes(&self, at: LogPosition) -> Option<LogRange> {
        let next = self.holes.partition_point(|hole| hole.end <= at);
        let start = next
            .checked_sub(1)
            .map_or(LogPosition(0), |before| self.holes[before].end);
        let end = self
            .holes
            .get(next)
            .map_or(self.done(), |hole| hole.start.min(self.done()));
        (at < end).then_some(start..end)
    }
}

/// See [`Books::reach_of`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneReach<'a> {
    books: &'a Books,
    lane: LaneId,
}

impl LaneReach<'_> {
    fn allows(&self, extent: &Extent) -> bool {
        match extent.state {
            State::OnItsWay(_) if Bug::ReferAcrossLanes.is_planted() => true,
            State::OnItsWay(lane) => lane == self.lane,
            State::Applied => true,
            State::Hole => false,
        }
    }

    /// The run of allowed extents around the `index`th, itself allowed.
    fn run(&self, index: usize) -> Range<usize> {
        let extents = &self.books.extents;
        let mut run = index..index + 1;
        while run.start > 0
            && index - run.start < REACH_EXTENTS_MAX
            && self.allows(&extents[run.start - 1])
        {
            run.start -= 1;
        }
        while run.end < extents.len()
            && run.end - index < REACH_EXTENTS_MAX
            && self.allows(&extents[run.end])
        {
            run.end += 1;
        }
        run
    }
}

impl Reach for LaneReach<'_> {
    fn around(&self, at: LogPosition) -> Option<LogRange> {
        let extents = &self.books.extents;
        if at < self.books.done() {
            let mut around = self.books.between_holes(at)?;
            if around.end == self.books.done()
                && extents.front().is_some_and(|first| self.allows(first))
            {
                around.end = extents[self.run(0).end - 1].end;
            }
            return Some(around);
        }
        let index = extents.partition_point(|extent| extent.end <= at);
        if !extents.get(index).is_some_and(|extent| self.allows(extent)) {
            return None;
        }
        let run = self.run(index);
        let mut start = extents[run.start].start;
        if run.start == 0
            && let Some(before) = start.0.checked_sub(1)
            && let Some(older) = self.books.between_holes(LogPosition(before))
        {
            start = older.start;
        }
        Some(start..extents[run.end - 1].end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: LaneId = LaneId(1);
    const B: LaneId = LaneId(2);

    fn books() -> Books {
        Books::new(CacheGeometry::new(1 << 20).expect("valid"))
    }

    fn take(books: &mut Books, len: usize, lane: LaneId) -> LogPosition {
        let at = books.head;
        books.take(at, len, lane, None);
        at
    }

    fn reach(books: &Books, lane: LaneId, at: u64) -> Option<Range<u64>> {
        books
            .reach_of(lane)
            .around(LogPosition(at))
            .map(|range| range.start.0..range.end.0)
    }

    /// What happens to a log with a long span.
    #[derive(Clone, Debug)]
    enum Step {
        /// A block of so many bytes, whose oldest source lies so far before its end, in shares of what it may reach.
        Take(usize, Option<f64>),
        /// One of the blocks on their way, as a share of them, is applied or lost.
        Settle(f64, bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (1..65_536_usize, proptest::option::of(0.0..=1.0)).prop_map(|(len, source)| Step::Take(len, source)),
            1 => (0.0..1.0, any::<bool>()).prop_map(|(share, is_lost)| Step::Settle(share, is_lost)),
        ]
    }

    proptest! {
        /// A receiver may have any block on its way after all that were taken since.
        #[test]
        fn nothing_overwrites_what_a_block_on_its_way_refers_to(steps in proptest::collection::vec(step(), 1..400)) {
            let geometry = CacheGeometry::new(1 << 20).expect("valid").with_long_span();
            let mut books = Books::new(geometry);
            let mut on_their_way: Vec<(LogPosition, LogPosition)> = Vec::new();
            for step in steps {
                match step {
                    Step::Take(len, source) => {
                        let ahead = (books.head + len as u64).since(books.done());
                        let is_narrow = ahead <= geometry.window_bytes() as u64;
                        if !books.has_room(len) {
                            prop_assert!(!is_narrow, "the window is always there");
                            continue;
                        }
                        prop_assert!(ahead <= geometry.span_bytes() as u64);
                        let at = books.head;
                        let oldest = geometry.oldest_for(at + len as u64);
                        let source = source.map(|share| {
                            let reach = at.since(oldest) as f64;
                            at.back((reach * share) as u64)
                        });
                        books.take(at, len, A, source);
                        on_their_way.push((at, source.unwrap_or(at)));
                        for &(at, source) in &on_their_way {
                            let overwritten = books.head.since(source) > geometry.cache_bytes() as u64;
                            prop_assert!(!overwritten, "of {at:?}");
                        }
                    }
                    Step::Settle(share, is_lost) if !on_their_way.is_empty() => {
                        let index = (share * on_their_way.len() as f64) as usize;
                        let (at, _) = on_their_way.remove(index);
                        match is_lost {
                            true => books.lost(at),
                            false => books.applied(at),
                        }
                    }
                    Step::Settle(..) => {}
                }
            }
            on_their_way.into_iter().for_each(|(at, _)| books.applied(at));
            prop_assert!(books.sources.is_empty() && books.has_room(geometry.window_bytes()));
        }
    }

    #[test]
    fn a_lane_refers_to_its_own_blocks_and_to_applied_ones() {
        let mut books = books();
        let first = take(&mut books, 100, A);
        let second = take(&mut books, 100, B);
        take(&mut books, 100, A);
        assert_eq!(reach(&books, A, 50), Some(0..100));
        assert_eq!(reach(&books, A, 150), None, "another lane's, on its way");
        assert_eq!(reach(&books, A, 250), Some(200..300));
        assert_eq!(reach(&books, B, 150), Some(100..200));

        books.applied(second);
        assert_eq!(books.done(), first, "the first is still on its way");
        assert_eq!(reach(&books, A, 150), Some(0..300));
        assert_eq!(reach(&books, B, 50), None);
        books.applied(first);
        assert_eq!(books.done(), LogPosition(200));
        assert_eq!(reach(&books, B, 50), Some(0..200));
        assert_eq!(reach(&books, A, 50), Some(0..300));
    }

    #[test]
    fn nothing_refers_to_a_hole() {
        let mut books = books();
        let blocks: Vec<_> = (0..5).map(|_| take(&mut books, 10, A)).collect();
        books.lost(blocks[1]);
        assert_eq!(reach(&books, A, 5), Some(0..10));
        assert_eq!(reach(&books, A, 15), None);
        for &block in &blocks {
            books.applied(block);
        }
        assert_eq!(books.done(), LogPosition(50));
        assert_eq!(reach(&books, B, 5), Some(0..10));
        assert_eq!(reach(&books, B, 15), None);
        assert_eq!(reach(&books, B, 25), Some(20..50));
        assert_eq!(reach(&books, B, 50), None, "not written yet");
    }

    #[test]
    fn the_window_is_kept_and_frees_itself() {
        let mut books = books();
        let window = books.geometry.window_bytes();
        let block = take(&mut books, window, A);
        assert!(!books.has_room(1));
        books.lost(block);
        assert!(books.has_room(window));
    }

    #[test]
    fn extents_are_capped_while_one_block_stands_still() {
        let mut books = books();
        let stands_still = take(&mut books, 1, A);
        while books.has_room(1) {
            let block = take(&mut books, 1, B);
            books.applied(block);
        }
        assert_eq!(books.extents.len(), EXTENTS_MAX);
        books.applied(stands_still);
        assert!(books.has_room(books.geometry.window_bytes()));
    }

    #[test]
    fn holes_are_capped_and_leave_with_the_cache() {
        let mut books = books();
        let mut lost = Vec::new();
        for index in 0..(4 * HOLES_MAX) {
            let block = take(&mut books, 10, A);
            if index % 2 == 0 {
                lost.push(block)
            } else {
                books.applied(block)
            }
        }
        for block in lost {
            books.lost(block);
        }
        assert_eq!(books.holes(), HOLES_MAX);
        for _ in 0..8 {
            let block = take(&mut books, 256 << 10, A);
            books.applied(block);
        }
        assert_eq!(books.holes(), 0);
    }

    proptest! {
        /// Whatever happens, a reach holds exactly positions that a plain array allows.
        #[test]
        fn reaches_agree_with_a_plain_array(
            steps in proptest::collection::vec((0u8..6, 1usize..9, 0usize..64), 1..120),
        ) {
            let mut books = books();
            let mut plain: Vec<State> = Vec::new();
            let mut outstanding: Vec<(LogPosition, usize)> = Vec::new();
            for (what, len, which) in steps {
                let block = (!outstanding.is_empty()).then(|| which % outstanding.len().max(1));
                match (what, block) {
                    (0..=3, _) | (_, None) => {
                        let lane = if what % 2 == 0 { A } else { B };
                        outstanding.push((take(&mut books, len, lane), len));
                        plain.extend(std::iter::repeat_n(State::OnItsWay(lane), len));
                    }
                    (_, Some(block)) => {
                        let (at, len) = outstanding.swap_remove(block);
                        let state = if what == 4 { State::Applied } else { State::Hole };
                        if what == 4 { books.applied(at) } else { books.lost(at) }
                        plain[at.0 as usize..][..len].fill(state);
                    }
                }
                let done = plain.iter().position(|state| matches!(state, State::OnItsWay(_)));
                prop_assert_eq!(books.done().0 as usize, done.unwrap_or(plain.len()));
            }
            for at in 0..plain.len() {
                let allowed = |state: &State| matches!(state, State::Applied | State::OnItsWay(A));
                match reach(&books, A, at as u64) {
                    None => prop_assert!(!allowed(&plain[at])),
                    Some(range) => {
                        prop_assert!(range.contains(&(at as u64)));
                        let inside = &plain[range.start as usize..range.end as usize];
                        prop_assert!(inside.iter().all(allowed));
                    }
                }
            }
        }
    }
}
