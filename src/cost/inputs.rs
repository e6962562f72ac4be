//! What goes into the model, and where each figure is from: the command line, then the status of
//! a run, then the paper.
//!
//! Pure: texts were read before, and nothing is printed here.

#[cfg(test)]
mod tests;

use anyhow::{bail, ensure};
use serde::Serialize;

use super::{
    given::Given,
    measured::{MONTH_HOURS, Measured},
    model::{Driven, Service, gb_per_hour, load_of_cpu},
    paper,
};
use crate::table::{age, bytes, percent};

/// A figure and where it is from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Sourced {
    pub value: f64,
    /// In words.
    pub from: String,
}

/// All that the model was given.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Inputs {
    /// GB a month without elimination.
    pub traffic_gb: Sourced,
    /// Whether that is a run's, scaled to a month.
    pub is_scaled: bool,
    /// What elimination saves.
    #[serde(flatten)]
    pub shares: Shares,
    /// Server-hours more, receiver-driven, as a share of those without elimination.
    pub receiver_load: Sourced,
    /// Server-hours more, sender-driven.
    pub sender_load: Sourced,
    /// Server-hours more, with both.
    pub both_load: Option<Sourced>,
    /// What a server puts out.
    pub server_mbit_per_s: Sourced,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_gb: Option<Sourced>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<Sourced>,
    /// Cores of a server.
    pub cores: u32,
}

impl Sourced {
    pub(super) fn new(value: f64, from: impl Into<String>) -> Self {
        let from = from.into();
        Self { value, from }
    }
}

impl Inputs {
    /// Puts together what was given, measured and assumed.
    pub(super) fn resolve(given: &Given, measured: Option<&Measured>) -> anyhow::Result<Self> {
        let traffic_gb = match (given.traffic, measured) {
            (Some(size), _) => Sourced::new(size.0 as f64 / 1e9, "--traffic"),
            (None, Some(run)) => Sourced::new(run.gb_per_month(), scaling(run)),
            (None, None) => {
                bail!(
                    "the traffic per month is not known: give --traffic, or the output of `refrain status --json`"
                )
            }
        };
        let is_scaled = given.traffic.is_none();
        let shares = shares(given, measured)?;
        let server_mbit_per_s = match given.server_output {
            Some(rate) => Sourced::new(rate.0 as f64 / 1e6, "--server-output"),
            None => Sourced::new(
                paper::SERVER_OUTPUT_BITS_PER_S / 1e6,
                "assumed: the server of the PACK paper (SIGCOMM 2011, section 5.3)",
            ),
        };
        let cpu = Cpu {
            given,
            gb_per_hour: gb_per_hour(server_mbit_per_s.value * 1e6),
        };
        let (receiver_load, sender_load) = cpu.loads(shares.receiver_share.value)?;
        let loads = [receiver_load.value, sender_load.value];
        let both_load = match (&shares.both_share, given.cpu_both) {
            (Some(_), _) => Some(cpu.load_of_both(shares.receiver_share.value, loads)),
            (None, Some(_)) => bail!(
                "--cpu-both needs the share that both eliminate: give --redundancy-both, or the output of \
                 `refrain status --json` after both eliminated data"
            ),
            (None, None) => None,
        };
        let inputs = Self {
            traffic_gb,
            is_scaled,
            shares,
            receiver_load,
            sender_load,
            both_load,
            server_mbit_per_s,
            price_per_gb: price(given.price_gb, "--price-gb"),
            price_per_hour: price(given.price_hour, "--price-hour"),
            cores: given.cores,
        };
        ensure!(
            inputs.service().bill(Driven::NONE).total_cost != Some(0.0),
            "with these prices this traffic costs nothing: --price-gb or --price-hour must be greater than zero"
        );
        Ok(inputs)
    }

    /// The month without elimination.
    pub(super) fn service(&self) -> Service {
        let traffic_gb = self.traffic_gb.value;
        Service {
            traffic_gb,
            server_hours: traffic_gb / gb_per_hour(self.server_mbit_per_s.value * 1e6),
            cores: self.cores,
            price_per_gb: self.price_per_gb.as_ref().map(|price| price.value),
            price_per_hour: self.price_per_hour.as_ref().map(|price| price.value),
        }
    }

    /// Receiver-driven elimination.
    pub(super) fn receiver(&self) -> Driven {
        driven(&self.shares.receiver_share, &self.receiver_load)
    }

    /// Sender-driven elimination.
    pub(super) fn sender(&self) -> Driven {
        driven(&self.shares.sender_share, &self.sender_load)
    }

    /// Predictions first, and the sender in what they leave, where that is known.
    pub(super) fn both(&self) -> Option<Driven> {
        let both = self.shares.both_share.as_ref().zip(self.both_load.as_ref());
        both.map(|(share, load)| driven(share, load))
    }
}

fn driven(share: &Sourced, load: &Sourced) -> Driven {
    let (share, load) = (share.value, load.value);
    Driven { share, load }
}

fn price(given: Option<f64>, option: &str) -> Option<Sourced> {
    given.map(|price| Sourced::new(price, option))
}

/// How a run became a month.
fn scaling(run: &Measured) -> String {
    format!(
        "status: {} in {}, times {:.0} for {MONTH_HOURS} h",
        bytes(run.app_bytes as u64),
        age(run.uptime_s),
        run.times_in_month()
    )
}

/// What elimination saves of the traffic.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Shares {
    /// Share of it that predictions eliminate.
    pub receiver_share: Sourced,
    /// Share of it that a sender eliminates.
    pub sender_share: Sourced,
    /// The least that this can be, where the run had predictions before the sender.
    pub sender_share_least: Option<f64>,
    /// Share of it that both eliminate, predictions first, where that is known.
    pub both_share: Option<Sourced>,
}

/// What each way eliminates. Where one is not known another stands for it: the paper's Figure 11
/// does the same.
fn shares(given: &Given, measured: Option<&Measured>) -> anyhow::Result<Shares> {
    let predicted = measured.map(Measured::predicted_share);
    let matched = measured.map(Measured::matched_share);
    let by_both = measured.and_then(Measured::both_share);
    let receiver = match (given.redundancy, predicted) {
        (Some(share), _) => Some(Sourced::new(share, "--redundancy")),
        (None, Some(0.0)) => Some(Sourced::new(
            0.0,
            "status: predictions saved nothing (off?)",
        )),
        (None, predicted) => predicted.map(|share| Sourced::new(share, "status: predictions")),
    };
    let sender = match (given.redundancy_sender, by_both, matched) {
        (Some(share), ..) => Some(Sourced::new(share, "--redundancy-sender")),
        // What matching finds behind predictions is not what it would find alone.
        (None, Some(share), _) => {
            let from = "assumed: as much as both in this run, see below";
            Some(Sourced::new(share, from))
        }
        (None, None, Some(share)) if predicted.unwrap_or(0.0) == 0.0 => {
            Some(Sourced::new(share, "status: matching"))
        }
        (None, None, _) => None,
    };
    let both = match (given.redundancy_both, by_both) {
        (Some(share), _) => Some(Sourced::new(share, "--redundancy-both")),
        (None, by_both) => by_both.map(|share| {
            let from = "status: predictions, and matching in the rest";
            Sourced::new(share, from)
        }),
    };
    let (receiver, sender) = match (receiver, sender) {
        (Some(receiver), Some(sender)) => (receiver, sender),
        (Some(receiver), None) => {
            let from =
                "assumed: as much as predictions, as in the PACK paper (SIGCOMM 2011, figure 11)";
            let sender = Sourced::new(receiver.value, from);
            (receiver, sender)
        }
        (None, Some(sender)) => {
            let from =
                "assumed: as much as a sender, as in the PACK paper (SIGCOMM 2011, figure 11)";
            (Sourced::new(sender.value, from), sender)
        }
        (None, None) => bail!(
            "the redundancy of the traffic is not known: give --redundancy, or the output of `refrain status \
             --json` of a gateway that has carried traffic"
        ),
    };
    let is_assumed = given.redundancy_sender.is_none() && by_both.is_some();
    if let Some(share) = given.redundancy_both {
        let least = match is_assumed {
            true => receiver.value,
            false => receiver.value.max(sender.value),
        };
        ensure!(
            share >= least,
            "--redundancy-both must be at least {}: both together save no less than each of them",
            percent(least, 1.0)
        );
    }
    Ok(Shares {
        receiver_share: receiver,
        sender_share: sender,
        sender_share_least: matched.filter(|_| is_assumed),
        both_share: both,
    })
}

/// What becomes of CPU seconds.
struct Cpu<'a> {
    given: &'a Given,
    gb_per_hour: f64,
}

impl Cpu<'_> {
    /// Loads of receiver-driven and sender-driven elimination, the former at `share`.
    fn loads(&self, share: f64) -> anyhow::Result<(Sourced, Sourced)> {
        let none_s = self.given.cpu_none.unwrap_or(0.0);
        let busy = self.load(none_s);
        let cores = self.given.cores;
        ensure!(
            busy <= 1.0,
            "a server with {cores} cores cannot send this much: with --cpu-none it would need {:.1} cores (is \
             --server-output, --cores or --cpu-none wrong?)",
            busy * f64::from(cores)
        );
        let receiver = self.given.cpu_receiver;
        let receiver = receiver.map(|seconds| self.measured(seconds, "--cpu-receiver"));
        let sender = self.given.cpu_sender;
        let sender = sender.map(|seconds| self.measured(seconds, "--cpu-sender"));
        let ratio = paper::sender_to_receiver(share);
        Ok(match (receiver, sender) {
            (Some(receiver), Some(sender)) => (receiver, sender),
            (None, Some(sender)) => {
                let from = "assumed: 6.1 / 19.0 of sender-driven at 30 % (PACK paper, SIGCOMM 2011, table 3)";
                (Sourced::new((sender.value / ratio).max(-1.0), from), sender)
            }
            (Some(receiver), None) if receiver.value > 0.0 && ratio.is_finite() => {
                let from = "assumed: 19.0 / 6.1 of receiver-driven at 30 % (PACK paper, SIGCOMM 2011, table 3)";
                let sender = Sourced::new(receiver.value * ratio, from);
                (receiver, sender)
            }
            (receiver, None) => {
                let assumed = || {
                    let from =
                        "assumed: 6.1 % at 30 % redundancy (PACK paper, SIGCOMM 2011, table 3)";
                    Sourced::new(paper::receiver_load(share), from)
                };
                let sender = Sourced::new(
                    paper::SENDER.load,
                    "assumed: 19.0 % (PACK paper, SIGCOMM 2011, table 3)",
                );
                (receiver.unwrap_or_else(assumed), sender)
            }
        })
    }

    /// The load with both, of which `receiver_share` goes to predictions, from those of each alone.
    fn load_of_both(&self, receiver_share: f64, [receiver, sender]: [f64; 2]) -> Sourced {
        if let Some(seconds) = self.given.cpu_both {
            return self.measured(seconds, "--cpu-both");
        }
        let from = "assumed: receiver-driven, and sender-driven on the rest";
        let load = receiver + sender * (1.0 - receiver_share);
        Sourced::new(load.max(-1.0), from)
    }

    fn measured(&self, seconds: f64, option: &str) -> Sourced {
        let more_s = seconds - self.given.cpu_none.unwrap_or(0.0);
        let from = format!("{option}: {more_s:+.3} CPU s per GB compared with none");
        Sourced::new(self.load(more_s), from)
    }

    fn load(&self, s_per_gb: f64) -> f64 {
        load_of_cpu(s_per_gb, self.gb_per_hour, f64::from(self.given.cores))
    }
}
