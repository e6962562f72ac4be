//! Cells of tables.

use std::time::Duration;

/// Seconds, three digits of them.
pub(super) fn seconds(seconds: f64) -> String {
    let digits = match seconds {
        s if s < 10.0 => 3,
        s if s < 100.0 => 2,
        _ => 1,
    };
    format!("{seconds:.digits$}")
}

pub(super) fn ms(seconds: f64) -> String {
    format!("{:.0}", seconds * 1e3)
}

/// The value below which a share of the sorted figures lies.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted[at.clamp(1, sorted.len()) - 1]
}

/// How long links rest between transfers: longer than a retransmission time-out, after which some congestion controls
/// begin slowly again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_figures_that_were_measured() {
        let sorted: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(quantile(&sorted, 0.99), 990.0);
        assert_eq!(quantile(&sorted, 0.5), 500.0);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
    }
}
