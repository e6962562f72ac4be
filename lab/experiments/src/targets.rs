//! The bounds that experiments check. No page has them: they go to standard error, and into `--json`.

use std::fmt;

use serde::Serialize;

/// One bound, and the figure that it is about.
#[derive(Serialize)]
pub(crate) struct Target {
    pub what: &'static str,
    pub asked: &'static str,
    /// `None` where it was not measured.
    pub measured: Option<Measured>,
}

/// The figure.
#[derive(Serialize)]
pub(crate) struct Measured {
    pub text: String,
    pub is_met: bool,
}

/// A report as `--json` prints it.
#[derive(Serialize)]
pub(crate) struct WithTargets<'a, R> {
    #[serde(flatten)]
    pub report: &'a R,
    pub targets: Vec<Target>,
}

pub(crate) fn at_most(value: f64, bound: f64, text: String) -> Measured {
    Measured {
        text,
        is_met: value <= bound,
    }
}

pub(crate) fn at_least(value: f64, bound: f64, text: String) -> Measured {
    Measured {
        text,
        is_met: value >= bound,
    }
}

/// How many of several figures are within their bounds: all are to be.
pub(crate) fn all_of(met: usize, all: usize) -> Measured {
    Measured {
        text: format!("{met} of {all}"),
        is_met: met == all,
    }
}

/// Prints a line for each target to standard error.
pub(crate) fn print(targets: &[Target]) {
    for target in targets {
        eprintln!("{target}");
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            asked,
            measured,
        } = self;
        match measured {
            Some(Measured { text, is_met }) => {
                let verdict = if *is_met { "met" } else { "missed" };
                write!(f, "target {verdict}: {what}: {text} (asked: {asked})")
            }
            None => write!(f, "target not measured: {what} (asked: {asked})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_verdict_and_both_figures() {
        let line = |measured| {
            let target = Target {
                what: "speed",
                asked: "2 GB/s at least",
                measured,
            };
            target.to_string()
        };
        let measured = |speed: f64| Some(at_least(speed, 2.0, format!("{speed:.1} GB/s")));
        assert_eq!(
            line(measured(2.0)),
            "target met: speed: 2.0 GB/s (asked: 2 GB/s at least)"
        );
        assert_eq!(
            line(measured(1.9)),
            "target missed: speed: 1.9 GB/s (asked: 2 GB/s at least)"
        );
        assert_eq!(
            line(None),
            "target not measured: speed (asked: 2 GB/s at least)"
        );
    }
}
