//! Plots of figures over named places, for the reports of the lab.
#![forbid(unsafe_code)]

use anyhow::anyhow;
use plotters::prelude::SVGBackend;
use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    coord::ranged1d::{IntoSegmentedCoord, SegmentValue},
    drawing::IntoDrawingArea,
    element::{Circle, PathElement},
    series::LineSeries,
    style::{BLACK, Color, RGBColor, WHITE},
};

const SIZE: (u32, u32) = (760, 440);

/// A line with more figures has no dots.
const DOTS_MAX: usize = 20;

/// More places have no names of their own.
const PLACE_NAMES_MAX: usize = 11;

/// Of what is shown, so that the names of lines do not lie on them.
const ROOM: f64 = 1.5;

/// Told apart by those who see fewer colours, too (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(85, 85, 85),
];

/// What stands around a plot.
pub struct Words<'a> {
    /// Above it.
    pub title: &'a str,
    /// What places are.
    pub across: &'a str,
    /// What figures are.
    pub up: &'a str,
}

/// Draws a line for each of `series`, as an SVG.
///
/// `places` are one or more, and each of the series has a figure for each of them: NaN where there is none.
///
/// ```
/// let words = refrain_plot::Words { title: "Saved", across: "redundancy", up: "%" };
/// let places = ["0 %".to_owned(), "50 %".to_owned()];
/// let svg = refrain_plot::lines(&words, &places, &[("zstd".to_owned(), vec![3.0, 41.0])])?;
/// assert!(svg.starts_with("<svg "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If plotters cannot draw it.
pub fn lines(
    words: &Words<'_>,
    places: &[String],
    series: &[(String, Vec<f64>)],
) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw(&mut svg, words, places, series).map_err(|error| anyhow!("{error}"))?;
    Ok(svg)
}

fn draw(
    svg: &mut String,
    words: &Words<'_>,
    places: &[String],
    series: &[(String, Vec<f64>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let highest = series
        .iter()
        .flat_map(|(_, figures)| figures.iter().copied())
        .fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption(words.title, ("sans-serif", 17))
        .margin(14)
        .x_label_area_size(42)
        .y_label_area_size(56)
        .build_cartesian_2d((0..places.len() - 1).into_segmented(), 0.0..highest * ROOM)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(places.len().min(PLACE_NAMES_MAX))
        .x_label_formatter(&|place| match place {
            SegmentValue::CenterOf(place) => places.get(*place).cloned().unwrap_or_default(),
            SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
        })
        .x_desc(words.across)
        .y_desc(words.up)
        .label_style(("sans-serif", 13))
        .draw()?;
    for (colour, (name, figures)) in COLOURS.iter().cycle().zip(series) {
        let points = || {
            let numbered = figures.iter().enumerate();
            let known = numbered.filter(|(_, figure)| figure.is_finite());
            known.map(|(place, &figure)| (SegmentValue::CenterOf(place), figure))
        };
        chart
            .draw_series(LineSeries::new(points(), colour.stroke_width(2)))?
            .label(name)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        if points().count() <= DOTS_MAX {
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 12))
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_all_its_words_and_a_point_for_each_figure() {
        let words = Words {
            title: "Speed",
            across: "size",
            up: "GB/s",
        };
        let places = ["1 KiB", "2 KiB"].map(ToOwned::to_owned);
        let series = [
            ("one".to_owned(), vec![1.0, 2.0]),
            ("other".to_owned(), vec![2.0, 1.5]),
        ];
        let svg = lines(&words, &places, &series).expect("a plot");
        for word in ["Speed", "size", "GB/s", "1 KiB", "2 KiB", "one", "other"] {
            assert!(svg.contains(word), "{word}");
        }
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.ends_with("</svg>\n"), "{}", &svg[svg.len() - 20..]);

        let alone = [("one".to_owned(), vec![1.0])];
        let svg = lines(&words, &places[..1], &alone).expect("a plot");
        assert_eq!(svg.matches("<circle").count(), 1);
    }

    #[test]
    fn what_is_not_known_is_not_drawn() {
        let words = Words {
            title: "<&>",
            across: "share",
            up: "cost",
        };
        let places: Vec<_> = (0..=100).map(|share| format!("{share} %")).collect();
        let mut dot = vec![f64::NAN; 101];
        dot[60] = 0.5;
        let series = [("all".to_owned(), vec![1.0; 101]), ("dot".to_owned(), dot)];
        let svg = lines(&words, &places, &series).expect("a plot");
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(svg.contains("&lt;&amp;&gt;") && !svg.contains("NaN"));
        assert!(svg.contains("50 %") && !svg.contains("53 %"));
    }
}
