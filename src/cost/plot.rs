//! The plot of Figure 11: total cost by redundancy, receiver-driven and sender-driven, as an
//! SVG.
//!
//! Written by hand: three lines on fixed axes are shorter than what a plotting library would have
//! to be told.

use std::fmt::{self, Display, Write};

use super::{
    model::CurvePoint,
    report::{Report, volume},
};
use crate::table::percent;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 500.0;
/// Of the area between the axes.
const LEFT: f64 = 78.0;
const RIGHT: f64 = 730.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 430.0;

/// Axes end at a multiple of this, as percent of the cost without elimination.
const GRID_PERCENT: f64 = 20.0;
const PERCENT_MIN: f64 = 120.0;
/// What costs more than three times as much needs no plot to say so.
const PERCENT_MAX: f64 = 300.0;

/// How a line is drawn. A broad one below a narrow one shows where two are equal.
struct Pen {
    colour: &'static str,
    width: f64,
    dashes: &'static str,
}

const NONE: Pen = Pen {
    colour: "#555555",
    width: 2.0,
    dashes: "6 4",
};
const SENDER: Pen = Pen {
    colour: "#d55e00",
    width: 5.0,
    dashes: "none",
};
const RECEIVER: Pen = Pen {
    colour: "#0072b2",
    width: 2.0,
    dashes: "none",
};

/// A dot alone: its two shares are not one redundancy.
const BOTH: Pen = Pen {
    colour: "#009e73",
    width: 3.0,
    dashes: "none",
};

/// Draws the plot.
pub fn svg(report: &Report) -> String {
    let mut svg = String::new();
    draw(report, &mut svg).expect("strings grow");
    svg
}

fn draw(report: &Report, svg: &mut String) -> fmt::Result {
    let plot = Plot::new(&report.curve);
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <clipPath id=\"area\"><rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\"/></clipPath>",
        RIGHT - LEFT,
        BOTTOM - TOP,
    )?;
    let title = "Cost of traffic and servers by redundancy";
    text(svg, LEFT, 28.0, "start", 16, title)?;
    let inputs = &report.inputs;
    let traffic = volume(inputs.traffic_gb.value);
    let note = format!("{traffic} a month; {}", inputs.egress.from);
    text(svg, LEFT, 50.0, "start", 13, note)?;
    plot.grid(svg)?;
    plot.line(svg, &NONE, |_| 1.0)?;
    plot.line(svg, &SENDER, |point| point.sender_driven)?;
    plot.line(svg, &RECEIVER, |point| point.receiver_driven)?;
    let (receiver, sender) = (inputs.receiver_share.value, inputs.sender_share.value);
    let totals = [&report.receiver_driven, &report.sender_driven].map(|it| it.total_of_none);
    plot.dot(svg, &SENDER, sender, totals[1])?;
    plot.dot(svg, &RECEIVER, receiver, totals[0])?;
    legend(svg, 0, &NONE, "no elimination")?;
    let entry = |name: &str, total, share| {
        format!("{name}: {} at {}", percent(total, 1.0), percent(share, 1.0))
    };
    legend(
        svg,
        1,
        &RECEIVER,
        entry("receiver-driven", totals[0], receiver),
    )?;
    legend(svg, 2, &SENDER, entry("sender-driven", totals[1], sender))?;
    if let Some((column, share)) = report.both.zip(inputs.both_share.as_ref()) {
        plot.dot(svg, &BOTH, share.value, column.total_of_none)?;
        let entry = entry("both (auto)", column.total_of_none, share.value);
        legend(svg, -1, &BOTH, entry)?;
    }
    writeln!(svg, "</svg>")
}

/// Where values lie on the paper.
struct Plot<'a> {
    curve: &'a [CurvePoint],
    percent_max: f64,
}

impl<'a> Plot<'a> {
    fn new(curve: &'a [CurvePoint]) -> Self {
        let values = curve
            .iter()
            .flat_map(|point| [point.receiver_driven, point.sender_driven]);
        let most = 100.0 * values.fold(0.0, f64::max);
        let percent_max = (most / GRID_PERCENT).ceil() * GRID_PERCENT;
        Self {
            curve,
            percent_max: percent_max.clamp(PERCENT_MIN, PERCENT_MAX),
        }
    }

    fn x(&self, redundancy: f64) -> f64 {
        LEFT + redundancy * (RIGHT - LEFT)
    }

    /// What is above the paper stays just above it, where nothing is drawn.
    fn y(&self, of_none: f64) -> f64 {
        let of_axis = (100.0 * of_none / self.percent_max).min(2.0);
        BOTTOM - of_axis * (BOTTOM - TOP)
    }

    fn grid(&self, svg: &mut String) -> fmt::Result {
        let steps = |most: f64| {
            (0..=(most / GRID_PERCENT) as u32).map(|step| f64::from(step) * GRID_PERCENT)
        };
        for tick in steps(self.percent_max) {
            let y = self.y(tick / 100.0);
            rule(svg, [LEFT, y, RIGHT, y])?;
            text(svg, LEFT - 8.0, y + 4.0, "end", 13, format!("{tick} %"))?;
        }
        for tick in steps(100.0) {
            let x = self.x(tick / 100.0);
            rule(svg, [x, TOP, x, BOTTOM])?;
            text(svg, x, BOTTOM + 20.0, "middle", 13, format!("{tick} %"))?;
        }
        let (middle, height) = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
        text(
            svg,
            middle,
            BOTTOM + 48.0,
            "middle",
            13,
            "share of the traffic that is eliminated",
        )?;
        writeln!(
            svg,
            "<text transform=\"translate(18 {height}) rotate(-90)\" text-anchor=\"middle\">\
             total cost, of that without elimination</text>"
        )
    }

    fn line(
        &self,
        svg: &mut String,
        pen: &Pen,
        of_none: impl Fn(&CurvePoint) -> f64,
    ) -> fmt::Result {
        write!(
            svg,
            "<polyline fill=\"none\" clip-path=\"url(#area)\" {} points=\"",
            pen.stroke()
        )?;
        for point in self.curve {
            let (x, y) = (self.x(point.redundancy), self.y(of_none(point)));
            write!(svg, "{x:.1},{y:.1} ")?;
        }
        writeln!(svg, "\"/>")
    }

    fn dot(&self, svg: &mut String, pen: &Pen, redundancy: f64, of_none: f64) -> fmt::Result {
        let (x, y, radius) = (self.x(redundancy), self.y(of_none), 3.0 + pen.width);
        writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{}\" clip-path=\"url(#area)\"/>",
            pen.colour
        )
    }
}

impl Pen {
    fn stroke(&self) -> String {
        let Pen {
            colour,
            width,
            dashes,
        } = self;
        format!("stroke=\"{colour}\" stroke-width=\"{width}\" stroke-dasharray=\"{dashes}\"")
    }
}

fn rule(svg: &mut String, [x1, y1, x2, y2]: [f64; 4]) -> fmt::Result {
    writeln!(
        svg,
        "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#dddddd\"/>"
    )
}

/// In the lower left, which cost leaves empty: where little is redundant it is near 100 %.
fn legend(svg: &mut String, row: i32, pen: &Pen, words: impl Display) -> fmt::Result {
    let (x, y) = (LEFT + 16.0, BOTTOM - 70.0 + 24.0 * f64::from(row));
    writeln!(svg, "<path d=\"M{x} {y}h26\" {}/>", pen.stroke())?;
    text(svg, x + 34.0, y + 4.0, "start", 13, words)
}

fn text(
    svg: &mut String,
    x: f64,
    y: f64,
    anchor: &str,
    size: u32,
    words: impl Display,
) -> fmt::Result {
    writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{words}</text>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::model::CurvePoint;

    /// The points of a polyline in a colour.
    fn points(svg: &str, pen: &Pen) -> Vec<(f64, f64)> {
        let stroke = format!("stroke=\"{}\"", pen.colour);
        let is_it = |line: &&str| line.starts_with("<polyline") && line.contains(&stroke);
        let line = svg.lines().find(is_it).expect("a line");
        let (_, points) = line.split_once("points=\"").expect("points");
        let points = points.split_once(" \"").expect("an end").0.split(' ');
        let number = |text: &str| text.parse::<f64>().expect("a number");
        points
            .map(|point| point.split_once(',').expect("two"))
            .map(|(x, y)| (number(x), number(y)))
            .collect()
    }

    #[test]
    fn lines_lie_where_the_axes_say() {
        let svg = svg(&Report::of_paper());
        // 360 points of paper for 120 %.
        let sender = points(&svg, &SENDER);
        assert_eq!(sender[0], (LEFT, 112.9), "105.7 %");
        assert_eq!(*sender.last().expect("an end"), (RIGHT, 322.9), "35.7 %");
        assert_eq!(points(&svg, &RECEIVER)[0], (LEFT, 130.0), "100 %");
        assert!(points(&svg, &NONE).iter().all(|point| point.1 == 130.0));
        for part in [
            "receiver-driven: 80.8 % at 30.0 %",
            "sender-driven: 83.3 % at 32.0 %",
        ] {
            assert!(svg.contains(part), "{part}");
        }
    }

    #[test]
    fn what_costs_a_million_times_as_much_ends_above_the_paper() {
        let mut report = Report::of_paper();
        report.curve = vec![CurvePoint {
            redundancy: 0.5,
            receiver_driven: 1e300,
            sender_driven: 0.0,
        }];
        let svg = svg(&report);
        let [(_, y)] = points(&svg, &RECEIVER)[..] else {
            panic!("one point")
        };
        assert!((-HEIGHT..TOP).contains(&y), "{y}");
        assert!(svg.contains(">300 %<") && !svg.contains(">320 %<"));
    }
}
