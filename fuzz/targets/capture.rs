//! Captures: whatever they are, each byte of a stream is given once and in order, within bounds.
#![no_main]

use std::{collections::HashMap, ops::ControlFlow};

use libfuzzer_sys::fuzz_target;
use refrain_capture::{
    Direction, Flow, FlowNumber, Fragments, Layer, Limits, Sink, Streams, Time, read_packets,
};

const LIMITS: Limits = Limits {
    flows: 8,
    waiting_bytes: 4_096,
    idle: std::time::Duration::from_secs(60),
};

#[derive(Default)]
struct Open {
    flows: HashMap<FlowNumber, [u64; 2]>,
    bytes: u64,
    missed: u64,
}

impl Sink for Open {
    fn opened(&mut self, flow: FlowNumber, _: &Flow) {
        assert!(self.flows.insert(flow, [0; 2]).is_none(), "opened twice");
        // Connections that are over have a place too, until it is needed.
        assert!(self.flows.len() <= LIMITS.flows);
    }

    fn came(&mut self, flow: FlowNumber, direction: Direction, _: Time, bytes: &[u8]) {
        assert!(!bytes.is_empty());
        self.flows.get_mut(&flow).expect("it is open")[direction as usize] += bytes.len() as u64;
        self.bytes += bytes.len() as u64;
    }

    fn missed(&mut self, flow: FlowNumber, _: Direction, bytes: u64) {
        assert!(self.flows.contains_key(&flow));
        self.missed += bytes;
    }

    fn closed(&mut self, flow: FlowNumber) {
        assert!(self.flows.remove(&flow).is_some(), "closed twice");
    }
}

fuzz_target!(|capture: &[u8]| {
    let (mut open, mut streams) = (Open::default(), Streams::new(LIMITS));
    let mut fragments = Fragments::default();
    let mut captured = 0;
    let _ = read_packets(capture, |packet| {
        captured += packet.bytes.len() as u64;
        if let Layer::Tcp(segment) = Layer::of(&packet, &mut fragments) {
            assert!(segment.bytes.len() as u64 <= u64::from(segment.length));
            streams.segment(packet.at, &segment, &mut open);
        }
        // A few bytes of gzip can be gigabytes of packets.
        match captured > 1 << 20 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    streams.finish(&mut open);
    assert!(open.flows.is_empty(), "not all were closed");
    let counts = streams.counts();
    assert_eq!(
        (counts.bytes, counts.missed_bytes),
        (open.bytes, open.missed)
    );
});
