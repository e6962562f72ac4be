//! A plot of lines over named places, as an SVG that takes its colors from the page.
//!
//! The lab's plots are made by plotters, whose colors and fonts are fixed. They cannot follow the reader's light or dark
//! theme.

use std::fmt::Write;

use super::escape::escaped;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 62.0;

/// Colors in the page's style.
const COLORS: usize = 7;

/// Between the names of two lines at least.
const NAME_HEIGHT: f64 = 16.0;

/// A line: a value for each place.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

/// Draws them.
pub(super) fn lines(
    title: &str,
    unit: &str,
    across: &str,
    places: &[String],
    series: &[Series],
) -> String {
    let most = series
        .iter()
        .flat_map(|series| &series.values)
        .copied()
        .fold(1.0, f64::max);
    // 1, 2, 5, 10, 20 and so on: the first with which five lines are enough.
    let power = 10_f64.powf((most / 5.0).log10().floor()).max(1.0);
    let steps = [1.0, 2.0, 5.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| step * 5.0 >= most);
    let step = step.unwrap_or(10.0 * power);
    let top = (most / step).ceil() * step;
    let x =
        |nth: usize| LEFT + (WIDTH - LEFT - RIGHT) * nth as f64 / (places.len().max(2) - 1) as f64;
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value.max(0.0) / top;
    let ends = series.iter().map(|series| {
        let last = series.values.last().copied().unwrap_or_default();
        format!("{} {last:.1} {unit}", series.name)
    });
    let label = format!(
        "{title}. At the right end: {}",
        ends.collect::<Vec<_>>().join(", ")
    );
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(&label)
    );
    let mut value = 0.0;
    while value <= top {
        let at = y(value);
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
        value += step;
    }
    // Every second place has space for its name.
    let every = places.len().div_ceil(8).max(1);
    for (nth, place) in places.iter().enumerate().step_by(every) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(nth),
            HEIGHT - BOTTOM + 20.0,
            escaped(place)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 12.0,
        escaped(across)
    );
    for (nth, line) in series.iter().enumerate() {
        let points = line
            .values
            .iter()
            .enumerate()
            .map(|(at, value)| format!("{:.1},{:.1}", x(at), y(*value)));
        let points: Vec<String> = points.collect();
        // Dashes for readers who see fewer colors.
        let dash = if nth == 0 {
            "none".to_owned()
        } else {
            format!("{} {}", 2 + 3 * nth, 2 + nth % 3)
        };
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" stroke=\"var(--c{})\" stroke-dasharray=\"{dash}\"/>",
            points.join(" "),
            nth % COLORS
        );
    }
    // Names at the ends of lines, from the top down, moved apart.
    let mut names: Vec<(usize, f64)> = series
        .iter()
        .enumerate()
        .map(|(nth, line)| (nth, y(line.values.last().copied().unwrap_or_default())))
        .collect();
    names.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut lowest = HEIGHT - BOTTOM;
    for (_, at) in names.iter_mut().rev() {
        *at = at.min(lowest);
        lowest = *at - NAME_HEIGHT;
    }
    let mut highest = f64::MIN;
    for (_, at) in &mut names {
        *at = at.max(highest);
        highest = *at + NAME_HEIGHT;
    }
    for (nth, at) in names {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" style=\"fill:var(--c{})\">{}</text>",
            WIDTH - RIGHT + 8.0,
            at + 4.0,
            nth % COLORS,
            escaped(&series[nth].name)
        );
    }
    svg + "</svg>"
}
