//! The plot of Figure 11: total cost by redundancy, receiver-driven and sender-driven, as an SVG.

use super::{
    inputs::Sourced,
    model::{Bill, CurvePoint},
    report::{Report, volume},
};
use crate::table::percent;

/// What costs more than three times as much needs no plot to say so.
const PERCENT_MAX: f64 = 300.0;

/// Draws the plot.
pub(super) fn svg(report: &Report) -> anyhow::Result<String> {
    let inputs = &report.inputs;
    let traffic = volume(inputs.traffic_gb.value);
    let title = format!("Cost of {traffic} per month by redundancy");
    let words = refrain_plot::Words {
        title: &title,
        across: "share of the traffic that is eliminated",
        up: "total cost, % of the cost without elimination",
    };
    let curve = &report.curve;
    let places = curve.iter().map(|point| percent_of(point.redundancy));
    let places: Vec<_> = places.collect();
    let line = |of_none: fn(&CurvePoint) -> f64| {
        let figures = curve
            .iter()
            .map(|point| (100.0 * of_none(point)).min(PERCENT_MAX));
        figures.collect::<Vec<_>>()
    };
    let entry = |name: &str, bill: &Bill, share: &Sourced<f64>| {
        let [total, share] = [bill.total_of_none, share.value].map(|part| percent(part, 1.0));
        format!("{name}: {total} at {share}")
    };
    let shares = &inputs.shares;
    let (receiver, sender) = (&report.receiver_driven, &report.sender_driven);
    let receiver = entry("receiver-driven", receiver, &shares.receiver_share);
    let sender = entry("sender-driven", sender, &shares.sender_share);
    let mut series = vec![
        (receiver, line(|point| point.receiver_driven)),
        (sender, line(|point| point.sender_driven)),
        ("no elimination".to_owned(), vec![100.0; curve.len()]),
    ];
    if let Some((both, share)) = report.both.zip(shares.both_share.as_ref()) {
        // A dot: its two shares are not one redundancy.
        let mut dot = vec![f64::NAN; curve.len()];
        let place = share.value * (curve.len() - 1) as f64;
        dot[place.round() as usize] = (100.0 * both.total_of_none).min(PERCENT_MAX);
        let entry = entry("both (auto)", &both, share);
        series.push((entry, dot));
    }
    refrain_plot::lines(&words, &places, &series)
}

fn percent_of(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}
