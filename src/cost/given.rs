//! What users give the cost model by hand, and what of it cannot be.

use clap::{ArgGroup, Args, value_parser};
use refrain_gateway::units::{BitRate, ByteSize, UnitError};

/// Amounts that people enter: prices, CPU seconds per GB. More than this is a mistake.
const AMOUNT_MAX: f64 = 1e6;

/// No server has more.
const CORES_MAX: i64 = 4096;

/// What users give by hand.
#[derive(Args, Debug, Default)]
#[command(group(ArgGroup::new("cpu_driven").multiple(true)))]
pub(super) struct Given {
    /// Set the traffic that the service sends per month without elimination, such as 9.1TB
    #[arg(long, value_name = "SIZE", value_parser = parse_traffic, allow_hyphen_values = true)]
    pub traffic: Option<ByteSize>,
    /// Set the share of the traffic that predictions eliminate, such as 30%
    #[arg(long, value_name = "PERCENT", value_parser = parse_share, allow_hyphen_values = true)]
    pub redundancy: Option<f64>,
    /// Set the share that sender-driven elimination eliminates, such as 25% [default: from STATUS, otherwise as
    /// much as predictions]
    #[arg(long, value_name = "PERCENT", value_parser = parse_share, allow_hyphen_values = true)]
    pub redundancy_sender: Option<f64>,
    /// Set the share that both together eliminate, predictions first, such as 40% [default: from STATUS,
    /// otherwise no column]
    #[arg(long, value_name = "PERCENT", value_parser = parse_share, allow_hyphen_values = true)]
    pub redundancy_both: Option<f64>,
    /// Set the CPU seconds per GB on the service's side without elimination [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = parse_amount, allow_hyphen_values = true,
          requires = "cpu_driven")]
    pub cpu_none: Option<f64>,
    /// Set the CPU seconds per GB with receiver-driven elimination, at this redundancy [default: from Table 3 of
    /// the PACK paper (SIGCOMM 2011)]
    #[arg(long, value_name = "SECONDS", value_parser = parse_amount, allow_hyphen_values = true,
          group = "cpu_driven")]
    pub cpu_receiver: Option<f64>,
    /// Set the CPU seconds per GB with sender-driven elimination [default: from Table 3 of the PACK paper (SIGCOMM
    /// 2011)]
    #[arg(long, value_name = "SECONDS", value_parser = parse_amount, allow_hyphen_values = true,
          group = "cpu_driven")]
    pub cpu_sender: Option<f64>,
    /// Set the CPU seconds per GB with both together [default: receiver-driven, plus sender-driven on the
    /// rest]
    #[arg(long, value_name = "SECONDS", value_parser = parse_amount, allow_hyphen_values = true,
          group = "cpu_driven")]
    pub cpu_both: Option<f64>,
    /// Set the output rate of one server, averaged over its paid hours [default: 350Mbit]
    #[arg(long, value_name = "RATE", value_parser = parse_output, allow_hyphen_values = true)]
    pub server_output: Option<BitRate>,
    /// Set the price per GB of traffic in your currency, such as 0.05. With price tiers, give that of the month's
    /// last GB [default: no costs in money]
    #[arg(long, alias = "egress", value_name = "PRICE", value_parser = parse_amount, allow_hyphen_values = true)]
    pub price_gb: Option<f64>,
    /// Set the price per server-hour, in the currency of --price-gb, such as 0.08 [default: no costs in money]
    #[arg(long, alias = "server", value_name = "PRICE", value_parser = parse_amount, allow_hyphen_values = true)]
    pub price_hour: Option<f64>,
    /// Set the number of cores per server
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..=CORES_MAX))]
    pub cores: u32,
}

pub(super) fn parse_traffic(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err("must be greater than zero".to_owned()),
        // As a number of bytes, it is hardly meant.
        Ok(_) | Err(UnitError::TooFine) if text.trim().parse::<f64>().is_ok() => {
            let number = text.trim();
            Err(format!(
                "the unit is missing (write, for example, {number}GB)"
            ))
        }
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn parse_output(text: &str) -> Result<BitRate, String> {
    match text.parse::<BitRate>() {
        Ok(BitRate(0)) => Err("must be greater than zero".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

/// `30%`, as 0.3.
fn parse_share(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let percent_of = |number: &str| {
        let percent: Option<f64> = number.trim_end().parse().ok();
        percent.filter(|percent| (0.0..=100.0).contains(percent))
    };
    match text.strip_suffix('%') {
        Some(number) => percent_of(number)
            .map(|percent| percent / 100.0)
            .ok_or_else(|| "must be from 0% to 100%, such as 30%".to_owned()),
        // 0.5 may be half of a percent, or the half.
        None => match percent_of(text).filter(|&percent| percent > 1.0) {
            Some(percent) => Err(format!(
                "the percent sign is missing (write, for example, {percent}%)"
            )),
            None => Err("must be from 0% to 100%, with the percent sign, such as 30%".to_owned()),
        },
    }
}

pub(super) fn parse_amount(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok();
    let amount = amount.filter(|amount| (0.0..=AMOUNT_MAX).contains(amount));
    amount.ok_or_else(|| {
        format!("must be a number from 0 to {AMOUNT_MAX} without a unit, such as 0.05")
    })
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
        for (text, advice) in [
            ("30", "write, for example, 30%"),
            ("0.5", "with the percent sign"),
        ] {
            let error = parse_share(text).expect_err(text);
            assert!(error.contains(advice), "{error}");
        }
        assert_eq!(parse_amount("0.25"), Ok(0.25));
        for text in ["-1", "NaN", "inf", "1e7", "1s", ""] {
            assert!(parse_amount(text).is_err(), "{text}");
        }
        assert!(parse_traffic("0").is_err() && parse_traffic("9.1TB").is_ok());
        for (text, advice) in [
            ("9.1", "the unit is missing (write, for example, 9.1GB)"),
            ("5", "the unit is missing (write, for example, 5GB)"),
            ("0.5B", "a fraction of"),
            ("x", "a number and a unit"),
        ] {
            let error = parse_traffic(text).expect_err(text);
            assert!(error.contains(advice), "{error}");
        }
        assert!(parse_output("0bit").is_err() && parse_output("350Mbit").is_ok());
    }
}
