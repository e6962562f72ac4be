//! The page.

use std::fmt::Write;

use super::{
    Figures, Taken,
    measured::{Cost, median, medians},
    sizes::{Outcome, SetStored, Sizes},
    speed::{INDEX_BUDGET, Speeds},
    targets,
    transfer::{Moved, MovedOutcome, Transfers},
    ways::SMALL,
};

/// The page, from all that was measured.
pub fn page(figures: &Figures) -> anyhow::Result<String> {
    let mut page = "# CZIP archives beside their peers\n\n\
         Written by `cargo run --release -p refrain-experiments -- czip --write \
         docs/results-czip.md`.\nPeers are Debian's packages (`lab/setup --peers`), with default \
         options where none are named.\n\n\
         All programs are whole processes; CPU time and memory are the system's counts of their \
         children. Times\nare medians of runs in which the ways took turns. MB = 10^6 bytes. \
         What could not be had is *not there*.\n\n"
        .to_owned();
    asked(&mut page, figures)?;
    if let Some(taken) = &figures.sizes {
        heading(&mut page, "What is stored", taken)?;
        sizes(&mut page, &taken.figures)?;
    }
    if let Some(taken) = &figures.transfers {
        heading(&mut page, "Version N+1 to a client that has N", taken)?;
        transfers(&mut page, &taken.figures)?;
    }
    if let Some(taken) = &figures.speeds {
        heading(&mut page, "Speed and memory", taken)?;
        speeds(&mut page, &taken.figures)?;
    }
    Ok(page)
}

fn asked(page: &mut String, figures: &Figures) -> anyhow::Result<()> {
    *page += "## What was asked\n\n| | asked | measured | met |\n|---|--:|--:|---|\n";
    for target in targets::all(figures) {
        let (measured, met) = match &target.measured {
            Some(measured) if measured.is_met => (measured.text.as_str(), "yes"),
            Some(measured) => (measured.text.as_str(), "**no**"),
            None => ("not measured", ""),
        };
        let (what, asked) = (target.what, target.asked);
        writeln!(page, "| {what} | {asked} | {measured} | {met} |")?;
    }
    Ok(())
}

fn heading<T>(page: &mut String, title: &str, taken: &Taken<T>) -> std::fmt::Result {
    let Taken {
        machine,
        version,
        load,
        ..
    } = taken;
    writeln!(
        page,
        "\n## {title}\n\nMeasured at {version} on {machine}; load when it began: {load:.1}.\n"
    )
}

fn sizes(page: &mut String, sizes: &Sizes) -> anyhow::Result<()> {
    write!(
        page,
        "Profile `small` with default options stands first; each row below it changes what it names. \
         Every archive\nof ours was read back and compared. *Ranges*: whether a few bytes from the \
         middle can be read without most\nof what is before them. *Table*: of the archive, all but \
         frames. Times of {} runs; in brackets: of one.\n",
        sizes.runs
    )?;
    for row in &sizes.sets {
        let Some(stored) = &row.stored else {
            writeln!(page, "\n### {}\n\nNot there.", row.set.name())?;
            continue;
        };
        let mb = stored.bytes as f64 / 1e6;
        writeln!(page, "\n### {}, {mb:.1} MB\n", row.set.name())?;
        of_set(page, stored)?;
    }
    Ok(())
}

fn of_set(page: &mut String, set: &SetStored) -> anyhow::Result<()> {
    *page += "| | ranges | MB | of the input | over `small` | table, MB | wall, s | CPU, s | peak, MB |\n\
              |---|---|--:|--:|--:|--:|--:|--:|--:|\n";
    let small = set.stored(SMALL);
    for row in &set.rows {
        let ranges = if row.reads_ranges { "yes" } else { "no" };
        write!(page, "| {} | {ranges} | ", row.way)?;
        match &row.outcome {
            Outcome::NotThere => writeln!(page, "not there | | | | | | |")?,
            Outcome::Failed => writeln!(page, "failed | | | | | | |")?,
            Outcome::Stored { bytes, costs, .. } => {
                let share = 100.0 * *bytes as f64 / set.bytes as f64;
                let over = small.map(|small| format!("{:.2}", *bytes as f64 / small as f64));
                let table = row.report().map(|report| {
                    let bytes = report.archive_bytes - report.stored_bytes;
                    format!("{:.2}", bytes as f64 / 1e6)
                });
                let cost = medians(costs);
                let of_one = |text: String| match costs.len() {
                    1 => format!("({text})"),
                    _ => text,
                };
                writeln!(
                    page,
                    "{:.2} | {share:.2} % | {} | {} | {} | {} | {:.0} |",
                    *bytes as f64 / 1e6,
                    over.unwrap_or_default(),
                    table.unwrap_or_default(),
                    of_one(format!("{:.2}", cost.wall_s)),
                    of_one(format!("{:.2}", cost.cpu_s)),
                    cost.peak_bytes as f64 / 1e6,
                )?;
            }
        }
    }
    Ok(())
}

fn transfers(page: &mut String, transfers: &Transfers) -> anyhow::Result<()> {
    write!(
        page,
        "Over HTTP on loopback from nginx, which counts, with the heads of requests and answers; \
         `rsync` from its\ndaemon. Loopback has no delay and no end of bandwidth: requests and bytes \
         say what a real link would make of\nit, and seconds what the client computes. Medians of {} \
         runs; the client ends with the new version, which is\ncompared.\n",
        transfers.runs
    )?;
    for step in &transfers.steps {
        match &step.moved {
            None => writeln!(page, "\n### {}\n\nNot there.", step.name)?,
            Some(moved) => {
                let mb = moved.bytes as f64 / 1e6;
                writeln!(page, "\n### {}, {mb:.1} MB\n", step.name)?;
                of_step(page, moved)?;
            }
        }
    }
    Ok(())
}

fn of_step(page: &mut String, moved: &Moved) -> anyhow::Result<()> {
    *page += "| | MB | of it sent by the client | requests | s | CPU, s | peak, MB |\n\
              |---|--:|--:|--:|--:|--:|--:|\n";
    for row in &moved.rows {
        write!(page, "| {} | ", row.way)?;
        match &row.outcome {
            MovedOutcome::NotThere => writeln!(page, "not there | | | | | |")?,
            MovedOutcome::Failed => writeln!(page, "failed | | | | | |")?,
            MovedOutcome::Moved { runs } => {
                let Some((bytes, requests, wall_s)) = row.medians() else {
                    continue;
                };
                let costs: Vec<Cost> = runs.iter().map(|run| run.cost).collect();
                let cost = medians(&costs);
                let client = median(runs.iter().map(|run| run.traffic.sent_by_client as f64));
                writeln!(
                    page,
                    "{:.3} | {:.3} | {} | {wall_s:.2} | {:.2} | {:.0} |",
                    bytes as f64 / 1e6,
                    client / 1e6,
                    requests.map_or("–".to_owned(), |requests| requests.to_string()),
                    cost.cpu_s,
                    cost.peak_bytes as f64 / 1e6,
                )?;
            }
        }
    }
    Ok(())
}

fn speeds(page: &mut String, speeds: &Speeds) -> anyhow::Result<()> {
    write!(
        page,
        "Medians of {} runs. The *series*: the Django tars. The *big archive*: the DVD again and \
         again, each time with\nall bytes changed in another way, so that nothing repeats and nothing \
         can be compressed; from a pipe that\nanother program fills. *New chunks*: noise from such a \
         pipe, uncompressed, to `/dev/null`, with {INDEX_BUDGET} for names;\nof 1 KiB there are as \
         many as 1 TB has of 32 KiB.\n\n\
         | | MB/s | wall, s | CPU, s | peak, MB |\n|---|--:|--:|--:|--:|\n",
        speeds.runs
    )?;
    let mut row = |what: &str, bytes: u64, costs: &[Cost]| {
        let cost = medians(costs);
        let mb = bytes as f64 / 1e6;
        writeln!(
            page,
            "| {what} | {:.0} | {:.3} | {:.3} | {:.0} |",
            mb / cost.wall_s,
            cost.wall_s,
            cost.cpu_s,
            cost.peak_bytes as f64 / 1e6,
        )
    };
    if let Some(series) = &speeds.series {
        let bytes = series.plain_bytes;
        row("series: `create`", bytes, &series.create)?;
        row(
            "series: `create --profile shared`",
            bytes,
            &series.create_shared,
        )?;
        row("series: `extract`, into memory", bytes, &series.extract)?;
        let stored = "series: `verify`, of stored bytes";
        row(stored, series.archive_bytes, &series.verify)?;
    }
    if let Some(big) = &speeds.big {
        let gb = big.plain_bytes / 1_000_000_000;
        let create = format!("big archive, {gb} GB: `create`");
        row(&create, big.plain_bytes, &[big.create])?;
        let verify = "big archive: `verify`, of stored bytes";
        row(verify, big.report.stored_bytes, &big.verify)?;
        let read = "big archive: `cat --range`, 64 KiB";
        row(read, super::speed::READ_BYTES, &big.read)?;
        row("a process that does nothing", 0, &big.nothing)?;
    }
    for many in &speeds.many {
        let what = format!(
            "new chunks of {} KiB, {} of them: `create`",
            many.chunk_bytes >> 10,
            many.chunks
        );
        row(&what, many.plain_bytes, &[many.create])?;
    }
    Ok(())
}
