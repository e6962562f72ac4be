//! A peer with a good key that wants the gateway's memory.

use std::{io, net::SocketAddr, path::Path, sync::OnceLock, time::Duration};

use refrain_proto::{
    FlowId,
    frame::{BlockFrame, Frame, Offer, OfferFrame, OfferList, Stream},
    hello::Hello,
    limits::{BLOCK_BYTES_MAX, OFFER_BYTES_MAX, OFFERS_FRAME_MAX, PADDING_BYTES_MAX},
    terms::{Hint, OfferTerms, Signature},
};
use tokio::time::{Instant, sleep, timeout};

use super::{PATIENCE, fake_peer::FakeLane};

/// How long an attack goes on unless the gateway ends it.
const ATTACK: Duration = Duration::from_secs(3);

/// Much that packs well.
static BOMB: OnceLock<Vec<u8>> = OnceLock::new();

/// What a hostile peer says on a lane, over and over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attack {
    /// Pings that want the longest answers, which it does not read.
    Pings,
    /// Flows, more and more of them.
    Opens,
    /// Flows that it gives up at once.
    OpensAndResets,
    /// Flows from a server that sends for ever; it reads, grants or acknowledges nothing.
    Downloads,
    /// Blocks that unpack to many times what they may hold.
    Bombs,
    /// The first part of the longest frame.
    HalfFrames,
    /// Offers of what never comes, more and more of them for a flow.
    Offers,
}

pub(crate) const ATTACKS: [Attack; 7] = [
    Attack::Pings,
    Attack::Opens,
    Attack::OpensAndResets,
    Attack::Downloads,
    Attack::Bombs,
    Attack::HalfFrames,
    Attack::Offers,
];

/// Opens a link of its own with `lanes` lanes and attacks on all of them; `target` is a
/// server that sends for ever.
pub(crate) async fn attack(
    attack: Attack,
    far: SocketAddr,
    key: &Path,
    far_key: &str,
    lanes: u32,
    target: SocketAddr,
) {
    let mut running = Vec::new();
    let until = Instant::now() + PATIENCE;
    for number in 0..lanes {
        let mut taken = open_lane(attack, far, key, far_key, number).await;
        // The memory of the link before comes back when its last task has ended.
        while number == 0 && taken.is_none() && Instant::now() < until {
            sleep(Duration::from_millis(50)).await;
            taken = open_lane(attack, far, key, far_key, number).await;
        }
        let Some(lane) = taken else {
            // The gateway has had enough of the lanes before.
            break;
        };
        running.push(tokio::spawn(async move {
            // What ends it is the gateway, or the time.
            let _ = timeout(ATTACK, say_for_ever(attack, lane, number, target)).await;
        }));
    }
    assert!(!running.is_empty(), "the gateway takes a lane");
    for lane in running {
        lane.await.expect("no panic");
    }
}

/// A lane that the far end has taken, if it does. All lanes name the same instance.
async fn open_lane(
    attack: Attack,
    far: SocketAddr,
    key: &Path,
    far_key: &str,
    number: u32,
) -> Option<FakeLane> {
    let mut lane = FakeLane::try_connect(far, key, far_key).await.ok()?;
    let hello = Hello {
        send_cache_bytes: 128 << 20,
        receive_cache_bytes: 128 << 20,
        offers: Some(OfferTerms::default()),
        ..Hello::of_lane(1000 + attack as u64, None, number)
    };
    lane.greet_with(hello).await.ok()?;
    Some(lane)
}

async fn say_for_ever(
    attack: Attack,
    mut lane: FakeLane,
    number: u32,
    target: SocketAddr,
) -> io::Result<()> {
    let target = target.to_string();
    // Each lane opens its own.
    let mut next_flow = u64::from(number) << 32;
    let mut frames = Vec::new();
    loop {
        frames.clear();
        for _ in 0..100 {
            next_flow += 2;
            let flow = FlowId(next_flow);
            say(attack, flow, &target, &mut frames);
        }
        lane.try_send(&frames).await?;
        if let Attack::HalfFrames = attack {
            std::future::pending::<()>().await;
        }
    }
}

fn say(attack: Attack, flow: FlowId, target: &str, frames: &mut Vec<u8>) {
    let open = Frame::Open {
        flow,
        credit_bytes: 16 << 20,
        excluded: false,
        target,
    };
    match attack {
        Attack::Pings => Frame::Ping {
            nonce: flow.0,
            answer_bytes: PADDING_BYTES_MAX,
            padding: &[],
        }
        .write(frames),
        Attack::Opens | Attack::Downloads => open.write(frames),
        Attack::OpensAndResets => {
            open.write(frames);
            Frame::Reset { flow, code: 1 }.write(frames);
        }
        Attack::Bombs => {
            open.write(frames);
            let bomb = BOMB
                .get_or_init(|| zstd::bulk::compress(&vec![0; 16 << 20], 1).expect("compressed"));
            Frame::Block(BlockFrame {
                flow,
                len: BLOCK_BYTES_MAX,
                offset: None,
                position_step: Some(0),
                is_secret: false,
                check: 0,
                tokens: Stream {
                    compressed: true,
                    bytes: bomb,
                },
                literals: Stream {
                    compressed: true,
                    bytes: bomb,
                },
            })
            .write(frames);
        }
        Attack::Offers => {
            let first = FlowId((flow.0 >> 32 << 32) + 2);
            if flow == first {
                open.write(frames);
            }
            offer(first, frames);
        }
        Attack::HalfFrames => {
            let padding = &[7; PADDING_BYTES_MAX];
            let mut whole = Vec::new();
            Frame::Pong { nonce: 1, padding }.write(&mut whole);
            frames.clear();
            frames.extend_from_slice(&whole[..whole.len() - 1]);
        }
    }
}

fn offer(flow: FlowId, frames: &mut Vec<u8>) {
    let offers = (0..OFFERS_FRAME_MAX as u16).map(|prefix| Offer {
        len: OFFER_BYTES_MAX as u32,
        hint: Hint { prefix, sum: 0 },
        signature: Signature([7; 8]),
    });
    Frame::Offer(OfferFrame {
        flow,
        withdrawn_below: 0,
        start: None,
        offers: OfferList::write(offers, &mut Vec::new()),
    })
    .write(frames);
}
