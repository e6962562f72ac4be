//! The cost model: what serving a month's traffic takes with no elimination, receiver-driven
//! and sender-driven (PACK, section 5.3 and Table 3), and with both together where that is known.
//!
//! Volume, measured shares and the known prices enter; bills leave. No I/O, no clock.
//! The formulas with their reasons stand in `docs/cost.md`.

use serde::Serialize;

/// Below this share there is nothing to divide by.
pub(super) const SHARE_MIN: f64 = 1e-6;

/// A month of a service without elimination.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Service {
    /// What leaves, as GB.
    pub traffic_gb: f64,
    /// Servers, times the hours that they run.
    pub server_hours: f64,
    /// Cores of a server.
    pub cores: u32,
    pub price_per_gb: Option<f64>,
    pub price_per_hour: Option<f64>,
}

/// What one way of elimination saves, and what it asks of the servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Driven {
    /// Share of the traffic that it keeps off the wire, 0 to 1.
    pub share: f64,
    /// Server-hours that it adds, as a share of those without it; not below −1.
    pub load: f64,
}

/// A month's bill: a column of Table 3 and of the ledger. Amounts of money are `None` if a price is unknown, and
/// amounts per saved GB if nothing is saved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Bill {
    /// What leaves, as GB.
    pub(crate) traffic_gb: f64,
    pub(crate) saved_gb: f64,
    /// Servers, times the hours that they run.
    pub(crate) server_hours: f64,
    pub(crate) server_hours_increase: f64,
    pub(crate) cpu_hours_added: f64,
    /// At least 0.
    pub(crate) cpu_hours_per_saved_gb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traffic_cost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traffic_cost_reduction: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_cost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total_cost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total_of_none: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) saved_on_traffic: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) spent_on_servers: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<f64>,
    /// The price of a saved GB that pays for the added server-hours; at least 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) break_even_per_gb: Option<f64>,
}

impl Service {
    /// The bill with such elimination.
    pub(super) fn bill(&self, Driven { share, load }: Driven) -> Bill {
        let saved_gb = self.traffic_gb * share;
        let traffic_gb = self.traffic_gb * (1.0 - share);
        let hours_added = self.server_hours * load;
        let server_hours = self.server_hours * (1.0 + load);
        let cpu_hours_added = hours_added * f64::from(self.cores);
        let traffic_cost_of = |gb: f64| self.price_per_gb.map(|price| gb * price);
        let server_cost_of = |hours: f64| self.price_per_hour.map(|price| hours * price);
        let saved_on_traffic = traffic_cost_of(saved_gb);
        let spent_on_servers = server_cost_of(hours_added);
        let total_of = |gb, hours| Some(traffic_cost_of(gb)? + server_cost_of(hours)?);
        let total_cost = total_of(traffic_gb, server_hours);
        let total_of_none = || Some(total_cost? / total_of(self.traffic_gb, self.server_hours)?);
        let left = || Some(saved_on_traffic? - spent_on_servers?);
        let per_saved_gb = |amount: f64| (share >= SHARE_MIN).then(|| amount.max(0.0) / saved_gb);
        Bill {
            traffic_gb,
            saved_gb,
            server_hours,
            server_hours_increase: load,
            cpu_hours_added,
            cpu_hours_per_saved_gb: per_saved_gb(cpu_hours_added),
            traffic_cost: traffic_cost_of(traffic_gb),
            traffic_cost_reduction: (self.price_per_gb > Some(0.0)).then_some(share),
            server_cost: server_cost_of(server_hours),
            total_cost,
            total_of_none: total_of_none(),
            saved_on_traffic,
            spent_on_servers,
            left: left(),
            break_even_per_gb: spent_on_servers.and_then(per_saved_gb),
        }
    }
}

impl Driven {
    /// No elimination.
    pub(super) const NONE: Self = Self {
        share: 0.0,
        load: 0.0,
    };
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
        server_hours: 100.0,
        cores: 4,
        price_per_gb: Some(0.05),
        price_per_hour: Some(0.5),
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
            let figures = [
                Some(bill.traffic_gb),
                bill.traffic_cost,
                Some(bill.server_hours),
                bill.server_cost,
            ];
            for (value, expected) in figures.into_iter().zip(expected) {
                let value = value.expect("prices are known");
                assert!((value - expected).abs() < 1e-9, "{bill:?}");
            }
        }
    }

    #[test]
    fn at_the_break_even_price_nothing_is_left() {
        let bill = SERVICE.bill(RECEIVER);
        // 10 server-hours of 0.5 for 1500 GB, and 4 CPU hours in each.
        let price = bill.break_even_per_gb.expect("something is saved");
        assert!((price - 5.0 / 1500.0).abs() < 1e-9, "{price}");
        assert!((bill.cpu_hours_added - 40.0).abs() < 1e-9, "{bill:?}");
        let cpu_hours = bill.cpu_hours_per_saved_gb.expect("something is saved");
        assert!((cpu_hours - 40.0 / 1500.0).abs() < 1e-9, "{cpu_hours}");
        let priced = Service {
            price_per_gb: Some(price),
            ..SERVICE
        };
        let left = priced.bill(RECEIVER).left.expect("prices are known");
        assert!(left.abs() < 1e-9, "{left}");
        // Elimination that costs less than sending pays at any price; if it saves nothing, at none.
        let cheaper = Driven {
            load: -0.1,
            ..RECEIVER
        };
        assert_eq!(SERVICE.bill(cheaper).break_even_per_gb, Some(0.0));
        assert_eq!(SERVICE.bill(Driven::NONE).break_even_per_gb, None);
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
                let price_per_gb = Some(price_per_gb);
                let service = Service { traffic_gb, server_hours, price_per_gb, ..SERVICE };
                service.bill(Driven { share, load }).total_cost.expect("prices are known")
            };
            let total = with(traffic_gb, share, load);
            prop_assert!(total.is_finite() && total >= 0.0);
            prop_assert!(with(traffic_gb * more, share, load) >= total);
            prop_assert!(with(traffic_gb, share, load * more) >= total || load < 0.0);
            prop_assert!(with(traffic_gb, share / more, load) >= total);
        }
    }
}
