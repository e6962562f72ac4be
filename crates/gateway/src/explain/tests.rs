use std::time::Duration;

use refrain_proto::{
    FlowId, LaneId,
    effort::{Effort as EngineEffort, EffortReason},
    link::LinkSetting,
};

use super::*;

const PACKED: u64 = 1_000_000;

/// A flow to `target` that sent nothing and received a megabyte, of which nothing was saved.
fn flow(target: &str) -> FlowStatus {
    FlowStatus {
        id: FlowId(7),
        link: LinkSetting {
            sent_cache_bytes: 128 << 20,
            received_cache_bytes: 128 << 20,
            offers_heeded: None,
            effort: EngineEffort {
                period_bytes: 32,
                level: 3,
            },
            effort_reason: EffortReason::Start,
        },
        lane: LaneId(0),
        target: target.to_owned(),
        opened_here: true,
        age: Duration::from_secs(3),
        class: TrafficClass::Ordinary,
        sent: LayerCounters::default(),
        received: LayerCounters {
            app_bytes: PACKED,
            stream_bytes: PACKED,
            packed_bytes: PACKED,
            block_bytes: PACKED + 300,
            blocks: 16,
            ..LayerCounters::default()
        },
        received_class: TrafficClass::Ordinary,
        received_compressed: Compressed::default(),
        sent_compressed: Compressed::default(),
        missed: MissedRepeats::default(),
        limited_by: refrain_proto::limited::LimitedBy::default(),
        send_predictions: None,
        receive_predictions: None,
    }
}

const NEAR: Own = Own {
    role: Role::Near,
    mode: Mode::Auto,
    asks_for_plain: true,
};

fn explain(flow: &FlowStatus, own: Own) -> Explanation {
    let target = FlowTarget::from_wire(&flow.target).ok();
    Explanation::with(flow, "far", Some(2.0), target.as_ref(), own)
}

/// The names of the causes, their bytes, and the setting.
fn told(flow: &FlowStatus, own: Own) -> (Vec<(String, u64)>, Option<String>) {
    let explained = explain(flow, own);
    let causes = explained.sent.iter().chain(&explained.received);
    let causes = causes.map(|cause| (cause.cause.clone(), cause.link_bytes));
    (
        causes.collect(),
        explained.advice.map(|advice| advice.setting),
    )
}

fn all_of(cause: &str) -> Vec<(String, u64)> {
    vec![(cause.to_owned(), PACKED), ("headers".to_owned(), 300)]
}

#[test]
fn new_content_has_no_setting() {
    assert_eq!(told(&flow("web:80"), NEAR), (all_of("new"), None));
    let text = &explain(&flow("web:80"), NEAR).received[0].text;
    assert!(
        text.contains("`refrain explain 7` at the other end"),
        "{text}"
    );
}

#[test]
fn tls_can_be_opened_by_name() {
    for (target, setting) in [
        ("npm.example.org:443", "--open npm.example.org"),
        ("npm.example.org:8443", "--open npm.example.org:8443"),
        ("192.0.2.7:443", "--open NAME"),
    ] {
        let mut flow = flow(target);
        flow.received_class = TrafficClass::Excluded(Exclusion::Tls);
        let expected = (all_of("encrypted"), Some(setting.to_owned()));
        assert_eq!(told(&flow, NEAR), expected);
        flow.received_class = TrafficClass::Excluded(Exclusion::Ssh);
        assert_eq!(told(&flow, NEAR), (all_of("encrypted"), None));
        flow.received_class = TrafficClass::Excluded(Exclusion::Rule);
        let expected = (all_of("excluded"), Some("--exclude".to_owned()));
        assert_eq!(told(&flow, NEAR), expected);
    }
}

#[test]
fn a_cache_that_was_too_small_is_told_with_the_size_that_is_enough() {
    let mut flow = flow("web:80");
    (flow.sent, flow.received) = (flow.received, flow.sent);
    flow.missed.sampled = 40;
    flow.missed.by_cache_size[9] = 30;
    let causes = [("evicted", 750_000), ("new", 250_000), ("headers", 300)];
    let causes = causes.map(|(cause, bytes)| (cause.to_owned(), bytes));
    let setting = Some("--cache-size 512MiB".to_owned());
    assert_eq!(told(&flow, NEAR), (causes.to_vec(), setting));
    let evicted = &explain(&flow, NEAR).sent[0];
    assert_eq!(evicted.sufficient_cache_bytes, Some(512 << 20));
    assert!(
        evicted.text.contains("134 MB") && evicted.text.contains("537 MB"),
        "{evicted:?}"
    );
    // Two samples say nothing.
    flow.missed.by_cache_size[9] = 2;
    assert_eq!(told(&flow, NEAR), (all_of("new"), None));
}

#[test]
fn a_mode_without_caches_is_named() {
    let mut flow = flow("web:80");
    flow.link.received_cache_bytes = 0;
    let own = Own {
        mode: Mode::Off,
        ..NEAR
    };
    let setting = Some("--mode auto".to_owned());
    assert_eq!(told(&flow, own), (all_of("uncached"), setting));
}

#[test]
fn reduced_effort_is_advised_against_only_where_content_was_new() {
    let mut flow = flow("web:80");
    flow.link.effort.period_bytes = 256;
    // The other end's effort decides about received data.
    assert_eq!(told(&flow, NEAR).1, None);
    (flow.sent, flow.received) = (flow.received, flow.sent);
    assert_eq!(
        told(&flow, NEAR),
        (all_of("new"), Some("--effort max".to_owned()))
    );
}

#[test]
fn a_small_cause_is_not_worth_a_setting() {
    let mut flow = flow("web:80");
    (flow.sent, flow.received) = (flow.received, flow.sent);
    flow.missed.sampled = 100;
    flow.missed.by_cache_size[9] = 9;
    assert_eq!(told(&flow, NEAR).1, None);
}
