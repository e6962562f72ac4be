//! Offers and confirmations by an end that breaks the rules.

use refrain_codec::{
    chunk::hash::{ChunkDigest, ChunkHasher},
    geometry::CacheGeometry,
};
use refrain_proto::{
    Event, Fault, FlowId, LaneFault, LaneId, LinkConfig, Mode, ResetReason,
    frame::{ConfirmFrame, Frame, Offer, OfferFrame, OfferList},
    limits::{OFFERS_FLOW_MAX, OFFERS_LINK_MAX},
    predictions::history::{HistoryConfig, HistoryRequest},
    terms::{Hint, OfferKey, RunDigest, Signature},
};

use crate::pair::{Pair, noise, take_all, transmit};

const LANE: LaneId = LaneId(0);

fn pair(lanes: usize) -> Pair {
    let far = LinkConfig {
        mode: Mode::Receiver,
        ..LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"))
    };
    let near = LinkConfig {
        history: Some(HistoryConfig::default()),
        ..far.clone()
    };
    Pair::between(lanes, near, far)
}

fn written(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    bytes
}

fn is_refused(result: Result<(), Fault>) -> bool {
    matches!(result, Err(Fault::Lane(LaneFault::Protocol(_))))
}

/// A frame of `count` offers of which none is ever right.
fn offers(flow: FlowId, withdrawn_below: u64, start: Option<u64>, count: usize) -> Vec<u8> {
    let offer = |number| Offer {
        len: 4096,
        hint: Hint {
            prefix: number as u16,
            sum: 0,
        },
        signature: Signature([0; 8]),
    };
    let mut list = Vec::new();
    written(&Frame::Offer(OfferFrame {
        flow,
        withdrawn_below,
        start,
        offers: OfferList::write((0..count).map(offer), &mut list),
    }))
}

/// What a receiver may say to the sender of a new flow, and what comes of it.
fn said_to_sender(frames: impl Fn(FlowId) -> Vec<Vec<u8>>) -> Result<(), Fault> {
    let mut pair = pair(1);
    let flow = pair.open("a:1");
    let frames = frames(flow);
    let result = frames
        .iter()
        .try_for_each(|frame| pair.far.receive(pair.now, LANE, frame));
    if result.is_err() {
        assert_eq!(pair.far.flows_open(), 0);
    } else {
        // It is still served.
        pair.far.write(flow, &noise(5000, 1));
        pair.settle();
    }
    result
}

#[test]
fn a_receiver_may_offer_so_much_and_no_more() {
    for start in [None, Some(5)] {
        let many = |count: usize| move |flow| vec![offers(flow, 0, start, count)];
        assert_eq!(said_to_sender(many(OFFERS_FLOW_MAX)), Ok(()));
        assert!(is_refused(said_to_sender(many(OFFERS_FLOW_MAX + 1))));
        let in_parts = |flow| (0..9).map(|_| offers(flow, 0, start, 1000)).collect();
        assert!(is_refused(said_to_sender(in_parts)));
        // What is withdrawn makes room.
        let withdrawing = |flow| {
            let frames = (0..40).map(|round| offers(flow, round * 4000, start, 4000));
            frames.collect()
        };
        assert_eq!(said_to_sender(withdrawing), Ok(()));
    }
}

#[test]
fn a_flow_with_offers_stays_behind_them() {
    // What its reader has not taken, of a flow with so many offers.
    let ahead = |count: usize| {
        let mut pair = pair(1);
        let flow = pair.open("a:1");
        let offered = offers(flow, 0, None, count);
        pair.far
            .receive(pair.now, LANE, &offered)
            .expect("no fault");
        let mut ahead = 0;
        loop {
            let written = pair.far.write(flow, &[b'.'; 1 << 16]);
            ahead += written;
            let sent = transmit(&mut pair.far, pair.now, LANE);
            pair.near.receive(pair.now, LANE, &sent).expect("no fault");
            let answer = transmit(&mut pair.near, pair.now, LANE);
            pair.far.receive(pair.now, LANE, &answer).expect("no fault");
            if written == 0 && sent.is_empty() {
                return ahead;
            }
        }
    };
    let (with, without) = (ahead(100), ahead(0));
    assert!((15 << 20..17 << 20).contains(&with), "{with}");
    assert!(without > 20 << 20, "{without}");
}

#[test]
fn a_receiver_withdraws_only_what_it_said() {
    let ahead = |flow| vec![offers(flow, 0, None, 10), offers(flow, 11, None, 5)];
    assert!(is_refused(said_to_sender(ahead)));
    let backwards = |flow| {
        vec![
            offers(flow, 0, None, 10),
            offers(flow, 10, None, 0),
            offers(flow, 3, None, 0),
        ]
    };
    // It withdraws nothing that was not withdrawn before.
    assert_eq!(said_to_sender(backwards), Ok(()));
}

#[test]
fn the_offers_of_a_link_are_bounded() {
    let mut pair = pair(1);
    let full = OFFERS_LINK_MAX / OFFERS_FLOW_MAX;
    let flows: Vec<FlowId> = (0..=full).map(|_| pair.open("a:1")).collect();
    for &flow in &flows[..full] {
        let frame = offers(flow, 0, None, OFFERS_FLOW_MAX);
        assert_eq!(pair.far.receive(pair.now, LANE, &frame), Ok(()));
    }
    // A flow that ends, or turns out to be excluded, gives its room back.
    pair.far.reset(flows[0], 1);
    pair.far.write(flows[1], b"SSH-2.0-x\r\n");
    transmit(&mut pair.far, pair.now, LANE);
    for _ in 0..2 {
        let frame = offers(flows[full], 0, None, OFFERS_FLOW_MAX / 2);
        assert_eq!(pair.far.receive(pair.now, LANE, &frame), Ok(()));
    }
    let last = pair.open("a:1");
    let frame = offers(last, 0, None, OFFERS_FLOW_MAX);
    assert_eq!(pair.far.receive(pair.now, LANE, &frame), Ok(()));
    let more = pair.open("a:1");
    let frame = offers(more, 0, None, 1);
    assert!(is_refused(pair.far.receive(pair.now, LANE, &frame)));
    assert_eq!(pair.far.flows_open(), 0);
}

#[test]
fn predictions_are_spoken_of_as_agreed_and_on_the_home_lane() {
    // The near end takes offers; nobody makes them to it.
    let mut pair = pair(2);
    let flow = pair.open("a:1");
    let frame = offers(flow, 0, None, 3);
    let home = pair.near.status(pair.now).flows[0].lane;
    assert!(is_refused(pair.near.receive(pair.now, home, &frame)));
    let mut pair = self::pair(2);
    let flow = pair.open("a:1");
    let home = pair.near.status(pair.now).flows[0].lane;
    let frame = written(&Frame::Moved { flow, by: 1 });
    assert!(is_refused(pair.near.receive(pair.now, home, &frame)));
    let spoken = |flow| {
        [
            offers(flow, 0, None, 3),
            written(&Frame::Dispersion { flow, level: 200 }),
            written(&Frame::Driven {
                flow,
                by_sender: true,
            }),
            written(&Frame::Withdrawn {
                flow,
                below: 0,
                offset: 0,
            }),
            written(&Frame::Moved { flow, by: -1 }),
        ]
    };
    for index in 0..5 {
        let mut pair = self::pair(2);
        let flow = pair.open("a:1");
        let home = pair.far.status(pair.now).flows[0].lane;
        let other = LaneId(1 - home.0);
        let frame = &spoken(flow)[index];
        assert_eq!(pair.far.receive(pair.now, home, frame), Ok(()));
        assert!(is_refused(pair.far.receive(pair.now, other, frame)));
    }
}

#[test]
fn an_end_that_turns_its_mind_about_is_not_answered_without_end() {
    let mut pair = Pair::new(1);
    let flow = pair.open("a:1");
    let toggles: Vec<u8> = (0..400_000)
        .flat_map(|turn| {
            written(&Frame::Dispersion {
                flow,
                level: 255 * (turn % 2) as u8,
            })
        })
        .collect();
    // It reads none of the answers.
    assert!(is_refused(pair.far.receive(pair.now, LANE, &toggles)));
}

/// A flow on which the near end has offered what `content` is cut into.
struct Offered {
    pair: Pair,
    flow: FlowId,
    chunks: Vec<Vec<u8>>,
}

impl Offered {
    fn new() -> Self {
        let mut pair = pair(1);
        let content = noise(100_000, 2);
        assert!(pair.fetch("a:1", &content) == content);
        let memory = &pair.near_memory;
        let recipe = memory.recipes[0].iter();
        let chunks: Vec<Vec<u8>> = recipe
            .map(|digest| memory.chunks[digest].to_vec())
            .collect();
        let flow = pair.open("a:1");
        let offered = pair
            .near
            .status(pair.now)
            .counters
            .received
            .predictions
            .offers;
        assert_eq!(offered, chunks.len() as u64);
        Self { pair, flow, chunks }
    }

    /// The confirmation of a run of offers, as the next bytes at `offset`.
    fn confirm(&self, run: std::ops::Range<usize>, offset: usize) -> ConfirmFrame {
        let plain = self.chunks[run.clone()].concat();
        let key = OfferKey::agreed(1, 2);
        let chunks = self.chunks[run.clone()].iter();
        let hashes: Vec<_> = chunks.map(|chunk| key.hash(chunk)).collect();
        ConfirmFrame {
            flow: self.flow,
            first: run.start as u64,
            count: run.len() as u64,
            len: plain.len() as u64,
            offset: None,
            digest: RunDigest::of(offset as u64, hashes.iter()),
        }
    }

    fn say(&mut self, frame: ConfirmFrame) -> Result<(), Fault> {
        let frame = written(&Frame::Confirm(frame));
        self.pair.near.receive(self.pair.now, LANE, &frame)
    }

    fn arrived(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        take_all(&mut self.pair.near, self.flow, &mut bytes);
        bytes
    }

    /// What the history is to forget.
    fn forgotten(&mut self) -> Vec<ChunkDigest> {
        let near = &mut self.pair.near;
        let requests = core::iter::from_fn(|| near.poll_history());
        let forgotten = requests.filter_map(|request| match request {
            HistoryRequest::Forget { digest } => Some(digest),
            _ => None,
        });
        forgotten.collect()
    }

    /// Whether the flow, and it alone, was ended as one that was confirmed wrongly.
    fn is_misconfirmed(&mut self) -> bool {
        let events: Vec<Event> = core::iter::from_fn(|| self.pair.near.poll_event()).collect();
        let reset = Event::FlowReset(self.flow, ResetReason::Misconfirmed);
        events.contains(&reset) && self.pair.near.lanes_up() == 1
    }
}

#[test]
fn a_right_confirmation_is_delivered_once() {
    let mut offered = Offered::new();
    let frame = offered.confirm(1..3, 0);
    assert_eq!(offered.say(frame), Ok(()));
    assert_eq!(offered.arrived(), offered.chunks[1..3].concat());
    let again = offered.confirm(2..4, frame.len as usize);
    assert!(is_refused(offered.say(again)));
    assert!(offered.arrived().is_empty());
}

#[test]
fn what_was_not_offered_cannot_be_confirmed() {
    let mut offered = Offered::new();
    let count = offered.chunks.len() as u64;
    let right = offered.confirm(0..2, 0);
    for (first, count) in [(count, 1), (count - 1, 2), (0, u64::MAX), (u64::MAX, 1)] {
        let mut offered = Offered::new();
        let frame = ConfirmFrame {
            first,
            count,
            ..right
        };
        assert!(is_refused(offered.say(frame)), "{first} {count}");
        assert!(offered.arrived().is_empty());
    }
    // On a flow of the other end's, to an end without a history.
    let frame = written(&Frame::Confirm(right));
    let far = &mut offered.pair.far;
    assert!(is_refused(far.receive(offered.pair.now, LANE, &frame)));
}

#[test]
fn a_confirmation_that_does_not_hold_ends_the_flow() {
    type Change = fn(&mut ConfirmFrame);
    let changes: [Change; 3] = [
        |frame| frame.digest.0[3] ^= 1,
        |frame| frame.len += 1,
        |frame| frame.count -= 1,
    ];
    for change in changes {
        let mut offered = Offered::new();
        let mut frame = offered.confirm(0..3, 0);
        change(&mut frame);
        offered.forgotten();
        assert_eq!(offered.say(frame), Ok(()));
        assert!(offered.arrived().is_empty());
        assert!(offered.is_misconfirmed());
        // Its chunks would only be offered again.
        let run = &offered.chunks[..frame.count as usize];
        let digests: Vec<_> = run
            .iter()
            .map(|chunk| ChunkHasher::default().digest(chunk))
            .collect();
        assert_eq!(offered.forgotten(), digests);
        // The far end knows nothing of a confirmation that could be acknowledged.
        let reset = frame.flow;
        let said = transmit(&mut offered.pair.near, offered.pair.now, LANE);
        let mut rest = &said[..];
        let mut is_reset = false;
        while let Some((frame, read)) = Frame::read(rest).expect("frames") {
            is_reset |= matches!(frame, Frame::Reset { flow, .. } if flow == reset);
            rest = &rest[read..];
        }
        assert!(is_reset);
    }
}

#[test]
fn confirmations_keep_to_their_place_and_to_credit() {
    let mut offered = Offered::new();
    let frame = offered.confirm(0..2, 0);
    assert_eq!(offered.say(frame), Ok(()));
    let overlapping = ConfirmFrame {
        offset: Some(frame.len - 1),
        ..offered.confirm(2..3, frame.len as usize - 1)
    };
    assert!(is_refused(offered.say(overlapping)));
    for len in [200 << 20, u64::MAX] {
        let mut offered = Offered::new();
        let frame = ConfirmFrame {
            len,
            ..offered.confirm(0..2, 0)
        };
        assert!(is_refused(offered.say(frame)));
    }
}

#[test]
fn what_was_forgotten_cannot_be_confirmed() {
    let mut offered = Offered::new();
    let withdrawn = |below, offset| {
        written(&Frame::Withdrawn {
            flow: FlowId(2),
            below,
            offset,
        })
    };
    assert_eq!(offered.flow, FlowId(2));
    // What was not withdrawn is not forgotten, whatever its sender says.
    let (now, near) = (offered.pair.now, &mut offered.pair.near);
    for below in [1, 5, u64::MAX] {
        let frame = withdrawn(below, 0);
        assert_eq!(near.receive(now, LANE, &frame), Ok(()));
    }
    let frame = offered.confirm(0..1, 0);
    assert_eq!(offered.say(frame), Ok(()));
    // The receiver withdraws all that is left, since the sender drives the flow now.
    let driven = written(&Frame::Driven {
        flow: offered.flow,
        by_sender: true,
    });
    let (now, near) = (offered.pair.now, &mut offered.pair.near);
    assert_eq!(near.receive(now, LANE, &driven), Ok(()));
    let second = offered.confirm(1..2, frame.len as usize);
    assert_eq!(offered.say(second), Ok(()), "before the sender forgets");
    // It confirmed up to one more at most, which is still to come.
    let ends = |chunks: usize| offered.chunks[..chunks].concat().len();
    let (here, later) = (ends(2), ends(3));
    let (now, near) = (offered.pair.now, &mut offered.pair.near);
    let count = offered.chunks.len() as u64;
    let frame = withdrawn(count, later as u64);
    assert_eq!(near.receive(now, LANE, &frame), Ok(()));
    let third = offered.confirm(2..3, here);
    assert_eq!(offered.say(third), Ok(()), "all before its notice");
    assert!(offered.arrived() == offered.chunks[..3].concat());
    let fourth = offered.confirm(3..4, later);
    assert!(is_refused(offered.say(fourth)));
}
