//! Who knows chunks at both ends (the paper's section 4.3): version N+1 from `refrain czip serve` to a
//! client that has N, by ranges and by names, nearby and far away.

use std::{fmt::Write, path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Setup, data::DataSet, measured::measure, origin::Origin, ways::bash};
use crate::{
    chapters::Figures,
    median::{median, medians_of},
};

/// One way, in milliseconds.
const DELAYS_MS: [u64; 2] = [0, 50];
const WAYS: [&str; 2] = ["range", "name"];

/// What it took.
#[derive(Serialize, Deserialize)]
pub(super) struct ByName {
    runs: usize,
    /// Empty where the data is not there.
    rows: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    delay_ms: u64,
    way: String,
    has_seed: bool,
    runs: Vec<Run>,
}

/// One get.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Run {
    /// On the connections, both ways, with heads.
    bytes: u64,
    sent_by_client: u64,
    requests: u64,
    wall_s: f64,
    cpu_s: f64,
}

impl Figures<Setup<'_>> for ByName {
    const NAME: &'static str = "by-name";
    const TITLE: &'static str = "Ranges and names";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let files = || {
            let file = |name| setup.data.file(DataSet::Django, name);
            anyhow::Ok([file("d10.tar")?, file("d11.tar")?])
        };
        let mut rows = Vec::new();
        match files() {
            Ok([old, new]) => {
                for delay_ms in DELAYS_MS {
                    for has_seed in [true, false] {
                        rows.extend(of_delay(setup, &old, &new, delay_ms, has_seed)?);
                    }
                }
            }
            Err(error) => eprintln!("by-name: not available: {error:#}"),
        }
        let runs = setup.runs;
        Ok(Self { runs, rows })
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        if self.rows.is_empty() {
            *page += "Not available.\n";
            return Ok(());
        }
        write!(
            page,
            "A client gets Django 4.2.11 (`--profile shared`) from `refrain czip serve` over a link without a rate\n\
             limit (`refrain-relay`). It has 4.2.10 (`--seed`), or nothing. It fetches by ranges over 4\n\
             connections, or by names with the server as `--edge`. Bytes count both directions, with HTTP headers.\n\
             Figures are {}; the ways took turns.\n\n\
             | delay, one way | the client has | by | MB | MB from the client | requests | s | CPU, s |\n\
             |--:|---|---|--:|--:|--:|--:|--:|\n",
            medians_of(self.runs)
        )?;
        for row in &self.rows {
            let of = |figure: fn(&Run) -> f64| median(row.runs.iter().map(figure));
            writeln!(
                page,
                "| {} ms | {} | {} | {:.3} | {:.3} | {} | {:.2} | {:.2} |",
                row.delay_ms,
                if row.has_seed { "4.2.10" } else { "nothing" },
                row.way,
                of(|run| run.bytes as f64) / 1e6,
                of(|run| run.sent_by_client as f64) / 1e6,
                of(|run| run.requests as f64).round(),
                of(|run| run.wall_s),
                of(|run| run.cpu_s),
            )?;
        }
        *page += "\nBy name, the client needs no table of frame positions, and fetches no gaps between frames. Each\n\
                  chunk costs the headers of a request and of a response. Up to 512 requests are in flight at the\n\
                  same time.\n";
        Ok(())
    }
}

fn of_delay(
    setup: &Setup<'_>,
    old: &Path,
    new: &Path,
    delay_ms: u64,
    has_seed: bool,
) -> anyhow::Result<Vec<Row>> {
    let folder = tempfile::tempdir_in(setup.data.folder())?;
    let served = folder.path().join("served");
    std::fs::create_dir(&served)?;
    let run = |script: &str, url: &str| {
        let script = format!("REFRAIN=$1 OLD=$2 NEW=$3 URL=$4; {script}");
        let arguments = [setup.refrain, old, new, Path::new(url)];
        measure(bash(&script, arguments), folder.path(), None)
    };
    run(
        r#""$REFRAIN" czip create --profile shared -o served/new.czip "$NEW""#,
        "",
    )?;
    let origin = Origin::start(setup.refrain, &served, Duration::from_millis(delay_ms))?;
    let url = format!("http://{}/new.czip", origin.address());
    let mut rows = WAYS.map(|way| Row {
        delay_ms,
        way: way.to_owned(),
        has_seed,
        runs: Vec::new(),
    });
    for _ in 0..setup.runs {
        for row in &mut rows {
            let before = origin.left()?;
            let seed = if has_seed { r#"--seed "$OLD""# } else { "" };
            let edge = if row.way == "name" {
                r#"--edge "${URL%new.czip}""#
            } else {
                ""
            };
            let get = format!(r#""$REFRAIN" czip get "$URL" {seed} {edge} -o out"#);
            let (cost, _) = run(&get, &url)?;
            run(r#"cmp "$NEW" out && rm out"#, "")?;
            let left = origin.left()?.since(before);
            let run = Run {
                bytes: left.bytes + left.asked_bytes,
                sent_by_client: left.asked_bytes,
                requests: left.requests,
                wall_s: cost.wall_s,
                cpu_s: cost.cpu_s,
            };
            eprintln!("{delay_ms} ms, by {}: {run:?}", row.way);
            row.runs.push(run);
        }
    }
    Ok(rows.into())
}
