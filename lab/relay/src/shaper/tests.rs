//! The link's arithmetic, on a virtual clock: every time below is exact.

use super::*;

/// A shaper, its clock, and what has arrived.
struct Bench {
    shaper: Shaper,
    now: Duration,
    arrived: HashMap<u64, usize>,
    others: Vec<Event>,
}

impl Bench {
    fn new(connections: u64, link: LinkConfig) -> Bench {
        let mut shaper = Shaper::new(&link);
        (0..connections).for_each(|connection| shaper.open(connection));
        Bench {
            shaper,
            now: Duration::ZERO,
            arrived: HashMap::new(),
            others: Vec::new(),
        }
    }

    fn enter(&mut self, connection: u64, bytes: usize) {
        self.shaper.enter(connection, bytes, self.now);
        self.run_to(self.now);
    }

    /// Goes straight to `time`, as a driver that comes late does.
    fn run_to(&mut self, time: Duration) {
        self.now = time;
        self.shaper.advance(time);
        while let Some(event) = self.shaper.next_event() {
            match event {
                Event::Arrived { connection, bytes } => {
                    *self.arrived.entry(connection).or_default() += bytes;
                    self.shaper.taken(connection, bytes, time);
                    self.shaper.advance(time);
                }
                other => self.others.push(other),
            }
        }
    }

    /// Runs until nothing is left to do, and says when something arrived.
    fn run_out(&mut self) -> Vec<Duration> {
        let mut arrivals = Vec::new();
        while let Some(deadline) = self.shaper.deadline() {
            assert!(
                deadline > self.now,
                "the deadline {deadline:?} is not later than now"
            );
            let before = self.arrived.clone();
            self.run_to(deadline);
            if self.arrived != before {
                arrivals.push(deadline);
            }
        }
        arrivals
    }

    fn arrived(&self, connection: u64) -> usize {
        self.arrived.get(&connection).copied().unwrap_or(0)
    }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A segment takes 1 ms. The queue of such a link holds 64 KiB, and a window 256 KiB.
fn one_segment_a_millisecond() -> LinkConfig {
    LinkConfig {
        rate: Rate::bits_per_second(8000 * SEGMENT_BYTES as u64),
        ..LinkConfig::default()
    }
}

#[test]
fn an_ideal_link_hands_on_at_once() {
    let mut bench = Bench::new(1, LinkConfig::default());
    bench.enter(0, 100_000);
    assert_eq!(bench.arrived(0), 100_000);
    assert_eq!(bench.shaper.deadline(), None);
}

#[test]
fn the_rate_spaces_segments() {
    let mut bench = Bench::new(1, one_segment_a_millisecond());
    bench.run_to(ms(100));
    bench.enter(0, 3 * SEGMENT_BYTES + SEGMENT_BYTES / 2);
    assert_eq!(
        bench.run_out(),
        [
            ms(101),
            ms(102),
            ms(103),
            ms(103) + Duration::from_micros(500)
        ]
    );
    assert_eq!(bench.arrived(0), 3 * SEGMENT_BYTES + SEGMENT_BYTES / 2);
}

#[test]
fn a_late_driver_does_not_slow_the_link() {
    let mut bench = Bench::new(1, one_segment_a_millisecond());
    bench.enter(0, 100 * SEGMENT_BYTES);
    for time in [7, 7, 31, 90] {
        bench.run_to(ms(time));
        assert_eq!(bench.arrived(0), SEGMENT_BYTES * time as usize);
    }
    bench.run_to(ms(1000));
    assert_eq!(bench.arrived(0), 100 * SEGMENT_BYTES);
}

#[test]
fn an_idle_link_saves_nothing_up() {
    let mut bench = Bench::new(1, one_segment_a_millisecond());
    bench.enter(0, SEGMENT_BYTES);
    bench.run_to(ms(500));
    bench.enter(0, 10 * SEGMENT_BYTES);
    bench.run_to(ms(505));
    assert_eq!(bench.arrived(0), (1 + 5) * SEGMENT_BYTES);
}

#[test]
fn the_delay_is_added_once_and_keeps_the_rate() {
    let link = LinkConfig {
        delay: ms(20),
        ..one_segment_a_millisecond()
    };
    let mut bench = Bench::new(1, link);
    bench.enter(0, 3 * SEGMENT_BYTES);
    assert_eq!(bench.run_out(), [ms(21), ms(22), ms(23)]);
}

#[test]
fn connections_take_turns() {
    let mut bench = Bench::new(3, one_segment_a_millisecond());
    bench.enter(0, 50 * SEGMENT_BYTES);
    bench.enter(1, 50 * SEGMENT_BYTES);
    bench.enter(2, 2 * SEGMENT_BYTES);
    // Connection 0 had the first turn, and its place in line, before the others came.
    bench.run_to(ms(6));
    assert_eq!(
        [0, 1, 2].map(|connection| bench.arrived(connection)),
        [3, 2, 1].map(|segments| segments * SEGMENT_BYTES)
    );
    bench.run_to(ms(16));
    assert_eq!(
        [0, 1, 2].map(|connection| bench.arrived(connection)),
        [8, 6, 2].map(|segments| segments * SEGMENT_BYTES)
    );
}

#[test]
fn the_queue_bounds_what_waits() {
    let mut bench = Bench::new(1, one_segment_a_millisecond());
    assert_eq!(bench.shaper.room(0), 64 << 10);
    bench.enter(0, 64 << 10);
    // One segment is in the bottleneck and no longer in the queue.
    assert_eq!(bench.shaper.room(0), SEGMENT_BYTES);
    bench.enter(0, SEGMENT_BYTES);
    assert_eq!(bench.shaper.room(0), 0);
    assert_eq!(bench.others, []);
    bench.run_to(ms(1));
    assert_eq!(bench.others, [Event::Room { connection: 0 }]);
    assert_eq!(bench.shaper.room(0), SEGMENT_BYTES);
}

#[test]
fn competitors_divide_the_queue() {
    let mut bench = Bench::new(60, one_segment_a_millisecond());
    bench.enter(0, (64 << 10) + SEGMENT_BYTES);
    assert_eq!(bench.shaper.room(0), 0);
    // The newcomer gets its half though the first one still holds more than the other half.
    assert_eq!(bench.shaper.room(1), 32 << 10);
    bench.enter(1, 32 << 10);
    bench.run_to(ms(4));
    // Each sent two more, and the first one was at 64 KiB.
    assert_eq!(
        (bench.shaper.room(0), bench.shaper.room(1)),
        (0, 2 * SEGMENT_BYTES)
    );
    // Among many, each still has room for a segment.
    (2..60).for_each(|connection| bench.enter(connection, 500));
    assert_eq!(bench.shaper.room(2), SEGMENT_BYTES - 500);
}

#[test]
fn a_full_window_blocks_its_connection_alone() {
    // It may end in the middle of a segment, which departs whole.
    let window_bytes = (256_usize << 10).next_multiple_of(SEGMENT_BYTES);
    let mut bench = Bench::new(2, one_segment_a_millisecond());
    let shaper = &mut bench.shaper;
    shaper.enter(0, 2 * window_bytes, ms(0));
    shaper.advance(ms(500));
    assert_eq!(
        shaper.next_event(),
        Some(Event::Arrived {
            connection: 0,
            bytes: window_bytes
        })
    );
    assert_eq!((shaper.next_event(), shaper.deadline()), (None, None));

    shaper.enter(1, 2 * SEGMENT_BYTES, ms(500));
    shaper.advance(ms(502));
    assert_eq!(
        shaper.next_event(),
        Some(Event::Arrived {
            connection: 1,
            bytes: 2 * SEGMENT_BYTES
        })
    );

    shaper.taken(0, SEGMENT_BYTES, ms(600));
    shaper.advance(ms(610));
    assert_eq!(
        shaper.next_event(),
        Some(Event::Arrived {
            connection: 0,
            bytes: SEGMENT_BYTES
        })
    );
}

#[test]
fn a_close_follows_the_bytes() {
    let link = LinkConfig {
        delay: ms(20),
        ..one_segment_a_millisecond()
    };
    let mut bench = Bench::new(2, link);
    bench.enter(0, 2 * SEGMENT_BYTES);
    bench.shaper.close(0, ms(0));
    bench.run_to(ms(21));
    assert_eq!(
        (bench.arrived(0), &bench.others[..]),
        (SEGMENT_BYTES, &[][..])
    );
    bench.run_to(ms(22));
    assert_eq!(
        (bench.arrived(0), &bench.others[..]),
        (2 * SEGMENT_BYTES, &[Event::Closed { connection: 0 }][..])
    );
    // Without bytes it only takes the delay.
    bench.shaper.close(1, ms(22));
    assert_eq!(bench.shaper.deadline(), Some(ms(42)));
    bench.run_to(ms(42));
    assert_eq!(bench.others[1], Event::Closed { connection: 1 });
}

#[test]
fn a_reset_drops_what_is_queued_and_follows_what_is_not() {
    let link = LinkConfig {
        delay: ms(20),
        ..one_segment_a_millisecond()
    };
    let mut bench = Bench::new(2, link);
    bench.enter(0, 10 * SEGMENT_BYTES);
    bench.enter(1, 2 * SEGMENT_BYTES);
    bench.run_to(ms(2));
    bench.shaper.reset(0, ms(2));
    bench.shaper.reset(0, ms(3));
    bench.run_out();
    // Two of its segments had begun to depart, with one of the other between them.
    assert_eq!(
        (bench.arrived(0), bench.arrived(1)),
        (2 * SEGMENT_BYTES, 2 * SEGMENT_BYTES)
    );
    assert_eq!(bench.others, [Event::Reset { connection: 0 }]);
    assert_eq!(bench.now, ms(24));
}

#[test]
fn a_frozen_link_does_nothing_and_loses_nothing() {
    let link = LinkConfig {
        delay: ms(20),
        ..one_segment_a_millisecond()
    };
    let mut bench = Bench::new(1, link);
    bench.enter(0, 3 * SEGMENT_BYTES);
    bench.run_to(ms(2));
    bench.shaper.freeze(ms(2));
    bench.enter(0, SEGMENT_BYTES);
    assert_eq!(bench.shaper.deadline(), None);
    bench.run_to(ms(500));
    assert_eq!(bench.arrived(0), 0);
    bench.shaper.thaw(ms(500));
    bench.run_to(ms(500));
    // Those that had departed arrive at once; the last one departs now.
    assert_eq!(bench.arrived(0), 3 * SEGMENT_BYTES);
    assert_eq!(bench.run_out(), [ms(521)]);
}

#[test]
fn a_forgotten_connection_leaves_no_trace() {
    let link = LinkConfig {
        delay: ms(20),
        ..one_segment_a_millisecond()
    };
    let mut bench = Bench::new(3, link);
    (0..3).for_each(|connection| bench.enter(connection, 3 * SEGMENT_BYTES));
    bench.run_to(ms(2));
    bench.shaper.forget(0);
    bench.shaper.forget(1);
    bench.shaper.forget(1);
    bench.enter(0, 5 * SEGMENT_BYTES);
    bench.run_out();
    assert_eq!(
        [0, 1, 2].map(|connection| bench.arrived(connection)),
        [0, 0, 3 * SEGMENT_BYTES]
    );
    assert_eq!(bench.shaper.room(0), 0);
}

/// Whatever happens in whatever order: what arrives is what entered, never more than the rate
/// allows, and all of it in the end.
#[test]
fn nothing_is_lost_or_invented() {
    for seed in 0..200 {
        let mut state: u64 = seed;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let rate = (draw(4) > 0).then(|| Rate::mbit(1 + draw(100) as u32));
        let delay = ms(draw(3) * 10);
        let mut bench = Bench::new(4, LinkConfig { rate, delay });
        // Far less than such a link has, so that both are full at times.
        bench.shaper.queue_bytes = 1 + draw(20_000) as usize;
        bench.shaper.window_bytes = 1 + draw(20_000) as usize;
        let mut entered = [0; 4];
        for _ in 0..200 {
            let connection = draw(4);
            match draw(10) {
                0 => bench.shaper.freeze(bench.now),
                1..=3 => bench.shaper.thaw(bench.now),
                _ => {
                    let room = bench.shaper.room(connection);
                    let bytes = room.min(draw(5000) as usize);
                    bench.enter(connection, bytes);
                    entered[connection as usize] += bytes;
                }
            }
            bench.run_to(bench.now + Duration::from_micros(draw(2000)));
            let arrived: usize = bench.arrived.values().sum();
            if let Some(rate) = rate {
                assert!(arrived as u64 <= rate.bytes_in(bench.now), "seed {seed}");
            }
        }
        bench.shaper.thaw(bench.now);
        bench.run_to(bench.now);
        bench.run_out();
        let arrived = [0, 1, 2, 3].map(|connection| bench.arrived(connection));
        assert_eq!(arrived, entered, "seed {seed}");
    }
}
