//! The paper's own figures, which are taken where nothing was measured: Table 3 of PACK (SIGCOMM 2011).
//! The tests compare the model with its totals. Its inputs are rounded, so the totals are compared with
//! an interval: all totals of inputs that round to those printed.

use super::model::{Driven, SHARE_MIN};

/// Section 5.3: what one server puts out at most.
pub(super) const SERVER_OUTPUT_BITS_PER_S: f64 = 350e6;

/// Table 3, "PACK": 30 % less traffic, 6.1 % more server-hours.
pub(crate) const RECEIVER: Driven = Driven {
    share: 0.30,
    load: 0.061,
};

/// Table 3, "Server-based": 32 % less traffic, 19.0 % more server-hours.
pub(crate) const SENDER: Driven = Driven {
    share: 0.32,
    load: 0.190,
};

/// Section 5.3: traffic to server-hours are 7 : 3 of the cost without elimination.
pub(crate) const TRAFFIC_SHARE: f64 = 0.7;

/// The load of a receiver-driven sender at `share`: Table 3's, in proportion.
pub(super) fn receiver_load(share: f64) -> f64 {
    RECEIVER.load * (share / RECEIVER.share)
}

/// How much more a sender-driven sender has to do than a receiver-driven one at `share`, by
/// Table 3; infinite where predictions find nothing.
pub(super) fn sender_to_receiver(share: f64) -> f64 {
    match share < SHARE_MIN {
        true => f64::INFINITY,
        false => SENDER.load / receiver_load(share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::model::{Service, gb_per_hour};

    /// Table 3, "No TRE": traffic volume.
    const TRAFFIC_GB: f64 = 9100.0;

    /// The share of traffic with which both printed totals come out of the printed inputs. 7 : 3 is
    /// rounded as well, it seems.
    const TRAFFIC_SHARE_THAT_FITS: f64 = 0.706;

    /// Table 3: total operational cost.
    const PRINTED_TOTALS: [f64; 2] = [0.806, 0.830];

    /// Half of the last printed digit, of shares of traffic and of loads.
    const SHARE_ROUNDING: f64 = 0.005;
    const LOAD_ROUNDING: f64 = 0.0005;

    /// A total beside the one that is printed, as shares of the cost without elimination.
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Agreement {
        /// By Table 3.
        printed: f64,
        /// From the printed inputs, at 7 : 3.
        computed: f64,
        /// The least that inputs give which round to those printed.
        least: f64,
        /// The most.
        most: f64,
        /// From the printed inputs, at 70.6 : 29.4.
        at_ratio_that_fits: f64,
    }

    /// The setting of Table 3; prices are such that all without elimination costs 100.
    fn papers(traffic_share: f64) -> Service {
        let server_hours = TRAFFIC_GB / gb_per_hour(SERVER_OUTPUT_BITS_PER_S);
        Service {
            traffic_gb: TRAFFIC_GB,
            server_hours,
            cores: 1,
            price_per_gb: Some(100.0 * traffic_share / TRAFFIC_GB),
            price_per_hour: Some(100.0 * (1.0 - traffic_share) / server_hours),
        }
    }

    /// The totals, receiver-driven and sender-driven, beside those printed.
    fn agreement() -> [Agreement; 2] {
        let totals = |traffic_share: f64, away: f64| {
            let moved = [RECEIVER, SENDER].map(|driven| Driven {
                share: driven.share - away * SHARE_ROUNDING,
                load: driven.load + away * LOAD_ROUNDING,
            });
            let of_none = |driven| papers(traffic_share).bill(driven).total_of_none;
            moved.map(|driven| of_none(driven).expect("prices are known"))
        };
        [0, 1].map(|column| Agreement {
            printed: PRINTED_TOTALS[column],
            computed: totals(TRAFFIC_SHARE, 0.0)[column],
            least: totals(TRAFFIC_SHARE, -1.0)[column],
            most: totals(TRAFFIC_SHARE, 1.0)[column],
            at_ratio_that_fits: totals(TRAFFIC_SHARE_THAT_FITS, 0.0)[column],
        })
    }

    fn tenths_of_percent(share: f64) -> f64 {
        (1000.0 * share).round()
    }

    #[test]
    fn the_printed_totals_follow_from_the_printed_inputs() {
        for (agreement, computed) in agreement().into_iter().zip([0.8083, 0.833]) {
            // 0.7 × 0.70 + 0.3 × 1.061, and 0.7 × 0.68 + 0.3 × 1.19.
            assert!((agreement.computed - computed).abs() < 1e-9);
            assert!(agreement.least < agreement.printed && agreement.printed < agreement.most);
            assert_eq!(
                tenths_of_percent(agreement.at_ratio_that_fits),
                tenths_of_percent(agreement.printed)
            );
        }
    }

    #[test]
    fn the_printed_volumes_follow_too() {
        let service = papers(TRAFFIC_SHARE);
        let none = service.bill(Driven::NONE);
        let tenths_of_tb = |driven| (service.bill(driven).traffic_gb / 100.0).round();
        assert_eq!(tenths_of_tb(Driven::NONE), 91.0);
        assert_eq!(tenths_of_tb(RECEIVER), 64.0);
        assert_eq!(tenths_of_tb(SENDER), 62.0);
        for (amount, expected) in [(none.total_cost, 100.0), (none.traffic_cost, 70.0)] {
            assert!((amount.expect("prices are known") - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn the_interval_is_that_of_the_rounding() {
        let [receiver, sender] = agreement();
        for (value, expected) in [
            (receiver.least, 0.7 * 0.695 + 0.3 * 1.0605),
            (receiver.most, 0.7 * 0.705 + 0.3 * 1.0615),
            (sender.least, 0.7 * 0.675 + 0.3 * 1.1895),
            (sender.most, 0.7 * 0.685 + 0.3 * 1.1905),
        ] {
            assert!((value - expected).abs() < 1e-9, "{value} {expected}");
        }
    }
}
