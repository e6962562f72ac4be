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
        let mut shaper = Shaper::new(&link, Direction::Up);
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

/// Segments of 1000 bytes that take 1 ms each, and queue and window beyond what a test enters.
fn one_segment_a_millisecond() -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::mbit(8)),
        segment_bytes: 1000,
        queue_bytes: Some(1 << 20),
        window_bytes: Some(1 << 20),
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
    bench.enter(0, 3500);
    assert_eq!(
        bench.run_out(),
        [
            ms(101),
            ms(102),
            ms(103),
            ms(103) + Duration::from_micros(500)
        ]
    );
    assert_eq!(bench.arrived(0), 3500);
}

#[test]
fn a_late_driver_does_not_slow_the_link() {
    let mut bench = Bench::new(1, one_segment_a_millisecond());
    bench.enter(0, 100_000);
    for time in [7, 7, 31, 90] {
        bench.run_to(ms(time));
        assert_eq!(bench.arrived(0), 1000 * time as usize);
    }
    bench.run_to(ms(1000));
    assert_eq!(bench.arrived(0), 100_000);
}

#[test]
fn an_idle_link_saves_nothing_up() {
    let mut bench = Bench::new(1, one_segment_a_millisecond());
    bench.enter(0, 1000);
    bench.run_to(ms(500));
    bench.enter(0, 10_000);
    bench.run_to(ms(505));
    assert_eq!(bench.arrived(0), 1000 + 5000);
}

#[test]
fn the_delay_is_added_once_and_keeps_the_rate() {
    let link = LinkConfig {
        delay: ms(20),
        ..one_segment_a_millisecond()
    };
    let mut bench = Bench::new(1, link);
    bench.enter(0, 3000);
    assert_eq!(bench.run_out(), [ms(21), ms(22), ms(23)]);
}

#[test]
fn connections_take_turns() {
    let mut bench = Bench::new(3, one_segment_a_millisecond());
    bench.enter(0, 50_000);
    bench.enter(1, 50_000);
    bench.enter(2, 2000);
    // Connection 0 had the first turn, and its place in line, before the others came.
    bench.run_to(ms(6));
    assert_eq!(
        [0, 1, 2].map(|connection| bench.arrived(connection)),
        [3000, 2000, 1000]
    );
    bench.run_to(ms(16));
    assert_eq!(
        [0, 1, 2].map(|connection| bench.arrived(connection)),
        [8000, 6000, 2000]
    );
}

#[test]
fn a_changed_rate_counts_from_the_next_departure() {
    let mut bench = Bench::new(1, one_segment_a_millisecond());
    bench.enter(0, 4000);
    bench.run_to(ms(1));
    bench.shaper.set_rate(Some(Rate::mbit(4)), ms(1));
    // The second segment had begun at 1 ms.
    assert_eq!(bench.run_out(), [ms(2), ms(4), ms(6)]);
    bench.shaper.set_rate(None, ms(6));
    bench.enter(0, 4000);
    assert_eq!(bench.arrived(0), 8000);
}

#[test]
fn the_queue_bounds_what_waits() {
    let link = LinkConfig {
        queue_bytes: Some(5000),
        ..one_segment_a_millisecond()
    };
    let mut bench = Bench::new(1, link);
    assert_eq!(bench.shaper.room(0), 5000);
    bench.enter(0, 5000);
    // One segment is in the bottleneck and no longer in the queue.
    assert_eq!(bench.shaper.room(0), 1000);
    bench.enter(0, 1000);
    assert_eq!(bench.shaper.room(0), 0);
    assert_eq!(bench.others, []);
    bench.run_to(ms(1));
    assert_eq!(bench.others, [Event::Room { connection: 0 }]);
    assert_eq!(bench.shaper.room(0), 1000);
}

#[test]
fn competitors_divide_the_queue() {
    let link = LinkConfig {
        queue_bytes: Some(6000),
        ..one_segment_a_millisecond()
    };
    let mut bench = Bench::new(8, link);
    bench.enter(0, 7000);
    assert_eq!(bench.shaper.room(0), 0);
    // The newcomer gets its half though the first one still holds more than the other half.
    assert_eq!(bench.shaper.room(1), 3000);
    bench.enter(1, 3000);
    bench.run_to(ms(4));
    // Each sent two more, and the first one was at 6000.
    assert_eq!((bench.shaper.room(0), bench.shaper.room(1)), (0, 2000));
    // Among many, each still has room for a segment.
    (2..8).for_each(|connection| bench.enter(connection, 500));
    assert_eq!(bench.shaper.room(2), 500);
}

#[test]
fn a_full_window_blocks_its_connection_alone() {
    let link = LinkConfig {
        window_bytes: Some(2000),
        ..one_segment_a_millisecond()
    };
    let mut bench = Bench::new(2, link);
    let shaper = &mut bench.shaper;
    shaper.enter(0, 10_000, ms(0));
    shaper.advance(ms(50));
    assert_eq!(
        shaper.next_event(),
        Some(Event::Arrived {
            connection: 0,
            bytes: 2000
        })
    );
    assert_eq!((shaper.next_event(), shaper.deadline()), (None, None));

    shaper.enter(1, 2000, ms(50));
    shaper.advance(ms(52));
    assert_eq!(
        shaper.next_event(),
        Some(Event::Arrived {
            connection: 1,
            bytes: 2000
        })
    );

    shaper.taken(0, 500, ms(60));
    shaper.advance(ms(61));
    assert_eq!(
        shaper.next_event(),
        Some(Event::Arrived {
            connection: 0,
            bytes: 1000
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
    bench.enter(0, 2000);
    bench.shaper.close(0, ms(0));
    bench.run_to(ms(21));
    assert_eq!((bench.arrived(0), &bench.others[..]), (1000, &[][..]));
    bench.run_to(ms(22));
    assert_eq!(
        (bench.arrived(0), &bench.others[..]),
        (2000, &[Event::Closed { connection: 0 }][..])
    );
    // Without bytes it takes the delay alone.
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
    bench.enter(0, 10_000);
    bench.enter(1, 2000);
    bench.run_to(ms(2));
    bench.shaper.reset(0, ms(2));
    bench.shaper.reset(0, ms(3));
    bench.run_out();
    // Two of its segments had begun to depart, with one of the other between them.
    assert_eq!((bench.arrived(0), bench.arrived(1)), (2000, 2000));
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
    bench.enter(0, 3000);
    bench.run_to(ms(2));
    bench.shaper.freeze(ms(2));
    bench.enter(0, 1000);
    assert_eq!(bench.shaper.deadline(), None);
    bench.run_to(ms(500));
    assert_eq!(bench.arrived(0), 0);
    bench.shaper.thaw(ms(500));
    bench.run_to(ms(500));
    // Those that had departed arrive at once; the last one departs now.
    assert_eq!(bench.arrived(0), 3000);
    assert_eq!(bench.run_out(), [ms(521)]);
}

#[test]
fn a_stall_holds_back_one_connection() {
    let seed = (0..)
        .find(|seed| {
            let stalled =
                |connection, segment| stalls(*seed, connection, Direction::Up, segment, 0.05);
            stalled(0, 2) && (0..10).all(|n| (n == 2 || !stalled(0, n)) && !stalled(1, n))
        })
        .unwrap();
    let link = LinkConfig {
        stall_probability: 0.05,
        stall: ms(200),
        seed,
        ..one_segment_a_millisecond()
    };
    let mut bench = Bench::new(2, link);
    bench.enter(0, 6000);
    bench.enter(1, 6000);
    bench.run_to(ms(100));
    // The other one had the link to itself meanwhile.
    assert_eq!((bench.arrived(0), bench.arrived(1)), (2000, 6000));
    // At 3 ms, after two turns and one of the other's, segment 2 drew the stall.
    assert_eq!(bench.run_out(), [ms(204), ms(205), ms(206), ms(207)]);
    assert_eq!((bench.arrived(0), bench.shaper.stalls()), (6000, 1));
}

#[test]
fn stalls_do_not_depend_on_how_bytes_are_split() {
    let link = LinkConfig {
        stall_probability: 0.2,
        stall: ms(10),
        seed: 7,
        segment_bytes: 100,
        ..LinkConfig::default()
    };
    let expected = (0..50)
        .filter(|n| stalls(7, 0, Direction::Up, *n, 0.2))
        .count() as u64;
    assert!(expected > 0);
    for piece in [1, 33, 100, 250, 5000] {
        let mut bench = Bench::new(1, link.clone());
        let mut left = 5000;
        while left > 0 {
            bench.enter(0, piece.min(left));
            left -= piece.min(left);
            bench.run_to(bench.now + Duration::from_micros(300));
        }
        bench.run_out();
        assert_eq!(
            (bench.arrived(0), bench.shaper.stalls()),
            (5000, expected),
            "pieces of {piece}"
        );
    }
}

#[test]
fn a_forgotten_connection_leaves_no_trace() {
    let link = LinkConfig {
        delay: ms(20),
        stall_probability: 1.0,
        stall: ms(5),
        ..one_segment_a_millisecond()
    };
    let mut bench = Bench::new(3, link);
    (0..3).for_each(|connection| bench.enter(connection, 3000));
    bench.run_to(ms(6));
    bench.shaper.forget(0);
    bench.shaper.forget(1);
    bench.shaper.forget(1);
    bench.enter(0, 5000);
    bench.run_out();
    assert_eq!(
        [0, 1, 2].map(|connection| bench.arrived(connection)),
        [0, 0, 3000]
    );
    assert_eq!(bench.shaper.room(0), 0);
}

/// Whatever happens in whatever order: what arrives is what entered, never more than the rate
/// allows, and all of it in the end.
#[test]
fn nothing_is_lost_or_invented() {
    for seed in 0..200 {
        let mut draws = (0..).map(|n| crate::stall::splitmix64(seed << 32 | n));
        let mut draw = |below: u64| draws.next().unwrap() % below;
        let link = LinkConfig {
            rate: (draw(4) > 0).then(|| Rate::mbit(1 + draw(100) as u32)),
            delay: ms(draw(3) * 10),
            queue_bytes: Some(1 + draw(20_000) as usize),
            window_bytes: Some(1 + draw(20_000) as usize),
            segment_bytes: 1 + draw(3000) as usize,
            stall_probability: draw(3) as f64 * 0.1,
            stall: ms(draw(50)),
            seed,
        };
        let rate = link.rate;
        let mut bench = Bench::new(4, link);
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
