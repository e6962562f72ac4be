//! The law of effort in virtual time, held to what it promises.

use refrain_sim::efforts::{Case, Comparison, Content};

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Compares all cases that `wanted` picks.
fn compare(wanted: impl Fn(&Case) -> bool) -> Vec<Comparison> {
    let compared: Vec<Comparison> = Case::all().filter(wanted).map(Case::compare).collect();
    for Comparison {
        case,
        is_link_limited,
        imbalance,
        ratios: [first, again],
        rungs,
    } in &compared
    {
        let limit = if *is_link_limited {
            "link"
        } else {
            "processor"
        };
        println!(
            "{case}: {limit} limits, {imbalance:.1}; first {:.3} bytes {:.3} s, again {:.3} {:.3}, rungs {rungs:?}",
            first.0, first.1, again.0, again.1
        );
    }
    compared
}

#[test]
fn where_the_link_limits_auto_is_as_good_as_max() {
    let compared = compare(|case| [5, 20].contains(&case.mbit) && case.content != Content::Noise);
    let again: Vec<(f64, f64)> = compared.iter().map(|case| case.ratios[1]).collect();
    assert!(median(again.iter().map(|ratio| ratio.0).collect()) <= 1.02);
    assert!(median(again.iter().map(|ratio| ratio.1).collect()) <= 1.02);
}

/// All cases of the model. It takes minutes.
#[test]
#[ignore = "minutes: refrain-experiments effort makes the same table"]
fn all_cases_of_the_model() {
    let compared = compare(|_| true);
    for (limit, of) in [("link", true), ("processor", false)] {
        let of: Vec<&Comparison> = compared
            .iter()
            .filter(|case| case.is_link_limited == of)
            .collect();
        for which in [0, 1] {
            let bytes = median(of.iter().map(|case| case.ratios[which].0).collect());
            let seconds = median(of.iter().map(|case| case.ratios[which].1).collect());
            println!(
                "{limit} limits, {} cases, {which}: medians {bytes:.3} bytes, {seconds:.3} s",
                of.len()
            );
        }
    }
}
