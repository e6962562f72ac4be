//! What `refrain cost` says: the paper's Table 3, a ledger, and what it was reckoned from, as
//! JSON or as tables.

use std::io::{self, Write};

use serde::Serialize;

use super::{
    inputs::{Inputs, Sourced},
    measured::Measured,
    model::{Bill, CurvePoint, Driven},
};
use crate::table::{Table, age, bytes, percent};

/// A run that is shorter has not seen what comes back each day.
const RUN_S_MIN: f64 = 86_400.0;

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// What it was reckoned from.
    pub inputs: Inputs,
    /// How long the run was, if there was one.
    pub measured_s: Option<f64>,
    /// Share that zstd saved in the run, which is in no column.
    pub zstd_share_not_counted: Option<f64>,
    /// No elimination.
    pub none: Bill,
    /// Receiver-driven.
    pub receiver_driven: Bill,
    /// Sender-driven.
    pub sender_driven: Bill,
    /// Predictions first, and the sender in what they leave, where that is known.
    pub both: Option<Bill>,
    /// Totals by redundancy.
    pub curve: Vec<CurvePoint>,
}

impl Report {
    /// Reckons.
    pub(super) fn new(inputs: Inputs, run: Option<&Measured>) -> Self {
        let service = inputs.service();
        let bill = |driven| service.bill(driven);
        Self {
            measured_s: run.map(|run| run.uptime_s),
            zstd_share_not_counted: run.map(Measured::zstd_share),
            none: bill(Driven::NONE),
            receiver_driven: bill(inputs.receiver()),
            sender_driven: bill(inputs.sender()),
            both: inputs.both().map(bill),
            curve: service.curve(inputs.receiver(), inputs.sender()),
            inputs,
        }
    }

    /// Writes the tables.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.costs().print(out)?;
        writeln!(out)?;
        self.sources().print(out)?;
        let inputs = &self.inputs;
        if let Some((least, both)) = inputs
            .shares
            .sender_share_least
            .zip(inputs.shares.both_share.as_ref())
        {
            let [least, most] = [least, both.value].map(|share| percent(share, 1.0));
            writeln!(
                out,
                "\nsender-driven elimination was not measured: predictions came first, and matching then \
                 saved {least}.\nWithout predictions it would save from {least}, if its cache has none of \
                 the predicted data, to {most}, if it\nhas all of it. The column uses {most}. Measure it in \
                 mode sender, for --redundancy-sender"
            )?;
        }
        let scaled_s = self.measured_s.filter(|_| inputs.is_scaled);
        if let Some(measured_s) = scaled_s.filter(|&run_s| run_s < RUN_S_MIN) {
            let run = age(measured_s);
            writeln!(
                out,
                "\nthe run lasted only {run}: scaling it to a month is a guess"
            )?;
        }
        if let Some(share) = self.zstd_share_not_counted {
            let share = percent(share, 1.0);
            writeln!(
                out,
                "\nnot counted: zstd saved {share} more in this run, and frames and TLS added some bytes"
            )?;
        }
        Ok(())
    }

    fn costs(&self) -> Table {
        let sender = match self.inputs.shares.sender_share_least {
            Some(_) => "sender-driven at best",
            None => "sender-driven",
        };
        let both = self.both.map_or("", |_| "  both (auto)");
        let heads = format!("per month  none  receiver-driven  {sender}{both}");
        let mut table = Table::new(&heads);
        let columns = [&self.none, &self.receiver_driven, &self.sender_driven];
        let columns: Vec<_> = columns.into_iter().chain(&self.both).collect();
        type Cell = fn(&Bill) -> String;
        let rows: [(&str, Cell); 12] = [
            ("traffic volume", |it| volume(it.traffic_gb)),
            ("traffic cost", |it| money(it.traffic_cost)),
            ("traffic cost reduction", |it| {
                share(it.traffic_cost_reduction)
            }),
            ("server-hours", |it| money(it.server_hours)),
            ("server-hours cost", |it| money(it.server_cost)),
            ("server-hours cost increase", |it| {
                share(it.server_hours_increase)
            }),
            ("total cost", |it| money(it.total_cost)),
            ("total, compared with none", |it| {
                percent(it.total_of_none, 1.0)
            }),
            ("", |_| String::new()),
            ("saved on traffic", |it| money(it.saved_on_traffic)),
            ("spent on servers", |it| money(it.spent_on_servers)),
            ("net savings", |it| money(it.left)),
        ];
        for (name, cell) in rows {
            let cells = columns.iter().map(|bill| cell(bill));
            table.row([name.to_owned()].into_iter().chain(cells));
        }
        table
    }

    fn sources(&self) -> Table {
        let mut table = Table::new("input    <source");
        let inputs = &self.inputs;
        let mut row = |what: &str, value: String, from: &str| {
            table.row([what.to_owned(), value, from.to_owned()]);
        };
        let traffic = &inputs.traffic_gb;
        row("traffic per month", volume(traffic.value), &traffic.from);
        let mut share = |what: &str, share: &Sourced<f64>| {
            row(what, percent(share.value, 1.0), &share.from);
        };
        share("predictions eliminate", &inputs.shares.receiver_share);
        share("a sender eliminates", &inputs.shares.sender_share);
        if let Some(both) = &inputs.shares.both_share {
            share("both eliminate", both);
        }
        let mut load = |what: &str, load: &Sourced<f64>| {
            row(what, format!("{:+.1} %", 100.0 * load.value), &load.from);
        };
        load("server-hours, receiver-driven", &inputs.receiver_load);
        load("server-hours, sender-driven", &inputs.sender_load);
        if let Some(both) = &inputs.both_load {
            load("server-hours, both", both);
        }
        let output = &inputs.server_mbit_per_s;
        row(
            "output of one server",
            format!("{} Mbit/s", output.value),
            &output.from,
        );
        let mut price = |name: &str, price: &Sourced<f64>| {
            row(name, money(price.value), &price.from);
        };
        price("price per GB of traffic", &inputs.price_per_gb);
        price("price per server-hour", &inputs.price_per_hour);
        table
    }
}

/// GB, with the unit that fits.
pub(super) fn volume(gb: f64) -> String {
    bytes((gb * 1e9).round() as u64)
}

fn share(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| percent(share, 1.0))
}

/// Two digits behind the point, and four of what would vanish otherwise.
fn money(amount: f64) -> String {
    // No negative zero.
    let amount = amount + 0.0;
    match amount == 0.0 || amount.abs() >= 1.0 {
        true => format!("{amount:.2}"),
        false => format!("{amount:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_vanishes_has_four_digits() {
        for (amount, text) in [
            (0.0, "0.00"),
            (-0.0, "0.00"),
            (1234.567, "1234.57"),
            (-3.0, "-3.00"),
            (0.045, "0.0450"),
        ] {
            assert_eq!(money(amount), text);
        }
    }
}
