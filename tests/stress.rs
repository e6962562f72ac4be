//! Many flows at once, both ways, with resets and half-closes at any moment: every byte is
//! compared, nothing may hang, and memory stays under its bound.
//!
//! The whole, which takes minutes:
//!
//! ```text
//! cargo test --release --test stress -- --ignored whole
//! ```
//!
//! `REFRAIN_STRESS_SEED` takes another seed; a failing run says which it had.
#![allow(missing_docs, reason = "a test's own")]

mod common;

use std::{sync::Arc, time::Duration};

use common::{
    addresses::forward,
    applications::{Outcome, Plan, Server, run_client},
    content::mix,
    eventually,
    resident::{PROCESS_BYTES_MAX, resident_bytes_max},
    site::Pair,
};
use tokio::{sync::Semaphore, task::JoinSet};

/// A run of the stress test.
struct Load {
    flows: u64,
    /// Most bytes of a flow, one way.
    flow_bytes_max: u64,
    /// Most flows at once.
    at_once: usize,
    /// A hang, on however busy a machine.
    within: Duration,
    /// What has to have happened for the run to have tested anything.
    bytes_min: u64,
    resets_min: usize,
}

#[test]
fn four_hundred_flows() {
    run(&Load {
        flows: 400,
        flow_bytes_max: 12 << 20,
        at_once: 400,
        within: Duration::from_secs(300),
        bytes_min: 500_000_000,
        resets_min: 60,
    });
}

#[test]
#[ignore = "takes minutes"]
fn whole() {
    run(&Load {
        flows: 1000,
        flow_bytes_max: 50 << 20,
        at_once: 1000,
        within: Duration::from_secs(1800),
        bytes_min: 2_000_000_000,
        resets_min: 200,
    });
}

fn run(load: &Load) {
    const MEMORY_BYTES: u64 = 320 << 20;
    let seed = match std::env::var("REFRAIN_STRESS_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => 1,
    };
    println!("REFRAIN_STRESS_SEED={seed}");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (near_server, far_server) = runtime
        .block_on(async { tokio::try_join!(Server::start(), Server::start()) })
        .expect("servers");
    let (near_server, far_server) = (Arc::new(near_server), Arc::new(far_server));

    // The old name of --cache-size: either end may be an older build.
    let bounds = ["--memory", "320MiB", "--cache", "32MiB", "--log", "info"];
    let (from_far, backwards) = forward(near_server.address);
    let (from_near, forwards) = forward(far_server.address);
    let allow = near_server.address.to_string();
    let pair = Pair::start(
        &[&bounds[..], &["--forward", &backwards]].concat(),
        &[&bounds[..], &["--forward", &forwards, "--allow", &allow]].concat(),
    );
    pair.near.wait_for_lanes(4);

    let directions = [
        (from_near, Arc::clone(&far_server)),
        (from_far, Arc::clone(&near_server)),
    ];
    let permits = Arc::new(Semaphore::new(load.at_once));
    let bytes_max = load.flow_bytes_max;
    let mut flows = JoinSet::new();
    for number in 0..load.flows {
        let plan = Plan::draw(mix(seed) ^ number, bytes_max);
        let (listener, server) = directions[(number % 2) as usize].clone();
        let permits = Arc::clone(&permits);
        flows.spawn_on(
            async move {
                let _permit = permits.acquire().await.expect("open");
                let (client, bytes) = run_client(listener, plan, bytes_max).await;
                (plan, server, client, bytes)
            },
            runtime.handle(),
        );
    }
    let ended = runtime.block_on(async {
        let ended = tokio::time::timeout(load.within, async {
            let mut ended = Vec::new();
            while let Some(flow) = flows.join_next().await {
                ended.push(flow.expect("no panic"));
            }
            ended
        });
        ended.await.unwrap_or_else(|_| {
            panic!(
                "flows hang; near: {:#?}, far: {:#?}",
                pair.near.status(),
                pair.far.status()
            )
        })
    });
    // The servers hear of the last resets after the clients.
    eventually("no flow is left over", || {
        let open = pair.ends().map(|(_, end)| end.peer().flows_open);
        (open == [0, 0]).then_some(())
    });

    let mut resets = 0;
    let mut bytes = near_server.received_bytes() + far_server.received_bytes();
    for (plan, server, client, received) in ended {
        let saw = (client, server.outcome(plan.id));
        match (&saw, plan.reset.is_some()) {
            ((Outcome::Complete, Some(Outcome::Complete)), false) => {}
            ((Outcome::DidReset, None | Some(Outcome::Reset)), true)
            | ((Outcome::Reset, Some(Outcome::DidReset)), true) => resets += 1,
            _ => panic!("{plan:?}: client and server saw {saw:?}"),
        }
        bytes += received;
    }
    assert!(bytes >= load.bytes_min, "only {bytes} bytes were carried");
    assert!(resets >= load.resets_min, "only {resets} flows were reset");
    for (name, gateway) in pair.ends() {
        let resident = resident_bytes_max(gateway);
        println!("{name}: {} MiB resident at most", resident >> 20);
        assert!(
            resident <= MEMORY_BYTES + PROCESS_BYTES_MAX,
            "{name}: {resident} bytes of memory"
        );
        let peer = gateway.peer();
        assert_eq!(peer.counters.lanes_lost, 0, "{peer:?}");
        println!("{name}: {:?}", gateway.status().memory);
    }
    println!("{bytes} bytes, {resets} resets");
}
