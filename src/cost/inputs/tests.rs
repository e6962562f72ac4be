//! Where figures are from, and that none of them makes a bill that cannot be.

use proptest::prelude::*;
use refrain_gateway::units::{BitRate, ByteSize};

use super::*;

fn given(redundancy: Option<f64>) -> Given {
    Given {
        traffic: Some(ByteSize(9_100_000_000_000)),
        redundancy,
        cores: 2,
        ..Given::default()
    }
}

fn run(predicted_bytes: f64, matching_saved_bytes: f64) -> Measured {
    Measured {
        uptime_s: 73.0,
        app_bytes: 1e9,
        predicted_bytes,
        matching_saved_bytes,
        ..Measured::default()
    }
}

#[test]
fn what_is_not_given_is_the_papers_and_says_so() {
    let inputs = Inputs::resolve(&given(Some(0.15)), None).expect("enough");
    assert_eq!(inputs.shares.sender_share.value, 0.15);
    assert!((inputs.receiver_load.value - 0.0305).abs() < 1e-12);
    assert_eq!(inputs.sender_load.value, 0.19);
    assert_eq!(inputs.server_mbit_per_s.value, 350.0);
    for from in [
        &inputs.shares.sender_share.from,
        &inputs.receiver_load.from,
        &inputs.sender_load.from,
        &inputs.server_mbit_per_s.from,
    ] {
        assert!(from.starts_with("assumed"), "{from}");
    }
}

#[test]
fn cpu_seconds_become_loads() {
    // 36 Mbit/s are 16.2 GB an hour; 2 cores have 7200 CPU seconds.
    let loads = |cpu_none, cpu_receiver, cpu_sender| {
        let given = Given {
            cpu_none,
            cpu_receiver,
            cpu_sender,
            server_output: Some(BitRate(36_000_000)),
            ..given(Some(0.3))
        };
        let inputs = Inputs::resolve(&given, None).expect("enough");
        [inputs.receiver_load, inputs.sender_load].map(|load| load.value)
    };
    let near = |loads: [f64; 2], expected: [f64; 2]| {
        for (load, expected) in loads.into_iter().zip(expected) {
            assert!((load - expected).abs() < 1e-12, "{load} {expected}");
        }
    };
    let by_second = 16.2 / 7200.0;
    near(
        loads(Some(10.0), Some(12.0), Some(50.0)),
        [2.0 * by_second, 40.0 * by_second],
    );
    // Predictions that cost less than sending.
    near(
        loads(Some(10.0), Some(8.0), Some(50.0)),
        [-2.0 * by_second, 40.0 * by_second],
    );
    near(
        loads(None, None, Some(19.0)),
        [6.1 * by_second, 19.0 * by_second],
    );
    near(
        loads(None, Some(6.1), None),
        [6.1 * by_second, 19.0 * by_second],
    );
    near(loads(Some(6.1), Some(6.1), None), [0.0, 0.19]);
}

#[test]
fn a_server_does_not_do_more_than_it_can() {
    let given = Given {
        cpu_none: Some(100.0),
        cpu_sender: Some(100.0),
        ..given(Some(0.3))
    };
    let error = Inputs::resolve(&given, None).expect_err("157.5 GB × 100 s an hour");
    let error = error.to_string();
    assert!(error.contains("would need 4.4 cores"), "{error}");
}

#[test]
fn shares_are_given_measured_or_those_of_the_other_way() {
    let resolve = |given: &Given, predicted, matched| {
        let run = run(predicted, matched);
        let inputs = Inputs::resolve(given, Some(&run))?;
        anyhow::Ok(
            [inputs.shares.receiver_share, inputs.shares.sender_share].map(|share| share.value),
        )
    };
    let none = given(None);
    for (predicted, matched, shares) in [
        // Matching behind predictions is not matching alone: it may find all that both found.
        (5e8, 1e8, [0.5, 0.6]),
        (1e6, 5e8, [0.001, 0.501]),
        (5e8, -1e8, [0.5, 0.5]),
        (0.0, 1e8, [0.0, 0.1]),
    ] {
        let resolved = resolve(&none, predicted, matched).expect("enough");
        assert_eq!(resolved, shares, "{predicted:?} {matched:?}");
    }
    let error = Inputs::resolve(&none, None).expect_err("no share");
    assert!(error.to_string().contains("give --redundancy,"), "{error}");
    let both = Given {
        redundancy_sender: Some(0.8),
        ..given(Some(0.7))
    };
    let resolved = resolve(&both, 5e8, 1e8).expect("enough");
    assert_eq!(resolved, [0.7, 0.8]);
}

#[test]
fn both_have_a_column_where_both_did_something() {
    let resolve = |given: &Given, predicted, matched| {
        let run = run(predicted, matched);
        Inputs::resolve(given, Some(&run)).expect("enough")
    };
    let inputs = resolve(&given(None), 5e8, 1e8);
    let both = inputs.shares.both_share.expect("a column");
    assert!((both.value - 0.6).abs() < 1e-12);
    assert_eq!(inputs.shares.sender_share_least, Some(0.1));
    // Half of the bytes are left for the sender to hash.
    let load = inputs.both_load.expect("a column").value;
    assert!((load - (0.061 * 0.5 / 0.3 + 0.19 * 0.5)).abs() < 1e-12);
    for (predicted, matched) in [(0.0, 1e8), (5e8, 0.0), (5e8, -1e8)] {
        let inputs = resolve(&given(None), predicted, matched);
        assert_eq!(
            (inputs.shares.both_share, inputs.shares.sender_share_least),
            (None, None)
        );
    }
    let by_hand = Given {
        redundancy_sender: Some(0.2),
        redundancy_both: Some(0.7),
        cpu_both: Some(7.2),
        // 16.2 GB an hour; 2 cores have 7200 CPU seconds.
        server_output: Some(BitRate(36_000_000)),
        ..given(None)
    };
    let inputs = resolve(&by_hand, 5e8, 1e8);
    assert_eq!(inputs.shares.both_share.map(|it| it.value), Some(0.7));
    assert_eq!(inputs.shares.sender_share_least, None);
    let load = inputs.both_load.expect("a column").value;
    assert!((load - 0.0162).abs() < 1e-12, "{load}");
    let without_share = Given {
        cpu_both: Some(7.2),
        ..given(Some(0.3))
    };
    let error = Inputs::resolve(&without_share, None).expect_err("no share");
    assert!(
        error.to_string().contains("give --redundancy-both,"),
        "{error}"
    );
}

#[test]
fn both_together_save_no_less_than_one() {
    let with = |redundancy, redundancy_sender, redundancy_both| {
        let given = Given {
            redundancy_sender,
            redundancy_both: Some(redundancy_both),
            ..given(Some(redundancy))
        };
        Inputs::resolve(&given, None)
    };
    assert!(with(0.3, None, 0.3).is_ok());
    assert!(with(0.3, Some(0.4), 0.4).is_ok());
    for (sender, least) in [(None, "at least 30.0 %"), (Some(0.4), "at least 40.0 %")] {
        let error = with(0.3, sender, 0.2).expect_err("less than one");
        let error = error.to_string();
        assert!(error.contains(least), "{error}");
    }
}

#[test]
fn prices_are_given_or_unknown_but_not_all_zero() {
    let with = |price_gb, price_hour| {
        let given = Given {
            price_gb,
            price_hour,
            ..given(Some(0.3))
        };
        let inputs = Inputs::resolve(&given, None)?;
        anyhow::Ok((inputs.price_per_gb, inputs.price_per_hour))
    };
    assert_eq!(with(None, None).expect("enough"), (None, None));
    let (per_gb, per_hour) = with(Some(0.0), Some(1.5)).expect("enough");
    assert_eq!(per_gb, Some(Sourced::new(0.0, "--price-gb")));
    assert_eq!(per_hour, Some(Sourced::new(1.5, "--price-hour")));
    let error = with(Some(0.0), Some(0.0)).expect_err("free").to_string();
    assert!(error.contains("costs nothing"), "{error}");
}

/// Amounts of all sizes that can be given, none among them.
fn amount() -> impl Strategy<Value = Option<f64>> {
    prop::option::of((0.0..10.0f64, -6..6).prop_map(|(value, power)| value * 10f64.powi(power)))
}

/// Shares of all sizes, those included that nothing can be divided by.
fn share() -> impl Strategy<Value = Option<f64>> {
    let share = (0.0..=1.0f64, 0..400).prop_map(|(share, tiny)| share / 10f64.powi(tiny));
    prop::option::of(prop_oneof![0.0..=1.0f64, share])
}

proptest! {
    #[test]
    fn bills_are_amounts_whatever_is_given(
        traffic in 1u64..,
        shares in prop::array::uniform3(share()),
        cpu in prop::array::uniform4(amount()),
        output in prop::option::of(1u64..),
        cores in 1u32..8,
        price_gb in amount(),
        price_hour in amount(),
    ) {
        let [redundancy, redundancy_sender, redundancy_both] = shares;
        let [cpu_none, cpu_receiver, cpu_sender, cpu_both] = cpu;
        let given = Given {
            traffic: Some(ByteSize(traffic)),
            redundancy,
            redundancy_sender,
            redundancy_both,
            cpu_none,
            cpu_receiver,
            cpu_sender,
            cpu_both,
            server_output: output.map(BitRate),
            cores,
            price_gb,
            price_hour,
        };
        if let Ok(inputs) = Inputs::resolve(&given, None) {
            let ways = [Driven::NONE, inputs.receiver(), inputs.sender()];
            let ways = ways.into_iter().chain(inputs.both());
            for bill in ways.map(|driven| inputs.service().bill(driven)) {
                let amounts = [bill.total_cost, bill.total_of_none, bill.break_even_per_gb];
                let cpu_hours = bill.cpu_hours_per_saved_gb;
                for amount in amounts.into_iter().chain([cpu_hours]).flatten() {
                    prop_assert!(amount.is_finite() && amount >= 0.0, "{amount} of {inputs:?}");
                }
            }
        }
    }
}
