//! On a link whose segments stall as losses would make them, everything arrives equal, and
//! flows leave the lanes that loss holds up. How fast is an experiment:
//!
//! ```text
//! cargo run --release -p refrain-experiments -- lossy
//! ```
#![allow(missing_docs, reason = "a test's own")]

mod common;

use std::time::Duration;

use common::{
    addresses::forward,
    applications::{Outcome, Plan, Server, run_client},
    site::Site,
};
use refrain_relay::{LinkConfig, Rate, Relay, RelayConfig};
use tokio::task::JoinSet;

const FLOW_BYTES_MAX: u64 = 2 << 20;

#[test]
fn everything_arrives_equal_and_lanes_are_added() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start()).expect("a server");
    let site = Site::new();
    let _far = site.far(&[]);
    let relay = {
        let _inside = runtime.enter();
        let mut config = RelayConfig::to(site.far_listen);
        config.link = LinkConfig {
            rate: Some(Rate::mbit(100)),
            delay: Duration::from_millis(5),
            stall_probability: 0.01,
            stall: Duration::from_millis(200),
            seed: 5,
            ..LinkConfig::default()
        };
        Relay::start(config).expect("a relay")
    };
    let (address, option) = forward(server.address);
    let near = site.near(relay.address(), &["--forward", &option]);
    near.wait_for_lanes(4);
    let outcomes = runtime.block_on(async {
        let mut flows = JoinSet::new();
        let plans = (0..).map(|id| Plan::draw(id, FLOW_BYTES_MAX));
        let large = |plan: &Plan| plan.reset.is_none() && plan.down_bytes > FLOW_BYTES_MAX / 8;
        for plan in plans.filter(large).take(12) {
            flows.spawn(run_client(address, plan, FLOW_BYTES_MAX));
        }
        let all = tokio::time::timeout(Duration::from_secs(300), flows.join_all());
        all.await.expect("no flow hangs")
    });
    assert!(
        outcomes
            .iter()
            .all(|(outcome, _)| *outcome == Outcome::Complete),
        "{outcomes:?}"
    );
    assert!(relay.counts().down_stalls > 0, "the link stalled");
    let peer = near.peer();
    assert!(peer.lanes > 4, "no lane was added: {peer:?}");
    assert_eq!(peer.counters.lanes_lost, 0, "{peer:?}");
}
