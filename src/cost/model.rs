//! The cost model: what serving a month's traffic costs with no elimination, receiver-driven
//! and sender-driven (PACK, section 5.3 and Table 3), with both together where that is known, and how
//! that changes with the redundancy (section 6.1 and Figure 11).
//!
//! In go volume, prices and measured shares; out come the bills and a curve. No I/O, no clock.
//! The formulas with their reasons stand in `docs/cost.md`.
//!
//! ```text
//! traffic cost = tiers(traffic × (1 − share))
//! server-hours = traffic / what a server puts out in an hour × (1 + load)
//! total        = traffic cost + server-hours × price of one
//! ```

use serde::Serialize;

use super::tiers::Tiers;

/// Below this share there is nothing to scale a load by.
const SHARE_MIN: f64 = 1e-6;

/// Points of a curve: 0, 1, … 100 %.
const CURVE_STEPS: u32 = 100;

/// A service, its prices, and what elimination does to it.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Application bytes that leave it in a month, as GB.
    pub traffic_gb: f64,
    /// What they cost.
    pub egress: Tiers,
    /// Price of a server for an hour.
    pub server_hour_price: f64,
    /// What a server puts out in an hour, on average, as GB; above 0.
    pub server_gb_per_hour: f64,
    /// Elimination by predictions of the receivers.
    pub receiver: Driven,
    /// Elimination by the sender.
    pub sender: Driven,
    /// By predictions first, and by the sender in what they leave, where that is known.
    pub both: Option<Driven>,
}

/// What one way of elimination saves, and what it asks of the servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Driven {
    /// Share of the traffic that it keeps off the wire, 0 to 1.
    pub share: f64,
    /// Server-hours that it adds, as a share of those without it; not below −1.
    pub load: f64,
}

/// A month's bill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bill {
    /// What leaves, as GB.
    pub traffic_gb: f64,
    /// What that costs.
    pub traffic_cost: f64,
    /// Servers, times the hours that they run.
    pub server_hours: f64,
    /// What these cost.
    pub server_cost: f64,
}

/// The three columns of Table 3, and one that the paper does not have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// No elimination.
    pub none: Bill,
    /// PACK.
    pub receiver: Bill,
    /// After EndRE.
    pub sender: Bill,
    /// The one, then the other.
    pub both: Option<Bill>,
}

/// Total costs at one redundancy, as shares of the total without elimination.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// The share that both ways eliminate, 0 to 1.
    pub redundancy: f64,
    /// Receiver-driven.
    pub receiver_driven: f64,
    /// Sender-driven.
    pub sender_driven: f64,
}

impl Scenario {
    /// The bills.
    pub fn compare(&self) -> Comparison {
        Comparison {
            none: self.bill(Driven::NONE),
            receiver: self.bill(self.receiver),
            sender: self.bill(self.sender),
            both: self.both.map(|both| self.bill(both)),
        }
    }

    /// Total costs at 0 to 100 % of redundancy, as in Figure 11.
    ///
    /// A sender that predicts nothing hashes all that leaves, so its load stays what it is;
    /// one that checks predictions hashes what is confirmed, so its load grows with that
    /// (section 5.2.1, Figure 7b).
    pub fn curve(&self) -> Vec<CurvePoint> {
        let none = self.bill(Driven::NONE).total();
        let points = (0..=CURVE_STEPS).map(|step| {
            let share = f64::from(step) / f64::from(CURVE_STEPS);
            let load = self.sender.load;
            CurvePoint {
                redundancy: share,
                receiver_driven: self.bill(self.receiver.scaled_to(share)).total() / none,
                sender_driven: self.bill(Driven { share, load }).total() / none,
            }
        });
        points.collect()
    }

    fn bill(&self, driven: Driven) -> Bill {
        let traffic_gb = self.traffic_gb * (1.0 - driven.share);
        let server_hours = self.traffic_gb / self.server_gb_per_hour * (1.0 + driven.load);
        Bill {
            traffic_gb,
            traffic_cost: self.egress.cost(traffic_gb),
            server_hours,
            server_cost: server_hours * self.server_hour_price,
        }
    }
}

impl Driven {
    const NONE: Self = Self {
        share: 0.0,
        load: 0.0,
    };

    /// The same at another share, the load in proportion, but never less work than none. A load
    /// that was measured where nothing was eliminated stays as it is.
    pub fn scaled_to(self, share: f64) -> Self {
        let load = match self.share < SHARE_MIN {
            true => self.load,
            false => (self.load * (share / self.share)).max(-1.0),
        };
        Self { share, load }
    }
}

impl Bill {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.traffic_cost + self.server_cost
    }
}

/// The load of CPU seconds more a GB on servers of `cores` that put out `gb_per_hour`: of each
/// hour's `cores` × 3600 CPU seconds it takes so large a share.
pub fn load_of_cpu(more_s_per_gb: f64, gb_per_hour: f64, cores: f64) -> f64 {
    more_s_per_gb * gb_per_hour / (3600.0 * cores)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cost::tiers;

    fn scenario() -> Scenario {
        let pairs = [(1.0, 0.10), (f64::INFINITY, 0.05)];
        Scenario {
            traffic_gb: 3000.0,
            egress: Tiers::new(&pairs).expect("tiers"),
            server_hour_price: 0.5,
            server_gb_per_hour: 30.0,
            receiver: Driven {
                share: 0.5,
                load: 0.1,
            },
            sender: Driven {
                share: 0.8,
                load: 0.4,
            },
            both: Some(Driven {
                share: 0.9,
                load: 0.3,
            }),
        }
    }

    #[test]
    fn bills_are_what_they_are_by_hand() {
        let Comparison {
            none,
            receiver,
            sender,
            both,
        } = scenario().compare();
        for (bill, expected) in [
            // 100 + 2000 × 0.05; 3000 / 30
            (none, [3000.0, 200.0, 100.0, 50.0]),
            // 100 + 500 × 0.05: half of the traffic, and not half of its cost
            (receiver, [1500.0, 125.0, 110.0, 55.0]),
            // 600 × 0.1
            (sender, [600.0, 60.0, 140.0, 70.0]),
            (both.expect("a column"), [300.0, 30.0, 130.0, 65.0]),
        ] {
            let bill = [
                bill.traffic_gb,
                bill.traffic_cost,
                bill.server_hours,
                bill.server_cost,
            ];
            for (value, expected) in bill.into_iter().zip(expected) {
                assert!((value - expected).abs() < 1e-9, "{bill:?}");
            }
        }
    }

    #[test]
    fn the_curve_has_what_each_way_hashes() {
        let curve = scenario().curve();
        assert_eq!(curve.len(), 101);
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}");
        // Without redundancy predictions cost nothing, and a sender hashes all the same.
        near(curve[0].receiver_driven, 1.0);
        near(curve[0].sender_driven, (200.0 + 70.0) / 250.0);
        near(curve[50].receiver_driven, (125.0 + 55.0) / 250.0);
        near(curve[80].sender_driven, (60.0 + 70.0) / 250.0);
        near(curve[100].receiver_driven, 60.0 / 250.0);
    }

    #[test]
    fn cpu_seconds_are_a_share_of_the_servers() {
        // 36 s a GB, 10 GB in an hour: 360 of 2 × 3600 CPU seconds.
        assert!((load_of_cpu(36.0, 10.0, 2.0) - 0.05).abs() < 1e-12);
        assert!((load_of_cpu(-36.0, 10.0, 1.0) + 0.1).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn a_bill_grows_with_traffic_and_load_and_falls_with_the_share(
            tiers in tiers::tests::any_tiers(),
            traffic_gb in 1.0..1e6f64,
            more in 1.0..2.0f64,
            share in 0.0..1.0f64,
            load in -1.0..1.0f64,
        ) {
            let with = |traffic_gb, share, load| {
                let scenario = Scenario { traffic_gb, egress: tiers.clone(), ..scenario() };
                scenario.bill(Driven { share, load }).total()
            };
            let total = with(traffic_gb, share, load);
            prop_assert!(total.is_finite() && total >= 0.0);
            prop_assert!(with(traffic_gb * more, share, load) >= total);
            prop_assert!(with(traffic_gb, share, load * more) >= total || load < 0.0);
            prop_assert!(with(traffic_gb, share / more, load) >= total);
        }

        #[test]
        fn curves_are_finite(share in 0.0..=1.0f64, tiny in 0u32..400, load in -1.0..1e6f64) {
            let share = share / 10f64.powi(tiny as i32);
            let receiver = Driven { share, load };
            let curve = Scenario { receiver, ..scenario() }.curve();
            let totals = curve.iter().map(|point| point.receiver_driven);
            prop_assert!(totals.into_iter().all(|total| total.is_finite() && total >= 0.0));
        }
    }
}
