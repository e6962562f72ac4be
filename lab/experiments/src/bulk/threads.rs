//! Threads that hash and threads that look up (Figure 4).

use std::fmt::Write;

use super::{Plot, Setup, sets::Sets};
use crate::median::median;

const HASHERS: [usize; 5] = [1, 2, 4, 8, 16];
const MATCHERS: [usize; 6] = [1, 2, 4, 16, 64, 200];

pub(super) struct Threads {
    set: String,
    /// GB/s, for each of [`HASHERS`] and [`MATCHERS`].
    speeds: [[f64; 6]; 5],
}

pub(super) fn measure(setup: &Setup, sets: &Sets) -> anyhow::Result<Threads> {
    eprintln!("threads: {}", sets.sets[0].name);
    let mut speeds: [[Vec<f64>; 6]; 5] = Default::default();
    sets.first(|files| {
        for _ in 0..setup.runs {
            for (hashers, row) in HASHERS.iter().zip(&mut speeds) {
                for (matchers, speeds) in MATCHERS.iter().zip(row) {
                    let (hashers, matchers) = (hashers.to_string(), matchers.to_string());
                    let options = [
                        "--method",
                        "pipeline",
                        "--hashers",
                        &hashers,
                        "--matchers",
                        &matchers,
                    ];
                    let report = setup.program.bulk(files, &options)?;
                    speeds.extend(report.map(|report| report.gb_per_s));
                }
            }
        }
        Ok(())
    })?;
    Ok(Threads {
        set: sets.sets[0].name.clone(),
        speeds: speeds.map(|row| row.map(median)),
    })
}

impl Threads {
    pub(super) fn plot(&self) -> anyhow::Result<Plot> {
        let names = MATCHERS.map(|matchers| matchers.to_string());
        let series = HASHERS.iter().zip(self.speeds);
        let series = series.map(|(hashers, row)| (format!("hashers: {hashers}"), row.to_vec()));
        Ok(Plot {
            name: "bulk-threads.svg",
            svg: refrain_plot::lines(
                &refrain_plot::Words {
                    title: "Throughput by hashers and matchers (the paper's Figure 4)",
                    across: "matchers",
                    up: "GB/s",
                },
                &names,
                &series.collect::<Vec<_>>(),
            )?,
        })
    }

    pub(super) fn text(&self, plots: &str) -> anyhow::Result<String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut text = format!(
            "\n## Hashers and matchers\n\n\
             GB/s of the pipeline on *{}*, as in the paper's Figure 4. Rows are numbers of threads that hash, and\n\
             columns of threads that look up. All other threads are as by default. The paper's best numbers, on 12\n\
             cores, were 8 and 64. This machine has {cores} cores. There are 64 shards, so matchers beyond 64\n\
             have no work.\n\n\
             ![Throughput by hashers and matchers]({plots}/bulk-threads.svg)\n\n\
             | hashers |",
            self.set
        );
        for matchers in MATCHERS {
            write!(text, " {matchers} |")?;
        }
        text += "\n|--:|";
        text += &"--:|".repeat(MATCHERS.len());
        text.push('\n');
        for (hashers, row) in HASHERS.iter().zip(self.speeds) {
            write!(text, "| {hashers} |")?;
            for speed in row {
                write!(text, " {speed:.2} |")?;
            }
            text.push('\n');
        }
        Ok(text)
    }
}
