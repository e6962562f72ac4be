//! The four methods (Figure 7 and Table II): how fast they are, and that they find the same.

use std::fmt::Write;

use anyhow::ensure;

use super::{
    Plot, Setup, mean_and_deviation,
    program::{Report, Stage},
    sets::Sets,
};
use crate::median::median;

/// As the program calls them, slowest first.
const METHODS: [&str; 4] = ["naive", "cuda", "pipeline", "harens"];

/// What the paper has of each.
const PAPER: &str = "
The paper's figures are from another machine and other data: HARENS (Diao et al., CloudCom 2016), Figure 7 (read off)
and Table II. It read videos of YouTube, in the order of the same trace. It ran on an Intel Core i7-5930K (12 cores
in the paper) with an NVIDIA Tesla K40c.

| method in the paper | times naive | redundancy |
|---|--:|--:|
| naive | 1 | 18.50 ± 3.04 |
| cuda | about 3 | 18.50 ± 3.03 |
| pipeline | 1.17 | 18.50 ± 3.04 |
| harens | 14 | 17.92 ± 2.96 |
";

pub(super) struct Methods {
    sets: Vec<OfSet>,
}

struct OfSet {
    name: String,
    is_part: bool,
    bytes: u64,
    /// For each of [`METHODS`], unless it takes a GPU that is not there.
    methods: [Option<OfMethod>; 4],
}

struct OfMethod {
    gb_per_s: f64,
    redundancy: f64,
    /// Of the run in the middle.
    report: Report,
}

pub(super) fn measure(setup: &Setup, sets: &Sets) -> anyhow::Result<Methods> {
    let sets = sets.each(|set, files| {
        eprintln!("methods: {}", set.name);
        let mut reports: [Vec<Report>; 4] = Default::default();
        for _ in 0..setup.runs {
            for (method, reports) in METHODS.iter().zip(&mut reports) {
                reports.extend(setup.program.bulk(files, &["--method", method])?);
            }
        }
        let methods = reports.map(OfMethod::new);
        let mut bytes = 0;
        let mut found: Option<(f64, u64)> = None;
        for method in methods.iter().flatten() {
            bytes = method.report.bytes;
            let this = (method.redundancy, method.report.chunks);
            let other = *found.get_or_insert(this);
            ensure!(
                this == other,
                "{}: the methods differ in redundancy or chunks: {this:?}, {other:?}",
                set.name
            );
        }
        Ok(OfSet {
            name: set.name.clone(),
            is_part: set.is_part(),
            bytes,
            methods,
        })
    })?;
    Ok(Methods { sets })
}

impl OfMethod {
    fn new(mut reports: Vec<Report>) -> Option<Self> {
        reports.sort_by(|one, other| one.gb_per_s.total_cmp(&other.gb_per_s));
        let middle = reports.get(reports.len() / 2)?.clone();
        Some(Self {
            gb_per_s: median(reports.iter().map(|report| report.gb_per_s)),
            redundancy: middle.redundancy,
            report: middle,
        })
    }
}

impl Methods {
    fn of(&self, set: &OfSet, method: &str) -> Option<f64> {
        let place = METHODS.iter().position(|name| *name == method)?;
        set.methods[place].as_ref().map(|of| of.gb_per_s)
    }

    /// The slowest set of the pipeline: GB/s, and times naive.
    pub(super) fn pipeline(&self) -> (f64, f64) {
        let figures = self.sets.iter().filter_map(|set| {
            let pipeline = self.of(set, "pipeline")?;
            Some((pipeline, pipeline / self.of(set, "naive")?))
        });
        figures.fold((f64::INFINITY, f64::INFINITY), |(speed, times), (s, t)| {
            (speed.min(s), times.min(t))
        })
    }

    /// The slowest set of the whole, on GPUs.
    pub(super) fn harens(&self) -> Option<f64> {
        let speeds = self.sets.iter().map(|set| self.of(set, "harens"));
        speeds.reduce(|one, other| Some(one?.min(other?)))?
    }

    /// From how many bytes on the whole takes less time than the pipeline, as processes, where that takes
    /// most; infinitely many where it never does.
    fn break_even_bytes(&self) -> Option<f64> {
        let of_sets = self.sets.iter().filter_map(|set| {
            let [_, _, Some(pipeline), Some(harens)] = &set.methods else {
                return None;
            };
            let more_s = harens.report.around_s - pipeline.report.around_s;
            let less_s_a_gb = 1.0 / pipeline.gb_per_s - 1.0 / harens.gb_per_s;
            Some(match less_s_a_gb > 0.0 {
                true => 1e9 * more_s.max(0.0) / less_s_a_gb,
                false => f64::INFINITY,
            })
        });
        of_sets.reduce(f64::max)
    }

    /// The processor's instructions, and GPUs.
    pub(super) fn hardware(&self) -> (String, Vec<String>) {
        let reports = || {
            self.sets
                .iter()
                .flat_map(|set| set.methods.iter().flatten())
        };
        let simd = reports().last().map(|of| of.report.simd.clone());
        let gpus = reports()
            .map(|of| of.report.gpus.clone())
            .max_by_key(Vec::len);
        (simd.unwrap_or_default(), gpus.unwrap_or_default())
    }

    pub(super) fn plot(&self) -> anyhow::Result<Plot> {
        let names: Vec<String> = self.sets.iter().map(|set| set.name.clone()).collect();
        let series = METHODS.iter().filter_map(|&method| {
            let speeds: Option<Vec<f64>> =
                self.sets.iter().map(|set| self.of(set, method)).collect();
            Some((method.to_owned(), speeds?))
        });
        Ok(Plot {
            name: "bulk-methods.svg",
            svg: refrain_plot::lines(
                &refrain_plot::Words {
                    title: "Throughput of the methods (the paper's Figure 7)",
                    across: "data",
                    up: "GB/s",
                },
                &names,
                &series.collect::<Vec<_>>(),
            )?,
        })
    }

    pub(super) fn text(&self, plots: &str) -> anyhow::Result<String> {
        let mut text = format!(
            "\n## The four methods\n\n\
             GB/s, as in the paper's Figure 7. *Redundancy*: the share of redundant bytes of media in percent, mean\n\
             and standard deviation, as in the paper's Table II. Chunks of 2 KiB by MODP, BLAKE3, a cache of 8 GiB.\n\
             All methods are refrain's own. *naive* is the simplest: one thread that works byte by byte.\n\
             A check ensures that all methods find the same chunks and the same redundancy in each set.\n\n\
             ![Throughput of the methods]({plots}/bulk-methods.svg)\n\n\
             | method |"
        );
        for set in &self.sets {
            write!(text, " {} |", set.name)?;
        }
        text += " times naive | redundancy |\n|---|";
        text += &"--:|".repeat(self.sets.len() + 2);
        text.push('\n');
        for (place, method) in METHODS.iter().enumerate() {
            write!(text, "| {method} |")?;
            let found: Vec<&OfMethod> = self
                .sets
                .iter()
                .filter_map(|set| set.methods[place].as_ref())
                .collect();
            if found.is_empty() {
                text += &" no GPU |".repeat(self.sets.len());
                text += " | |\n";
                continue;
            }
            for of in &found {
                write!(text, " {:.2} |", of.gb_per_s)?;
            }
            let naive = self.sets.iter().filter_map(|set| set.methods[0].as_ref());
            let times: Vec<f64> = naive
                .zip(&found)
                .map(|(naive, of)| of.gb_per_s / naive.gb_per_s)
                .collect();
            let (times, _) = mean_and_deviation(&times);
            let share = self.share(place);
            writeln!(text, " {times:.1} | {share} |")?;
        }
        let (speed, times) = self.pipeline();
        writeln!(
            text,
            "\nThe pipeline has at least {speed:.2} GB/s and {times:.1} times naive's speed in each set.\n{}",
            self.harens_in_words()
        )?;
        text += PAPER;
        text += "\n| set | GB | redundant |\n|---|--:|--:|\n";
        for set in &self.sets {
            let found = set
                .methods
                .iter()
                .flatten()
                .next()
                .map_or(0.0, |of| of.redundancy);
            let gb = set.bytes as f64 / 1e9;
            writeln!(text, "| {} | {gb:.2} | {:.2} % |", set.name, 100.0 * found)?;
        }
        self.stages(&mut text)?;
        Ok(text)
    }

    /// Where the whole is faster than the pipeline.
    fn harens_in_words(&self) -> String {
        match self.break_even_bytes() {
            None => "cuda and harens have figures from [another machine](#with-a-gpu).".to_owned(),
            Some(bytes) if bytes.is_finite() => {
                let gb = bytes / 1e9;
                format!("harens is faster than the pipeline from {gb:.1} GB on.")
            }
            Some(_) => "harens is never faster than the pipeline.".to_owned(),
        }
    }

    /// What a method finds in parts that are alike, or in the only set.
    fn share(&self, method: usize) -> String {
        let has_parts = self.sets.iter().any(|set| set.is_part);
        let sets = self.sets.iter().filter(|set| set.is_part == has_parts);
        let found = sets.filter_map(|set| set.methods[method].as_ref());
        let shares: Vec<f64> = found.map(|of| 100.0 * of.redundancy).collect();
        let (mean, deviation) = mean_and_deviation(&shares);
        format!("{mean:.2} ± {deviation:.2}")
    }

    /// What each stage of the pipeline would do with a processor of its own.
    fn stages(&self, text: &mut String) -> anyhow::Result<()> {
        let Some(OfSet { name, methods, .. }) = self.sets.first() else {
            return Ok(());
        };
        let Some(pipeline) = &methods[2] else {
            return Ok(());
        };
        let stage =
            |stage: &Stage| format!("{} {:.1} ({})", stage.name, stage.gb_per_s, stage.threads);
        let stages: Vec<String> = pipeline.report.stages.iter().map(stage).collect();
        let peak = pipeline.report.peak_memory_bytes.unwrap_or(0) as f64 / 1e6;
        writeln!(
            text,
            "\nThe pipeline's stages on *{name}*, in GB/s if each had its own CPU (threads in brackets): {}.\nPeak \
             memory: {peak:.0} MB.",
            stages.join(", ")
        )?;
        Ok(())
    }
}
