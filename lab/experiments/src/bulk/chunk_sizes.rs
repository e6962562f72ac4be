//! Chunk sizes (Figures 5 and 6): how fast, and how much is found.

use std::fmt::Write;

use super::{Plot, Setup, sets::Sets};
use crate::median::median;

/// Averages, in KiB.
const SIZES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// What the shortest chunk has of the average: ours, and the paper's.
const SHORTEST: [(u32, &str); 2] = [(4, "a quarter"), (1, "as long")];

pub(super) struct Sizes {
    sets: Vec<OfSet>,
}

struct OfSet {
    name: String,
    /// For each of [`SHORTEST`] and [`SIZES`]: GB/s, the share that is redundant.
    found: [[(f64, f64); 7]; 2],
}

pub(super) fn measure(setup: &Setup, sets: &Sets) -> anyhow::Result<Sizes> {
    let sets = sets.some().each(|set, files| {
        eprintln!("chunk sizes: {}", set.name);
        let mut speeds: [[Vec<f64>; 7]; 2] = Default::default();
        let mut shares = [[0.0; 7]; 2];
        for _ in 0..setup.runs {
            for (row, (part, _)) in SHORTEST.iter().enumerate() {
                for (column, kib) in SIZES.iter().enumerate() {
                    let size = format!("{kib}KiB");
                    let shortest = format!("{}", kib * 1024 / part);
                    let options = [
                        "--method",
                        "pipeline",
                        "--chunk-size",
                        &size,
                        "--chunk-min",
                        &shortest,
                    ];
                    if let Some(report) = setup.program.bulk(files, &options)? {
                        speeds[row][column].push(report.gb_per_s);
                        shares[row][column] = report.redundancy;
                    }
                }
            }
        }
        Ok(OfSet {
            name: set.name.clone(),
            found: std::array::from_fn(|row| {
                std::array::from_fn(|column| {
                    (
                        median(speeds[row][column].iter().copied()),
                        shares[row][column],
                    )
                })
            }),
        })
    })?;
    Ok(Sizes { sets })
}

impl Sizes {
    fn series(&self, figure: impl Fn((f64, f64)) -> f64) -> Vec<(String, Vec<f64>)> {
        let of_set = |set: &OfSet| {
            let rows = SHORTEST.iter().zip(set.found);
            let named = rows.map(|((_, words), found)| {
                let name = format!("{}, shortest {words}", set.name);
                (name, found.map(&figure).to_vec())
            });
            named.collect::<Vec<_>>()
        };
        self.sets.iter().flat_map(of_set).collect()
    }

    pub(super) fn plots(&self) -> anyhow::Result<[Plot; 2]> {
        let names = SIZES.map(|kib| format!("{kib} KiB"));
        let throughput = refrain_plot::lines(
            &refrain_plot::Words {
                title: "Throughput by chunk size (the paper's Figure 5)",
                across: "average chunk",
                up: "GB/s",
            },
            &names,
            &self.series(|(speed, _)| speed),
        )?;
        let redundancy = refrain_plot::lines(
            &refrain_plot::Words {
                title: "Redundancy by chunk size (the paper's Figure 6)",
                across: "average chunk",
                up: "redundant, %",
            },
            &names,
            &self.series(|(_, share)| 100.0 * share),
        )?;
        Ok([
            Plot {
                name: "bulk-throughput.svg",
                svg: throughput,
            },
            Plot {
                name: "bulk-redundancy.svg",
                svg: redundancy,
            },
        ])
    }

    pub(super) fn text(&self, plots: &str) -> anyhow::Result<String> {
        let mut text = format!(
            "\n## Chunk size\n\n\
             The pipeline at several chunk sizes, as in the paper's Figures 5 and 6: GB/s, and the share of\n\
             redundant bytes. *Shortest*: the shortest chunk is a quarter of the average (refrain's default), or as\n\
             long as the average (the paper's). In the paper, 2 KiB is the fastest, and 1 KiB finds hardly more.\n\n\
             ![Throughput by chunk size]({plots}/bulk-throughput.svg)\n\n\
             ![Redundancy by chunk size]({plots}/bulk-redundancy.svg)\n\n\
             | data | shortest |"
        );
        for kib in SIZES {
            write!(text, " {kib} KiB |")?;
        }
        text += "\n|---|---|";
        text += &"--:|".repeat(SIZES.len());
        text.push('\n');
        for set in &self.sets {
            for ((_, words), found) in SHORTEST.iter().zip(set.found) {
                write!(text, "| {} | {words} |", set.name)?;
                for (speed, share) in found {
                    write!(text, " {speed:.2}; {:.1} % |", 100.0 * share)?;
                }
                text.push('\n');
            }
        }
        Ok(text)
    }
}
