//! The wire format, held to its specification and to its past: two links say byte for byte
//! what the worked example in `docs/wire-format.md` says, and still understand what was
//! recorded when the version was made.
//!
//! A script drives both ends. Each end's bytes are compared with, or replaced by, given ones.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::Path,
    time::Duration,
};

use refrain_codec::{
    geometry::CacheGeometry,
    marker::{MarkerFinder, WindowBytes},
};
use refrain_proto::{
    Event, Fault, FlowId, LaneFault, LaneId, Link, LinkConfig, LinkFault, Moment, Role,
    frame::{BlockFrame, Frame, Stream},
    hello::Hello,
};

const SPECIFICATION: &str = include_str!("../../../docs/wire-format.md");
const GOLDEN: [(&str, &[u8]); 2] = [
    ("wire-v1.bin", include_bytes!("golden/wire-v1.bin")),
    ("wire-v2.bin", include_bytes!("golden/wire-v2.bin")),
];

/// What one end said on a lane, at once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    from: Role,
    lane: LaneId,
    bytes: Vec<u8>,
}

/// Both ends, and what arrived there.
struct Ends {
    now: Moment,
    near: Link,
    far: Link,
    said: Vec<Record>,
    /// What arrives instead of what is said.
    given: Option<VecDeque<Record>>,
    arrived_near: BTreeMap<FlowId, Vec<u8>>,
    arrived_far: BTreeMap<FlowId, Vec<u8>>,
    faults: Vec<Fault>,
}

impl Ends {
    fn new(given: Option<Vec<Record>>) -> Self {
        let mut config = LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"));
        // Short repeats are found in short blocks, which zstd leaves alone.
        let shortest = WindowBytes::new(12).expect("valid");
        let defaults = MarkerFinder::default();
        config.markers = MarkerFinder::new(
            Default::default(),
            defaults.period(),
            shortest,
            Default::default(),
        );
        // No more credit than each flow has: how much more is tuning.
        config.window_bytes = 0;
        Self {
            now: Moment::default(),
            near: Link::new(Role::Near, 0x0101_0101_0101_0101, config.clone()),
            far: Link::new(Role::Far, 0x0202_0202_0202_0202, config),
            said: Vec::new(),
            given: given.map(VecDeque::from),
            arrived_near: BTreeMap::new(),
            arrived_far: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    /// What `from` has to say on `lane` goes to the other end.
    fn say(&mut self, from: Role, lane: LaneId) {
        let record = self.next_record(from, lane);
        self.deliver(&record);
    }

    /// The same, with a pause in the middle.
    fn say_haltingly(&mut self, from: Role, lane: LaneId, pause: Duration) {
        let record = self.next_record(from, lane);
        let (first, rest) = record.bytes.split_at(record.bytes.len() / 2);
        for (bytes, pause) in [(first, pause), (rest, Duration::ZERO)] {
            let bytes = bytes.to_vec();
            self.deliver(&Record { bytes, ..record });
            self.now = self.now + pause;
        }
    }

    fn next_record(&mut self, from: Role, lane: LaneId) -> Record {
        let mut bytes = Vec::new();
        let speaker = match from {
            Role::Near => &mut self.near,
            Role::Far => &mut self.far,
        };
        speaker.poll_transmit(self.now, lane, &mut bytes);
        self.said.push(Record { from, lane, bytes });
        let said = self.said.last().expect("just said");
        let record = match &mut self.given {
            None => said.clone(),
            Some(given) => given.pop_front().expect("as many records as are said"),
        };
        assert_eq!((record.from, record.lane), (from, lane));
        record
    }

    fn deliver(&mut self, record: &Record) {
        let mut bytes = &record.bytes[..];
        let (listener, arrived) = match record.from {
            Role::Near => (&mut self.far, &mut self.arrived_far),
            Role::Far => (&mut self.near, &mut self.arrived_near),
        };
        if record.from == Role::Near && bytes.starts_with(b"refrain\n") {
            let (hello, read) = Hello::read(bytes).expect("a hello").expect("whole");
            assert_eq!(listener.accept_lane(self.now, &hello), Ok(record.lane));
            bytes = &bytes[read..];
        }
        if let Err(fault) = listener.receive(self.now, record.lane, bytes) {
            self.faults.push(fault);
        }
        let mut buffer = Vec::new();
        while let Some(event) = listener.poll_event() {
            if let Event::Readable(flow) = event {
                listener.take_ready(flow, &mut buffer);
                listener.take_end(flow);
                listener.taken(flow, buffer.len());
                arrived.entry(flow).or_default().extend(&buffer);
            }
        }
    }

    fn dial(&mut self) -> LaneId {
        let lane = self.near.dial_lane(self.now).expect("a number is left");
        self.say(Role::Near, lane);
        self.say(Role::Far, lane);
        lane
    }

    /// The near end opens a flow and sends `bytes` with it; the far end takes it.
    fn open(&mut self, target: &str, bytes: &[u8]) -> (FlowId, LaneId) {
        let flow = self.near.open_flow(self.now, target, false).expect("up");
        let lane = lane_of(&self.near, self.now, flow);
        assert_eq!(self.near.write(flow, bytes), bytes.len());
        self.say(Role::Near, lane);
        self.far.accept_flow(flow, false);
        self.say(Role::Far, lane);
        (flow, lane)
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.near.handle_timeout(self.now);
        self.far.handle_timeout(self.now);
    }
}

fn lane_of(link: &Link, now: Moment, flow: FlowId) -> LaneId {
    let status = link.status(now);
    let found = status.flows.iter().find(|row| row.id == flow);
    found.expect("an open flow").lane
}

/// The worked example of the specification.
fn example(ends: &mut Ends) {
    let lane = ends.dial();
    let (flow, _) = ends.open("example.org:80", b"the verse that returns\n");

    ends.near.write(flow, b"and\nthe verse that returns\n");
    ends.near.finish(flow);
    ends.say(Role::Near, lane);

    ends.far.write(flow, b"refrain\n");
    ends.far.finish(flow);
    ends.say(Role::Far, lane);

    ends.wait(Duration::from_millis(10));
    ends.say(Role::Near, lane);
    ends.say(Role::Far, lane);
}

/// Every kind of frame, both streams of the second stage, a lane that dies.
fn everything(ends: &mut Ends) {
    let text = text();
    let lanes = [ends.dial(), ends.dial()];
    let (first, dying) = ends.open("a:1", &text[..6000]);
    assert_eq!(ends.far.write(first, &text[..3000]), 3000);
    ends.say(Role::Far, dying);
    ends.near.write(first, &noise(3000));
    ends.say(Role::Near, dying);

    // TLS passes by the cache.
    ends.open("a:1", b"\x16\x03\x01\x02\x00 a client's hello");

    let offered = ends.far.open_flow(ends.now, "b:2", false).expect("up");
    let lane = lane_of(&ends.far, ends.now, offered);
    ends.say(Role::Far, lane);
    ends.near.refuse_flow(offered, 3, "the target refused");
    ends.say(Role::Near, lane);
    ends.say(Role::Far, lane);

    let (reset, lane) = ends.open("c:3", b"given up");
    ends.near.reset(reset, 1);
    ends.say(Role::Near, lane);
    ends.say(Role::Far, lane);

    ends.near.write(first, &text[6000..]);
    ends.say(Role::Near, dying);
    ends.say(Role::Far, dying);

    // A block that leaves and never arrives.
    ends.near.write(first, b"lost with its lane");
    ends.near.poll_transmit(ends.now, dying, &mut Vec::new());
    ends.near.close_lane(dying, LaneFault::TransportClosed);
    ends.far.close_lane(dying, LaneFault::TransportClosed);
    let left = lanes.into_iter().find(|&lane| lane != dying);
    let left = left.expect("two lanes");
    for from in [Role::Near, Role::Far, Role::Near] {
        ends.say(from, left);
    }

    let (last, _) = ends.open("a:1", &text);
    ends.near.finish(last);
    ends.say(Role::Near, left);
    ends.far.finish(last);
    ends.say(Role::Far, left);

    // A ping that is due, an end that leaves.
    let (open, _) = ends.open("a:1", b"the last");
    let (forged_upon, _) = ends.open("a:1", b"the very last");
    ends.wait(Duration::from_millis(1000));
    ends.near.drain();
    ends.say(Role::Near, left);
    ends.say(Role::Far, left);

    // Loss holds a lane up, and another one takes its flow over.
    for pause in [1, 1, 1, 1, 1, 1, 1, 1, 1, 300] {
        ends.near.write(open, b"haltingly");
        ends.say_haltingly(Role::Near, left, Duration::from_millis(pause));
    }
    ends.say(Role::Far, left);
    let free = ends.dial();
    ends.near.write(open, b" but in order");
    ends.say(Role::Near, free);
    ends.near.finish(open);
    ends.say(Role::Near, left);
    ends.say(Role::Near, free);
    let halting = [&b"the last"[..], &b"haltingly".repeat(10), b" but in order"].concat();
    assert_eq!(ends.arrived_far[&open], halting);

    // The caches contradict each other: the end that finds it says so.
    let forged = block_with_a_wrong_check(forged_upon);
    ends.deliver(&Record {
        from: Role::Near,
        lane: left,
        bytes: forged,
    });
    ends.say(Role::Far, left);
    assert!(matches!(
        ends.faults[..],
        [
            Fault::Link(LinkFault::Cache(_)),
            Fault::Link(LinkFault::AbortedByPeer)
        ]
    ));

    let sent = [&text[..6000], &noise(3000), &text[6000..]].concat();
    assert_eq!(ends.arrived_far[&first], sent);
    assert_eq!(ends.arrived_near[&first], &text[..3000]);
    assert_eq!(ends.arrived_far[&last], text);
}

fn block_with_a_wrong_check(flow: FlowId) -> Vec<u8> {
    let stream = |bytes| Stream {
        compressed: false,
        bytes,
    };
    let mut bytes = Vec::new();
    BlockFrame {
        flow,
        len: 1,
        offset: None,
        position_step: None,
        is_secret: false,
        check: 0,
        tokens: stream(b""),
        literals: stream(b"x"),
    }
    .write(&mut bytes);
    bytes
}

/// Words in no order that repeats.
fn text() -> Vec<u8> {
    const WORDS: [&str; 8] = [
        "verse ",
        "that ",
        "returns, ",
        "hold ",
        "back\n",
        "and ",
        "to ",
        "refrain ",
    ];
    let words = noise(1500);
    let words = words.iter().map(|&byte| WORDS[usize::from(byte) % 8]);
    words.collect::<String>().into_bytes()
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Records from the specification: fenced blocks that are marked with who speaks, their
/// lines hexadecimal digits and, after a semicolon, what they mean.
fn records_of(specification: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let mut lines = specification.lines();
    while let Some(line) = lines.next() {
        let from = match line {
            "```hex near" => Role::Near,
            "```hex far" => Role::Far,
            _ => continue,
        };
        let mut bytes = Vec::new();
        for line in lines.by_ref().take_while(|&line| line != "```") {
            let digits = line.split(';').next().unwrap_or_default();
            let pairs = digits.split_whitespace();
            bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two digits")));
        }
        records.push(Record {
            from,
            lane: LaneId(0),
            bytes,
        });
    }
    records
}

/// Golden file: for each record one byte for who speaks (0 near, 1 far), one for the lane,
/// four for the length, little endian, and the bytes.
fn read_golden(mut file: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some((&[from, lane, a, b, c, d], rest)) = file.split_first_chunk() {
        let (bytes, rest) = rest.split_at(u32::from_le_bytes([a, b, c, d]) as usize);
        records.push(Record {
            from: [Role::Near, Role::Far][usize::from(from)],
            lane: LaneId(lane.into()),
            bytes: bytes.to_vec(),
        });
        file = rest;
    }
    records
}

fn write_golden(records: &[Record]) -> Vec<u8> {
    let mut file = Vec::new();
    for Record { from, lane, bytes } in records {
        file.push(u8::from(*from == Role::Far));
        file.push(lane.0 as u8);
        file.extend((bytes.len() as u32).to_le_bytes());
        file.extend(bytes);
    }
    file
}

#[test]
fn the_worked_example_is_what_two_links_say() {
    let mut live = Ends::new(None);
    example(&mut live);
    assert_eq!((live.near.flows_open(), live.far.flows_open()), (0, 0));
    assert_eq!(
        live.arrived_far[&FlowId(0)],
        b"the verse that returns\nand\nthe verse that returns\n"
    );
    assert_eq!(live.arrived_near[&FlowId(0)], b"refrain\n");

    let specified = records_of(SPECIFICATION);
    for (index, (specified, said)) in specified.iter().zip(&live.said).enumerate() {
        assert_eq!(
            format!("{:02x?}", specified.bytes),
            format!("{:02x?}", said.bytes),
            "hex block {index}, counted from 0: specified and said"
        );
    }
    assert_eq!(specified, live.said);
}

#[test]
fn versions_as_they_were_recorded_are_understood() {
    for (name, golden) in GOLDEN {
        if golden.is_empty() {
            // A new version's file is made empty by hand, and filled here, once.
            let mut ends = Ends::new(None);
            everything(&mut ends);
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/golden")
                .join(name);
            std::fs::write(path, write_golden(&ends.said)).expect("a writable directory");
            panic!("recorded; run again");
        }
        let golden = read_golden(golden);
        let mut ends = Ends::new(Some(golden.clone()));
        everything(&mut ends);
        assert!(ends.given.expect("set").is_empty());
        assert_nothing_is_left_out(&golden);
    }
}

fn assert_nothing_is_left_out(golden: &[Record]) {
    let mut types = BTreeSet::new();
    let mut passages = BTreeSet::new();
    let mut has_offset = false;
    for record in golden {
        let mut bytes = &record.bytes[..];
        if let Ok(Some((_, read))) = Hello::read(bytes) {
            bytes = &bytes[read..];
        }
        while let Some((frame, read)) = Frame::read(bytes).expect("frames") {
            types.insert(bytes[0]);
            if let Frame::Block(block) = frame {
                has_offset |= block.offset.is_some();
                let logged = block.position_step.is_some();
                let compressed = [block.tokens, block.literals].map(|stream| stream.compressed);
                passages.insert((logged, compressed));
            }
            bytes = &bytes[read..];
        }
    }
    assert!(types.into_iter().eq(1..=14), "a frame of each type");
    assert!(has_offset, "a block whose flow took another lane");
    for passage in [
        (true, [true, true]),
        (true, [false, false]),
        (false, [false, false]),
    ] {
        assert!(passages.contains(&passage), "{passages:?}");
    }
}
