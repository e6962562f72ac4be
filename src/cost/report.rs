//! The report of `refrain cost`: the answer in one line, the paper's Table 3, a ledger, and the sources of
//! all inputs; or JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::{
    inputs::{Inputs, Sourced},
    measured::Measured,
    model::{Bill, Driven},
};
use crate::table::{Table, age, bytes, percent};

/// A run that is shorter has not seen what comes back each day.
const RUN_S_MIN: f64 = 86_400.0;

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// What it was reckoned from.
    pub inputs: Inputs,
    pub measured_s: Option<f64>,
    /// Share that zstd saved in the run, which is in no column.
    pub zstd_share_not_counted: Option<f64>,
    pub none: Bill,
    pub receiver_driven: Bill,
    pub sender_driven: Bill,
    /// Predictions first, and the sender in what they leave, where that is known.
    pub both: Option<Bill>,
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
            inputs,
        }
    }

    /// Writes the answer and the tables.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let inputs = &self.inputs;
        writeln!(out, "{}", self.answer())?;
        let scaled_s = self.measured_s.filter(|_| inputs.is_scaled);
        if let Some(measured_s) = scaled_s.filter(|&run_s| run_s < RUN_S_MIN) {
            let run = age(measured_s);
            writeln!(
                out,
                "warning: the run lasted only {run}, so all figures per month are a guess (run it for a day or more)"
            )?;
        }
        writeln!(out)?;
        self.costs().print(out)?;
        writeln!(out)?;
        self.sources().print(out)?;
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
        if let Some(share) = self.zstd_share_not_counted {
            let share = percent(share, 1.0);
            writeln!(
                out,
                "\nnot counted: zstd saved {share} more in this run, as it compressed the remaining data. Frames and \
                 TLS added some bytes"
            )?;
        }
        Ok(())
    }

    /// The savings of what this run did, or of the kind of elimination that saves more, and from when on they
    /// pay. An upper limit is never the answer: where it is one, `both` is known.
    fn answer(&self) -> String {
        let shares = &self.inputs.shares;
        let (kind, bill) = match &self.both {
            Some(both) => ("both kinds (auto)", both),
            None if shares.sender_share.value > shares.receiver_share.value => {
                ("sender-driven elimination", &self.sender_driven)
            }
            None => ("receiver-driven elimination", &self.receiver_driven),
        };
        let saves = match bill.left.zip(self.none.total_cost) {
            Some((left, total)) if left < 0.0 => {
                let (more, total) = (amount(-left), amount(total));
                format!("costs {more} more per month than the {total} without elimination")
            }
            Some((left, total)) => {
                let (saved, part) = (amount(left), percent(left, total));
                let total = amount(total);
                format!("saves {saved} of {total} per month ({part})")
            }
            None => {
                let part = percent(bill.saved_gb, self.none.traffic_gb);
                let (saved, all) = (volume(bill.saved_gb), volume(self.none.traffic_gb));
                format!("saves {saved} of {all} of traffic per month ({part})")
            }
        };
        let break_even = match (bill.cpu_hours_per_saved_gb, bill.break_even_per_gb) {
            (None, _) => "It saves no traffic, so it has no break-even price".to_owned(),
            (Some(0.0), _) => "It adds no CPU time, so it pays at any price of traffic".to_owned(),
            (_, Some(price)) => format!("Break-even price per GB of traffic: {}", amount(price)),
            (Some(hours), None) => format!(
                "It needs {} CPU hours per saved GB, and pays if these are cheaper than 1 GB of traffic",
                amount(hours)
            ),
        };
        let currency = match bill.left.or(bill.break_even_per_gb) {
            Some(_) => " (in the currency of your prices)",
            None => "",
        };
        format!("{saves}, with {kind}. {break_even}{currency}")
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
        type Cell = fn(&Bill) -> Option<String>;
        let rows: [(&str, Cell); 15] = [
            ("traffic volume", |it| Some(volume(it.traffic_gb))),
            ("saved volume", |it| Some(volume(it.saved_gb))),
            ("traffic cost", |it| it.traffic_cost.map(amount)),
            ("traffic cost reduction", |it| {
                it.traffic_cost_reduction.map(share)
            }),
            ("server-hours", |it| Some(amount(it.server_hours))),
            ("server-hours increase", |it| {
                Some(share(it.server_hours_increase))
            }),
            ("server-hours cost", |it| it.server_cost.map(amount)),
            ("CPU hours added", |it| Some(amount(it.cpu_hours_added))),
            ("CPU hours per saved GB", |it| {
                it.cpu_hours_per_saved_gb.map(amount)
            }),
            ("total cost", |it| it.total_cost.map(amount)),
            ("total, compared with none", |it| {
                it.total_of_none.map(share)
            }),
            ("saved on traffic", |it| it.saved_on_traffic.map(amount)),
            ("spent on servers", |it| it.spent_on_servers.map(amount)),
            ("net savings", |it| it.left.map(amount)),
            ("break-even price per GB", |it| {
                it.break_even_per_gb.map(amount)
            }),
        ];
        for (name, cell) in rows {
            let cells: Vec<_> = columns.iter().map(|bill| cell(bill)).collect();
            if cells.iter().any(Option::is_some) {
                let cells = cells.into_iter().map(|cell| cell.unwrap_or("-".to_owned()));
                table.row([name.to_owned()].into_iter().chain(cells));
            }
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
        let mut share = |what: &str, share: &Sourced| {
            row(what, percent(share.value, 1.0), &share.from);
        };
        share("predictions eliminate", &inputs.shares.receiver_share);
        share("a sender eliminates", &inputs.shares.sender_share);
        if let Some(both) = &inputs.shares.both_share {
            share("both eliminate", both);
        }
        let mut load = |what: &str, load: &Sourced| {
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
        let mut price = |what: &str, price: &Option<Sourced>, option: &str| match price {
            Some(price) => row(what, amount(price.value), &price.from),
            None => row(what, "-".to_owned(), &format!("unknown: give {option}")),
        };
        let (per_gb, per_hour) = (&inputs.price_per_gb, &inputs.price_per_hour);
        price("price per GB of traffic", per_gb, "--price-gb");
        price("price per server-hour", per_hour, "--price-hour");
        table
    }
}

/// GB, with the unit that fits.
fn volume(gb: f64) -> String {
    bytes((gb * 1e9).round() as u64)
}

fn share(share: f64) -> String {
    percent(share, 1.0)
}

/// Two decimals, or three significant digits of less than 1.
fn amount(amount: f64) -> String {
    const DECIMALS_MAX: f64 = 12.0;
    // No negative zero.
    let amount = amount + 0.0;
    let decimals = match amount == 0.0 || amount.abs() >= 1.0 {
        true => 2,
        false => (2.0 - amount.abs().log10().floor()).min(DECIMALS_MAX) as usize,
    };
    format!("{amount:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_amounts_have_three_digits() {
        for (number, text) in [
            (0.0, "0.00"),
            (-0.0, "0.00"),
            (1234.567, "1234.57"),
            (-3.0, "-3.00"),
            (-0.045, "-0.0450"),
            (0.000_128_9, "0.000129"),
            (1e-300, "0.000000000000"),
        ] {
            assert_eq!(amount(number), text);
        }
    }
}
