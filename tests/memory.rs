//! Promises P5 and P6: memory stays under `--memory` and a stated constant, whatever a peer
//! with a good key or ten thousand clients do; and caches take memory only as they fill.
#![allow(missing_docs, reason = "a test's own")]

mod common;

use std::{net::SocketAddr, time::Duration};

use common::{
    addresses::forward,
    applications::{Outcome, Plan, Server, run_client},
    attacks::{ATTACKS, attack},
    command::keygen,
    content::noise,
    fake_peer::FakeLane,
    resident::{PROCESS_BYTES_MAX, resident_bytes, resident_bytes_max},
    site::{Pair, Site},
};
use refrain_proto::{FlowId, frame::Frame, hello::Hello};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

const MEBIBYTE: u64 = 1 << 20;

/// Most bytes of a flow, one way, where flows only have to be there.
const FLOW_BYTES_MAX: u64 = 4 << 20;

#[test]
fn a_hostile_peer_gets_no_more_than_its_link() {
    // Two links of 80 MiB or less.
    const MEMORY_BYTES: u64 = 160 * MEBIBYTE;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start()).expect("a server");
    let endless = runtime.block_on(serve_endlessly());
    let site = Site::new();
    let hostile = site.path("hostile.key");
    let hostile_key = keygen(&hostile);
    let small = ["--memory", "160MiB", "--cache-size", "4MiB", "--lanes", "1"];
    let peers = ["--peer-key", &site.near_key, "--peer-key", &hostile_key];
    let far = site.far(&[&small[..], &peers].concat());
    let (listen, option) = forward(server.address);
    let near = site.near(
        site.far_listen,
        &[&small[..], &["--forward", &option]].concat(),
    );
    near.wait_until_up();

    for (round, what) in ATTACKS.into_iter().enumerate() {
        let (address, key) = (site.far_listen, hostile.clone());
        let far_key = site.far_key.clone();
        let attacking = runtime.spawn(async move {
            attack(what, address, &key, &far_key, 4, endless).await;
        });
        let flows = run_flows(&runtime, listen, &server, round as u64 * 100);
        runtime.block_on(attacking).expect("no panic");
        assert_eq!(flows, Vec::<String>::new(), "while attacked by {what:?}");
        let resident = resident_bytes_max(&far);
        println!("{what:?}: {} MiB resident at most", resident / MEBIBYTE);
        assert!(
            resident <= MEMORY_BYTES + PROCESS_BYTES_MAX,
            "{what:?}: {resident} bytes of memory"
        );
    }
    assert_eq!(near.peer().counters.lanes_lost, 0, "the honest peer's");
}

#[test]
fn ten_thousand_connections_fit() {
    // Two file descriptors each here, one in a gateway.
    const CONNECTIONS: usize = 10_000;
    const MEMORY: &str = "2600MiB";
    const MEMORY_BYTES: u64 = 2600 * MEBIBYTE;
    let files = open_files_max();
    // The other tests of this process opened 324 at most.
    let connections = CONNECTIONS.min((files.saturating_sub(1000) / 2) as usize);
    if connections < CONNECTIONS {
        println!("only {connections} connections: {files} files may be open");
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let echo = runtime.block_on(serve_echo());
    let bounds = ["--memory", MEMORY, "--cache-size", "16MiB"];
    let (address, option) = forward(echo);
    let pair = Pair::start(&bounds, &[&bounds[..], &["--forward", &option]].concat());
    pair.near.wait_for_lanes(4);

    let open = runtime.block_on(async {
        let mut open = Vec::new();
        // The listeners' backlogs are shorter than this is.
        while open.len() < connections {
            let mut opening = JoinSet::new();
            for number in open.len()..connections.min(open.len() + 500) {
                opening.spawn(async move {
                    let mut tcp = TcpStream::connect(address).await.expect("accepted");
                    let sent = (number as u64).to_le_bytes().repeat(512);
                    tcp.write_all(&sent).await.expect("written");
                    let mut echoed = vec![0; sent.len()];
                    tcp.read_exact(&mut echoed).await.expect("echoed");
                    assert_eq!(echoed, sent);
                    tcp
                });
            }
            open.extend(opening.join_all().await);
        }
        open
    });
    assert_eq!(pair.near.peer().flows_open, connections);
    for (name, gateway) in pair.ends() {
        let resident = resident_bytes_max(gateway);
        println!("{name}: {} MiB resident at most", resident / MEBIBYTE);
        assert!(
            resident <= MEMORY_BYTES + PROCESS_BYTES_MAX,
            "{name}: {resident}"
        );
    }
    drop(open);
}

#[test]
fn caches_take_memory_as_they_fill() {
    for (cache, cache_bytes) in [("1MiB", MEBIBYTE), ("128MiB", 128 * MEBIBYTE)] {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let server = runtime.block_on(Server::start()).expect("a server");
        let bounds = ["--cache-size", cache, "--memory", "1GiB"];
        let (listen, option) = forward(server.address);
        let pair = Pair::start(&bounds, &[&bounds[..], &["--forward", &option]].concat());
        pair.near.wait_for_lanes(4);
        for (_, gateway) in pair.ends() {
            let resident = resident_bytes(gateway);
            println!("{cache}, empty: {} MiB", resident / MEBIBYTE);
            assert!(resident < PROCESS_BYTES_MAX, "{resident} bytes for nothing");
        }
        let flows = run_flows(&runtime, listen, &server, 0);
        assert_eq!(flows, Vec::<String>::new());
        for (_, gateway) in pair.ends() {
            let peer = gateway.peer();
            let filled = peer.sent.cache_filled_bytes + peer.received.cache_filled_bytes;
            assert!(filled > 0 && filled <= 2 * cache_bytes, "{peer:?}");
            let resident = resident_bytes_max(gateway);
            println!(
                "{cache}, {} MiB in it: {} MiB",
                filled / MEBIBYTE,
                resident / MEBIBYTE
            );
            // A full cache's table, 12.5 %, may be there whole; its pages are touched at random.
            let allowed = filled + cache_bytes / 4 + 3 * PROCESS_BYTES_MAX;
            assert!(resident <= allowed, "{resident} bytes");
        }
    }
}

#[test]
fn little_memory_makes_a_small_link() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start()).expect("a server");
    let (listen, option) = forward(server.address);
    let pair = Pair::start(
        &["--memory", "64MiB"],
        &["--memory", "64MiB", "--forward", &option],
    );
    let flows = run_flows(&runtime, listen, &server, 0);
    assert_eq!(flows, Vec::<String>::new());
    for (_, gateway) in pair.ends() {
        let resident = resident_bytes_max(gateway);
        println!("64MiB: {} MiB resident at most", resident / MEBIBYTE);
        assert!(resident <= 64 * MEBIBYTE + PROCESS_BYTES_MAX, "{resident}");
    }
}

/// A link that begins during a check must not be smaller for as long as it lives.
#[test]
fn checks_take_nothing_of_the_memory_of_a_link() {
    let site = Site::new();
    let far = site.far(&["--memory", "512MiB"]);
    let link = || {
        let near = site.near(site.far_listen, &["--socks5", "127.0.0.1:0"]);
        near.wait_until_up();
        // The link before may not be forgotten yet.
        let mut peers = far.status().peers.into_iter();
        let peer = peers.find(|peer| peer.up).expect("it is up");
        (peer.sent.cache_bytes, peer.received.cache_bytes)
    };
    let alone = link();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let key = site.path("near.key");
        let connect = || FakeLane::connect(site.far_listen, &key, &site.far_key);
        let hello = Hello {
            is_check: true,
            ..Hello::of_lane(1, None, 0)
        };
        let mut checks = Vec::new();
        for _ in 0..4 {
            let mut check = connect().await;
            check.greet_with(hello).await.expect("an answer");
            checks.push(check);
        }
        let mut fifth = connect().await;
        let mut words = Vec::new();
        hello.write(&mut words);
        fifth.send(&words).await;
        let refused = fifth.until_closed().await;
        let reason = b"4 checks run already";
        assert!(refused.windows(reason.len()).any(|said| said == reason));
        assert_eq!(link(), alone);
        // It may have no flow, nor anything else.
        let mut open = Vec::new();
        Frame::Open {
            flow: FlowId(1),
            credit_bytes: 1 << 20,
            excluded: false,
            target: "127.0.0.1:1",
        }
        .write(&mut open);
        let mut check = checks.pop().expect("some");
        check.send(&open).await;
        let last_words = check.until_closed().await;
        assert!(last_words.len() < 64, "no more than the rest of its hello");
    });
}

/// Thirty flows through the near end's listener; says what went wrong.
fn run_flows(
    runtime: &tokio::runtime::Runtime,
    listen: SocketAddr,
    server: &Server,
    first: u64,
) -> Vec<String> {
    runtime.block_on(async {
        let mut flows = JoinSet::new();
        let plans = (first..).map(|number| Plan::draw(number, FLOW_BYTES_MAX));
        for plan in plans.filter(|plan| plan.reset.is_none()).take(30) {
            flows.spawn(async move { (plan, run_client(listen, plan, FLOW_BYTES_MAX).await.0) });
        }
        let ended = tokio::time::timeout(Duration::from_secs(300), flows.join_all());
        let ended = ended.await.expect("no flow hangs");
        ended
            .into_iter()
            .filter(|(_, outcome)| *outcome != Outcome::Complete)
            .map(|(plan, outcome)| {
                format!(
                    "{plan:?}: {outcome:?}, server: {:?}",
                    server.outcome(plan.id)
                )
            })
            .collect()
    })
}

/// A server that sends noise to whoever connects, as fast as it is taken.
async fn serve_endlessly() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.expect("accepted");
            tokio::spawn(async move {
                let piece = noise(7, 64 << 10);
                while tcp.write_all(&piece).await.is_ok() {}
            });
        }
    });
    address
}

async fn serve_echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.expect("accepted");
            tokio::spawn(async move {
                let (mut reader, mut writer) = tcp.split();
                // A client that is gone.
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    address
}

/// How many files this process may have open; its children may as many.
fn open_files_max() -> u64 {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("Linux");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    soft.and_then(|soft| soft.parse().ok()).expect("a number")
}
