//! The chapter of the page, and its targets.

use std::fmt::Write;

use super::{CLIENTS, Condition, Measured, Run, Servings, Trial, Way};
use crate::{
    median::medians_of,
    targets::{Target, at_least},
};

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx, plain files",
            Self::NginxThreads => "nginx, plain files, `aio threads`",
            Self::Shared => "`czip serve`, content, `shared`, uncompressed",
            Self::SharedZstd => "`czip serve`, content, `shared`, zstd",
            Self::SmallZstd => "`czip serve`, content, `small`, zstd",
            Self::Stored => "`czip serve`, archive files, `shared`, uncompressed",
            Self::Plain => "`czip serve`, plain files",
        }
    }
}

impl Condition {
    const ALL: [Self; 6] = [
        Self::Paper,
        Self::Together,
        Self::Once,
        Self::FastDisk,
        Self::FitsOnLink,
        Self::Fits,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Paper => "Memory for the union, disk at 100 MB/s (the paper's Figure 9)",
            Self::Together => "The same, all clients start at the beginning of a file",
            Self::Once => "The same without the second copies",
            Self::FastDisk => "Memory for the union, disk unthrottled",
            Self::FitsOnLink => "All in memory, 1 Gbit/s for all clients together",
            Self::Fits => "All in memory, unlimited",
        }
    }
}

/// Writes the chapter, below its heading.
pub(super) fn write(page: &mut String, servings: &Servings) -> anyhow::Result<()> {
    let Some(measured) = &servings.measured else {
        *page += "Not available.\n";
        return Ok(());
    };
    let mb = |bytes: u64| bytes as f64 / 1e6;
    write!(
        page,
        "The data is a DVD and 3 CDs of .debs, and a second copy of all four: {:.0} MB. Their union has {:.0} MB. A\n\
         control group (version {}) gives the server {:.0} MB, which includes the page cache. This is 4/3 of the\n\
         union, as in the paper. `czip serve` has `--cache-size` {:.0} MB of that. Clients are on the same machine\n\
         and take CPU time from the server. Each client requests files in its own order over one connection, and\n\
         begins anywhere in a file. It checks one MiB in 16. Each run begins with empty memory, so reads from disk\n\
         count. Before the runs of the last two tables, clients read until hardly any data is read from disk.\n\
         Figures are {}; rows with *one run* are from one run. Servers took turns.\n\
         *Later*: in the second half of a run. *Client*: the median client, and the slowest. *Peak*: the server's\n\
         processes, without the page cache.\n",
        mb(measured.all_bytes),
        mb(measured.union_bytes),
        measured.version,
        mb(measured.memory_bytes),
        mb(measured.cache_bytes),
        medians_of(servings.runs),
    )?;
    for condition in Condition::ALL {
        let trials: Vec<&Trial> = measured
            .trials
            .iter()
            .filter(|trial| trial.condition == condition && !trial.runs.is_empty())
            .collect();
        if trials.is_empty() {
            continue;
        }
        let seconds = condition.lasts().as_secs();
        writeln!(page, "\n### {}, {seconds} s\n", condition.title())?;
        *page += "| clients | | MB/s | over nginx | later, MB/s | client, MB/s | CPU, s/GB | disk, MB | peak, MB |\n\
                  |--:|---|--:|--:|--:|--:|--:|--:|--:|\n";
        for trial in trials {
            row(page, measured, trial)?;
        }
    }
    Ok(())
}

fn row(page: &mut String, measured: &Measured, trial: &Trial) -> std::fmt::Result {
    let mb = |figure: fn(&Run) -> f64| trial.median(figure) / 1e6;
    let one = if trial.runs.len() == 1 {
        ", one run"
    } else {
        ""
    };
    let ratio = ratio(measured, trial.condition, trial.way, trial.clients);
    writeln!(
        page,
        "| {} | {}{one} | {:.0} | {} | {:.0} | {:.2}, {:.2} | {:.2} | {:.0} | {:.0} |",
        trial.clients,
        trial.way.name(),
        mb(|run| run.rate),
        ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        mb(|run| run.later_rate),
        mb(|run| run.client_rates[0]),
        mb(|run| run.client_rates[1]),
        trial.median(|run| run.cpu_s_per_gb),
        mb(|run| run.disk_bytes as f64),
        mb(|run| run.peak_bytes as f64),
    )
}

/// Its throughput over that of nginx, the faster one of those measured beside it.
fn ratio(measured: &Measured, condition: Condition, way: Way, clients: usize) -> Option<f64> {
    let rate = |way| {
        let trial = measured.trial(condition, way, clients)?;
        Some(trial.median(|run| run.rate))
    };
    let nginx = [Way::Nginx, Way::NginxThreads].map(rate);
    let nginx = nginx.into_iter().flatten().reduce(f64::max)?;
    Some(rate(way)? / nginx)
}

/// The bounds that the figures are checked against.
pub(super) fn targets(servings: &Servings) -> Vec<Target> {
    let over = |condition, clients, bound: f64| {
        let measured = servings.measured.as_ref()?;
        let ratio = ratio(measured, condition, Way::Shared, clients)?;
        let rate = measured.trial(condition, Way::Shared, clients)?;
        let rate = rate.median(|run| run.rate) / 1e6;
        Some(at_least(
            ratio,
            bound,
            format!("{ratio:.2} ({rate:.0} MB/s)"),
        ))
    };
    let whats = [
        "`czip serve` over nginx with plain files, the union fits in memory, 100 clients",
        "the same, 200 clients",
        "the same, 300 clients",
    ];
    let mut targets: Vec<Target> = CLIENTS
        .into_iter()
        .zip(whats)
        .map(|(clients, what)| Target {
            what,
            asked: "≥ 2.2",
            measured: over(Condition::Paper, clients, 2.2),
        })
        .collect();
    targets.push(Target {
        what: "`czip serve` over nginx with plain files, all files fit in memory, 1 Gbit/s for 100 clients",
        asked: "≥ 0.9",
        measured: over(Condition::FitsOnLink, 100, 0.9),
    });
    targets.push(Target {
        what: "the same, unlimited",
        asked: "≥ 0.5",
        measured: over(Condition::Fits, 100, 0.5),
    });
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(way: Way, rates: &[f64]) -> Trial {
        let run = |&rate: &f64| Run {
            rate,
            later_rate: rate,
            client_rates: [rate; 2],
            cpu_s_per_gb: 1.0,
            disk_bytes: 5,
            peak_bytes: 6,
            blocks_checked: 7,
        };
        Trial {
            condition: Condition::Paper,
            way,
            clients: 100,
            runs: rates.iter().map(run).collect(),
        }
    }

    #[test]
    fn it_is_held_against_the_faster_nginx() {
        let servings = Servings {
            runs: 3,
            measured: Some(Measured {
                version: 1,
                all_bytes: 4,
                union_bytes: 1,
                memory_bytes: 2,
                cache_bytes: 1,
                trials: vec![
                    trial(Way::Nginx, &[1e6, 9e6, 2e6]),
                    trial(Way::NginxThreads, &[4e6]),
                    trial(Way::Shared, &[1e6, 8e6, 9e6]),
                ],
            }),
        };
        let targets = targets(&servings);
        let first = targets[0].measured.as_ref().expect("it was measured");
        assert!(!first.is_met);
        assert_eq!(first.text, "2.00 (8 MB/s)");
        assert!(targets[1].measured.is_none());
        let mut page = String::new();
        write(&mut page, &servings).expect("memory");
        assert!(
            page.contains("| 100 | nginx, plain files | 2 | 0.50 |"),
            "{page}"
        );
    }
}
