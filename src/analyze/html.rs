//! The report as one web page: no script, nothing that it would load, light and dark.

mod escape;
mod page;
mod plot;

use super::{
    report::{Quantiles, Report, Row},
    text::{binary, name},
};
use crate::table::{age, bytes, count, percent, round_age};
pub(super) use escape::escaped;
pub(super) use page::Page;
pub(super) use plot::Series;

/// Rows of sites and of pairs of machines.
const ROWS: usize = 20;

/// Protocols with a line of their own.
const PROTOCOLS: usize = 6;

/// All of it.
pub(super) fn page(report: &Report) -> String {
    let mut page = Page::default();
    page.summary(report);
    if report.payload_bytes > 0 {
        page.columns(report);
        page.cache(report);
        page.rows(report, "protocols", "Protocols", &report.protocols);
        page.rows(report, "sites", "Sites", &report.sites);
        page.rows(report, "pairs", "Pairs of machines", &report.pairs);
        page.round_trips(report);
        page.matches(report);
        page.chains(report);
        page.memory(report);
        page.month(report);
    }
    page.method(report);
    page.finish("refrain analyze", "Repeated data in this traffic")
}

impl Page {
    fn summary(&mut self, report: &Report) {
        let all = report.payload_bytes as f64;
        let best = report
            .columns
            .iter()
            .find(|column| column.name.starts_with("refrain"));
        let zstd = report.columns.iter().find(|column| column.name == "zstd");
        let mut facts = vec![
            (bytes(report.payload_bytes), "application data".to_owned()),
            (report.tcp_flows.to_string(), "TCP connections".to_owned()),
            (
                age(report.capture_seconds),
                "from the first packet to the last".to_owned(),
            ),
        ];
        for column in best.into_iter().chain(zstd) {
            facts.push((
                format!("{:.1} %", column.saved_percent),
                format!("saved by {}", column.title),
            ));
        }
        facts.push((
            percent(report.encrypted_bytes as f64, all),
            "encrypted".to_owned(),
        ));
        if let Some(dense) = report.compressed_bytes {
            facts.push((percent(dense as f64, all), "compressed already".to_owned()));
        }
        self.facts(&facts);
        self.note(&format!("Captures: {}", report.captures.join(", ")));
        if report.missed_bytes > 0 {
            let missed = bytes(report.missed_bytes);
            self.note(&format!(
                "The captures lack {missed} of the connections' data."
            ));
        }
        if report.unread_captures > 0 || report.is_cut_short {
            self.note("Not all of the captures was read.");
        }
    }

    fn columns(&mut self, report: &Report) {
        self.section("savings", "Savings");
        let rows = report.columns.iter().map(|column| {
            let width = column.saved_percent.clamp(0.0, 100.0);
            let bar = format!(
                "<span class=\"bar\" style=\"width:{width:.1}%\"></span><span>{:.1}&nbsp;%</span>",
                column.saved_percent
            );
            let memory = match column.memory_bytes {
                0 => "–".to_owned(),
                memory => bytes(memory),
            };
            let speed = format!("{:.0}", column.mb_per_cpu_second);
            let title = format!(
                "<span title=\"{}\">{}</span>",
                escaped(column.source),
                escaped(column.title)
            );
            vec![title, bar, bytes(column.sent_bytes), memory, speed]
        });
        let rows: Vec<_> = rows.collect();
        let heads = ["column", "saved", "sent", "memory", "MB per CPU second"];
        self.table("Savings by column", &heads, &rows);
    }

    fn cache(&mut self, report: &Report) {
        let Some(cache) = &report.cache else {
            return;
        };
        self.section("cache", "Savings by cache size");
        let size = binary(cache.recommended_bytes);
        self.add(&format!(
            "<p>A cache of <strong>{size}</strong> per pair of machines and direction is enough for 95&nbsp;% of the savings. \
             SAMPLEBYTE with p = 32, as in Figures 8 and 9 of the EndRE paper.</p>"
        ));
        let places: Vec<String> = cache.sizes.iter().map(|size| binary(*size)).collect();
        let share = |saved: &[u64], all: u64| -> Vec<f64> {
            saved
                .iter()
                .map(|saved| 100.0 * *saved as f64 / all.max(1) as f64)
                .collect()
        };
        let mut series = vec![Series {
            name: "all".to_owned(),
            values: share(&cache.saved_bytes, report.payload_bytes),
        }];
        let mut protocols: Vec<_> = cache.protocols.iter().collect();
        protocols.sort_by_key(|protocol| std::cmp::Reverse(protocol.payload_bytes));
        for protocol in protocols.into_iter().take(PROTOCOLS) {
            series.push(Series {
                name: protocol.protocol.to_owned(),
                values: share(&protocol.saved_bytes, protocol.payload_bytes),
            });
        }
        self.plot(
            "Saved bytes by cache size",
            "%",
            "cache per pair and direction",
            &places,
            &series,
        );
    }

    fn rows(&mut self, report: &Report, id: &'static str, title: &'static str, rows: &[Row]) {
        if rows.is_empty() {
            return;
        }
        self.section(id, title);
        let heads = ["", "bytes", "share"].into_iter();
        let heads: Vec<&str> = heads
            .chain(report.columns.iter().map(|column| column.title))
            .collect();
        let shown = rows.iter().take(ROWS).map(|row| {
            let all = row.total() as f64;
            let cells = [
                escaped(&name(row)),
                bytes(row.total()),
                percent(all, report.payload_bytes as f64),
            ];
            let saved = report.columns.iter().map(|column| {
                let saved = row
                    .saved_bytes
                    .get(column.name)
                    .copied()
                    .unwrap_or_default();
                percent(saved as f64, all)
            });
            cells.into_iter().chain(saved).collect()
        });
        let shown: Vec<Vec<String>> = shown.collect();
        self.table(&format!("{title}: bytes and savings"), &heads, &shown);
        if rows.len() > ROWS {
            let more = count((rows.len() - ROWS) as u64, "more row is", "more rows are");
            self.note(&format!("{more} in the JSON."));
        }
    }

    fn round_trips(&mut self, report: &Report) {
        let Some(all) = &report.round_trips else {
            return;
        };
        self.section("round-trips", "Round trips of transfers");
        self.add(
            "<p>A transfer is the data that a server sends until its client sends again. A connection's first round trip \
             carries 10 segments, and each further one twice as many. Saved by SAMPLEBYTE with p = 32, as in Table 5 of the \
             EndRE paper. Times are those of the captured handshakes.</p>",
        );
        let mut least = 1;
        let rows = all.iter().map(|trips| {
            let name = match trips.trips_max {
                Some(most) if most == least => format!("{most}"),
                Some(most) => format!("{least} to {most}"),
                None => format!("{least} and more"),
            };
            least = trips.trips_max.map_or(least, |most| most + 1);
            let row = trips.row;
            vec![
                name,
                row.transfers.to_string(),
                percent((row.trips - row.trips_after) as f64, row.trips as f64),
                percent(row.seconds - row.seconds_after, row.seconds),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let heads = [
            "round trips",
            "transfers",
            "round trips saved",
            "time saved",
        ];
        self.table("Round trips of transfers, and those saved", &heads, &rows);
    }

    fn matches(&mut self, report: &Report) {
        let Some(matches) = &report.matches else {
            return;
        };
        self.section("origin", "Where repeats come from");
        let all = matches.same_pair_bytes + matches.other_pair_bytes;
        let share = percent(matches.same_pair_bytes as f64, all as f64);
        self.add(&format!(
            "<p><strong>{share}</strong> of the repeated bytes were exchanged by the same pair of machines before, the rest \
             by others (one cache of up to 2&nbsp;GB for all, EndRE section 3).</p>"
        ));
        let places = ages(report);
        let values = cumulative(&matches.by_age);
        let name = "repeated bytes".to_owned();
        self.plot(
            "Repeated bytes by age",
            "%",
            "age below",
            &places,
            &[Series { name, values }],
        );
    }

    fn chains(&mut self, report: &Report) {
        let Some(chains) = report
            .chains
            .as_ref()
            .filter(|chains| chains.repeated_chunks > 0)
        else {
            return;
        };
        self.section("chains", "Chains of chunks");
        let share = percent(
            chains.chunks_in_chains() as f64,
            chains.repeated_chunks as f64,
        );
        let repeated = percent(chains.repeated_bytes as f64, chains.bytes as f64);
        self.add(&format!(
            "<p>{repeated} of the bytes are in chunks that their receiver had. <strong>{share}</strong> of these chunks are \
             in chains of two or more (PACK, Figure 6).</p>"
        ));
        let rows = chains
            .by_chain_length
            .iter()
            .enumerate()
            .map(|(nth, chunks)| {
                let least = 1_u64 << nth;
                let name = match nth {
                    0 => "1".to_owned(),
                    11 => format!("{least} and more"),
                    _ => format!("{least} to {}", 2 * least - 1),
                };
                vec![name, percent(*chunks as f64, chains.repeated_chunks as f64)]
            });
        let rows: Vec<_> = rows.collect();
        self.table(
            "Repeated chunks by the length of their chain",
            &["chunks", "share"],
            &rows,
        );
        let (places, values) = (ages(report), cumulative(&chains.by_age));
        let name = "repeated bytes".to_owned();
        let title = "Bytes of repeated chunks by age";
        self.plot(title, "%", "age below", &places, &[Series { name, values }]);
    }

    fn memory(&mut self, report: &Report) {
        let (Some(clients), Some(servers)) = (&report.client_memory, &report.server_memory) else {
            return;
        };
        self.section("memory", "Memory of machines");
        self.add(
            "<p>The most bytes of caches that a machine needs at any time: up to 10 MiB per other machine and direction, on \
             disk after ten hours without traffic (EndRE, Figure 10).</p>",
        );
        let mib = |machines: &Quantiles, percent: usize| {
            format!(
                "{:.1} MiB",
                machines.percentiles[percent - 1] as f64 / f64::from(1 << 20)
            )
        };
        let row = |name: &str, machines: &Quantiles| {
            let cells = [50, 90, 99, 100].map(|percent| mib(machines, percent));
            let name = [name.to_owned(), machines.machines.to_string()];
            name.into_iter().chain(cells).collect::<Vec<_>>()
        };
        let rows = [row("clients", clients), row("servers", servers)];
        let heads = ["", "machines", "median", "90 %", "99 %", "most"];
        self.table("Memory of caches by machine", &heads, &rows);
    }

    fn month(&mut self, report: &Report) {
        let Some(month) = &report.month else {
            return;
        };
        self.section("month", "A month");
        let gb = |gb: f64| bytes((gb * 1e9) as u64);
        let money = |money: f64| format!("{money:.2}");
        let bill = &month.bill;
        let rows = [
            (
                "traffic without elimination",
                Some(gb(month.traffic_before_gb)),
            ),
            ("saved traffic", Some(gb(bill.saved_gb))),
            (
                "CPU hours added",
                Some(format!("{:.2}", bill.cpu_hours_added)),
            ),
            ("saved on traffic", bill.saved_on_traffic.map(money)),
            ("spent on servers", bill.spent_on_servers.map(money)),
            ("net savings", bill.left.map(money)),
        ];
        let rows = rows
            .into_iter()
            .filter_map(|(name, cell)| Some(vec![name.to_owned(), cell?]));
        let rows: Vec<_> = rows.collect();
        self.table(
            "A month with a pair of gateways, by the model of refrain cost",
            &["", "per month"],
            &rows,
        );
        if month.is_scaled && report.capture_seconds < 86_400.0 {
            self.note("The capture is shorter than a day, so figures per month are a guess.");
        }
    }

    fn method(&mut self, report: &Report) {
        self.section("method", "Method");
        self.add(
            "<p>Packets were reassembled into connections, and each direction's bytes into blocks of 10 ms and at most 64 KiB. \
             Each way to remove repeats was given the same blocks. The content of packets is in no part of this report.</p>",
        );
        let rows = report.columns.iter();
        let rows: Vec<_> = rows
            .map(|column| vec![escaped(column.title), escaped(column.source)])
            .collect();
        self.table("Columns and their sources", &["column", "source"], &rows);
    }
}

fn ages(report: &Report) -> Vec<String> {
    let limits = report.age_limits_seconds.iter();
    limits
        .map(|limit| round_age(*limit))
        .chain(["more".to_owned()])
        .collect()
}

/// Shares up to each place, in percent.
pub(super) fn cumulative(counts: &[u64]) -> Vec<f64> {
    let all: u64 = counts.iter().sum();
    let mut sum = 0;
    let shares = counts.iter().map(|count| {
        sum += count;
        100.0 * sum as f64 / all.max(1) as f64
    });
    shares.collect()
}
