use super::*;

const TOP: Effort = LADDER[LADDER.len() - 1];
const PIECE: usize = 64 << 10;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Writes of 64 KiB, each of which takes `encoding` on the first rung and as much more on others as is guessed
/// for rungs that were not tried.
fn run(
    control: &mut EffortControl,
    encoding: Duration,
    waiting: Duration,
    unsent: Unsent,
    writes: u32,
) {
    let mut now = control.counted_until;
    for _ in 0..writes {
        let cost: f64 = COST_RATIOS[..control.rung].iter().product();
        let encoding = encoding.mul_f64(cost);
        now = now + encoding + waiting;
        let written = Written {
            encoding,
            working: encoding,
            waiting,
            unsent,
            bytes: PIECE / 4,
            ..Written::default()
        };
        control.wrote(now, written, PIECE, Duration::ZERO);
    }
}

fn auto() -> EffortControl {
    EffortControl::new(EffortMode::Auto, None)
}

#[test]
fn a_slow_link_gets_all_the_effort_at_once() {
    let mut control = auto();
    run(&mut control, ms(1), ms(99), Unsent::Plenty, 2);
    assert_eq!(
        (control.effort(), control.reason()),
        (TOP, EffortReason::LinkIsSlow)
    );
}

#[test]
fn a_hungry_link_sheds_it() {
    let mut control = auto();
    run(&mut control, ms(1), ms(0), Unsent::Nothing, 500);
    assert_eq!(control.effort(), LADDER[0]);
    assert_eq!(control.reason(), EffortReason::ProcessorIsBusy);
}

#[test]
fn work_ahead_of_a_full_socket_is_no_hunger() {
    let mut control = auto();
    run(&mut control, ms(1), ms(0), Unsent::Plenty, 500);
    assert!(control.rung() >= FIRST_RUNG);
}

#[test]
fn it_climbs_no_further_than_the_encoder_has_time_for() {
    let mut control = auto();
    let mut now = Moment::default();
    // The link takes 6 ms for a piece. The encoder takes 1.9 on this rung, 3.6 on the next, then 5.0.
    for _ in 0..200 {
        let cost: f64 = COST_RATIOS[..control.rung].iter().product();
        let encoding = ms(1).mul_f64(cost);
        now = now + ms(6);
        let written = Written {
            encoding,
            working: encoding,
            waiting: ms(6) - encoding,
            unsent: Unsent::Plenty,
            bytes: PIECE / 4,
            ..Written::default()
        };
        control.wrote(now, written, PIECE, Duration::ZERO);
    }
    assert_eq!(control.rung(), 4);
    assert_eq!(control.reason(), EffortReason::Balanced);
}

#[test]
fn a_rung_that_cost_much_when_memory_was_new_is_climbed_to_again() {
    for first_ms in [10, 60, 1000] {
        let mut control = auto();
        // The first blocks on each of some rungs.
        while control.rung() > 0 {
            let now = control.counted_until + ms(first_ms);
            let written = Written {
                encoding: ms(first_ms),
                working: ms(first_ms),
                unsent: Unsent::Nothing,
                bytes: PIECE / 4,
                ..Written::default()
            };
            control.wrote(now, written, PIECE, Duration::ZERO);
        }
        run(&mut control, ms(1), ms(99), Unsent::Plenty, 40);
        assert_eq!(control.effort(), TOP, "{first_ms} ms");
    }
}

#[test]
fn one_block_that_takes_long_sheds_nothing() {
    let mut control = auto();
    run(&mut control, ms(1), ms(0), Unsent::Plenty, 10);
    run(&mut control, ms(1000), ms(0), Unsent::Nothing, 1);
    run(&mut control, ms(1), ms(0), Unsent::OnPath, 30);
    assert_eq!(control.rung(), FIRST_RUNG);
}

#[test]
fn an_encoder_that_is_as_fast_as_the_link_is_not_shed() {
    // Long blocks as well as short ones: half of the time of either is hunger.
    for work in [ms(2), ms(30)] {
        for (link_time, rung) in [(work, FIRST_RUNG), (work / 2, 0)] {
            let mut control = auto();
            let written = Written {
                encoding: work,
                working: work,
                unsent: Unsent::Nothing,
                link_time,
                bytes: PIECE / 4,
                ..Written::default()
            };
            for _ in 0..1000 {
                let now = control.counted_until + work;
                control.wrote(now, written, PIECE, ms(0));
            }
            assert_eq!(control.rung(), rung, "{work:?}, {link_time:?}");
        }
    }
}

#[test]
fn repeated_data_sheds_nothing_since_zstd_has_little_of_it() {
    for (bytes, rung) in [(2_000, FIRST_RUNG), (200_000, 0)] {
        let mut control = auto();
        let written = Written {
            encoding: ms(2),
            working: ms(2),
            bytes,
            ..Written::default()
        };
        for _ in 0..5_000 {
            let now = control.counted_until + ms(2);
            control.wrote(now, written, 1 << 20, ms(0));
        }
        assert_eq!(control.rung(), rung, "{bytes} bytes");
    }
}

#[test]
fn while_a_rate_grows_half_of_the_rest_counts_and_one_rung_is_climbed() {
    // The next rung takes 1.9 times the time, the top 5.6 times. 0.7 of the link's time may be the encoder's.
    for (times_at_link, is_starting, rung) in [
        (3, false, FIRST_RUNG + 1),
        (3, true, FIRST_RUNG),
        (6, true, FIRST_RUNG + 1),
        (100, true, FIRST_RUNG + 1),
        (100, false, LADDER.len() - 1),
    ] {
        let mut control = auto();
        start(&mut control, times_at_link, is_starting);
        assert_eq!(control.rung(), rung, "{times_at_link}, {is_starting}");
    }
}

#[test]
fn a_rung_that_was_climbed_while_the_rate_grew_is_left_when_it_has() {
    let mut control = auto();
    start(&mut control, 100, true);
    assert_eq!(control.rung(), FIRST_RUNG + 1);
    // Before the link is hungry at all.
    start(&mut control, 5, true);
    assert_eq!(control.rung(), FIRST_RUNG);
}

#[test]
fn a_peer_that_is_known_keeps_its_rung_while_the_rate_grows() {
    for rung in [FIRST_RUNG + 1, LADDER.len() - 1] {
        let mut control = EffortControl::new(EffortMode::Auto, Some(rung));
        for times_at_link in [100, 2] {
            start(&mut control, times_at_link, true);
            assert_eq!(control.rung(), rung);
        }
    }
}

/// Ten writes, of which the link takes so many times as long as the encoder does on the first rung.
fn start(control: &mut EffortControl, times_at_link: u32, is_starting: bool) {
    for _ in 0..10 {
        let ratios = &COST_RATIOS[FIRST_RUNG..control.rung()];
        let encoding = ms(10).mul_f64(ratios.iter().product());
        let written = Written {
            encoding,
            working: encoding,
            waiting: (ms(10) * times_at_link).saturating_sub(encoding),
            unsent: Unsent::Plenty,
            is_starting,
            ..Written::default()
        };
        let now = control.counted_until + encoding + written.waiting;
        control.wrote(now, written, PIECE, ms(0));
    }
}

#[test]
fn a_short_first_block_that_takes_long_does_not_hold_it_down() {
    let mut control = auto();
    let written = Written {
        encoding: ms(6),
        working: ms(6),
        ..Written::default()
    };
    control.wrote(control.counted_until + ms(6), written, 200, ms(0));
    run(&mut control, ms(1), ms(49), Unsent::Plenty, 3);
    assert_eq!(control.effort(), TOP);
}

#[test]
fn a_burst_of_less_than_a_round_trip_sheds_nothing() {
    let mut control = auto();
    let written = Written {
        encoding: ms(10),
        working: ms(10),
        waiting: ms(0),
        unsent: Unsent::Nothing,
        bytes: PIECE / 4,
        ..Written::default()
    };
    for burst in 0..100 {
        for write in 0..9 {
            let now = Moment(ms(burst * 1_000 + write * 10 + 10));
            assert_eq!(control.wrote(now, written, PIECE, ms(100)), None);
        }
        // The receiver's credit comes a round trip later.
        let now = Moment(ms(burst * 1_000 + 190));
        control.held_up(now, ms(100), ms(100));
    }
    assert!(control.rung() >= FIRST_RUNG);
}

#[test]
fn what_two_lanes_do_at_the_same_time_counts_once() {
    let mut control = auto();
    let written = Written {
        encoding: ms(0),
        working: ms(0),
        waiting: ms(30),
        unsent: Unsent::Plenty,
        bytes: PIECE / 4,
        ..Written::default()
    };
    for lane in 0..3 {
        control.wrote(Moment(ms(30)), written, PIECE, ms(0));
        assert_eq!(control.rest, ms(30), "lane {lane}");
    }
}

#[test]
fn a_link_that_is_used_now_and_then_stays_where_it_is() {
    let mut control = auto();
    for second in 0..100 {
        let now = Moment(Duration::from_secs(second));
        let written = Written {
            encoding: ms(5),
            working: ms(5),
            waiting: ms(0),
            unsent: Unsent::Nothing,
            bytes: PIECE / 4,
            ..Written::default()
        };
        assert_eq!(control.wrote(now, written, 100, ms(1)), None);
    }
}

#[test]
fn many_small_messages_shed_it_as_a_long_transfer_does() {
    let mut control = auto();
    let written = Written {
        encoding: Duration::from_micros(20),
        working: Duration::from_micros(50),
        waiting: ms(0),
        unsent: Unsent::Nothing,
        bytes: 300,
        ..Written::default()
    };
    for message in 0..20_000 {
        let now = Moment(message * Duration::from_micros(300));
        control.wrote(now, written, 1000, ms(0));
    }
    assert_eq!(control.effort(), LADDER[0]);
}

#[test]
fn a_peer_that_is_known_begins_where_it_was() {
    for rung in 0..LADDER.len() {
        assert_eq!(
            EffortControl::new(EffortMode::Auto, Some(rung)).rung(),
            rung
        );
    }
    assert_eq!(EffortControl::new(EffortMode::Auto, Some(99)).effort(), TOP);
}

#[test]
fn a_pinned_effort_stays() {
    let mut control = EffortControl::new(EffortMode::Max, Some(0));
    run(&mut control, ms(10), ms(0), Unsent::Nothing, 500);
    assert_eq!(control.effort(), TOP);
}
