//! Measuring a contest: all take turns, so that a busy machine slows all of them.

use std::time::{Duration, Instant};

use crate::contests::{Contest, Contestant};

/// Turns that are measured at least, however little time there is.
const TURNS_MIN: usize = 5;

/// How fast one of a contest was.
#[derive(Debug)]
pub(crate) struct Speed {
    pub name: String,
    /// Plain bytes, 10^9 of them, in a second: the median of all turns.
    pub gb_per_s: f64,
    /// The speed of the contest's first over this one: the median of all turns.
    pub ratio: f64,
}

/// Lets all of the contest take turns for `time`.
pub(crate) fn measure(contest: &mut Contest<'_>, time: Duration) -> Vec<Speed> {
    // The first turn warms up what a turn needs.
    for contestant in &mut contest.contestants {
        (contestant.turn)();
    }
    let mut turns = vec![Vec::new(); contest.contestants.len()];
    let start = Instant::now();
    while turns[0].len() < TURNS_MIN || start.elapsed() < time {
        for (contestant, speeds) in contest.contestants.iter_mut().zip(&mut turns) {
            speeds.push(gb_per_s(contestant));
        }
    }
    let contestants = contest.contestants.iter().zip(&turns);
    let speeds = contestants.map(|(contestant, speeds)| {
        let ratios: Vec<f64> = turns[0].iter().zip(speeds).map(|(a, b)| a / b).collect();
        Speed {
            name: contestant.name.clone(),
            gb_per_s: median(speeds),
            ratio: median(&ratios),
        }
    });
    speeds.collect()
}

fn gb_per_s(contestant: &mut Contestant<'_>) -> f64 {
    let time = (contestant.turn)();
    contestant.turn_bytes as f64 / time.as_secs_f64() / 1e9
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contests::{Place, RowName};
    use std::cell::RefCell;

    const NAME: RowName = RowName {
        kernel: "kernel",
        data: "data",
        place: Place::Hot,
    };

    #[test]
    fn all_take_turns() {
        let order = RefCell::new(Vec::new());
        let turn = |who: &'static str| {
            let order = &order;
            move || {
                order.borrow_mut().push(who);
                Duration::from_micros(1)
            }
        };
        let mut contest = Contest::new(NAME)
            .turn("ours", 3000, turn("ours"))
            .turn("a", 1500, turn("a"))
            .turn("b", 6000, turn("b"));
        let speeds = measure(&mut contest, Duration::ZERO);
        assert_eq!(
            *order.borrow(),
            ["ours", "a", "b"].repeat(1 + TURNS_MIN),
            "one to warm up"
        );
        let speeds = speeds.iter().map(|speed| (speed.gb_per_s, speed.ratio));
        assert!(speeds.eq([(3.0, 1.0), (1.5, 2.0), (6.0, 0.5)]));
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
    }
}
