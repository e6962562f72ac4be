//! A day of requests for videos at a campus: PACK's Table 1, Figures 4, 8 and 9, and Table 3.

use std::{fmt::Write, process::Command};

use anyhow::{Context, ensure};
use refrain_plot::Words;
use serde::{Deserialize, Serialize};

use super::Setup;
use crate::chapters::{Figures, Plot};

const TRACE: &str = "youtube/youtube.parsed.012908.S1.dat.zst";

/// With it, the trace's busiest ten minutes need as many servers as the paper's: 6 × 473 Mbit/s on servers of 350 Mbit/s.
const SERVER_OUTPUT: &str = "10Mbit";

/// Intervals of ten minutes in an hour.
const HOUR: usize = 6;

/// Fields of `refrain analyze --requests --json`.
#[derive(Serialize, Deserialize)]
pub(super) struct Requests {
    requests: u64,
    other_requests: u64,
    bytes: u64,
    clients: u64,
    objects: u64,
    same_client: Repeats,
    any_client: Repeats,
    interval_seconds: u64,
    intervals: Vec<Interval>,
    age_limits_seconds: Vec<u64>,
    arrays: Vec<Array>,
}

#[derive(Serialize, Deserialize)]
struct Repeats {
    requests: u64,
    bytes: u64,
    by_age: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct Interval {
    bytes: u64,
    same_client_bytes: u64,
    any_client_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct Array {
    name: String,
    servers: Vec<u32>,
    server_hours: f64,
    sent_bytes: u64,
    cost_percent: f64,
}

impl Figures<Setup<'_>> for Requests {
    const NAME: &'static str = "requests";
    const TITLE: &'static str = "A day of requests for videos";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let mut command = Command::new(setup.refrain);
        command
            .args(["analyze", "--json", "--server-output", SERVER_OUTPUT])
            .arg("--requests")
            .arg(setup.data.join(TRACE));
        let output = command.output()?;
        ensure!(output.status.success(), "it failed: {output:?}");
        serde_json::from_slice(&output.stdout).context("`refrain analyze --requests`")
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        let most = self.intervals.iter().map(|interval| interval.bytes).max();
        let most = most.unwrap_or_default() as f64 * 8e-6 / self.interval_seconds as f64;
        let percent = |part: u64| 100.0 * part as f64 / self.bytes.max(1) as f64;
        write!(
            page,
            "`refrain analyze --requests --server-output {SERVER_OUTPUT}` with the UMass trace of YouTube requests at a\n\
             campus. The trace names videos and has no content. Their sizes are invented: 1 to 60 MB by name, with a mean of\n\
             11.5 MB. A video repeats as a whole, so this is an upper bound. *Paper*: Table 1 and Table 3 of PACK (SIGCOMM\n\
             2011), which had the content. Its savings include parts of videos that users skipped through.\n\n\
             | | here | paper |\n|---|--:|--:|\n\
             | traffic | {:.2} TB | 1.55 TB |\n\
             | highest rate over 10 min | {most:.0} Mbit/s | 473 Mbit/s |\n\
             | requests | {} | 146,434 |\n\
             | requests without a video's name | {} | |\n\
             | videos | {} | 39,478 |\n\
             | clients | {} | 37,081 |\n\
             | repeats of the same client | {:.1} % | 29.55 % |\n\
             | repeats of any client | {:.1} % | |\n\n",
            self.bytes as f64 / 1e12,
            self.requests + self.other_requests,
            self.other_requests,
            self.objects,
            self.clients,
            percent(self.same_client.bytes),
            percent(self.any_client.bytes),
        )?;
        write!(
            page,
            "A near end at the campus would find repeats of any client. In the paper, each client has a store of its own.\n\n\
             ![Traffic](plots/analyze-requests-traffic.svg)\n\n![Repeats over the day](plots/analyze-requests-repeats.svg)\n\n\
             Figure 4 of the paper: about 30 % in the steady state.\n\n\
             ### Age of repeats (PACK, Figure 8)\n\n\
             | age below | same client, bytes % | any client, bytes % |\n|---|--:|--:|\n"
        )?;
        let (mut same, mut any) = (0, 0);
        let limits = self.age_limits_seconds.iter();
        let limits = limits.map(|limit| format!("{limit} s"));
        for (nth, limit) in limits.enumerate() {
            same += self.same_client.by_age[nth];
            any += self.any_client.by_age[nth];
            let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
            writeln!(
                page,
                "| {limit} | {:.1} | {:.1} |",
                share(same, self.same_client.bytes),
                share(any, self.any_client.bytes)
            )?;
        }
        write!(
            page,
            "\n### Servers (PACK, Figure 9 and Table 3)\n\n\
             ![Servers over the day](plots/analyze-requests-servers.svg)\n\n\
             | | most servers | server-hours | more | paper | total cost | paper |\n|---|--:|--:|--:|--:|--:|--:|\n"
        )?;
        let none = self.arrays.first().map_or(1.0, |array| array.server_hours);
        let paper = [("", "100 %"), ("6.1 %", "80.6 %"), ("19.0 %", "83.0 %")];
        for (array, (hours, cost)) in self.arrays.iter().zip(paper) {
            writeln!(
                page,
                "| {} | {} | {:.1} | {:.1} % | {hours} | {:.1} % | {cost} |",
                array.name,
                array.servers.iter().max().copied().unwrap_or_default(),
                array.server_hours,
                100.0 * (array.server_hours / none - 1.0),
                array.cost_percent
            )?;
        }
        writeln!(
            page,
            "\nThe cost of hashing a byte is the paper's, and traffic to servers 7 : 3. A third of the paper's repeats is\n\
             here, so both ways save less."
        )?;
        Ok(())
    }

    fn plots(&self) -> anyhow::Result<Vec<Plot>> {
        let hours = self.intervals.chunks(HOUR);
        let places: Vec<String> = (0..hours.len()).map(|hour| hour.to_string()).collect();
        let sum = |of: fn(&Interval) -> u64| -> Vec<f64> {
            let sum = |hour: &[Interval]| hour.iter().map(of).sum::<u64>() as f64;
            hours.clone().map(sum).collect()
        };
        let all = sum(|it| it.bytes);
        let seconds = (HOUR as u64 * self.interval_seconds) as f64;
        let rate = all.iter().map(|bytes| bytes * 8e-6 / seconds).collect();
        let share = |part: Vec<f64>| -> Vec<f64> {
            let pairs = part.iter().zip(&all);
            pairs
                .map(|(part, all)| 100.0 * part / all.max(1.0))
                .collect()
        };
        let repeats = [
            (
                "same client".to_owned(),
                share(sum(|it| it.same_client_bytes)),
            ),
            (
                "any client".to_owned(),
                share(sum(|it| it.any_client_bytes)),
            ),
        ];
        let arrays = self.arrays.iter().map(|array| {
            let hours = array.servers.chunks(HOUR);
            let means = hours.map(|hour| {
                let sum: f64 = hour.iter().map(|servers| f64::from(*servers)).sum();
                sum / hour.len() as f64
            });
            (array.name.clone(), means.collect())
        });
        let arrays: Vec<(String, Vec<f64>)> = arrays.collect();
        let words = |title, up| Words {
            title,
            across: "hours since the first request",
            up,
        };
        let plot = |name, words: Words<'_>, series: &[(String, Vec<f64>)]| {
            let svg = refrain_plot::lines(&words, &places, series)?;
            anyhow::Ok(Plot { name, svg })
        };
        Ok(vec![
            plot(
                "analyze-requests-traffic.svg",
                words("Traffic", "Mbit/s"),
                &[("traffic".to_owned(), rate)],
            )?,
            plot(
                "analyze-requests-repeats.svg",
                words("Repeats, by hour", "% of bytes"),
                &repeats,
            )?,
            plot(
                "analyze-requests-servers.svg",
                words("Servers, mean of each hour", "servers"),
                &arrays,
            )?,
        ])
    }
}
