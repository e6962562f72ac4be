//! The books of offers, held against plain ones in which nothing is ever removed.

use proptest::{collection::vec, prelude::*, sample::Index};
use refrain_codec::chunk::hash::ChunkHasher;

use super::*;
use crate::frame::FlowId;

/// What happens to the offers of a flow; an index is of the offers made so far.
#[derive(Clone, Debug)]
enum Happens {
    Add { chunk: u8, chain: u32 },
    Overtaken { chunk: u8 },
    Hit { chunk: u8 },
    Confirmed { first: Index, count: u64 },
    MisConfirmed { first: Index, count: u64 },
    Withdrawn { below: Index },
    Said { withdrawals_min: u64 },
    Forgotten { below: Index, offset: u64 },
    Came { bytes: u64 },
    Moved { by: i64 },
}

fn happens() -> impl Strategy<Value = Happens> {
    let index = any::<Index>;
    prop_oneof![
        6 => (0_u8..9, 0_u32..3).prop_map(|(chunk, chain)| Happens::Add { chunk, chain }),
        1 => (0_u8..9).prop_map(|chunk| Happens::Overtaken { chunk }),
        2 => (0_u8..9).prop_map(|chunk| Happens::Hit { chunk }),
        3 => (index(), 1_u64..4).prop_map(|(first, count)| Happens::Confirmed { first, count }),
        1 => (index(), 1_u64..4).prop_map(|(first, count)| Happens::MisConfirmed { first, count }),
        2 => index().prop_map(|below| Happens::Withdrawn { below }),
        4 => (1_u64..4).prop_map(|withdrawals_min| Happens::Said { withdrawals_min }),
        3 => (index(), 0_u64..4000)
            .prop_map(|(below, bytes)| Happens::Forgotten { below, offset: (1 << 20) + bytes }),
        2 => (0_u64..900).prop_map(|bytes| Happens::Came { bytes }),
        2 => (-400_i64..400).prop_map(|by| Happens::Moved { by }),
    ]
}

fn chunk(number: u8) -> FoundChunk {
    let bytes = vec![number; 100 + usize::from(number)];
    FoundChunk {
        digest: ChunkHasher::default().digest(&bytes),
        bytes: bytes.into(),
    }
}

/// Where all confirmed runs lie: offers have no place of their own.
const OFFSET: u64 = 7;

/// An offer in the plain books.
#[derive(Clone, Debug)]
struct Plain {
    chunk: FoundChunk,
    start: Option<u64>,
    /// Where the sender expects it, once it knows it.
    told_start: Option<u64>,
    chain: u32,
    is_open: bool,
    was_skipped: bool,
    is_confirmed: bool,
    is_released: bool,
}

impl Plain {
    fn len(&self) -> u64 {
        self.chunk.bytes.len() as u64
    }

    fn is_held(&self) -> bool {
        !self.is_confirmed && !self.is_released
    }
}

/// The offers of a flow, and all that was ever said of them.
struct Books {
    offers: Offers,
    key: OfferKey,
    is_aligned: bool,
    all: Vec<Plain>,
    withdrawn_below: u64,
    said_end: u64,
    said_withdrawn_below: u64,
    /// What the sender may have said that it forgot.
    notices: Vec<(u64, u64)>,
    came: u64,
    turn: u64,
    /// As a virtual window counts it.
    outstanding_bytes: u64,
}

impl Books {
    fn new(is_aligned: bool) -> Self {
        Self {
            offers: Offers::default(),
            key: OfferKey::agreed(1, 2),
            is_aligned,
            all: Vec::new(),
            withdrawn_below: 0,
            said_end: 0,
            said_withdrawn_below: 0,
            notices: Vec::new(),
            // Far enough on for any move.
            came: 1 << 20,
            turn: 0,
            outstanding_bytes: 0,
        }
    }

    fn number(&self, index: Index) -> usize {
        index.index(self.all.len() + 1)
    }

    fn happens(&mut self, what: Happens) {
        match what {
            Happens::Add { chunk, chain } => self.add(self::chunk(chunk), chain),
            Happens::Overtaken { chunk } => {
                if let Some(number) = self.offers.open(&self::chunk(chunk).digest) {
                    self.offers.overtaken(number);
                    self.all[number as usize].is_open = false;
                }
            }
            Happens::Hit { chunk } => {
                if let Some(number) = self.offers.open(&self::chunk(chunk).digest) {
                    self.hit(number);
                }
            }
            Happens::Confirmed { first, count } => self.confirmed(self.number(first), count),
            Happens::MisConfirmed { first, count } => self.misconfirmed(self.number(first), count),
            Happens::Withdrawn { below } => self.withdrawn(self.number(below)),
            Happens::Said { withdrawals_min } => self.said(withdrawals_min),
            Happens::Forgotten { below, offset } => {
                let below = self.number(below) as u64;
                // What was not withdrawn, or is older than the last notice, is none.
                let last = self.notices.last().map_or(0, |&(below, _)| below);
                if last < below && below <= self.said_withdrawn_below {
                    self.notices.push((below, offset));
                }
                self.offers.forgotten(below, offset);
            }
            Happens::Came { bytes } => {
                self.came += bytes;
                self.release();
            }
            Happens::Moved { by } => {
                if self.is_aligned {
                    self.offers.move_by(by);
                    for plain in &mut self.all[self.withdrawn_below as usize..] {
                        plain.start = plain.start.map(|start| start.strict_add_signed(by));
                    }
                }
            }
        }
        self.check();
    }

    fn add(&mut self, chunk: FoundChunk, chain: u32) {
        let last = self.all.last();
        let end = last.map_or(self.came, |last| last.start.unwrap_or(0) + last.len());
        let start = self.is_aligned.then_some(end);
        let chunks = vec![chunk.clone()];
        let offered = Offered::new(chunks, start, chain, &self.key);
        assert_eq!(self.offers.end(), self.all.len() as u64);
        self.offers.add(offered);
        let plain = Plain {
            chunk,
            start,
            told_start: None,
            chain,
            is_open: true,
            was_skipped: false,
            is_confirmed: false,
            is_released: false,
        };
        self.outstanding_bytes += plain.len();
        self.all.push(plain);
    }

    fn hit(&mut self, number: u64) {
        let chain = self.all[number as usize].chain;
        self.offers.hit(number, chain, self.came);
        self.turn = number + 1;
        for (later, plain) in (0..).zip(&self.all).skip(self.turn as usize) {
            let state = self.offers.offered(later).map(|offered| offered.state);
            let is_skipped = matches!(state, Some(State::Skipped(_)));
            assert!(
                plain.chain != chain || !is_skipped,
                "{later} behind {number}"
            );
        }
        let from = self.withdrawn_below.min(number);
        let before = &mut self.all[from as usize..number as usize];
        for (earlier, plain) in (from..).zip(before) {
            let state = self.offers.offered(earlier).map(|offered| offered.state);
            if plain.chain == chain && plain.is_held() {
                assert_ne!(state, Some(State::Open), "{earlier} before {number}");
                plain.was_skipped = true;
            }
        }
    }

    fn frame(&self, first: usize, count: u64) -> Option<ConfirmFrame> {
        let run = self.all.get(first..first + count as usize)?;
        let hashes = run.iter().map(|plain| self.key.hash(&plain.chunk.bytes));
        let hashes: Vec<_> = hashes.collect();
        Some(ConfirmFrame {
            flow: FlowId(0),
            first: first as u64,
            count,
            len: run.iter().map(Plain::len).sum(),
            offset: None,
            digest: RunDigest::of(OFFSET, hashes.iter()),
        })
    }

    fn confirmed(&mut self, first: usize, count: u64) {
        let Some(frame) = self.frame(first, count) else {
            return;
        };
        let run = first..first + count as usize;
        // Nobody can confirm rightly what it was not told.
        if run.end as u64 > self.said_end {
            return;
        }
        let is_held = self.all[run.clone()].iter().all(Plain::is_held);
        let taken = match self.offers.confirm(&frame, OFFSET) {
            Ok(taken) => taken,
            Err(why) => {
                assert_eq!((why, is_held), (Unconfirmed::NotOffered, false));
                return;
            }
        };
        assert!(is_held, "{run:?} was confirmed or released before");
        assert_eq!(taken.len(), run.len());
        for ((number, offered), expected) in taken.into_iter().zip(run) {
            assert_eq!(number, expected as u64);
            let plain = &mut self.all[expected];
            assert_eq!(offered.chunks, std::slice::from_ref(&plain.chunk));
            plain.is_confirmed = true;
            plain.is_open = false;
            if self.offers.is_on_offer(number) {
                self.outstanding_bytes -= offered.len;
            }
        }
    }

    fn misconfirmed(&mut self, first: usize, count: u64) {
        let beyond = ConfirmFrame {
            flow: FlowId(0),
            first: first as u64,
            count: u64::MAX,
            len: 1,
            offset: None,
            digest: RunDigest([0; 16]),
        };
        assert_eq!(
            self.offers.confirm(&beyond, OFFSET).err(),
            Some(Unconfirmed::NotOffered)
        );
        let Some(frame) = self.frame(first, count) else {
            return;
        };
        let run = first..first + count as usize;
        let why = match self.all[run].iter().all(Plain::is_held) {
            true => Unconfirmed::Mismatch,
            false => Unconfirmed::NotOffered,
        };
        let mut other = frame;
        other.digest.0[5] ^= 1;
        assert_eq!(self.offers.confirm(&other, OFFSET).err(), Some(why));
        other = frame;
        other.len += 1;
        assert_eq!(self.offers.confirm(&other, OFFSET).err(), Some(why));
        let elsewhere = self.offers.confirm(&frame, OFFSET + 1);
        assert_eq!(elsewhere.err(), Some(why));
    }

    fn withdrawn(&mut self, below: usize) {
        let from = (self.withdrawn_below as usize).min(below);
        let fresh = &mut self.all[from..below];
        fresh.iter_mut().for_each(|plain| plain.is_open = false);
        let held = fresh.iter().filter(|plain| plain.is_held());
        let expected: u64 = held.map(Plain::len).sum();
        assert_eq!(self.offers.withdraw_below(below as u64), expected);
        self.outstanding_bytes -= expected;
        self.withdrawn_below = self.withdrawn_below.max(below as u64);
    }

    fn said(&mut self, withdrawals_min: u64) {
        let withdrawn = self.withdrawn_below.min(self.said_end);
        let unsaid = withdrawn - self.said_withdrawn_below;
        let by = self.offers.say_moved().unwrap_or(0);
        let told = self.all.iter_mut();
        let told = told.filter_map(|plain| plain.told_start.as_mut());
        told.for_each(|start| *start = start.strict_add_signed(by));
        assert_eq!(self.offers.say_moved(), None);
        let Some(said) = self.offers.say(&self.key, withdrawals_min) else {
            assert_eq!(self.said_end, self.all.len() as u64);
            assert!(unsaid < withdrawals_min);
            return;
        };
        // Both ends count: what is said goes on where the frame before ended.
        assert_eq!(said.withdrawn_below, withdrawn);
        let first = self.said_end as usize;
        let end = first + said.offers.len();
        for (offer, plain) in said.offers.iter().zip(&self.all[first..end]) {
            assert_eq!(u64::from(offer.len), plain.len());
            assert_eq!(offer.hint, Hint::of(&plain.chunk.bytes));
            assert_eq!(
                offer.signature,
                self.key.sign(&self.key.hash(&plain.chunk.bytes))
            );
        }
        let start = self.all.get(first).and_then(|plain| plain.start);
        assert_eq!(said.start, start);
        let mut start = start;
        for plain in &mut self.all[first..end] {
            plain.told_start = start;
            start = start.map(|start| start + plain.len());
        }
        // Both ends expect in the same place what is on offer.
        for plain in self.all[..end].iter().skip(self.withdrawn_below as usize) {
            assert_eq!(plain.told_start, plain.start);
        }
        self.said_end = end as u64;
        self.said_withdrawn_below = withdrawn;
    }

    fn release(&mut self) {
        for (number, offered) in self.offers.release(self.came) {
            let may_go = |&(below, offset): &(u64, u64)| number < below && offset <= self.came;
            assert!(
                self.notices.iter().any(may_go),
                "{number} may still be confirmed"
            );
            self.gone(number, &offered);
        }
        // A notice waits for those before it.
        let due = self.notices.iter();
        let due = due.take_while(|&&(_, offset)| offset <= self.came);
        let below = due.map(|&(below, _)| below).last().unwrap_or(0);
        let left = &self.all[..below as usize];
        assert!(!left.iter().any(Plain::is_held), "below {below}");
    }

    /// An offer is held no more, and was not confirmed.
    fn gone(&mut self, number: u64, offered: &Offered) {
        let plain = &mut self.all[number as usize];
        assert!(plain.is_held(), "{number} is gone already");
        assert_eq!(offered.chunks, std::slice::from_ref(&plain.chunk));
        assert_eq!(offered.len, plain.len());
        plain.is_released = true;
        plain.is_open = false;
        if self.offers.is_on_offer(number) {
            self.outstanding_bytes -= offered.len;
        }
    }

    fn check(&self) {
        let numbered = || (0..).zip(&self.all);
        assert_eq!(self.offers.end(), self.all.len() as u64);
        for number in 0..9 {
            let chunk = chunk(number);
            let open = || numbered().filter(|(_, plain)| plain.chunk == chunk && plain.is_open);
            let later = open().find(|(number, _)| *number >= self.turn);
            let open = later.or(open().last()).map(|(number, _)| number);
            assert_eq!(self.offers.open(&chunk.digest), open);
            // Behind all places.
            let at = self.came + (1 << 30);
            let place = open.map(|open| self.all[open as usize].start.unwrap_or(at) as i64);
            let expected = self.offers.expected(&chunk.digest, at);
            assert_eq!(expected, open.zip(place));
        }
        for (number, plain) in numbered().skip(self.withdrawn_below as usize) {
            if let Some(start) = plain.start.filter(|_| plain.is_held()) {
                let expected = self.offers.expected(&plain.chunk.digest, start);
                assert_eq!(expected, Some((number, start as i64)));
            }
        }
        let mut on_offer =
            numbered().filter(|(number, plain)| *number >= self.withdrawn_below && plain.is_held());
        let oldest = self.offers.oldest().map(|(number, _)| number);
        assert_eq!(oldest, on_offer.clone().next().map(|(number, _)| number));
        let bytes: u64 = on_offer.by_ref().map(|(_, plain)| plain.len()).sum();
        assert_eq!(self.outstanding_bytes, bytes);
        // Between those that wait, confirmed ones are held by number, and nothing else.
        let first = self.all.iter().position(Plain::is_held);
        let held = self.all.len() - first.unwrap_or(self.all.len());
        assert!(self.offers.held() >= held, "{} held", self.offers.held());
        for (number, plain) in numbered().filter(|(_, plain)| plain.is_held()) {
            let state = self.offers.offered(number).expect("it is held").state;
            assert_ne!(state, State::Confirmed);
            assert!(plain.was_skipped || !matches!(state, State::Skipped(_)));
        }
    }

    fn end(mut self) {
        for (number, offered) in self.offers.release_all() {
            self.gone(number, &offered);
        }
        assert!(!self.all.iter().any(Plain::is_held), "nothing is kept back");
        assert_eq!((self.outstanding_bytes, self.offers.held()), (0, 0));
        self.check();
    }
}

proptest! {
    #[test]
    fn the_books_are_kept(is_aligned: bool, happened in vec(happens(), 0..120)) {
        let mut books = Books::new(is_aligned);
        for what in happened {
            books.happens(what);
        }
        books.end();
    }
}
