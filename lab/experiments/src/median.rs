//! Medians, and what pages call them.

/// The figure in the middle. Of an even number of figures, it is the mean of the two in the middle.
///
/// Panics without figures.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    let above = figures[middle];
    match figures.len() % 2 {
        0 => f64::midpoint(figures[middle - 1], above),
        _ => above,
    }
}

/// How pages name figures of that many runs.
pub(crate) fn medians_of(runs: usize) -> String {
    match runs {
        1 => "from a single run".to_owned(),
        _ => format!("medians of {runs} runs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_figure_in_the_middle() {
        assert_eq!(median([1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median([3.0]), 3.0);
    }

    #[test]
    fn of_an_even_number_it_lies_between_the_two_in_the_middle() {
        assert_eq!(median([1.0, 2.0]), 1.5);
        assert_eq!(median([1.0, 2.0, 4.0, 9.0]), 3.0);
    }

    #[test]
    fn figures_need_no_order() {
        assert_eq!(median([9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, -1.0, 2.0, 9.0]), 3.0);
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn no_figures_have_no_median() {
        median([]);
    }

    #[test]
    fn a_single_run_has_no_median() {
        assert_eq!(medians_of(1), "from a single run");
        assert_eq!(medians_of(3), "medians of 3 runs");
    }
}
