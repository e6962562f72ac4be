//! All columns over connections that a test makes.

use std::net::SocketAddr;

use refrain_analysis::{
    blocks::Blocks,
    columns::{ALL, Kind},
    run::{Analysis, Columns},
};
use refrain_capture::{Direction, Flow, FlowNumber, Sink, Time};

const MEMORY: u64 = 1 << 30;
const MS: u64 = 1_000_000;

/// Noise by a number.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

struct Traffic {
    blocks: Blocks<Columns>,
    now: u64,
    flows: u64,
}

impl Traffic {
    fn new(names: &[&str]) -> Self {
        let kinds = ALL
            .iter()
            .filter(|kind| names.is_empty() || names.contains(&kind.name));
        let kinds: Vec<Kind> = kinds.copied().collect();
        Self {
            blocks: Blocks::new(Columns::start(&kinds, 2, MEMORY), |_| None),
            now: 1 << 50,
            flows: 0,
        }
    }

    fn open(&mut self, client: u8) -> FlowNumber {
        let address = |host: u8, port: u16| SocketAddr::from(([10, 0, 0, host], port));
        let number = FlowNumber(self.flows);
        self.flows += 1;
        let flow = Flow {
            client: address(client, self.flows as u16),
            server: address(200, 80),
            began: Time(self.now),
        };
        self.blocks.opened(number, &flow);
        number
    }

    fn send(&mut self, flow: FlowNumber, direction: Direction, bytes: &[u8]) {
        for segment in bytes.chunks(1_448) {
            self.blocks.came(flow, direction, Time(self.now), segment);
            self.now += MS / 8;
        }
    }

    fn exchange(&mut self, client: u8, answer: &[u8]) {
        let flow = self.open(client);
        self.send(flow, Direction::Up, b"GET / HTTP/1.1\r\n\r\n");
        self.now += 20 * MS;
        self.send(flow, Direction::Down, answer);
        self.blocks.closed(flow);
        self.now += 1_000 * MS;
    }
}

fn saved(analysis: &Analysis, name: &str) -> f64 {
    let column = analysis.columns.iter().find(|column| column.name == name);
    let sent = column
        .unwrap_or_else(|| panic!("no {name}"))
        .outcome
        .total();
    1.0 - sent as f64 / analysis.totals.total() as f64
}

#[test]
fn one_pair_of_machines_repeats() {
    let mut traffic = Traffic::new(&[]);
    for _ in 0..4 {
        traffic.exchange(1, &noise(1, 300_000));
    }
    let analysis = traffic.blocks.analysis();
    assert_eq!(analysis.columns.len(), ALL.len());
    for column in [
        "modp-32",
        "maxp-32",
        "samplebyte-32",
        "samplebyte-1g",
        "endre-dot",
        "middlebox",
        "refrain",
        "refrain-max",
        "inflated",
    ] {
        let saved = saved(&analysis, column);
        assert!((0.70..0.76).contains(&saved), "{column}: {saved}");
    }
    // Whole chunks only, and predictions begin with the second chunk.
    assert!(saved(&analysis, "chunk-match") > 0.5);
    assert!(saved(&analysis, "pack") > 0.65);
    // The bytes by group are all bytes but those of the link.
    for column in &analysis.columns {
        assert_eq!(column.outcome.sent.len(), 1, "{}", column.name);
    }
}

#[test]
fn another_pair_repeats_only_for_columns_that_share() {
    let mut traffic = Traffic::new(&["samplebyte-32", "endre-dot", "middlebox", "pack", "refrain"]);
    for client in 1..5 {
        traffic.exchange(client, &noise(1, 300_000));
    }
    let analysis = traffic.blocks.analysis();
    assert!(saved(&analysis, "samplebyte-32").abs() < 0.01);
    assert!(saved(&analysis, "pack").abs() < 0.02);
    for column in ["middlebox", "endre-dot", "refrain"] {
        assert!(
            saved(&analysis, column) > 0.6,
            "{column}: {}",
            saved(&analysis, column)
        );
    }
    let middlebox = analysis
        .columns
        .iter()
        .find(|column| column.name == "middlebox");
    let matches = middlebox
        .and_then(|column| column.outcome.details.matches.clone())
        .expect("its matches");
    assert_eq!(matches.same_pair_bytes, 0);
    assert!(matches.other_pair_bytes > 850_000);
}

#[test]
fn traffic_that_is_faster_than_the_link_waits() {
    let mut traffic = Traffic::new(&["refrain-max"]);
    let flow = traffic.open(1);
    let bytes = noise(3, 40_000_000);
    // All at the same moment.
    traffic
        .blocks
        .came(flow, Direction::Down, Time(traffic.now), &bytes);
    traffic.blocks.closed(flow);
    let saved = saved(&traffic.blocks.analysis(), "refrain-max");
    assert!((-0.02..0.0).contains(&saved), "{saved}");
}

#[test]
fn flows_beyond_the_limit_of_a_link_are_sent_as_they_are() {
    let mut traffic = Traffic::new(&["refrain-max"]);
    let mut flows = Vec::new();
    for _ in 0..10_300 {
        let flow = traffic.open(1);
        traffic
            .blocks
            .came(flow, Direction::Up, Time(traffic.now), b"hello");
        traffic.now += MS;
        flows.push(flow);
    }
    let last = *flows.last().expect("a flow");
    traffic.send(last, Direction::Up, &[7; 500_000]);
    flows
        .into_iter()
        .for_each(|flow| traffic.blocks.closed(flow));
    let analysis = traffic.blocks.analysis();
    assert!(analysis.columns[0].outcome.sent[0] > 500_000);
}

#[test]
fn years_without_traffic_cost_nothing() {
    let mut traffic = Traffic::new(&["refrain-max"]);
    traffic.exchange(1, &noise(1, 100_000));
    traffic.now += 10 * 365 * 86_400 * 1_000 * MS;
    traffic.exchange(1, &noise(1, 100_000));
    let saved = saved(&traffic.blocks.analysis(), "refrain-max");
    assert!(saved > 0.4, "{saved}");
}
