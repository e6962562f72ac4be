//! The law of effort in virtual time, held to what it promises.

use refrain_sim::efforts::{Case, Comparison, Content};

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Compares all cases that `wanted` picks.
fn compare(wanted: impl Fn(&Case) -> bool) -> Vec<Comparison> {
    let compare = |case: Case| {
        let compared = case.compare();
        let Comparison {
            is_link_limited,
            imbalance,
            ratios: [first, again],
            rungs,
            ..
        } = compared;
        let limit = if is_link_limited { "link" } else { "processor" };
        println!(
            "{case}: {limit} limits, {imbalance:.1}; first {:.3} bytes {:.3} s, again {:.3} {:.3}, rungs {rungs:?}",
            first.0, first.1, again.0, again.1
        );
        compared
    };
    let compared: Vec<Comparison> = Case::all().filter(wanted).map(compare).collect();
    compared
}

/// Holds `auto` to what it promises.
fn assert_kept(compared: &[Comparison]) {
    for Comparison {
        case,
        is_link_limited,
        imbalance,
        ratios: [first, again],
        ..
    } in compared
    {
        // Near the balance of processor and link, all rungs around the best are about as good.
        let most = if *imbalance < 1.5 { 1.15 } else { 1.05 };
        // A thin link has carried a tenth of it before it is known to be thin.
        let first_most = if (1..10).contains(&case.mbit) {
            1.25
        } else {
            most
        };
        assert!(
            first.1 <= first_most,
            "{case}: {:.3} of the seconds at first",
            first.1
        );
        assert!(again.1 <= most, "{case}: {:.3} of the seconds", again.1);
        if *is_link_limited {
            assert!(
                first.0 <= first_most,
                "{case}: {:.3} of the bytes at first",
                first.0
            );
            assert!(again.0 <= most, "{case}: {:.3} of the bytes", again.0);
        }
    }
    let of_link = || compared.iter().filter(|of| of.is_link_limited);
    let again =
        |which: fn(&(f64, f64)) -> f64| median(of_link().map(|of| which(&of.ratios[1])).collect());
    assert!(
        again(|ratio| ratio.0) <= 1.02,
        "{:.3} of the bytes",
        again(|ratio| ratio.0)
    );
    assert!(
        again(|ratio| ratio.1) <= 1.02,
        "{:.3} of the seconds",
        again(|ratio| ratio.1)
    );
}

#[test]
fn auto_keeps_up_with_the_best_rung_on_thin_links() {
    assert_kept(&compare(|case| [5, 20].contains(&case.mbit)));
}

#[test]
fn auto_keeps_up_with_the_fastest_rung_where_the_processor_limits() {
    let compared =
        compare(|case| (case.mbit, case.delay_ms) == (1000, 0) && case.content == Content::Text);
    assert!(compared.iter().all(|of| !of.is_link_limited));
    for of in &compared {
        assert!(of.ratios.iter().all(|&(_, seconds)| seconds <= 1.05));
    }
}

#[test]
#[ignore = "minutes: all cases of the model"]
fn auto_keeps_up_with_the_best_rung() {
    assert_kept(&compare(|_| true));
}
