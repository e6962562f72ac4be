//! How far ahead a receiver offers, in how many offers, and what a failure changes in that.

use refrain_proto::predictions::history::Predict;

use crate::{
    pair::{Pair, noise},
    predictions::{made, predicting, sent_of, short_chunks},
};

/// PACK, Proc. 4 and 5: the window is reset, so that nothing more is offered until what is on offer has
/// come down to it.
#[test]
fn an_aligned_failure_resets_what_may_be_offered_ahead() {
    let content = noise(14_000_000, 1);
    let mut edited = content.clone();
    edited[4_000_000..4_020_000].copy_from_slice(&noise(20_000, 2));
    let mut pair = predicting(1, Predict::Aligned);
    sent_of(&mut pair, "a:1", &content);
    let flow = pair.open("b:1");
    let mut offered_while = |piece: core::ops::Range<usize>| {
        let before = made(&pair).offered_bytes;
        assert!(pair.bring(flow, &edited[piece.clone()]) == edited[piece]);
        made(&pair).offered_bytes - before
    };
    offered_while(0..3_000_000);
    let smooth = offered_while(3_000_000..4_000_000);
    // What came, and as much again since it was right.
    assert!((1_800_000..2_200_000).contains(&smooth), "{smooth}");
    offered_while(4_000_000..4_100_000);
    assert_eq!(offered_while(4_100_000..5_100_000), 0, "after a failure");
}

#[test]
fn offers_in_vain_are_taken_off_the_window() {
    let content = noise(14_000_000, 1);
    let mut pair = predicting(1, Predict::Window);
    sent_of(&mut pair, "a:1", &content);
    let held = |pair: &Pair| pair.near.status(pair.now).offered_bytes_held;
    let flow = pair.open("b:1");
    pair.bring(flow, &content[..300_000]);
    assert!(held(&pair) > 8_000_000, "{} bytes", held(&pair));
    // What was skipped is withdrawn when the flow has gone on for a while behind it.
    pair.bring(flow, &content[7_000_000..7_800_000]);
    assert!(made(&pair).wasted_bytes > 6_000_000);
    assert!(held(&pair) < 4_000_000, "{} bytes", held(&pair));
}

#[test]
fn a_chain_that_goes_on_takes_the_room_of_one_that_does_not() {
    let (left, taken) = (noise(10_000_000, 1), noise(3_000_000, 2));
    let mut pair = predicting(1, Predict::Window);
    sent_of(&mut pair, "a:1", &left);
    sent_of(&mut pair, "b:1", &taken);
    let flow = pair.open("c:1");
    pair.bring(flow, &left[..300_000]);
    pair.bring(flow, &taken[..1_000_000]);
    // Long before the other one is given up.
    let made = made(&pair);
    assert!(made.wasted_bytes > 0, "{made:?}");
    assert!(made.confirmed_bytes > 900_000, "{made:?}");
}

/// A change costs its range, and a short chunk would cost an offer.
#[test]
fn an_aligned_range_covers_several_short_chunks() {
    let content = noise(400_000, 1);
    let mut pair = Pair::with_history(1, short_chunks(Predict::Aligned));
    sent_of(&mut pair, "a:1", &content);
    let chunks = pair.near_memory.chunks.len() as u64;
    let flow = pair.open("b:1");
    // Offers come with the first of them.
    for piece in [&content[..10_000], &content[10_000..]] {
        assert!(pair.bring(flow, piece) == piece, "the same bytes");
    }
    let confirmed = made(&pair).confirmed_bytes;
    assert!(confirmed > 385_000, "{confirmed}");
    let offers = made(&pair).offers;
    assert!((1..chunks / 8).contains(&offers), "{offers} of {chunks}");
}
