//! Promises P5 and P6: memory stays under `--memory` and a stated constant, whatever a peer
//! with a good key or ten thousand clients do; and caches take memory only as they fill.
#![allow(missing_docs, reason = "a test's own")]

mod common;

use std::time::Duration;

use common::{
    applications::{Outcome, Plan, Server, run_client},
    gateways::{Gateway, Keys, PROCESS_BYTES_MAX},
    hostile::{ATTACKS, attack},
};
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
    let (keys, hostile) = (Keys::new(), Keys::new());
    let small = ["--memory", "160MiB", "--cache", "4MiB", "--lanes", "1"];
    let second_peer = ["--peer-key", &hostile.near_public];
    let far = Gateway::far(&keys, 0, &[&small[..], &second_peer].concat());
    let forward = format!("127.0.0.1:0={}", server.address);
    let near = Gateway::near(
        &keys,
        far.addresses[0],
        1,
        &[&small[..], &["--forward", &forward]].concat(),
    );
    near.wait_until_up(1);

    for (round, what) in ATTACKS.into_iter().enumerate() {
        let (address, key) = (far.addresses[0], hostile.near_key());
        let far_key = keys.far_public.clone();
        let attacking = runtime.spawn(async move {
            attack(what, address, key.as_ref(), &far_key, 4, endless).await;
        });
        let flows = run_flows(&runtime, &near, &server, round as u64 * 100);
        runtime.block_on(attacking).expect("no panic");
        assert_eq!(flows, Vec::<String>::new(), "while attacked by {what:?}");
        let resident = far.resident_bytes_max();
        println!("{what:?}: {} MiB resident at most", resident / MEBIBYTE);
        assert!(
            resident <= MEMORY_BYTES + PROCESS_BYTES_MAX,
            "{what:?}: {resident} bytes of memory"
        );
    }
    assert_eq!(near.status().peers[0].lanes_lost, 0, "the honest peer's");
}

#[test]
fn ten_thousand_connections_fit() {
    // Two file descriptors each here, one in a gateway.
    const CONNECTIONS: usize = 10_000;
    const MEMORY: &str = "2600MiB";
    const MEMORY_BYTES: u64 = 2600 * MEBIBYTE;
    let files = open_files_max();
    let connections = CONNECTIONS.min((files.saturating_sub(200) / 2) as usize);
    if connections < CONNECTIONS {
        println!("only {connections} connections: {files} files may be open");
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let echo = runtime.block_on(serve_echo());
    let keys = Keys::new();
    let bounds = ["--memory", MEMORY, "--cache", "16MiB"];
    let far = Gateway::far(&keys, 0, &bounds);
    let forward = format!("127.0.0.1:0={echo}");
    let near = Gateway::near(
        &keys,
        far.addresses[0],
        1,
        &[&bounds[..], &["--forward", &forward]].concat(),
    );
    near.wait_until_up(4);

    let address = near.addresses[0];
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
    assert_eq!(near.status().peers[0].flows_open, connections);
    for (name, gateway) in [("near", &near), ("far", &far)] {
        let resident = gateway.resident_bytes_max();
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
        let keys = Keys::new();
        let bounds = ["--cache", cache, "--memory", "1GiB"];
        let far = Gateway::far(&keys, 0, &bounds);
        let forward = format!("127.0.0.1:0={}", server.address);
        let near = Gateway::near(
            &keys,
            far.addresses[0],
            1,
            &[&bounds[..], &["--forward", &forward]].concat(),
        );
        near.wait_until_up(4);
        for gateway in [&near, &far] {
            let resident = gateway.resident_bytes();
            println!("{cache}, empty: {} MiB", resident / MEBIBYTE);
            assert!(resident < PROCESS_BYTES_MAX, "{resident} bytes for nothing");
        }
        assert_eq!(run_flows(&runtime, &near, &server, 0), Vec::<String>::new());
        for gateway in [&near, &far] {
            let peer = gateway.status().peers.remove(0);
            let filled = peer.sent.cache_filled_bytes + peer.received.cache_filled_bytes;
            assert!(filled > 0 && filled <= 2 * cache_bytes, "{peer:?}");
            let resident = gateway.resident_bytes_max();
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
    let keys = Keys::new();
    let far = Gateway::far(&keys, 0, &["--memory", "64MiB"]);
    let forward = format!("127.0.0.1:0={}", server.address);
    let near = Gateway::near(
        &keys,
        far.addresses[0],
        1,
        &["--memory", "64MiB", "--forward", &forward],
    );
    near.wait_until_up(1);
    assert_eq!(run_flows(&runtime, &near, &server, 0), Vec::<String>::new());
    for gateway in [&near, &far] {
        let resident = gateway.resident_bytes_max();
        println!("64MiB: {} MiB resident at most", resident / MEBIBYTE);
        assert!(resident <= 64 * MEBIBYTE + PROCESS_BYTES_MAX, "{resident}");
    }
}

/// Thirty flows through the near end; says what went wrong.
fn run_flows(
    runtime: &tokio::runtime::Runtime,
    near: &Gateway,
    server: &Server,
    first: u64,
) -> Vec<String> {
    let address = near.addresses[0];
    runtime.block_on(async {
        let mut flows = JoinSet::new();
        let plans = (first..).map(|number| Plan::draw(number, FLOW_BYTES_MAX));
        for plan in plans.filter(|plan| plan.reset.is_none()).take(30) {
            flows.spawn(async move { (plan, run_client(address, plan, FLOW_BYTES_MAX).await.0) });
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
async fn serve_endlessly() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let content = common::content::Content::new(7, common::content::Kind::Noise);
                let mut piece = vec![0; 64 << 10];
                content.fill(0, &mut piece);
                while tcp.write_all(&piece).await.is_ok() {}
            });
        }
    });
    address
}

async fn serve_echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
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
