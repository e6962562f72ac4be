//! What users give the cost model by hand, and what of it cannot be.

use clap::{ArgGroup, Args, value_parser};
use refrain_gateway::units::{BitRate, ByteSize};

/// Amounts that people enter: prices, CPU seconds per GB. More than this is a mistake.
const AMOUNT_MAX: f64 = 1e6;

/// No server has more.
const CORES_MAX: i64 = 4096;

/// What users give by hand.
#[derive(Args, Debug, Default)]
#[command(group(ArgGroup::new("cpu_driven").multiple(true)))]
pub(super) struct Given {
    /// What the service sends in a month without elimination, such as 9.1TB
    #[arg(long, value_name = "SIZE", value_parser = parse_traffic, allow_hyphen_values = true)]
    pub traffic: Option<ByteSize>,
    /// Share of the traffic that predictions keep off the wire, such as 30%
    #[arg(long, value_name = "SHARE", value_parser = parse_share, allow_hyphen_values = true)]
    pub redundancy: Option<f64>,
    /// The same of sender-driven elimination [default: as much as predictions]
    #[arg(long, value_name = "SHARE", value_parser = parse_share, allow_hyphen_values = true)]
    pub redundancy_sender: Option<f64>,
    /// The same of both together, predictions first [default: as the run says; else no column]
    #[arg(long, value_name = "SHARE", value_parser = parse_share, allow_hyphen_values = true)]
    pub redundancy_both: Option<f64>,
    /// CPU seconds that a GB costs the service's side without elimination [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = parse_amount, allow_hyphen_values = true,
          requires = "cpu_driven")]
    pub cpu_none: Option<f64>,
    /// The same receiver-driven, at this redundancy [default: the paper's relation]
    #[arg(long, value_name = "SECONDS", value_parser = parse_amount, allow_hyphen_values = true,
          group = "cpu_driven")]
    pub cpu_receiver: Option<f64>,
    /// The same sender-driven [default: the paper's relation]
    #[arg(long, value_name = "SECONDS", value_parser = parse_amount, allow_hyphen_values = true,
          group = "cpu_driven")]
    pub cpu_sender: Option<f64>,
    /// The same of both together [default: receiver-driven, and sender-driven on what that leaves]
    #[arg(long, value_name = "SECONDS", value_parser = parse_amount, allow_hyphen_values = true,
          group = "cpu_driven")]
    pub cpu_both: Option<f64>,
    /// What one server puts out, averaged over the hours that it is paid for [default: 350Mbit]
    #[arg(long, value_name = "RATE", value_parser = parse_output, allow_hyphen_values = true)]
    pub server_output: Option<BitRate>,
    /// Price of a GB of traffic; with tiers, of the one that the last GB of a month is in [default: 0.09]
    #[arg(long, value_name = "PRICE", value_parser = parse_amount, allow_hyphen_values = true)]
    pub egress: Option<f64>,
    /// Price of a server per hour, in the same currency [default: 0.10]
    #[arg(long, value_name = "PRICE", value_parser = parse_amount, allow_hyphen_values = true)]
    pub server: Option<f64>,
    /// Cores of a server
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..=CORES_MAX))]
    pub cores: u32,
}

fn parse_traffic(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err("no traffic costs nothing".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_output(text: &str) -> Result<BitRate, String> {
    match text.parse::<BitRate>() {
        Ok(BitRate(0)) => Err("a server that puts nothing out".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

/// `30%`, as 0.3.
fn parse_share(text: &str) -> Result<f64, String> {
    let percent = text.trim().strip_suffix('%').map(str::trim_end);
    let percent = percent.and_then(|number| number.parse().ok());
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent
        .map(|percent: f64| percent / 100.0)
        .ok_or_else(|| "expected 0% to 100%, such as 30%".to_owned())
}

fn parse_amount(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok();
    let amount = amount.filter(|amount| (0.0..=AMOUNT_MAX).contains(amount));
    amount.ok_or_else(|| format!("expected a number from 0 to {AMOUNT_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_amounts_have_bounds() {
        for (text, share) in [
            ("30%", 0.3),
            ("29.55 %", 0.2955),
            ("0%", 0.0),
            ("100%", 1.0),
        ] {
            assert!((parse_share(text).expect(text) - share).abs() < 1e-12);
        }
        for text in ["30", "0.3", "-1%", "101%", "NaN%", "inf%", "%", ""] {
            assert!(parse_share(text).is_err(), "{text}");
        }
        assert_eq!(parse_amount("0.25"), Ok(0.25));
        for text in ["-1", "NaN", "inf", "1e7", "1s", ""] {
            assert!(parse_amount(text).is_err(), "{text}");
        }
        assert!(parse_traffic("0").is_err() && parse_traffic("9.1TB").is_ok());
        assert!(parse_output("0bit").is_err() && parse_output("350Mbit").is_ok());
    }
}
