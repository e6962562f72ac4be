//! What predictions are worth, what they never do, and what they leave behind.

use refrain_codec::{
    chunk::stream::ChunkBounds,
    geometry::CacheGeometry,
    marker::{AnchorFinder, FindAnchors, PackMask},
};
use refrain_proto::{
    FlowId, LaneId, LinkConfig,
    counters::PredictionCounters,
    frame::Frame,
    limits::HOLD_MAX,
    predictions::history::{HistoryConfig, Predict},
};

use crate::pair::{Pair, noise, take_all, transmit};

const A: LaneId = LaneId(0);
const B: LaneId = LaneId(1);

/// The near end has a history and predicts.
pub(crate) fn predicting(lanes: usize, predict: Predict) -> Pair {
    Pair::with_history(
        lanes,
        HistoryConfig {
            predict,
            ..HistoryConfig::default()
        },
    )
}

/// Of many short chunks.
pub(crate) fn short_chunks(predict: Predict) -> HistoryConfig {
    HistoryConfig {
        predict,
        mask: PackMask::with_bits(6).expect("6 to 15"),
        bounds: ChunkBounds::new(64, 256).expect("valid"),
        ..HistoryConfig::default()
    }
}

/// Moves `content`, and gives how many of its bytes were not confirmed.
pub(crate) fn sent_of(pair: &mut Pair, target: &str, content: &[u8]) -> usize {
    let before = counted(pair);
    assert!(pair.fetch(target, content) == content, "the same bytes");
    let confirmed: Vec<u64> = core::iter::zip(counted(pair), before)
        .map(|(after, before)| after - before)
        .collect();
    assert!(confirmed.iter().all(|&bytes| bytes == confirmed[0]));
    content.len() - confirmed[0] as usize
}

/// Plain bytes that were confirmed, as each end counts them, twice.
fn counted(pair: &Pair) -> [u64; 4] {
    let [near, far] = [&pair.near, &pair.far].map(|link| link.status(pair.now));
    [
        near.counters.received.layers.confirmed_bytes,
        near.counters.received.predictions.confirmed_bytes,
        far.counters.sent.layers.confirmed_bytes,
        far.counters.sent.predictions.confirmed_bytes,
    ]
}

pub(crate) fn made(pair: &Pair) -> PredictionCounters {
    pair.near.status(pair.now).counters.received.predictions
}

/// Carries what the far end has to say to the near one, and its history nothing.
fn carry_down(pair: &mut Pair) {
    let lanes: Vec<LaneId> = pair.carried.keys().copied().collect();
    for lane in lanes {
        loop {
            let bytes = transmit(&mut pair.far, pair.now, lane);
            if bytes.is_empty() {
                break;
            }
            pair.near.receive(pair.now, lane, &bytes).expect("no fault");
        }
    }
}

#[test]
fn a_repeated_transfer_is_confirmed() {
    for predict in [Predict::Window, Predict::Aligned] {
        let mut pair = predicting(1, predict);
        let content = noise(600_000, 1);
        assert_eq!(sent_of(&mut pair, "a:1", &content), content.len());
        let sent = sent_of(&mut pair, "a:1", &content);
        assert!(sent < content.len() / 4, "{predict:?}: {sent}");
        // Known by its content, wherever it comes from.
        let sent = sent_of(&mut pair, "b:1", &content);
        assert!(sent < content.len() / 4, "{predict:?}: {sent}");
    }
}

#[test]
fn an_edit_in_the_middle_costs_its_own_bytes() {
    let content = noise(900_000, 1);
    let edit = noise(20_000, 2);
    let (head, tail) = content.split_at(450_000);
    for (what, edited) in [
        ("insertion", [head, &edit, tail].concat()),
        ("deletion", [head, &tail[20_000..]].concat()),
        ("replacement", [head, &edit, &tail[20_000..]].concat()),
        ("another order", [tail, head].concat()),
    ] {
        let mut pair = predicting(1, Predict::Window);
        sent_of(&mut pair, "a:1", &content);
        let sent = sent_of(&mut pair, "a:1", &edited);
        assert!(sent < 60_000, "{what}: {sent}");
    }
}

#[test]
fn a_transfer_that_repeats_itself_is_predicted_from_its_own_recipe() {
    let verse = |number: u64| noise(50_000, 10 + number);
    let refrain = noise(300_000, 1);
    let song: Vec<u8> = (0..8)
        .flat_map(|number| [verse(number), refrain.clone()].concat())
        .collect();
    let mut pair = predicting(1, Predict::Window);
    // What is being learnt ends where it is read, and is not asked for over and over.
    let sent = sent_of(&mut pair, "a:1", &song);
    assert!(sent < song.len() / 2, "{sent}");
    let offered = made(&pair).offered_bytes;
    let sent = sent_of(&mut pair, "a:1", &song);
    assert!(sent < 60_000, "{sent}");
    let offered = made(&pair).offered_bytes - offered;
    assert!(offered < song.len() as u64 * 11 / 10, "{offered}");
}

/// Lines of one form, in which PACK finds no anchor.
fn log(lines: usize) -> Vec<u8> {
    let noise = noise(2 * lines, 5);
    let lines = noise.as_chunks().0.iter().zip(0_u32..);
    let lines = lines.map(|(&[a, b], number)| {
        format!(
            "10.0.{}.{a} - - [{number:06}] \"GET /items/{b:03}\" 200\n",
            a % 4
        )
    });
    lines.collect::<String>().into_bytes()
}

#[test]
fn an_edit_costs_its_own_bytes_where_lines_have_one_form() {
    let content = log(20_000);
    let mut anchors = Vec::new();
    AnchorFinder::default().feed(&content, &mut anchors);
    assert_eq!(anchors, []);
    let line = b"10.0.0.1 - - [000000] \"GET /items/new\" 200\n";
    let (head, tail) = content.split_at(100_000);
    for (what, edited) in [
        ("nothing", content.clone()),
        ("a line", [head, line, tail].concat()),
        ("the beginning is gone", tail.to_vec()),
    ] {
        let mut pair = predicting(1, Predict::Window);
        sent_of(&mut pair, "a:1", &content);
        let sent = sent_of(&mut pair, "a:1", &edited);
        assert!(sent < 64 << 10, "{what}: {sent}");
        let mut pair = predicting(1, Predict::Aligned);
        sent_of(&mut pair, "a:1", &content);
        let sent = sent_of(&mut pair, "a:1", &edited);
        // Lines compress well, so more of them leave before the offers come.
        assert!(sent < edited.len() * 3 / 4, "{what}, aligned: {sent}");
    }
}

#[test]
fn what_an_edit_moved_is_not_offered_again_where_offers_are_aligned() {
    let content = noise(900_000, 1);
    let edit = noise(20_000, 2);
    let (head, tail) = content.split_at(450_000);
    for (what, edited) in [
        ("insertion", [head, &edit, tail].concat()),
        ("deletion", [head, &tail[20_000..]].concat()),
        ("replacement", [head, &edit, &tail[20_000..]].concat()),
        (
            "there and back",
            [head, &edit, &tail[..200_000], &tail[220_000..]].concat(),
        ),
    ] {
        let mut pair = predicting(1, Predict::Aligned);
        sent_of(&mut pair, "a:1", &content);
        assert_eq!(made(&pair).offered_bytes, 0);
        let sent = sent_of(&mut pair, "a:1", &edited);
        assert!(sent < 180_000, "{what}: {sent}");
        let offered = made(&pair).offered_bytes as usize;
        assert!(offered < content.len(), "{what}: {offered}");
    }
}

#[test]
fn an_opening_serves_flows_that_are_over_before_anything_else_could() {
    let content = noise(12_000, 3);
    let mut pair = predicting(1, Predict::Window);
    sent_of(&mut pair, "a:1", &content);
    assert_eq!(sent_of(&mut pair, "a:1", &content), 0);
    // Nothing is known of what another target brings.
    assert!(sent_of(&mut pair, "b:1", &content) > 0);
    let mut pair = predicting(1, Predict::Aligned);
    sent_of(&mut pair, "a:1", &content);
    assert!(sent_of(&mut pair, "a:1", &content) > 0, "as published");
}

#[test]
fn a_wrong_opening_costs_its_first_offers_and_no_more() {
    let mut pair = predicting(1, Predict::Window);
    sent_of(&mut pair, "a:1", &noise(6_000_000, 3));
    sent_of(&mut pair, "a:1", &noise(6_000_000, 4));
    let made = made(&pair);
    assert!((1..=78).contains(&made.offers), "{made:?}");
    assert!(made.offer_frame_bytes <= 1100, "{made:?}");
}

#[test]
fn a_chain_that_broke_for_good_is_read_no_further() {
    let known = noise(16_000_000, 3);
    let mut pair = predicting(1, Predict::Window);
    sent_of(&mut pair, "a:1", &known);
    let begun = [&known[..300_000], &noise(24_000_000, 4)].concat();
    sent_of(&mut pair, "b:1", &begun);
    let offered = made(&pair).offered_bytes;
    assert!(offered < 10 << 20, "{offered}");
}

#[test]
fn offers_that_come_late_serve_what_has_not_left_yet() {
    for predict in [Predict::Window, Predict::Aligned] {
        let content = noise(900_000, 4);
        let mut pair = predicting(1, predict);
        sent_of(&mut pair, "a:1", &content);
        let flow = pair.open("b:1");
        pair.far.write(flow, &content[..100_000]);
        carry_down(&mut pair);
        // The history answers, and the offers are on their way while more bytes leave.
        pair.near_memory.serve(&mut pair.near);
        let late = transmit(&mut pair.near, pair.now, A);
        pair.far.write(flow, &content[100_000..200_000]);
        carry_down(&mut pair);
        pair.far.receive(pair.now, A, &late).expect("no fault");
        let mut arrived = Vec::new();
        take_all(&mut pair.near, flow, &mut arrived);
        arrived.extend(pair.bring(flow, &content[200_000..]));
        assert!(arrived == content);
        assert!(counted(&pair)[0] > 400_000, "{predict:?}");
        // They are counted once they can no longer be confirmed.
        pair.end(flow);
        assert!(made(&pair).overtaken_bytes > 50_000, "{predict:?}");
    }
}

/// What is compared is what would be delivered, whatever the history calls it.
#[test]
fn what_a_history_lies_about_is_never_confirmed() {
    for predict in [Predict::Window, Predict::Aligned] {
        let content = noise(300_000, 5);
        let mut pair = predicting(1, predict);
        sent_of(&mut pair, "a:1", &content);
        pair.near_memory.lies = true;
        pair.near_memory.is_frozen = true;
        let sent = sent_of(&mut pair, "a:1", &content);
        assert!(made(&pair).offers > 0);
        assert_eq!(sent, content.len(), "{predict:?}");
        assert_eq!(pair.near.status(pair.now).counters.events.misconfirmed, 0);
        pair.near_memory.lies = false;
        let sent = sent_of(&mut pair, "a:1", &content);
        assert!(sent < content.len() / 2, "{predict:?}: {sent}");
    }
}

#[test]
fn what_flows_were_offered_is_given_back_with_them() {
    let content = noise(200_000, 6);
    let mut pair = Pair::with_history(
        1,
        HistoryConfig {
            offered_bytes_max: 400_000,
            ..HistoryConfig::default()
        },
    );
    sent_of(&mut pair, "a:1", &content);
    let sent = sent_of(&mut pair, "a:1", &content);
    assert!(sent < content.len() / 2, "{sent}");
    pair.near_memory.is_frozen = true;
    for round in 0..30 {
        let flow = pair.open("a:1");
        match round % 3 {
            0 => pair.near.reset(flow, 1),
            1 => pair.far.reset(flow, 1),
            // Half of it comes, and the flow ends.
            _ => {
                pair.bring(flow, &content[..100_000]);
                pair.far.finish(flow);
                pair.near.finish(flow);
                pair.settle();
                assert!(pair.near.take_end(flow));
                pair.far.take_end(flow);
            }
        }
        pair.settle();
        assert_eq!((pair.near.flows_open(), pair.far.flows_open()), (0, 0));
    }
    let later = sent_of(&mut pair, "a:1", &content);
    assert!(later <= sent, "{later} instead of {sent} bytes");
}

#[test]
fn half_closed_flows_keep_no_offers_from_others() {
    let content = noise(2 << 20, 7);
    let mut pair = Pair::with_history(1, short_chunks(Predict::Window));
    sent_of(&mut pair, "a:1", &content);
    for _ in 0..40 {
        let flow = pair.open("a:1");
        pair.bring(flow, &content[..500_000]);
        pair.far.finish(flow);
        pair.settle();
        assert!(pair.near.take_end(flow));
    }
    assert_eq!(pair.near.flows_open(), 40);
    assert!(made(&pair).offers > 64 << 10, "more than a sender keeps");
}

#[test]
fn excluded_flows_are_neither_learnt_nor_offered() {
    let hello = [&[0x16, 0x03, 0x01][..], &noise(50_000, 8)].concat();
    let ssh = [&b"SSH-2.0-"[..], &noise(50_000, 8)].concat();
    let text = noise(50_000, 9);
    for (what, opened, accepted, content) in [
        ("by its opener", true, false, &text),
        ("by its target's end", false, true, &text),
        ("TLS", false, false, &hello),
        ("SSH", false, false, &ssh),
    ] {
        let mut pair = predicting(1, Predict::Window);
        // Something else is known of the target.
        sent_of(&mut pair, "a:1", &noise(50_000, 10));
        let (known, offered) = (pair.near_memory.chunks.len(), made(&pair).offers);
        pair.near_memory.is_slow = true;
        let open = pair.near.open_flow(pair.now, "a:1", opened);
        let flow = open.expect("the link is up");
        pair.settle();
        pair.far.accept_flow(flow, accepted);
        pair.settle();
        pair.far.write(flow, &content[..100]);
        pair.settle();
        pair.near_memory.is_slow = false;
        let mut arrived = Vec::new();
        take_all(&mut pair.near, flow, &mut arrived);
        arrived.extend(pair.bring(flow, &content[100..]));
        pair.far.finish(flow);
        pair.settle();
        assert!(&arrived == content);
        assert_eq!(pair.near_memory.chunks.len(), known, "{what}");
        assert_eq!(made(&pair).offers, offered, "{what}");
    }
}

#[test]
fn what_answers_an_encrypted_opening_is_not_learnt() {
    let mut pair = predicting(1, Predict::Window);
    let flow = pair.open("a:1");
    assert_eq!(pair.send(flow, &[0x16, 0x03, 0x01, 0, 5]).len(), 5);
    let content = noise(60_000, 11);
    assert!(pair.bring(flow, &content) == content);
    pair.far.finish(flow);
    pair.settle();
    assert_eq!(pair.near_memory.chunks.len(), 0);
}

#[test]
fn confirmations_travel_on_any_lane() {
    let content = noise(900_000, 12);
    let mut pair = predicting(2, Predict::Window);
    sent_of(&mut pair, "a:1", &content);
    let flow = pair.open("a:1");
    let home = pair.far.status(pair.now).flows[0].lane;
    let other = if home == A { B } else { A };
    let mut stalled = Vec::new();
    Frame::Stalled.write(&mut stalled);
    for link in [&mut pair.near, &mut pair.far] {
        link.receive(pair.now, home, &stalled).expect("no fault");
    }
    pair.settle();
    // The home lane's transport takes what it gets and is busy from then on.
    pair.far.write(flow, &content[..60_000]);
    let first = transmit(&mut pair.far, pair.now, home);
    pair.far.write(flow, &content[60_000..120_000]);
    let second = transmit(&mut pair.far, pair.now, other);
    assert!(has_confirmation(&first) && has_confirmation(&second));
    // What left later comes first.
    pair.near
        .receive(pair.now, other, &second)
        .expect("no fault");
    let mut arrived = Vec::new();
    take_all(&mut pair.near, flow, &mut arrived);
    assert!(arrived.is_empty());
    pair.near.receive(pair.now, home, &first).expect("no fault");
    take_all(&mut pair.near, flow, &mut arrived);
    pair.settle();
    let mut more = Vec::new();
    take_all(&mut pair.near, flow, &mut more);
    arrived.extend(more);
    arrived.extend(pair.bring(flow, &content[120_000..]));
    assert!(arrived == content);
}

fn has_confirmation(mut bytes: &[u8]) -> bool {
    while let Ok(Some((frame, read))) = Frame::read(bytes) {
        if matches!(frame, Frame::Confirm(_)) {
            return true;
        }
        bytes = &bytes[read..];
    }
    false
}

#[test]
fn a_flow_whose_chains_keep_breaking_is_driven_by_its_sender_and_back() {
    let content = noise(6 << 20, 13);
    let auto = LinkConfig::with_cache(CacheGeometry::new(4 << 20).expect("valid"));
    let near = LinkConfig {
        history: Some(HistoryConfig::default()),
        ..auto.clone()
    };
    let mut pair = Pair::between(1, near, auto);
    sent_of(&mut pair, "a:1", &content);
    // Each second chunk or so is another, and later none.
    let mut edited = content.clone();
    for at in (0..4 << 20).step_by(20_011) {
        edited[at] ^= 1;
    }
    let flow = pair.open("b:1");
    let mut drivers = Vec::new();
    let mut arrived = Vec::new();
    for piece in edited.chunks(64 << 10) {
        arrived.extend(pair.bring(flow, piece));
        let [near, far] = [&pair.near, &pair.far].map(|link| link.status(pair.now).flows);
        let made = near[0].receive_predictions;
        let by_sender = made.expect("predicted").by_sender;
        let taken = far[0].send_predictions;
        assert_eq!(taken.is_some_and(|taken| taken.by_sender), by_sender);
        drivers.push(by_sender);
    }
    assert!(arrived == edited);
    assert!(drivers.contains(&true), "driven by its sender");
    assert_eq!(drivers.last(), Some(&false), "and by its receiver again");
}

#[test]
fn what_is_written_by_hand_is_not_held_back() {
    let content = noise(100_000, 14);
    let mut pair = predicting(1, Predict::Window);
    sent_of(&mut pair, "a:1", &content);
    let flow = pair.open("a:1");
    assert!(made(&pair).offers > 0);
    for seed in 0..20 {
        let line = noise(60, 100 + seed);
        let before = pair.now;
        pair.far.write(flow, &line);
        carry_down(&mut pair);
        let mut arrived = Vec::new();
        take_all(&mut pair.near, flow, &mut arrived);
        assert_eq!((arrived, pair.now), (line, before));
    }
}

#[test]
fn keystrokes_are_held_back_once() {
    let content = noise(100_000, 14);
    let mut pair = predicting(1, Predict::Window);
    sent_of(&mut pair, "a:1", &content);
    let flow = pair.open("a:1");
    assert!(made(&pair).offers > 0);
    let mut waits = 0;
    for seed in 0..20 {
        // Too short for a hint, by which it could be told from what is expected.
        let line = noise(20, 100 + seed);
        pair.far.write(flow, &line);
        carry_down(&mut pair);
        let mut arrived = Vec::new();
        take_all(&mut pair.near, flow, &mut arrived);
        if arrived.is_empty() {
            waits += 1;
            pair.now = pair.far.poll_timeout().expect("a deadline");
            pair.far.handle_timeout(pair.now);
            carry_down(&mut pair);
            take_all(&mut pair.near, flow, &mut arrived);
        }
        assert_eq!(arrived, line);
    }
    assert!(waits <= 1, "{waits}");
}

#[test]
fn a_chunk_that_never_completes_is_not_waited_for_long() {
    let content = noise(100_000, 15);
    let mut pair = predicting(1, Predict::Window);
    sent_of(&mut pair, "a:1", &content);
    let flow = pair.open("a:1");
    let began = pair.now;
    pair.far.write(flow, &content[..1000]);
    assert!(transmit(&mut pair.far, pair.now, A).is_empty(), "it waits");
    let due = pair.far.poll_timeout().expect("a deadline");
    assert!(due > began && due <= began + HOLD_MAX);
    pair.now = due;
    pair.far.handle_timeout(due);
    carry_down(&mut pair);
    let mut arrived = Vec::new();
    take_all(&mut pair.near, flow, &mut arrived);
    assert!(arrived == content[..1000]);
    // The flow's end is waited for by nobody.
    let last = pair.open("a:1");
    pair.far.write(last, &content[..1000]);
    pair.far.finish(last);
    assert!(!transmit(&mut pair.far, pair.now, A).is_empty());
}

#[test]
fn a_lane_that_dies_amid_predictions_takes_its_flows_alone() {
    let content = noise(600_000, 16);
    let mut pair = predicting(2, Predict::Window);
    sent_of(&mut pair, "a:1", &content);
    let flow: FlowId = pair.open("a:1");
    let lane = pair.far.status(pair.now).flows[0].lane;
    pair.far.write(flow, &content[..128 << 10]);
    transmit(&mut pair.far, pair.now, lane);
    pair.carried.remove(&lane);
    for link in [&mut pair.near, &mut pair.far] {
        link.close_lane(lane, refrain_proto::LaneFault::TransportClosed);
    }
    pair.settle();
    assert_eq!((pair.near.flows_open(), pair.far.flows_open()), (0, 0));
    assert!(sent_of(&mut pair, "a:1", &content) < content.len() / 4);
}
