//! Peers that prove a good key, or none, and then break the protocol beside a flow under way.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use refrain_proto::{
    FlowId,
    frame::{BlockFrame, Frame, Stream},
    limits::FRAME_BYTES_MAX,
};

use crate::{
    block_on,
    common::{
        PATIENCE,
        addresses::free_address,
        command::keygen,
        eventually,
        fake_peer::FakeLane,
        origin::{self, Download},
        site::{Pair, Site},
    },
};

/// A pair with a flow under way, and a second near key for a peer that misbehaves meanwhile.
struct Besieged {
    pair: Pair,
    target: SocketAddr,
    listen: SocketAddr,
    download: Download,
}

impl Besieged {
    fn start() -> Besieged {
        let target = origin::start();
        let site = Site::new();
        let hostile_key = keygen(&site.path("hostile.key"));
        let peers = [site.near_key.as_str(), &hostile_key].join(",");
        let far = site.far(&["--peer-key", &peers]);
        let listen = free_address();
        let near = site.near(
            site.far_listen,
            &["--forward", &format!("{listen}={target}")],
        );
        near.wait_until_up();
        let download = Download::begin(listen);
        let pair = Pair { near, far, site };
        Besieged {
            pair,
            target,
            listen,
            download,
        }
    }

    /// Sends `frames` after a good hello, and waits until the far end closes the lane.
    fn attack(&self, frames: &[u8]) {
        let site = &self.pair.site;
        block_on(async {
            let key = site.path("hostile.key");
            let mut lane = FakeLane::connect(site.far_listen, &key, &site.far_key).await;
            lane.greet().await;
            lane.send(frames).await;
            lane.until_closed().await;
        });
    }

    /// The flow arrives whole, its lanes live, and the far end serves new flows.
    #[track_caller]
    fn assert_unharmed(self) {
        self.download.finish();
        assert_eq!(self.pair.near.peer().counters.lanes_lost, 0);
        assert!(origin::answers(self.listen));
    }
}

#[test]
fn bytes_that_are_no_tls() {
    let siege = Besieged::start();
    let mut stream = TcpStream::connect(siege.pair.site.far_listen).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request = b"GET / HTTP/1.1\r\nHost: far\r\n\r\n";
    stream.write_all(request).expect("a connection");
    let mut answer = Vec::new();
    let closed = stream.read_to_end(&mut answer);
    assert!(
        closed.is_ok() && answer.len() < 100,
        "{closed:?}: {answer:?}"
    );
    siege.pair.far.wait_for_log(&["WARN", "does not speak TLS"]);
    siege.assert_unharmed();
}

#[test]
fn something_else_in_good_tls() {
    let siege = Besieged::start();
    let site = &siege.pair.site;
    block_on(async {
        let key = site.path("hostile.key");
        let mut lane = FakeLane::connect(site.far_listen, &key, &site.far_key).await;
        lane.send(b"SSH-2.0-other\r\n").await;
        lane.until_closed().await;
    });
    let far = &siege.pair.far;
    far.wait_for_log(&["WARN", "does not speak refrain's protocol"]);
    siege.assert_unharmed();
}

#[test]
fn a_frame_of_an_unknown_type() {
    let siege = Besieged::start();
    siege.attack(&[200, 1, 0]);
    siege
        .pair
        .far
        .wait_for_log(&["WARN", "unknown frame type 200"]);
    siege.assert_unharmed();
}

#[test]
fn a_frame_longer_than_any() {
    let siege = Besieged::start();
    // A block's type, and the limit plus some in LEB128.
    let length = FRAME_BYTES_MAX as u32 + 1;
    let varint = [
        length as u8 | 0x80,
        (length >> 7) as u8 | 0x80,
        (length >> 14) as u8,
    ];
    siege.attack(&[&[4], &varint[..]].concat());
    siege
        .pair
        .far
        .wait_for_log(&["WARN", &format!("frame too large: {length} bytes")]);
    siege.assert_unharmed();
}

#[test]
fn a_frame_cut_short_by_a_dying_peer() {
    let siege = Besieged::start();
    let site = &siege.pair.site;
    block_on(async {
        let key = site.path("hostile.key");
        let mut lane = FakeLane::connect(site.far_listen, &key, &site.far_key).await;
        lane.greet().await;
        let frames = open_and_block(siege.target, b"hello", u64::MAX, &[]);
        lane.send(&frames[..frames.len() - 1]).await;
        lane.drop_at_once();
    });
    eventually("the far end lets the lane go", || {
        let down = |peer: &refrain_gateway::status::Peer| peer.lanes == 0;
        siege.pair.far.status().peers.iter().any(down).then_some(())
    });
    siege.assert_unharmed();
}

#[test]
fn a_block_whose_check_is_wrong() {
    let siege = Besieged::start();
    siege.attack(&open_and_block(siege.target, b"hello", 0, &[]));
    siege
        .pair
        .far
        .wait_for_log(&["WARN", "caches of the two ends disagree", "check"]);
    siege.assert_unharmed();
}

#[test]
fn a_token_outside_of_the_cache() {
    let siege = Besieged::start();
    // No literals, eight bytes, from a position a million before the block's own.
    let tokens = [0, 0, 0xff, 0x84, 0x7a];
    siege.attack(&open_and_block(siege.target, b"", 0, &tokens));
    siege
        .pair
        .far
        .wait_for_log(&["WARN", "caches of the two ends disagree"]);
    siege.assert_unharmed();
}

/// A flow to `target` and one block on it.
fn open_and_block(target: SocketAddr, literals: &[u8], check: u64, tokens: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    Frame::Open {
        flow: FlowId(0),
        credit_bytes: 1 << 16,
        excluded: false,
        target: &target.to_string(),
    }
    .write(&mut frames);
    let plain = |bytes| Stream {
        compressed: false,
        bytes,
    };
    Frame::Block(BlockFrame {
        is_secret: false,
        flow: FlowId(0),
        len: if tokens.is_empty() { literals.len() } else { 8 },
        offset: None,
        position_step: Some(0),
        check,
        tokens: plain(tokens),
        literals: plain(literals),
    })
    .write(&mut frames);
    frames
}
