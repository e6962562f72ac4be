//! Blocks have all bytes of all connections, once and in order.

use std::{collections::HashMap, net::SocketAddr};

use proptest::prelude::*;
use refrain_analysis::blocks::{BLOCK_BYTES_MAX, Blocks, Step, Steps};
use refrain_capture::{Direction, Flow, FlowNumber, Sink, Time};

/// What came of each direction: by blocks, and by single segments.
#[derive(Default)]
struct Seen {
    blocks: HashMap<(FlowNumber, Direction), Vec<u8>>,
    bytes: HashMap<(FlowNumber, Direction), Vec<u8>>,
    closed: Vec<FlowNumber>,
    last: Time,
}

impl Steps for Seen {
    fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Block {
                flow,
                direction,
                bytes,
                ..
            } => {
                assert!(!bytes.is_empty() && bytes.len() <= BLOCK_BYTES_MAX);
                assert!(
                    !self.closed.contains(&flow.number),
                    "a block after its connection"
                );
                self.blocks
                    .entry((flow.number, direction))
                    .or_default()
                    .extend(bytes);
            }
            Step::Bytes {
                flow,
                direction,
                at,
                bytes,
            } => {
                assert!(at >= self.last, "time went backwards");
                self.last = at;
                self.bytes
                    .entry((flow.number, direction))
                    .or_default()
                    .extend(bytes);
            }
            Step::Closed(flow, at) => {
                assert!(at >= self.last);
                self.closed.push(flow.number);
            }
        }
    }
}

fn flow(number: u64) -> Flow {
    let address = |host: u8, port: u16| SocketAddr::from(([10, 0, 0, host], port));
    Flow {
        client: address(1, 40_000 + number as u16),
        server: address(2, 80),
        began: Time(0),
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_or_repeated(
        segments in proptest::collection::vec((0..4_u64, any::<bool>(), 0..30_000_000_u64, 1..50_000_usize), 0..60),
        backwards in any::<bool>(),
    ) {
        let mut blocks = Blocks::new(Seen::default(), |_| None);
        let mut sent: HashMap<(FlowNumber, Direction), Vec<u8>> = HashMap::new();
        let mut now = 1_u64 << 40;
        for number in 0..4 {
            blocks.opened(FlowNumber(number), &flow(number));
        }
        for (nth, (number, is_up, pause, length)) in segments.into_iter().enumerate() {
            now = if backwards && nth % 5 == 4 { now - pause } else { now + pause };
            let direction = if is_up { Direction::Up } else { Direction::Down };
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + nth) as u8).collect();
            blocks.came(FlowNumber(number), direction, Time(now), &bytes);
            sent.entry((FlowNumber(number), direction)).or_default().extend(&bytes);
        }
        for number in 0..2 {
            blocks.closed(FlowNumber(number));
        }
        let (seen, groups, flows) = blocks.finish();
        prop_assert_eq!(&seen.blocks, &sent);
        prop_assert_eq!(&seen.bytes, &sent);
        prop_assert_eq!(groups.len(), flows.len());
        let connections: std::collections::HashSet<FlowNumber> = sent.keys().map(|(flow, _)| *flow).collect();
        prop_assert_eq!(flows.iter().sum::<u64>(), connections.len() as u64);
    }
}

#[test]
fn a_clock_that_stands_still_holds_a_bounded_amount() {
    let mut blocks = Blocks::new(Seen::default(), |_| None);
    let count = 6_000;
    // 60,000 bytes each, so none is a whole block: 360 MB.
    for number in 0..count {
        blocks.opened(FlowNumber(number), &flow(number));
        blocks.came(
            FlowNumber(number),
            Direction::Up,
            Time(5),
            &[number as u8; 60_000],
        );
    }
    let (seen, ..) = blocks.finish();
    assert_eq!(seen.blocks.len() as u64, count);
}
