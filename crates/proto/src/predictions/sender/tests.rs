//! What a sender confirms, sends and waits for, held against a slow one.

use core::time::Duration;

use proptest::prelude::*;
use refrain_codec::marker::{AnchorFinder, FindAnchors, PackMask};

use super::*;
use crate::{
    frame::{FlowId, OfferList},
    limits::CANDIDATES_MAX,
    terms::Hint,
};

fn key() -> OfferKey {
    OfferKey::agreed(1, 2)
}

/// Anchors one in 1024, so that short streams have some.
fn terms() -> OfferTerms {
    OfferTerms {
        mask: PackMask::with_bits(10).expect("6 to 15"),
    }
}

fn offer_of(chunk: &[u8]) -> Offer {
    Offer {
        len: chunk.len() as u32,
        hint: Hint::of(chunk),
        signature: key().sign(&key().hash(chunk)),
    }
}

fn offer(to: &mut Expectations, start: Option<u64>, chunks: &[&[u8]]) -> Result<bool, Violation> {
    let mut list = Vec::new();
    let frame = OfferFrame {
        flow: FlowId(0),
        withdrawn_below: 0,
        start,
        offers: OfferList::write(chunks.iter().map(|chunk| offer_of(chunk)), &mut list),
    };
    to.offered(&frame)
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

fn waiting(offset: u64, bytes: &[u8]) -> Waiting<'_> {
    Waiting {
        offset,
        bytes,
        is_last: false,
    }
}

fn at(micros: u64) -> Moment {
    Moment(Duration::from_micros(micros))
}

#[test]
fn a_chunk_is_waited_for_a_little_and_not_for_ever() {
    let chunk = noise(4096, 1);
    let mut expectations = Expectations::new(terms(), key());
    offer(&mut expectations, None, &[&chunk]).expect("possible");
    expectations.begins_at(0);
    let mut step = |micros, len| expectations.step(at(micros), waiting(0, &chunk[..len]));
    // 2 ms after the last byte, and whatever else is looked at meanwhile.
    assert_eq!(step(0, 100), Step::Wait(at(2_000)));
    assert_eq!(step(500, 100), Step::Wait(at(2_000)));
    // Each byte that comes prolongs it, up to 20 ms in all.
    for turn in 1..20 {
        let now = turn * 1_000;
        let until = (now + 2_000).min(20_000);
        assert_eq!(step(now, 100 + turn as usize), Step::Wait(at(until)));
    }
    assert_eq!(step(20_000, 120), Step::Send(120));
    // What was waited for in vain is not waited for again.
    assert_eq!(step(20_001, 121), Step::Send(121));
}

#[test]
fn a_silent_writer_is_waited_for_2_ms() {
    let chunk = noise(4096, 1);
    let mut expectations = Expectations::new(terms(), key());
    offer(&mut expectations, None, &[&chunk]).expect("possible");
    expectations.begins_at(0);
    let mut step = |micros| expectations.step(at(micros), waiting(0, &chunk[..100]));
    assert_eq!(step(7), Step::Wait(at(2_007)));
    assert_eq!(step(2_007), Step::Send(100));
}

#[test]
fn nothing_waits_at_the_end_or_for_another_prefix() {
    let chunk = noise(4096, 1);
    let other = noise(100, 2);
    for (bytes, is_last) in [(&chunk[..100], true), (&chunk[..1], true), (&other, false)] {
        let mut expectations = Expectations::new(terms(), key());
        offer(&mut expectations, None, &[&chunk]).expect("possible");
        expectations.begins_at(0);
        let waiting = Waiting {
            offset: 0,
            bytes,
            is_last,
        };
        let step = expectations.step(at(0), waiting);
        assert_eq!(step, Step::Send(bytes.len()));
    }
}

#[test]
fn offers_that_keep_being_wrong_cost_so_much_hashing_and_no_more() {
    let chunk = noise(4096, 1);
    let mut wrong = offer_of(&chunk);
    wrong.signature.0[0] ^= 1;
    let mut list = Vec::new();
    let offers = core::iter::repeat_n(wrong, 4000);
    let mut expectations = Expectations::new(terms(), key());
    let frame = OfferFrame {
        flow: FlowId(0),
        withdrawn_below: 0,
        start: None,
        offers: OfferList::write(offers, &mut list),
    };
    expectations.offered(&frame).expect("possible");
    for turn in 0..1000 {
        let offset = turn * 4096;
        expectations.begins_at(offset);
        expectations.step(at(0), waiting(offset, &chunk));
    }
    let hashed = expectations.counters.hashed_false_bytes;
    let most = FALSE_HASH_BYTES_MAX + (CANDIDATES_MAX * 4096) as u64;
    assert!((FALSE_HASH_BYTES_MAX..=most).contains(&hashed), "{hashed}");
}

#[test]
fn what_the_sum_of_a_hint_refutes_is_not_hashed() {
    let chunk = noise(4096, 1);
    let mut changed = chunk.clone();
    changed[4000] ^= 1;
    let (right, other) = (Hint::of(&chunk), Hint::of(&changed));
    assert_eq!(right.prefix, other.prefix);
    assert_ne!(right.sum, other.sum);
    for (bytes, confirmed) in [(&chunk, 4096), (&changed, 0)] {
        let mut expectations = Expectations::new(terms(), key());
        offer(&mut expectations, None, &[&chunk]).expect("possible");
        expectations.begins_at(0);
        expectations.step(at(0), waiting(0, bytes));
        let counted = expectations.counters;
        assert_eq!(counted.confirmed_bytes, confirmed);
        assert_eq!(counted.hashed_true_bytes, confirmed);
        assert_eq!(counted.hashed_false_bytes, 0);
    }
}

#[test]
fn offers_are_looked_for_so_long_and_again_when_others_come() {
    let chunks = chunks();
    let stream = chunks[2..4].concat();
    let mut expectations = Expectations::new(terms(), key());
    let other = noise(1 << 20, 7);
    let offered = offer(&mut expectations, None, &[&chunks[3]]);
    offered.expect("possible");
    let mut offset = 0;
    while offset < VAIN_SEARCH_BYTES_MAX {
        let step = expectations.step(at(0), waiting(offset, &other));
        assert_eq!(step, Step::Send(other.len()));
        offset += other.len() as u64;
    }
    let step = expectations.step(at(0), waiting(offset, &stream));
    assert_eq!(step, Step::Send(stream.len()));
    let offered = offer(&mut expectations, None, &[&chunks[3]]);
    offered.expect("possible");
    let step = expectations.step(at(0), waiting(offset, &stream));
    assert_eq!(step, Step::Send(chunks[2].len()));
}

#[test]
fn a_run_of_one_byte_is_all_anchors_and_costs_no_more_than_its_probes() {
    // With an odd number of bits set all windows are anchors.
    let run = vec![1; 256 << 10];
    let mut wrong = offer_of(&run[..4096]);
    wrong.signature.0[0] ^= 1;
    wrong.hint.sum ^= 1;
    let mut list = Vec::new();
    let frame = OfferFrame {
        flow: FlowId(0),
        withdrawn_below: 0,
        start: None,
        offers: OfferList::write(core::iter::once(wrong), &mut list),
    };
    let mut expectations = Expectations::new(terms(), key());
    expectations.offered(&frame).expect("possible");
    assert_eq!(
        expectations.step(at(0), waiting(0, &run)),
        Step::Send(run.len())
    );
}

#[test]
fn aligned_offers_that_were_passed_are_kept_until_they_are_withdrawn() {
    let chunk = noise(64, 3);
    let mut expectations = Expectations::new(terms(), key());
    let many = vec![&chunk[..]; OFFERS_FLOW_MAX / 2];
    for _ in 0..2 {
        offer(&mut expectations, Some(0), &many).expect("possible");
        let sent = expectations.step(at(0), waiting(1 << 20, &chunk));
        assert_eq!(sent, Step::Send(64));
    }
    assert_eq!(expectations.kept(), OFFERS_FLOW_MAX);
    let one_more = offer(&mut expectations, Some(2 << 20), &[&chunk]);
    assert_eq!(one_more, Err(Violation::InvalidOffers));
    let mut list = Vec::new();
    let frame = OfferFrame {
        flow: FlowId(0),
        withdrawn_below: OFFERS_FLOW_MAX as u64,
        start: None,
        offers: OfferList::write(core::iter::empty(), &mut list),
    };
    assert_eq!(expectations.offered(&frame), Ok(true));
    assert_eq!((expectations.kept(), expectations.outstanding()), (0, 0));
}

#[test]
fn moved_offers_are_confirmed_where_they_are_and_where_they_were() {
    let chunks: Vec<Vec<u8>> = (0..9).map(|seed| noise(1000, seed)).collect();
    let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    // 70 bytes were inserted before the third chunk, and taken away behind the sixth.
    let stream = [
        &chunks[..2].concat()[..],
        &noise(70, 50),
        &chunks[2..6].concat(),
        &chunks[6][70..],
        &chunks[7..].concat(),
    ]
    .concat();
    let mut expectations = Expectations::new(terms(), key());
    offer(&mut expectations, Some(0), &chunks).expect("possible");
    let mut offset = 0;
    let mut confirmed = Vec::new();
    while offset < stream.len() {
        match expectations.step(at(0), waiting(offset as u64, &stream[offset..])) {
            Step::Send(len) => offset += len.min(100),
            Step::Wait(_) => unreachable!("all is here"),
            Step::Confirm {
                first, count, len, ..
            } => {
                confirmed.extend(first..first + count);
                offset += len;
            }
        }
        // The receiver sees that the third chunk comes later.
        if (3070..3170).contains(&offset) {
            expectations.moved(70);
        }
    }
    assert_eq!(confirmed, [0, 1, 4, 5, 7, 8]);
}

#[test]
fn what_has_no_anchors_is_found_behind_what_changed_and_kept_its_length() {
    // In a run of zeros no window is an anchor.
    let chunks = (1..7_u8).map(|byte| [&[byte], &[0; 999][..]].concat());
    let chunks: Vec<Vec<u8>> = chunks.collect();
    let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    let mut stream = chunks.concat();
    for changed in [7, 1007, 4007] {
        stream[changed] = 9;
    }
    let mut expectations = Expectations::new(terms(), key());
    let mut confirmed = Vec::new();
    let mut offset = 0;
    while offset < stream.len() {
        // The first come too late, the others when they are needed.
        match offset {
            100 => drop(offer(&mut expectations, None, &chunks[..2])),
            2000 => drop(offer(&mut expectations, None, &chunks[2..])),
            _ => {}
        }
        let waiting = waiting(offset as u64, &stream[offset..]);
        match expectations.step(at(0), waiting) {
            Step::Send(len) => offset += len.min(100),
            Step::Wait(_) => unreachable!("all is here"),
            Step::Confirm {
                first, count, len, ..
            } => {
                confirmed.extend(first..first + count);
                offset += len;
            }
        }
    }
    assert_eq!(confirmed, [2, 3, 5]);
}

/// Where a flow's bytes came from.
#[derive(Clone, Copy, Debug)]
enum Piece {
    /// Of the chunks that are offered, in order.
    Chunk(usize),
    /// New bytes, so many.
    New(usize),
    /// A chunk with a changed byte.
    Changed(usize, usize),
    /// The beginning of a chunk.
    Beginning(usize, usize),
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        4 => (0..12usize).prop_map(Piece::Chunk),
        1 => (1..3000usize).prop_map(Piece::New),
        1 => (0..12usize, any::<usize>()).prop_map(|(chunk, at)| Piece::Changed(chunk, at)),
        1 => (0..12usize, any::<usize>()).prop_map(|(chunk, at)| Piece::Beginning(chunk, at)),
    ]
}

/// Chunks as a receiver cuts them: they begin at anchors, but for the first.
fn chunks() -> Vec<Vec<u8>> {
    let stream = noise(24_000, 5);
    let mut anchors = Vec::new();
    AnchorFinder::new(terms().mask).feed(&stream, &mut anchors);
    let mut chunks = Vec::new();
    let mut start = 0;
    for anchor in anchors {
        let end = anchor as usize;
        if end >= start + 100 {
            chunks.push(stream[start..end].to_vec());
            start = end;
        }
    }
    chunks.truncate(12);
    assert_eq!(chunks.len(), 12);
    chunks
}

fn stream_of(pieces: &[Piece], chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        match *piece {
            Piece::Chunk(chunk) => stream.extend(&chunks[chunk]),
            Piece::New(len) => stream.extend(noise(len, 100 + index as u64)),
            Piece::Changed(chunk, at) => {
                let from = stream.len();
                stream.extend(&chunks[chunk]);
                stream[from + at % chunks[chunk].len()] ^= 1;
            }
            Piece::Beginning(chunk, at) => {
                stream.extend(&chunks[chunk][..at % chunks[chunk].len()]);
            }
        }
    }
    stream
}

/// What a sender does whose bytes all wait and whose offers are all known, told slowly: at
/// each place in turn it compares bytes.
fn confirmed_slowly(stream: &[u8], chunks: &[Vec<u8>]) -> Vec<(usize, u64)> {
    let mut left: Vec<bool> = vec![true; chunks.len()];
    let (mut turn, mut offset, mut begins) = (0, 0, true);
    let mut supposed: Option<(usize, usize)> = None;
    let mut confirmed = Vec::new();
    let anchors_from = |from: usize| {
        let mut anchors = Vec::new();
        AnchorFinder::new(terms().mask).feed(&stream[from..], &mut anchors);
        let anchors = anchors.into_iter();
        anchors
            .map(|anchor| from + anchor as usize)
            .collect::<Vec<_>>()
    };
    let mut anchors = anchors_from(0);
    while offset < stream.len() {
        let rest = &stream[offset..];
        let is_anchor = anchors.contains(&offset);
        let mut right = None;
        let here = supposed.filter(|&(at, number)| at == offset && number < chunks.len());
        if begins || is_anchor || here.is_some() {
            let order = here
                .map(|(_, number)| number)
                .into_iter()
                .chain(turn..chunks.len())
                .chain((0..turn).rev());
            let mut order = order.filter(|&number| {
                left.get(number) == Some(&true) && rest.starts_with(&chunks[number])
            });
            right = order.next();
        }
        let missed = match supposed {
            Some(_) => here.map(|(_, number)| number),
            None => begins.then_some(turn),
        };
        begins = false;
        match right {
            Some(number) => {
                confirmed.push((offset, number as u64));
                left[number] = false;
                turn = number + 1;
                offset += chunks[number].len();
                begins = true;
                supposed = None;
                anchors = anchors_from(offset);
            }
            None => {
                if let Some(number) = missed {
                    let is_left = left.get(number) == Some(&true);
                    supposed = is_left.then(|| (offset + chunks[number].len(), number + 1));
                }
                offset += 1;
            }
        }
    }
    confirmed
}

proptest! {
    #[test]
    fn the_fast_sender_confirms_what_the_slow_one_does(
        pieces in prop::collection::vec(piece(), 1..20),
    ) {
        let chunks = chunks();
        let stream = stream_of(&pieces, &chunks);
        let mut expectations = Expectations::new(terms(), key());
        let offered: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        offer(&mut expectations, None, &offered).expect("possible");
        expectations.begins_at(0);
        let (mut offset, mut confirmed) = (0, Vec::new());
        while offset < stream.len() {
            let waiting = Waiting {
                offset: offset as u64,
                bytes: &stream[offset..],
                is_last: true,
            };
            match expectations.step(at(0), waiting) {
                Step::Send(len) => offset += len,
                Step::Wait(_) => unreachable!("nothing more will come"),
                Step::Confirm { first, count, .. } => {
                    for number in first..first + count {
                        confirmed.push((offset, number));
                        offset += chunks[number as usize].len();
                    }
                }
            }
        }
        prop_assert_eq!(confirmed, confirmed_slowly(&stream, &chunks));
    }

    /// The same of aligned offers that were moved: at each place those that belong there.
    #[test]
    fn the_fast_sender_confirms_what_is_aligned(
        pieces in prop::collection::vec(piece(), 1..20),
        start in 0..3000u64,
        by in prop::option::of(-3000..3000i64),
    ) {
        let chunks = chunks();
        let stream = stream_of(&pieces, &chunks);
        let mut expectations = Expectations::new(terms(), key());
        let offered: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        offer(&mut expectations, Some(start), &offered).expect("possible");
        by.into_iter().for_each(|by| expectations.moved(by));
        let (mut offset, mut confirmed) = (0, Vec::new());
        while offset < stream.len() {
            match expectations.step(at(0), Waiting { is_last: true, ..waiting(offset as u64, &stream[offset..]) }) {
                Step::Send(len) => offset += len,
                Step::Wait(_) => unreachable!("nothing more will come"),
                Step::Confirm { first, count, .. } => {
                    for number in first..first + count {
                        confirmed.push((offset, number));
                        offset += chunks[number as usize].len();
                    }
                }
            }
        }
        // The place by the move comes first where both are there.
        let mut places: Vec<(i64, u64)> = Vec::new();
        for by in by.into_iter().filter(|&by| by != 0).chain([0]) {
            let mut place = start as i64 + by;
            for (number, chunk) in (0..).zip(&chunks) {
                places.push((place, number));
                place += chunk.len() as i64;
            }
        }
        places.sort_by_key(|&(place, _)| place);
        let (mut behind, mut slowly) = (0, Vec::new());
        for (place, number) in places {
            let chunk = &chunks[number as usize];
            let rest = usize::try_from(place).ok().and_then(|place| stream.get(place..));
            let is_new = place >= behind && slowly.iter().all(|&(_, other)| other != number);
            if is_new && rest.is_some_and(|rest| rest.starts_with(chunk)) {
                slowly.push((place as usize, number));
                behind = place + chunk.len() as i64;
            }
        }
        prop_assert_eq!(confirmed, slowly);
    }

    /// Whatever is written when, and offered when, in whichever mode: the steps cover the
    /// stream, and a confirmation stands for exactly the bytes of what it names, once.
    #[test]
    fn steps_cover_the_stream_and_confirm_what_is_there(
        pieces in prop::collection::vec(piece(), 1..20),
        writes in prop::collection::vec(1..6000usize, 1..40),
        offers in prop::collection::vec((0..12usize, prop::option::of(0..20_000u64)), 0..30),
        moves in prop::collection::vec(prop::option::of(-3000..3000i64), 30),
        block in 1..5000usize,
    ) {
        let chunks = chunks();
        let stream = stream_of(&pieces, &chunks);
        let mut expectations = Expectations::new(terms(), key());
        let (mut offset, mut written, mut now) = (0, 0, 0);
        let (mut writes, mut offers) = (writes.into_iter().cycle(), offers.into_iter());
        let mut moves = moves.into_iter();
        let mut numbers: Vec<Option<usize>> = Vec::new();
        while offset < stream.len() {
            if let Some((chunk, start)) = offers.next() {
                let offered = offer(&mut expectations, start, &[&chunks[chunk]]);
                prop_assert_eq!(offered, Ok(false));
                expectations.begins_at(offset as u64);
                numbers.push(Some(chunk));
            }
            if let Some(by) = moves.next().flatten() {
                expectations.moved(by);
            }
            if offset == written {
                expectations.begins_at(offset as u64);
            }
            written = stream.len().min(written + writes.next().expect("cycles"));
            let waiting = Waiting {
                offset: offset as u64,
                bytes: &stream[offset..written],
                is_last: written == stream.len(),
            };
            match expectations.step(at(now), waiting) {
                Step::Send(len) => {
                    prop_assert!((1..=written - offset).contains(&len));
                    offset += len.min(block);
                }
                Step::Wait(until) => {
                    prop_assert!(until > at(now) && !waiting.is_last);
                    now += 700;
                }
                Step::Confirm { first, count, len, digest } => {
                    let run = &mut numbers[first as usize..(first + count) as usize];
                    let run: Vec<usize> = run
                        .iter_mut()
                        .map(|number| number.take().expect("confirmed once"))
                        .collect();
                    let plain: Vec<&[u8]> = run.iter().map(|&chunk| &chunks[chunk][..]).collect();
                    prop_assert_eq!(&plain.concat()[..], &stream[offset..offset + len]);
                    let hashes: Vec<UniversalHash> =
                        plain.iter().map(|chunk| key().hash(chunk)).collect();
                    prop_assert_eq!(digest, RunDigest::of(offset as u64, hashes.iter()));
                    offset += len;
                }
            }
        }
    }
}
