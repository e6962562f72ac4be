//! The cost model: what serving a month's traffic costs with no elimination, receiver-driven
//! and sender-driven (PACK, section 5.3 and Table 3), with both together where that is known, and how
//! that changes with the redundancy (section 6.1 and Figure 11).
//!
//! Volume, prices and measured shares enter; bills and a curve leave. No I/O, no clock.
//! The formulas with their reasons stand in `docs/cost.md`.
//!
//! ```text
//! traffic cost = traffic × (1 − share) × price of a GB
//! server-hours = traffic / what a server puts out in an hour × (1 + load)
//! total        = traffic cost + server-hours × price of one
//! ```

use serde::Serialize;

/// Below this share there is nothing to scale a load by.
pub(super) const SHARE_MIN: f64 = 1e-6;

/// Points of a curve: 0, 1, … 100 %.
const CURVE_STEPS: u32 = 100;

/// A month of a service without elimination.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Service {
    /// What leaves, as GB.
    pub traffic_gb: f64,
    /// Price of a GB.
    pub price_per_gb: f64,
    /// Servers, times the hours that they run.
    pub server_hours: f64,
    /// Price of a server for an hour.
    pub price_per_hour: f64,
}

/// What one way of elimination saves, and what it asks of the servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Driven {
    /// Share of the traffic that it keeps off the wire, 0 to 1.
    pub share: f64,
    /// Server-hours that it adds, as a share of those without it; not below −1.
    pub load: f64,
}

/// A month's bill: a column of Table 3 and of the ledger. Shares are of what there is without
/// elimination, and `null` where that is nothing; the total never is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Bill {
    /// What leaves, as GB.
    pub traffic_gb: f64,
    pub traffic_cost: f64,
    pub traffic_cost_reduction: Option<f64>,
    /// Servers, times the hours that they run.
    pub server_hours: f64,
    pub server_cost: f64,
    pub server_hours_increase: Option<f64>,
    pub total_cost: f64,
    pub total_of_none: f64,
    pub saved_on_traffic: f64,
    pub spent_on_servers: f64,
    pub left: f64,
}

/// Total costs at one redundancy, as shares of the total without elimination.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct CurvePoint {
    /// The share that both ways eliminate, 0 to 1.
    pub redundancy: f64,
    /// Receiver-driven.
    pub receiver_driven: f64,
    /// Sender-driven.
    pub sender_driven: f64,
}

impl Service {
    /// Total costs at 0 to 100 % of redundancy, as in Figure 11.
    ///
    /// A sender that predicts nothing hashes all that leaves, so its load stays what it is;
    /// one that checks predictions hashes what is confirmed, so its load grows with that
    /// (section 5.2.1, Figure 7b).
    pub(super) fn curve(&self, receiver: Driven, sender: Driven) -> Vec<CurvePoint> {
        let points = (0..=CURVE_STEPS).map(|step| {
            let share = f64::from(step) / f64::from(CURVE_STEPS);
            let load = sender.load;
            CurvePoint {
                redundancy: share,
                receiver_driven: self.bill(receiver.scaled_to(share)).total_of_none,
                sender_driven: self.bill(Driven { share, load }).total_of_none,
            }
        });
        points.collect()
    }

    /// The bill with such elimination.
    pub(super) fn bill(&self, driven: Driven) -> Bill {
        let traffic_cost_of_none = self.traffic_gb * self.price_per_gb;
        let server_cost_of_none = self.server_hours * self.price_per_hour;
        let traffic_gb = self.traffic_gb * (1.0 - driven.share);
        let traffic_cost = traffic_gb * self.price_per_gb;
        let server_hours = self.server_hours * (1.0 + driven.load);
        let server_cost = server_hours * self.price_per_hour;
        let of = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let saved_on_traffic = traffic_cost_of_none - traffic_cost;
        let spent_on_servers = server_cost - server_cost_of_none;
        let total_cost = traffic_cost + server_cost;
        Bill {
            traffic_gb,
            traffic_cost,
            traffic_cost_reduction: of(saved_on_traffic, traffic_cost_of_none),
            server_hours,
            server_cost,
            server_hours_increase: of(server_hours - self.server_hours, self.server_hours),
            total_cost,
            total_of_none: total_cost / (traffic_cost_of_none + server_cost_of_none),
            saved_on_traffic,
            spent_on_servers,
            left: saved_on_traffic - spent_on_servers,
        }
    }
}

impl Driven {
    /// No elimination.
    pub(super) const NONE: Self = Self {
        share: 0.0,
        load: 0.0,
    };

    /// The same at another share, the load in proportion, but never less work than none. A load
    /// that was measured where nothing was eliminated stays as it is.
    pub(super) fn scaled_to(self, share: f64) -> Self {
        let load = match self.share < SHARE_MIN {
            true => self.load,
            false => (self.load * (share / self.share)).max(-1.0),
        };
        Self { share, load }
    }
}

/// GB that a rate amounts to in an hour.
pub(super) fn gb_per_hour(bits_per_s: f64) -> f64 {
    bits_per_s / 8.0 * 3600.0 / 1e9
}

/// The load of CPU seconds more per GB on servers of `cores` that put out `gb_per_hour`: of each
/// hour's `cores` × 3600 CPU seconds it takes so large a share.
pub(super) fn load_of_cpu(more_s_per_gb: f64, gb_per_hour: f64, cores: f64) -> f64 {
    more_s_per_gb * gb_per_hour / (3600.0 * cores)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SERVICE: Service = Service {
        traffic_gb: 3000.0,
        price_per_gb: 0.05,
        server_hours: 100.0,
        price_per_hour: 0.5,
    };

    const RECEIVER: Driven = Driven {
        share: 0.5,
        load: 0.1,
    };

    const SENDER: Driven = Driven {
        share: 0.8,
        load: 0.4,
    };

    #[test]
    fn bills_are_what_they_are_by_hand() {
        for (driven, expected) in [
            (Driven::NONE, [3000.0, 150.0, 100.0, 50.0]),
            (RECEIVER, [1500.0, 75.0, 110.0, 55.0]),
            (SENDER, [600.0, 30.0, 140.0, 70.0]),
        ] {
            let bill = SERVICE.bill(driven);
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
        let curve = SERVICE.curve(RECEIVER, SENDER);
        assert_eq!(curve.len(), 101);
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}");
        // Without redundancy predictions cost nothing, and a sender hashes all the same.
        near(curve[0].receiver_driven, 1.0);
        near(curve[0].sender_driven, (150.0 + 70.0) / 200.0);
        near(curve[50].receiver_driven, (75.0 + 55.0) / 200.0);
        near(curve[80].sender_driven, (30.0 + 70.0) / 200.0);
        near(curve[100].receiver_driven, 60.0 / 200.0);
    }

    #[test]
    fn cpu_seconds_are_a_share_of_the_servers() {
        // 36 s per GB, 10 GB in an hour: 360 of 2 × 3600 CPU seconds.
        assert!((load_of_cpu(36.0, 10.0, 2.0) - 0.05).abs() < 1e-12);
        assert!((load_of_cpu(-36.0, 10.0, 1.0) + 0.1).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn a_bill_grows_with_traffic_and_load_and_falls_with_the_share(
            price_per_gb in 0.0..10.0f64,
            traffic_gb in 1.0..1e6f64,
            more in 1.0..2.0f64,
            share in 0.0..1.0f64,
            load in -1.0..1.0f64,
        ) {
            let with = |traffic_gb, share, load| {
                let server_hours = traffic_gb / 30.0;
                let service = Service { traffic_gb, price_per_gb, server_hours, price_per_hour: 0.5 };
                service.bill(Driven { share, load }).total_cost
            };
            let total = with(traffic_gb, share, load);
            prop_assert!(total.is_finite() && total >= 0.0);
            prop_assert!(with(traffic_gb * more, share, load) >= total);
            prop_assert!(with(traffic_gb, share, load * more) >= total || load < 0.0);
            prop_assert!(with(traffic_gb, share / more, load) >= total);
        }
    }
}
