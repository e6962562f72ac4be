//! That any name of a peer can be read back, and that `docs/monitor.md` has every metric.

use std::{fs, path::Path};

use proptest::prelude::*;

use super::*;
use crate::{
    keys::PrivateKey,
    status::{Effort, Memory, TargetTraffic, Total},
};

#[path = "../../../../../tests/common/exposition.rs"]
mod exposition;

/// A status with a series of every metric.
fn status(peer: &str) -> Status {
    let key = PrivateKey::generate().expect("a key").public();
    let effort = Effort {
        period_bytes: 32,
        zstd_level: -3,
        reason: String::new(),
    };
    let peer = Peer {
        name: Some(peer.to_owned()),
        key: key.to_string(),
        serves: Some(true),
        round_trip_ms: Some(1.5),
        effort: Some(effort),
        ..Peer::default()
    };
    Status {
        role: "near".to_owned(),
        version: "1".to_owned(),
        kernels: "portable".to_owned(),
        uptime_s: 2.5,
        cpu_s: Some(0.5),
        mode: "auto".to_owned(),
        memory: Memory {
            bound_bytes: 1 << 40,
            reserved_bytes: 2,
            allocated_bytes: 3,
            resident_bytes: Some(4),
        },
        store: Some(Store::default()),
        total: Total::default(),
        counted: [(key, LinkCounters::default())].into(),
        targets: vec![TargetTraffic {
            target: None,
            class: "TLS".to_owned(),
            sent: CarriedBytes::default(),
            received: CarriedBytes::default(),
        }],
        listeners: Vec::new(),
        opening: None,
        interception: None,
        answers_elsewhere: None,
        peers: vec![peer],
        flows: Vec::new(),
    }
}

proptest! {
    #[test]
    fn any_label_can_be_read_back(name: String, quoted in r#"["\\\\n\n]{0,8}"#) {
        for name in [name, quoted] {
            let page = page(&status(&name));
            for family in exposition::parse(&page) {
                for (label, value) in family.series.into_iter().flat_map(|(labels, _)| labels) {
                    prop_assert!(label != "peer" || value == name, "{value:?}");
                }
            }
        }
    }
}

const BEGIN: &str = "<!-- metrics: begin -->\n";
const END: &str = "<!-- metrics: end -->\n";

#[test]
fn the_documentation_has_every_metric_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitor.md");
    let text = fs::read_to_string(&path).expect("the documentation");
    let (before, rest) = text.split_once(BEGIN).expect("where metrics begin");
    let (documented, after) = rest.split_once(END).expect("where metrics end");
    let page = page(&status("a"));
    let mut expected = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for family in exposition::parse(&page) {
        let (labels, _) = &family.series[0];
        let labels: Vec<_> = labels.iter().map(|(label, _)| label.as_str()).collect();
        let (name, kind, labels) = (family.name, family.kind, labels.join(", "));
        expected += &format!("| `{name}` | {kind} | {labels} | {} |\n", family.help);
    }
    if std::env::var_os("REFRAIN_BLESS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).expect("written");
        return;
    }
    assert_eq!(
        documented, expected,
        "run with REFRAIN_BLESS=1 to write it anew"
    );
}
