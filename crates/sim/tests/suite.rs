//! A suite that is small enough for every test run; `refrain-sim` makes larger ones.

use refrain_sim::{run_many, run_seed};

#[test]
fn promises_hold_whatever_breaks_and_every_kind_of_trouble_occurs() {
    let suite = run_many(0, 1000, 2, &|_| {});
    if let Some(failed) = &suite.failed {
        panic!("{failed}");
    }
    assert_eq!(suite.missing(), [], "kinds that never occurred");
}

#[test]
fn a_seed_replays_its_run() {
    for seed in 0..20 {
        assert_eq!(run_seed(seed, false), run_seed(seed, false));
    }
}
