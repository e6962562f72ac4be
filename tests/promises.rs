//! Promises of the threat model, as users have them: with gateways as processes, applications and
//! peers that break rules. `tests/planted` plants bugs that these tests must find.
#![allow(missing_docs, reason = "a test's own")]

mod common;

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use common::{
    PATIENCE,
    addresses::forward,
    command::keygen,
    content::noise,
    eventually,
    fake_peer::FakeLane,
    gateway::Gateway,
    origin, read,
    server::serve,
    site::{Pair, Site},
};
use refrain_codec::{
    EncodedBlock, Encoder, EncoderConfig, SourceCursor, geometry::CacheGeometry,
    matching::Everything,
};
use refrain_proto::{
    FlowId,
    frame::{BlockFrame, Frame, Stream},
    hello::Hello,
    limits::CREDIT_FLOOR_BYTES,
};
use tokio::runtime::Runtime;

const CACHE_BYTES: u64 = 1 << 20;

fn hello(instance: u64, lane: u32) -> Hello {
    Hello {
        send_cache_bytes: CACHE_BYTES,
        receive_cache_bytes: CACHE_BYTES,
        ..Hello::of_lane(instance, None, lane)
    }
}

/// Peers with keys of their own, and the far end that takes them.
struct Peers {
    // A failed test shows its log, which lies in the site's folder.
    far: Gateway,
    site: Site,
    runtime: Runtime,
    names: Vec<String>,
    keys: Vec<String>,
}

impl Peers {
    fn new(count: usize, options: &[&str]) -> Peers {
        let site = Site::new();
        let names: Vec<String> = (0..count)
            .map(|number| format!("peer-{number}.key"))
            .collect();
        let keys: Vec<String> = names.iter().map(|name| keygen(&site.path(name))).collect();
        let mut all = options.to_vec();
        for key in &keys {
            all.extend(["--peer-key", key]);
        }
        let far = site.far(&all);
        let runtime = Runtime::new().expect("a runtime");
        Peers {
            site,
            far,
            runtime,
            names,
            keys,
        }
    }

    fn connect(&self, peer: usize) -> FakeLane {
        let key = self.site.path(&self.names[peer]);
        let (address, far_key) = (self.site.far_listen, &self.site.far_key);
        self.runtime
            .block_on(FakeLane::connect(address, &key, far_key))
    }

    /// A lane of `peer` whose hello names this instance.
    fn lane(&self, peer: usize, instance: u64, number: u32) -> FakeLane {
        let mut lane = self.connect(peer);
        let greeting = lane.greet_with(hello(instance, number));
        self.runtime.block_on(greeting).expect("an answer");
        lane
    }

    /// The far end's hello to one of `peer` that names this instance.
    fn answer(&self, peer: usize, instance: u64) -> Hello {
        let mut lane = self.connect(peer);
        let mut asked = Vec::new();
        hello(instance, 0).write(&mut asked);
        self.send(&mut lane, &asked);
        let mut answer = Vec::new();
        loop {
            answer.extend(self.runtime.block_on(lane.receive(1)));
            if let Some((hello, _)) = Hello::read(&answer).expect("a hello") {
                return hello;
            }
        }
    }

    fn send(&self, lane: &mut FakeLane, frames: &[u8]) {
        self.runtime.block_on(lane.send(frames));
    }

    fn until_closed(&self, lane: FakeLane) -> Vec<u8> {
        self.runtime.block_on(lane.until_closed())
    }

    /// Lanes of each peer that are up, link by link.
    fn lanes(&self, peer: usize) -> Vec<usize> {
        let rows = self.far.status().peers.into_iter();
        let rows = rows.filter(|row| row.key == self.keys[peer] && row.up);
        rows.map(|row| row.lanes).collect()
    }
}

/// P1. A prefix and then an end would look like all of it.
#[test]
fn what_arrives_is_what_was_sent_or_the_end_is_an_error() {
    let content = noise(1, 400_000);
    let answer = content.clone();
    let (listen, option) = forward(serve(move |mut stream| {
        stream.write_all(&answer)?;
        // The rest comes never.
        let mut until_closed = [0];
        let _ = stream.read(&mut until_closed);
        Ok(())
    }));
    let mut pair = Pair::start(&[], &["--forward", &option]);
    let mut client = TcpStream::connect(listen).expect("the listener is there");
    client.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut arrived = vec![0; content.len()];
    client.read_exact(&mut arrived).expect("all that was sent");
    assert!(arrived == content);
    pair.far.kill();
    let end = read(&mut client, &mut arrived);
    assert_eq!(
        end.map_err(|error| error.kind()),
        Err(ErrorKind::ConnectionReset)
    );
}

/// P2. Whoever learns the number of another peer's link gets none of it.
#[test]
fn a_peer_that_names_the_link_of_another_gets_one_of_its_own() {
    let peers = Peers::new(2, &[]);
    let _first = peers.lane(0, 77, 0);
    let _second = peers.lane(1, 77, 1);
    eventually("each has a link with one lane", || {
        (peers.lanes(0) == [1] && peers.lanes(1) == [1]).then_some(())
    });
}

/// A block at `at` with `plain`, as the sender of `encoder` says it first on a lane.
fn first_block(encoder: &mut Encoder, flow: FlowId, plain: &[u8]) -> Vec<u8> {
    let (mut cursor, mut encoded) = (SourceCursor::default(), EncodedBlock::default());
    let seed = flow.0.rotate_left(32);
    let at = encoder.encode(seed, plain, &Everything, &mut cursor, &mut encoded);
    let stream = |bytes| Stream {
        compressed: false,
        bytes,
    };
    let mut frame = Vec::new();
    Frame::Block(BlockFrame {
        is_secret: false,
        flow,
        len: plain.len(),
        offset: None,
        position_step: Some(at.0.cast_signed()),
        check: encoded.check,
        tokens: stream(&encoded.tokens),
        literals: stream(&encoded.literals),
    })
    .write(&mut frame);
    frame
}

fn open(flow: FlowId, target: SocketAddr) -> Vec<u8> {
    let mut frame = Vec::new();
    Frame::Open {
        flow,
        credit_bytes: 0,
        excluded: false,
        target: &target.to_string(),
    }
    .write(&mut frame);
    frame
}

/// A listener, and all that its first connection brings.
fn sink() -> (SocketAddr, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let taking = std::thread::spawn(move || {
        let mut taken = Vec::new();
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        // A reset ends it too.
        let _ = stream.read_to_end(&mut taken);
        taken
    });
    (address, taking)
}

/// P3. One peer sends a secret. Another one names the place where it lies.
#[test]
fn a_peer_cannot_refer_to_what_another_sent() {
    const SECRET: &[u8] = b"a secret of one peer, which no other peer may ever have sent to it";
    let peers = Peers::new(2, &[]);
    let geometry = CacheGeometry::new(CACHE_BYTES as usize).expect("a valid size");
    let mut encoder = Encoder::new(EncoderConfig::with_defaults(geometry));
    let (its_target, taken) = sink();
    let mut first = peers.lane(0, 77, 0);
    let block = first_block(&mut encoder, FlowId(0), SECRET);
    peers.send(&mut first, &[open(FlowId(0), its_target), block].concat());
    eventually("the far end has it", || {
        let rows = peers.far.status().peers.into_iter();
        rows.map(|row| row.received.app_bytes)
            .find(|&bytes| bytes == SECRET.len() as u64)
    });

    let (other_target, taken_by_other) = sink();
    let mut second = peers.lane(1, 77, 1);
    let block = first_block(&mut encoder, FlowId(2), SECRET);
    assert!(block.len() < SECRET.len() / 2, "it names it: {block:?}");
    peers.send(
        &mut second,
        &[open(FlowId(2), other_target), block].concat(),
    );
    peers.until_closed(second);
    // One that never came is over at once.
    let _ = TcpStream::connect(other_target);
    assert_eq!(taken_by_other.join().expect("no panic"), b"");
    drop(first);
    drop(peers);
    assert_eq!(taken.join().expect("no panic"), SECRET);
}

/// P4. The hashes of a link have a key, and it is made of both ends' numbers: an end that chooses its
/// own knows no key before it has heard the other's.
#[test]
fn hashes_have_a_key_that_no_peer_knows_before() {
    let peers = Peers::new(2, &[]);
    let another_process = Peers::new(1, &[]);
    let answers = [
        peers.answer(0, 77),
        peers.answer(1, 77),
        another_process.answer(0, 77),
    ];
    let mut numbers = answers.map(|hello| hello.instance);
    numbers.sort_unstable();
    // Of random numbers none is near another, or small.
    assert!(numbers[0] > u64::from(u32::MAX), "{numbers:?}");
    let are_apart = |two: &[u64]| two[1] - two[0] > u64::from(u32::MAX);
    assert!(numbers.windows(2).all(are_apart), "{numbers:?}");
}

/// P5. What is reserved for one is not given to another, nor to its owner twice.
#[test]
fn each_peer_has_its_share_of_the_memory_and_no_more() {
    const MEMORY_BYTES: u64 = 120 << 20;
    let peers = Peers::new(3, &["--memory", "120MiB"]);
    let lanes: Vec<FakeLane> = (0..3)
        .map(|peer| peers.lane(peer, 100 + peer as u64, 0))
        .collect();
    eventually("each has a link", || {
        (0..3).all(|peer| peers.lanes(peer) == [1]).then_some(())
    });
    let further = peers.lane(0, 200, 0);
    peers.until_closed(further);
    for peer in 0..3 {
        assert_eq!(peers.lanes(peer), [1], "peer {peer}");
    }
    let memory = peers.far.status().memory;
    assert!(memory.reserved_bytes <= MEMORY_BYTES && memory.reserved_bytes > MEMORY_BYTES / 2);
    drop(lanes);
}

/// P2 and P5. However many links one peer begins, and however early.
#[test]
fn links_of_one_peer_leave_others_their_share() {
    let peers = Peers::new(3, &["--memory", "120MiB"]);
    let greedy: Vec<FakeLane> = (0..4).map(|link| peers.lane(0, 300 + link, 0)).collect();
    let others: Vec<FakeLane> = (1..3)
        .map(|peer| peers.lane(peer, 100 + peer as u64, 0))
        .collect();
    eventually("each of the others has a link", || {
        (1..3).all(|peer| peers.lanes(peer) == [1]).then_some(())
    });
    drop((greedy, others));
}

/// P6. What a peer announces is held against its bound before it is read or unpacked.
#[test]
fn hellos_and_streams_beyond_their_bounds_are_refused_at_once() {
    let peers = Peers::new(1, &[]);
    let mut lane = peers.connect(0);
    let mut hello = b"refrain\n".to_vec();
    hello.extend([1, 1, 0xff, 0xff]);
    peers.send(&mut lane, &hello);
    peers.far.wait_for_log(&["hello is malformed"]);
    peers.until_closed(lane);

    let (target, _taken) = sink();
    let mut lane = peers.lane(0, 77, 0);
    let bomb = zstd::bulk::compress(&vec![0; 16 << 20], 1).expect("compressed");
    let mut frames = open(FlowId(0), target);
    Frame::Block(BlockFrame {
        is_secret: false,
        flow: FlowId(0),
        len: CREDIT_FLOOR_BYTES as usize,
        offset: None,
        position_step: None,
        check: 0,
        tokens: Stream {
            compressed: false,
            bytes: &[],
        },
        literals: Stream {
            compressed: true,
            bytes: &bomb,
        },
    })
    .write(&mut frames);
    peers.send(&mut lane, &frames);
    peers.far.wait_for_log(&["DamagedSecondStage"]);
    peers.until_closed(lane);
}

/// P7. Plain text, both ways, by a rule at either end.
#[test]
fn what_a_rule_excludes_leaves_the_caches_of_both_ends_empty() {
    let greeting = b"a greeting in plain text, and the same again; ".repeat(200);
    let said = greeting.clone();
    let target = serve(move |mut stream| {
        stream.write_all(&said)?;
        let mut request = [0; 5000];
        stream.read_exact(&mut request)?;
        stream.write_all(&request)?;
        stream.write_all(&said)
    });
    let rule = target.to_string();
    let exclude = ["--exclude", rule.as_str()];
    let (far_rule, near_rule): ([&[&str]; 3], [&[&str]; 3]) =
        ([&[], &exclude, &exclude], [&exclude, &[], &exclude]);
    for (far_options, near_options) in far_rule.into_iter().zip(near_rule) {
        let (listen, option) = forward(target);
        let pair = Pair::start(
            far_options,
            &[near_options, &["--forward", &option]].concat(),
        );
        for _ in 0..2 {
            let mut client = TcpStream::connect(listen).expect("the listener is there");
            client.set_read_timeout(Some(PATIENCE)).expect("a socket");
            let mut greeted = vec![0; greeting.len()];
            client.read_exact(&mut greeted).expect("a greeting");
            assert!(greeted == greeting);
            client.write_all(&greeting[..5000]).expect("taken");
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).expect("an answer");
            assert!(answer == [&greeting[..5000], &greeting].concat());
        }
        for (name, gateway) in pair.ends() {
            let peer = eventually("all is counted", || {
                let peer = gateway.peer();
                let app = peer.sent.app_bytes.max(peer.received.app_bytes);
                let all = 2 * (2 * greeting.len() + 5000) as u64;
                (app == all && peer.flows_open == 0).then_some(peer)
            });
            for direction in [&peer.sent, &peer.received] {
                assert_eq!(direction.cache_filled_bytes, 0, "{name}: {direction:?}");
                assert_eq!(direction.blocks, direction.bypassed_blocks, "{name}");
                assert_eq!(direction.zstd_saved_bytes, 0, "{name}: {direction:?}");
            }
        }
    }
}

/// P8, in short: `tests/operations/deaths.rs` has the others.
#[test]
fn an_open_connection_is_reset_when_the_other_end_dies() {
    let (listen, option) = forward(origin::start());
    let mut pair = Pair::start(&[], &["--forward", &option]);
    let mut client = origin::ask(listen, "send 1 50000000 1000 10").expect("a listener");
    let mut piece = [0; 1000];
    client.read_exact(&mut piece).expect("a piece");
    pair.far.kill();
    client
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a socket");
    let end = loop {
        match read(&mut client, &mut piece) {
            Ok(1..) => {}
            end => break end,
        }
    };
    assert_eq!(
        end.map_err(|error| error.kind()),
        Err(ErrorKind::ConnectionReset)
    );
}
