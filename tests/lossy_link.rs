//! On a link that loses segments everything arrives equal, and a link whose transport minds the loss gets further
//! lanes. How fast is an experiment:
//!
//! ```text
//! cargo run --release -p refrain-experiments -- lossy
//! ```
#![allow(missing_docs, reason = "a test's own")]

mod common;

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use common::{
    addresses::forward,
    applications::{Outcome, Plan, Server, run_client},
    content::noise,
    read,
    server::serve,
    site::{Pair, Site},
};
use refrain_link::{End, Link, LinkConfig};
use refrain_relay::Rate;
use tokio::{runtime::Runtime, task::JoinSet};

const FLOW_BYTES_MAX: u64 = 2 << 20;

/// BBR does not slow down for chance losses, and needs no further lanes.
const RENO: [&str; 2] = ["--congestion", "reno"];

#[test]
fn everything_arrives_equal_and_lanes_are_added() {
    let link = Link::for_test(LinkConfig {
        rate: Some(Rate::mbit(100)),
        delay: Duration::from_millis(5),
        loss: 0.01,
        seed: 5,
        ..LinkConfig::default()
    });
    let Some(link) = link.expect("a link") else {
        return;
    };
    // A runtime's threads are at the end at which it is made, and so are the programs that are started there.
    let at = |end| link.at(end, || Ok(Runtime::new()?)).expect("a runtime");
    let (far_runtime, near_runtime) = (at(End::Far), at(End::Near));
    let mut site = Site::new();
    site.far_listen = SocketAddr::from((link.address(End::Far), 7000));
    let far = link.at(End::Far, || {
        let server = far_runtime.block_on(Server::start())?;
        Ok((server, site.far(&RENO)))
    });
    let (server, _far) = far.expect("a server and a far end");
    let (address, option) = forward(server.address);
    let near = link.at(End::Near, || {
        let near = site.near(
            site.far_listen,
            &[&RENO[..], &["--forward", &option]].concat(),
        );
        near.wait_for_lanes(4);
        Ok(near)
    });
    let near = near.expect("a near end");
    let outcomes = link.at(End::Near, || {
        Ok(near_runtime.block_on(async {
            let mut flows = JoinSet::new();
            let plans = (0..).map(|id| Plan::draw(id, FLOW_BYTES_MAX));
            let large = |plan: &Plan| plan.reset.is_none() && plan.down_bytes > FLOW_BYTES_MAX / 8;
            for plan in plans.filter(large).take(12) {
                flows.spawn(run_client(address, plan, FLOW_BYTES_MAX));
            }
            let all = tokio::time::timeout(Duration::from_secs(300), flows.join_all());
            all.await.expect("no flow hangs")
        }))
    });
    let outcomes = outcomes.expect("clients");
    assert!(
        outcomes
            .iter()
            .all(|(outcome, _)| *outcome == Outcome::Complete),
        "{outcomes:?}"
    );
    assert!(link.counts(End::Far).lost() > 0, "the link lost segments");
    let peer = link.at(End::Near, || Ok(near.peer())).expect("a status");
    assert!(peer.lanes > 4, "no lane was added: {peer:?}");
    assert_eq!(peer.counters.lanes_lost, 0, "{peer:?}");
}

/// A machine that is busy pauses threads, which is no loss: the kernel knows. Under CUBIC, since BBR asks for no lanes.
#[test]
fn downloads_over_loopback_add_no_lanes() {
    const CUBIC: [&str; 2] = ["--congestion", "cubic"];
    const CLIENTS: usize = 8;
    let noise = noise(1, 10_000_000);
    let origin = serve(move |mut stream| -> std::io::Result<()> {
        loop {
            stream.write_all(&noise)?;
        }
    });
    let (address, option) = forward(origin);
    let pair = Pair::start(&CUBIC, &[&CUBIC[..], &["--forward", &option]].concat());
    let end = Instant::now() + Duration::from_secs(6);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| thread::spawn(move || read_until(address, end)))
        .collect();
    let mut most = 0;
    while Instant::now() < end {
        most = most.max(pair.near.peer().lanes);
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(most, 4);
    for client in clients {
        assert!(client.join().expect("a client") > 1_000_000);
    }
    assert_eq!(pair.near.peer().counters.lanes_lost, 0);
}

/// How many bytes came.
fn read_until(address: SocketAddr, end: Instant) -> usize {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let mut piece = vec![0; 1 << 16];
    let mut bytes = 0;
    while Instant::now() < end {
        bytes += read(&mut stream, &mut piece).expect("the flow lives");
    }
    bytes
}
