//! Streams come out as they were sent, whatever a capture does to their segments.
#![allow(missing_docs, reason = "a test's own")]

use std::collections::BTreeMap;

use proptest::{prelude::*, sample::Index};
use refrain_capture::{Direction, Flow, FlowNumber, Limits, Segment, Sink, Streams, Time};

/// Bytes by position, where a capture has them.
#[derive(Default, Debug)]
struct Came {
    flows: BTreeMap<FlowNumber, [Vec<Option<u8>>; 2]>,
    closed: usize,
}

impl Sink for Came {
    fn opened(&mut self, flow: FlowNumber, _: &Flow) {
        self.flows.insert(flow, Default::default());
    }

    fn came(&mut self, flow: FlowNumber, direction: Direction, _: Time, bytes: &[u8]) {
        let half = &mut self.flows.get_mut(&flow).expect("it was opened")[direction as usize];
        half.extend(bytes.iter().map(|&byte| Some(byte)));
    }

    fn missed(&mut self, flow: FlowNumber, direction: Direction, bytes: u64) {
        let half = &mut self.flows.get_mut(&flow).expect("it was opened")[direction as usize];
        half.extend((0..bytes).map(|_| None));
    }

    fn closed(&mut self, _: FlowNumber) {
        self.closed += 1;
    }
}

#[derive(Clone, Copy, Debug)]
struct Part {
    begin: usize,
    end: usize,
    /// Bytes that were captured.
    captured: usize,
}

fn segment<'a>(from_client: bool, sequence: u32, bytes: &'a [u8], length: usize) -> Segment<'a> {
    let client = "10.0.0.1:40000".parse().unwrap();
    let server = "10.0.0.2:80".parse().unwrap();
    let (source, destination) = if from_client {
        (client, server)
    } else {
        (server, client)
    };
    Segment {
        source,
        destination,
        sequence,
        acknowledgment: Some(0),
        is_syn: false,
        is_fin: false,
        is_reset: false,
        bytes,
        length: length as u32,
    }
}

fn syn(from_client: bool, sequence: u32) -> Segment<'static> {
    Segment {
        acknowledgment: (!from_client).then_some(0),
        is_syn: true,
        ..segment(from_client, sequence, &[], 0)
    }
}

proptest! {
    /// Any segments in any order: each byte that one of them has is there, at its place, and the rest is missing.
    #[test]
    fn bytes_come_in_order_and_gaps_are_counted(
        content in proptest::collection::vec(any::<u8>(), 1..2000),
        parts in proptest::collection::vec((any::<Index>(), 1..400usize, 0..400usize), 1..60),
        first in any::<u32>(),
    ) {
        let parts: Vec<Part> = parts
            .into_iter()
            .map(|(begin, length, cut)| {
                let begin = begin.index(content.len());
                let end = (begin + length).min(content.len());
                Part { begin, end, captured: (end - begin).saturating_sub(cut / 4) }
            })
            .collect();
        let mut streams = Streams::new(Limits::default());
        let mut came = Came::default();
        let first = first.wrapping_sub(1);
        streams.segment(Time(0), &syn(true, first), &mut came);
        for part in &parts {
            let sequence = first.wrapping_add(1).wrapping_add(part.begin as u32);
            let bytes = &content[part.begin..part.begin + part.captured];
            let part = segment(true, sequence, bytes, part.end - part.begin);
            streams.segment(Time(0), &part, &mut came);
        }
        streams.finish(&mut came);
        prop_assert_eq!(came.closed, 1);
        let [up, down] = &came.flows[&FlowNumber(0)];
        prop_assert!(down.is_empty());
        let end = parts.iter().map(|part| part.end).max().expect("one");
        prop_assert_eq!(up.len(), end);
        for (at, byte) in up.iter().enumerate() {
            if let Some(byte) = byte {
                prop_assert_eq!(*byte, content[at]);
            }
            // What no segment covers cannot be there; what a whole one covers, and no other touches, must be.
            let covering: Vec<_> = parts.iter().filter(|part| part.begin <= at && at < part.end).collect();
            if covering.is_empty() {
                prop_assert_eq!(*byte, None);
            }
            if covering.iter().all(|part| at < part.begin + part.captured) && !covering.is_empty() {
                prop_assert!(byte.is_some(), "{} of {:?}", at, parts);
            }
        }
        let counts = streams.counts();
        let missed = up.iter().filter(|byte| byte.is_none()).count() as u64;
        prop_assert_eq!(counts.missed_bytes, missed);
        prop_assert_eq!(counts.bytes, up.len() as u64 - missed);
        let sent: usize = parts.iter().map(|part| part.end - part.begin).sum();
        let unsent = (0..end).filter(|at| !parts.iter().any(|part| part.begin <= *at && *at < part.end)).count();
        // Each byte was sent once, or again, or never.
        prop_assert_eq!(counts.repeated_bytes + end as u64 - unsent as u64, sent as u64);
    }
}

#[test]
fn a_stream_that_began_before_the_capture_goes_on() {
    let (mut streams, mut came) = (Streams::new(Limits::default()), Came::default());
    streams.segment(
        Time(0),
        &segment(false, u32::MAX - 1, b"abcd", 4),
        &mut came,
    );
    streams.segment(Time(0), &segment(false, 2, b"ef", 2), &mut came);
    streams.segment(
        Time(0),
        &segment(false, u32::MAX - 3, b"xyab", 4),
        &mut came,
    );
    streams.finish(&mut came);
    let [up, down] = &came.flows[&FlowNumber(0)];
    assert!(up.is_empty());
    let down: Vec<u8> = down.iter().map(|byte| byte.unwrap()).collect();
    assert_eq!(down, b"abcdef");
    assert_eq!(streams.counts().without_begin, 1);
    assert_eq!(streams.counts().repeated_bytes, 4);
}

#[test]
fn ports_that_are_used_again_are_another_connection() {
    let (mut streams, mut came) = (Streams::new(Limits::default()), Came::default());
    let fin = |from_client, sequence| Segment {
        is_fin: true,
        ..segment(from_client, sequence, &[], 0)
    };
    for (first, text) in [(10, b"one"), (5000, b"two")] {
        streams.segment(Time(0), &syn(true, first), &mut came);
        // A SYN that is sent again.
        streams.segment(Time(0), &syn(true, first), &mut came);
        streams.segment(Time(0), &syn(false, 7), &mut came);
        streams.segment(Time(0), &segment(true, first + 1, text, 3), &mut came);
        streams.segment(Time(0), &fin(true, first + 4), &mut came);
        streams.segment(Time(0), &fin(false, 8), &mut came);
        // The last acknowledgment, and a segment that comes again.
        streams.segment(Time(0), &segment(true, first + 5, &[], 0), &mut came);
        streams.segment(Time(0), &segment(true, first + 1, text, 3), &mut came);
    }
    assert_eq!(came.closed, 2);
    streams.finish(&mut came);
    assert_eq!((came.flows.len(), came.closed), (2, 2));
    let text = |number| -> Vec<u8> {
        came.flows[&FlowNumber(number)][0]
            .iter()
            .map(|byte| byte.unwrap())
            .collect()
    };
    assert_eq!((text(0), text(1)), (b"one".to_vec(), b"two".to_vec()));
}

#[test]
fn a_gap_whose_bytes_were_acknowledged_is_given_up_after_a_second() {
    let (mut streams, mut came) = (Streams::new(Limits::default()), Came::default());
    streams.segment(Time(0), &syn(true, 0), &mut came);
    streams.segment(Time(0), &segment(true, 11, b"late", 4), &mut came);
    let acknowledged = |number| Segment {
        acknowledgment: Some(number),
        ..segment(false, 1, &[], 0)
    };
    streams.segment(Time(2_000_000_000), &acknowledged(1), &mut came);
    assert!(came.flows[&FlowNumber(0)][0].is_empty());
    streams.segment(Time(500_000_000), &acknowledged(15), &mut came);
    assert!(came.flows[&FlowNumber(0)][0].is_empty());
    streams.segment(Time(2_000_000_000), &acknowledged(15), &mut came);
    assert_eq!(came.flows[&FlowNumber(0)][0].len(), 14);
    assert_eq!(streams.counts().missed_bytes, 10);
}

#[test]
fn what_is_held_is_bounded() {
    let limits = Limits {
        flows: 100,
        waiting_bytes: 10_000,
        ..Limits::default()
    };
    let (mut streams, mut came) = (Streams::new(limits), Came::default());
    for port in 1..=10_000u16 {
        let source = format!("10.1.0.1:{port}").parse().unwrap();
        let first = Segment {
            source,
            ..syn(true, 0)
        };
        streams.segment(Time(u64::from(port)), &first, &mut came);
        let behind = Segment {
            source,
            ..segment(true, 2001, &[7; 1000], 1000)
        };
        streams.segment(Time(u64::from(port)), &behind, &mut came);
    }
    streams.finish(&mut came);
    assert_eq!((came.flows.len(), came.closed), (10_000, 10_000));
    assert_eq!(streams.counts().bytes, 10_000_000);
}
