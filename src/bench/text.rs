//! What `bench` prints for people: a table with the names of the JSON, row by row as they come.

use std::io::{self, Write};

use super::report::{Report, Row, SpeedTarget};
use crate::table::{Columns, Table};

const HEAD: [&str; 5] = ["", "GB/s", "ours over it", "target", "met"];

/// A table that grows.
pub struct RunningTable(Columns);

impl RunningTable {
    /// Writes what is known beforehand, and the head of a table with room for rows and peers of
    /// these names.
    pub fn begin(
        report: &Report,
        names: impl IntoIterator<Item = String>,
        out: &mut impl Write,
    ) -> io::Result<Self> {
        let machine = &report.machine;
        writeln!(out, "{}, one core of {}", machine.processor, machine.cores)?;
        let instructions = machine.instructions.join(", ");
        writeln!(out, "kernels: {} (of {instructions})", report.backend)?;
        if let Some(driver) = &machine.gpu_driver {
            writeln!(out, "GPUs: {}; {driver}", machine.gpus.join(", "))?;
        }
        writeln!(out, "{}", report.data)?;
        let load = machine.load.unwrap_or(f64::NAN);
        writeln!(out, "machine's load before: {load:.1}")?;
        writeln!(
            out,
            "GB/s are medians of turns; \"ours over it\" is the median of each turn's ratio, which on a\n\
             busy machine need not be the ratio of the medians\n"
        )?;
        let mut widest = Table::new(&HEAD).words(&["met"]);
        for name in names {
            widest.row([&name, "9999.99", "9999.99", "99.9 GB/s", "yes"].map(str::to_owned));
        }
        let columns = widest.columns();
        columns.print(&HEAD, out)?;
        Ok(Self(columns))
    }

    /// Writes a row, and those beside it.
    pub fn row(&self, row: &Row, out: &mut impl Write) -> io::Result<()> {
        let [target, met] = cells(&row.target);
        let speed = format!("{:.2}", row.gb_per_s);
        let cells_of_row = [row.name.clone(), speed, String::new(), target, met];
        self.0.print(&cells_of_row, out)?;
        for beside in &row.beside {
            let [mut target, mut met] = cells(&beside.target);
            if let Some(ratio) = beside.target_ratio {
                target = ratio.to_string();
                met = in_words(beside.ratio_met);
            }
            let cells_of_peer = [
                indented(&beside.peer),
                format!("{:.2}", beside.gb_per_s),
                format!("{:.2}", beside.ratio),
                target,
                met,
            ];
            self.0.print(&cells_of_peer, out)?;
        }
        out.flush()
    }

    /// Writes what is known only at the end.
    pub fn end(self, report: &Report, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "\na fixed loop's slowest run took {:.2} times its fastest",
            report.unsteadiness
        )?;
        match report.complete {
            true => Ok(()),
            false => writeln!(
                out,
                "NOT COMPLETE: these rows were measured, others were not"
            ),
        }
    }
}

/// The name of a peer, as it stands below its row's.
pub fn indented(peer: &str) -> String {
    format!("    {peer}")
}

fn cells(speed: &SpeedTarget) -> [String; 2] {
    let target = speed.target_gb_per_s;
    [
        target.map_or_else(String::new, |target| format!("{target:.1} GB/s")),
        in_words(speed.met),
    ]
}

fn in_words(met: Option<bool>) -> String {
    match met {
        Some(true) => "yes",
        Some(false) => "no",
        None => "",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{machine::Machine, report::tests::row};

    #[test]
    fn the_table_says_the_same() {
        let report = Report {
            machine: Machine {
                processor: "a processor".to_owned(),
                cores: 2,
                instructions: vec!["portable".to_owned(), "avx512".to_owned()],
                gpus: Vec::new(),
                gpu_driver: None,
                load: Some(0.5),
            },
            backend: "avx512".to_owned(),
            seconds_a_row: 1.0,
            data: "noise".to_owned(),
            unsteadiness: 1.0,
            complete: false,
            rows: Vec::new(),
        };
        let row = row(16.0, &[("scalar", 2.0)]);
        let names = [row.name.clone(), indented("scalar")];
        let mut out = Vec::new();
        let table = RunningTable::begin(&report, names, &mut out).expect("memory");
        table.row(&row, &mut out).expect("memory");
        table.end(&report, &mut out).expect("memory");
        let out = String::from_utf8(out).expect("text");
        let (_, table) = out.split_once("\n\n").expect("a header");
        assert_eq!(
            table,
            "                                   GB/s  ours over it     target  met\n\
             SAMPLEBYTE p = 64, random, hot    16.00                15.0 GB/s  yes\n    \
             scalar                         2.00          8.00         10  no\n\n\
             a fixed loop's slowest run took 1.00 times its fastest\n\
             NOT COMPLETE: these rows were measured, others were not\n"
        );
    }
}
