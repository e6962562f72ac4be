//! `refrain bulk` measured as HARENS was: the paper's Figures 4 to 7 and its Table II.
//!
//! Each figure is a table of what whole processes said, medians of runs in which the ways took turns, and
//! a plot of it.

mod chunk_sizes;
mod keeping;
mod media;
mod methods;
mod page;
mod program;
mod sets;
mod threads;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::targets;
use program::Program;
use sets::Sets;

/// The options of `bulk`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure with these files and directories [default: the Linux series, and media files as the YouTube
    /// trace requests them]
    #[arg(value_name = "FILE|DIR")]
    inputs: Vec<PathBuf>,
    /// Measure this program
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// Read test data from this directory
    #[arg(
        long,
        value_name = "DIR",
        env = "REFRAIN_DATA",
        default_value = "../shared/data"
    )]
    data: PathBuf,
    /// Unpack data and write chunk stores in this directory
    #[arg(long, value_name = "DIR", default_value = "target/bulk-data")]
    folder: PathBuf,
    /// Measure everything this many times
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Measure this many parts of the trace, each separately
    #[arg(long, default_value_t = 6)]
    traces: usize,
    /// Read this much per part of the trace, in 10^9 bytes
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    trace_gb: f64,
    /// Write plots to this directory
    #[arg(long, value_name = "DIR", default_value = "docs/plots")]
    plots: PathBuf,
    /// Write the page to this file instead of standard output
    #[arg(long)]
    pub write: Option<PathBuf>,
}

/// What all measuring needs.
struct Setup {
    program: Program,
    runs: usize,
    /// Where archives are made.
    folder: PathBuf,
}

/// A figure, and the name of its file.
struct Plot {
    name: &'static str,
    svg: String,
}

/// Measures, and gives the page.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    ensure!(
        arguments.runs > 0 && arguments.traces > 0,
        "--runs and --traces must be greater than zero"
    );
    std::fs::create_dir_all(&arguments.folder)?;
    let setup = Setup {
        program: Program::new(&arguments.refrain)?,
        runs: arguments.runs,
        folder: arguments.folder.canonicalize()?,
    };
    let sets = match &arguments.inputs[..] {
        [] => Sets::by_default(
            &arguments.data,
            &setup.folder,
            arguments.traces,
            (arguments.trace_gb * 1e9) as u64,
        )?,
        inputs => Sets::of(inputs)?,
    };
    let methods = methods::measure(&setup, &sets)?;
    let sizes = chunk_sizes::measure(&setup, &sets)?;
    let threads = threads::measure(&setup, &sets)?;
    let keeping = keeping::measure(&setup, &sets)?;
    for plot in [methods.plot()?]
        .into_iter()
        .chain(sizes.plots()?)
        .chain([threads.plot()?])
    {
        write_plot(&arguments.plots, &plot)?;
    }
    let plots = plots_from(arguments.write.as_deref(), &arguments.plots);
    let chapters = [
        methods.text(&plots)?,
        sizes.text(&plots)?,
        threads.text(&plots)?,
        keeping.text()?,
    ];
    targets::print(&page::targets(&methods));
    Ok(page::page(&setup, &sets, &methods, &chapters))
}

fn write_plot(folder: &Path, plot: &Plot) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join(plot.name);
    std::fs::write(&file, &plot.svg).with_context(|| file.display().to_string())
}

/// How the page calls the folder of plots.
pub(crate) fn plots_from(page: Option<&Path>, plots: &Path) -> String {
    let beside = page.and_then(Path::parent);
    let plots = beside
        .and_then(|folder| plots.strip_prefix(folder).ok())
        .unwrap_or(plots);
    plots.display().to_string()
}

/// Mean and standard deviation.
fn mean_and_deviation(figures: &[f64]) -> (f64, f64) {
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    let squares = figures.iter().map(|figure| (figure - mean).powi(2));
    let degrees = (count - 1.0).max(1.0);
    (mean, (squares.sum::<f64>() / degrees).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_figure_deviates_from_nothing() {
        assert_eq!(mean_and_deviation(&[3.0]), (3.0, 0.0));
        let (mean, deviation) = mean_and_deviation(&[1.0, 3.0]);
        assert_eq!((mean, deviation), (2.0, 2.0_f64.sqrt()));
    }

    #[test]
    fn plots_are_called_as_the_page_finds_them() {
        let name = |page: Option<&str>, plots| plots_from(page.map(Path::new), Path::new(plots));
        assert_eq!(name(Some("docs/results-bulk.md"), "docs/plots"), "plots");
        assert_eq!(name(Some("page.md"), "docs/plots"), "docs/plots");
        assert_eq!(name(None, "/tmp/plots"), "/tmp/plots");
    }
}
