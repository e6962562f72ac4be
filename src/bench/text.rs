//! What `bench` prints for people: a table with the names of the JSON.

use std::io::{self, Write};

use super::report::{Report, SpeedTarget};
use crate::table::Table;

/// Writes all of `report`.
pub fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let machine = &report.machine;
    writeln!(out, "{}, one core of {}", machine.processor, machine.cores)?;
    let instructions = machine.instructions.join(", ");
    writeln!(out, "kernels: {} (of {instructions})", report.backend)?;
    writeln!(out, "{}", report.data)?;
    let load = machine.load.unwrap_or(f64::NAN);
    writeln!(
        out,
        "machine's load before: {load:.1}; a fixed loop's slowest run took {:.2} times its fastest",
        report.unsteadiness
    )?;
    writeln!(
        out,
        "GB/s are medians of turns; \"ours over it\" is the median of each turn's ratio, which on a\n\
         busy machine need not be the ratio of the medians\n"
    )?;
    let mut table = Table::new(&["", "GB/s", "ours over it", "target", "met"]).words(&["met"]);
    for row in &report.rows {
        let [target, met] = cells(&row.target);
        let speed = format!("{:.2}", row.gb_per_s);
        table.row([row.name.clone(), speed, String::new(), target, met]);
        for beside in &row.beside {
            let [mut target, mut met] = cells(&beside.target);
            if let Some(ratio) = beside.target_ratio {
                target = ratio.to_string();
                met = in_words(beside.ratio_met);
            }
            table.row([
                format!("    {}", beside.peer),
                format!("{:.2}", beside.gb_per_s),
                format!("{:.2}", beside.ratio),
                target,
                met,
            ]);
        }
    }
    table.print(out)
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
                load: Some(0.5),
            },
            backend: "avx512".to_owned(),
            seconds_a_row: 1.0,
            data: "noise".to_owned(),
            unsteadiness: 1.0,
            rows: vec![row(16.0, &[("scalar", 2.0)])],
        };
        let mut out = Vec::new();
        print(&report, &mut out).expect("memory");
        let out = String::from_utf8(out).expect("text");
        let (_, table) = out.split_once("\n\n").expect("a header");
        assert_eq!(
            table,
            "                                 GB/s  ours over it     target  met\n\
             SAMPLEBYTE p = 64, random, hot  16.00                15.0 GB/s  yes\n    \
             scalar                       2.00          8.00         10  no\n"
        );
    }
}
