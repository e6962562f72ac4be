//! The figures by which other commands estimate a month's bill.

use clap::Args;
use refrain_gateway::units::ByteSize;

use super::{
    given::{parse_amount, parse_traffic},
    model::{Bill, Driven, Service, gb_per_hour, load_of_cpu},
    paper,
};

/// Cores of a server, as `refrain cost` assumes.
const CORES: u32 = 2;

#[derive(Args, Debug, Default)]
pub(crate) struct Prices {
    /// Set the traffic per month, such as 9.1TB, for the estimate of a month [default: the capture's rate]
    #[arg(long, value_name = "SIZE", value_parser = parse_traffic, allow_hyphen_values = true)]
    traffic: Option<ByteSize>,
    /// Set the price per GB of traffic in your currency, such as 0.05 [default: no costs in money]
    #[arg(long, value_name = "PRICE", value_parser = parse_amount, allow_hyphen_values = true)]
    price_gb: Option<f64>,
    /// Set the price per server-hour, in the currency of --price-gb, such as 0.08 [default: no costs in money]
    #[arg(long, value_name = "PRICE", value_parser = parse_amount, allow_hyphen_values = true)]
    price_hour: Option<f64>,
}

impl Prices {
    /// The user's figure for a month's traffic.
    pub(crate) fn traffic_gb(&self) -> Option<f64> {
        self.traffic.map(|size| size.0 as f64 / 1e9)
    }

    /// Whether only one of both prices is given.
    pub(crate) fn is_half(&self) -> bool {
        self.price_gb.is_some() != self.price_hour.is_some()
    }

    /// The price of this traffic and of these server-hours, if both prices are given.
    pub(crate) fn cost(&self, bytes: u64, server_hours: f64) -> Option<f64> {
        let traffic = self.price_gb? * bytes as f64 / 1e9;
        Some(traffic + self.price_hour? * server_hours)
    }

    /// A month's bill if this share of the traffic is saved, and each GB of it takes so many CPU seconds.
    pub(crate) fn bill(&self, traffic_gb: f64, share: f64, cpu_s_per_gb: f64) -> Bill {
        let gb_per_hour = gb_per_hour(paper::SERVER_OUTPUT_BITS_PER_S);
        let service = Service {
            traffic_gb,
            server_hours: traffic_gb / gb_per_hour,
            cores: CORES,
            price_per_gb: self.price_gb,
            price_per_hour: self.price_hour,
        };
        let load = load_of_cpu(cpu_s_per_gb, gb_per_hour, f64::from(CORES));
        service.bill(Driven { share, load })
    }
}
