//! The report as tables for people.

use std::io::{self, Write};

use super::report::{Report, Row};
use crate::table::{Table, age, bytes, count, lines, percent, printable};

/// Rows of sites and of pairs of machines without `--verbose`.
const ROWS: usize = 5;

/// Columns of savings in the tables of protocols, sites and pairs. A terminal has no space for more; the JSON has all.
const COLUMNS: usize = 4;

pub(super) fn print(report: &Report, is_verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    beginning(report, out)?;
    if report.payload_bytes == 0 {
        return Ok(());
    }
    writeln!(out)?;
    columns(report, is_verbose, out)?;
    let most = if is_verbose { usize::MAX } else { ROWS };
    for (title, rows, most) in [
        ("protocol", &report.protocols, usize::MAX),
        ("site", &report.sites, most),
        ("client, server and port", &report.pairs, most),
    ] {
        if !rows.is_empty() {
            writeln!(out)?;
            table_of_rows(report, title, rows, most, out)?;
        }
    }
    cache(report, out)?;
    round_trips(report, out)?;
    end(report, out)
}

fn beginning(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let so_far = if report.is_cut_short { " so far" } else { "" };
    writeln!(
        out,
        "{} of application data{so_far} in {}, over {}, from {}; analyzed in {:.1} s",
        bytes(report.payload_bytes),
        count(report.tcp_flows, "TCP connection", "TCP connections"),
        age(report.capture_seconds),
        count(report.captures.len() as u64, "capture", "captures"),
        report.seconds
    )?;
    let all = report.payload_bytes as f64;
    let share = |part: u64| format!("{} ({})", bytes(part), percent(part as f64, all));
    let mut notes = Vec::new();
    if report.encrypted_bytes > 0 {
        let text = "are encrypted (TLS, SSH): savings need a service, an opened name or a client without TLS";
        notes.push((
            "encrypted",
            format!("{} {text}", share(report.encrypted_bytes)),
        ));
    }
    if let Some(dense) = report.compressed_bytes.filter(|dense| *dense > 0) {
        notes.push((
            "compressed",
            format!("{} cannot be compressed further", share(dense)),
        ));
    }
    if report.missed_bytes > 0 {
        let advice = match report.packets.truncated {
            0 => "the capture lost packets",
            _ => "packets were truncated: capture them whole (tcpdump -s 0)",
        };
        let part = percent(report.missed_bytes as f64, all + report.missed_bytes as f64);
        notes.push((
            "missing",
            format!("{} ({part}) more: {advice}", bytes(report.missed_bytes)),
        ));
    }
    if report.flows_without_begin > 0 {
        let flows = count(report.flows_without_begin, "connection", "connections");
        notes.push(("earlier", format!("{flows} began before the capture")));
    }
    if report.flows_ended_early > 0 {
        let flows = count(
            report.flows_ended_early,
            "connection was",
            "connections were",
        );
        notes.push((
            "forgotten",
            format!("{flows} forgotten while idle: too many were open"),
        ));
    }
    if report.packets.malformed > 0 {
        let packets = count(report.packets.malformed, "packet", "packets");
        notes.push(("malformed", format!("{packets} could not be read")));
    }
    if report.packets.tcp == 0 {
        let all = count(report.packets.total(), "packet", "packets");
        notes.push((
            "no TCP",
            format!("none of {all} is of TCP, so there is nothing to estimate"),
        ));
    }
    let emptied = report
        .columns
        .iter()
        .map(|column| column.caches_given_up)
        .sum::<u64>();
    if emptied > 0 {
        let caches = count(emptied, "cache was", "caches were");
        let text =
            "emptied, so savings are underestimated (give more --memory, or fewer --columns)";
        notes.push(("memory", format!("{caches} {text}")));
    }
    lines(&notes, out)
}

fn columns(report: &Report, is_verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(match is_verbose {
        true => "column  saved  sent  memory  MB/s per CPU",
        false => "column  saved  sent",
    });
    for column in &report.columns {
        let mut row = vec![
            column.title.to_owned(),
            format!("{:.1} %", column.saved_percent),
            bytes(column.sent_bytes),
        ];
        if is_verbose {
            row.push(match column.memory_bytes {
                0 => "-".to_owned(),
                memory => bytes(memory),
            });
            row.push(format!("{:.0}", column.mb_per_cpu_second));
        }
        table.row(row);
    }
    table.print(out)
}

fn table_of_rows(
    report: &Report,
    title: &str,
    rows: &[Row],
    most: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let shown = report
        .columns
        .iter()
        .filter(|column| column.name != "samplebyte-1g");
    let shown: Vec<&str> = shown.map(|column| column.name).take(COLUMNS).collect();
    let heads: Vec<String> = shown.iter().map(|name| format!("  {name}")).collect();
    let mut table = Table::new(&format!("{title}  bytes  share{}", heads.concat()));
    for row in rows.iter().take(most) {
        let bytes_of_row = row.total();
        let cells = [
            name(row),
            bytes(bytes_of_row),
            percent(bytes_of_row as f64, report.payload_bytes as f64),
        ];
        let saved = shown.iter().map(|name| {
            let saved = row.saved_bytes.get(name).copied().unwrap_or(0);
            percent(saved as f64, bytes_of_row as f64)
        });
        table.row(cells.into_iter().chain(saved));
    }
    table.print(out)?;
    if rows.len() > most {
        let more = count((rows.len() - most) as u64, "more row", "more rows");
        writeln!(out, "{more} (--verbose or --json)")?;
    }
    Ok(())
}

/// The name of a row.
pub(super) fn name(row: &Row) -> String {
    let machines = row.client.iter().chain(&row.server).chain(&row.site);
    let mut parts: Vec<String> = machines.map(printable).collect();
    parts.extend(row.port.map(|port| port.to_string()));
    parts.extend(row.protocol.map(str::to_owned));
    parts.join(" ")
}

fn cache(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Some(cache) = &report.cache else {
        return Ok(());
    };
    let all = report.payload_bytes as f64;
    let mut table = Table::new("cache per pair and direction  saved");
    for (size, saved) in cache.sizes.iter().zip(cache.saved_bytes) {
        // Those of every second size show the curve.
        if size.ilog2() % 2 == 0 || *size == cache.recommended_bytes {
            let mark = match *size == cache.recommended_bytes && saved > 0 {
                true => " (recommended: 95 % of the savings)",
                false => "",
            };
            table.row([
                format!("{}{mark}", binary(*size)),
                percent(saved as f64, all),
            ]);
        }
    }
    writeln!(out)?;
    table.print(out)
}

/// A size of a cache: a power of two.
pub(super) fn binary(size: u64) -> String {
    match size {
        0..0x10_0000 => format!("{} KiB", size >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", size >> 20),
        _ => format!("{} GiB", size >> 30),
    }
}

fn round_trips(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Some(rows) = &report.round_trips else {
        return Ok(());
    };
    let mut table = Table::new("transfers of  number  round trips saved  time saved");
    let (mut least, mut is_empty) = (1, true);
    for trips in rows {
        let name = match trips.trips_max {
            Some(1) => "1 round trip".to_owned(),
            Some(most) if most == least => format!("{most}"),
            Some(most) => format!("{least} to {most}"),
            None => format!("{least} and more"),
        };
        least = trips.trips_max.map_or(least, |most| most + 1);
        let row = trips.row;
        if row.transfers > 0 && trips.trips_max != Some(1) {
            let saved = row.trips - row.trips_after;
            table.row([
                name,
                row.transfers.to_string(),
                percent(saved as f64, row.trips as f64),
                percent(row.seconds - row.seconds_after, row.seconds),
            ]);
            is_empty = false;
        }
    }
    if is_empty {
        return Ok(());
    }
    writeln!(out)?;
    table.print(out)
}

fn end(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Some(month) = &report.month else {
        return Ok(());
    };
    let gb = |gb: f64| bytes((gb * 1e9) as u64);
    let saved = gb(month.bill.saved_gb);
    let mut text = format!("{saved} of {} per month", gb(month.traffic_before_gb));
    if let Some(money) = month.bill.left.or(month.bill.saved_on_traffic) {
        text += &format!(", worth {money:.2} in the currency of the prices");
    }
    match month.bill.saved_gb > 0.0 {
        true => writeln!(out, "\nA pair of gateways would save {text}.")?,
        false => writeln!(
            out,
            "\nA pair of gateways would save nothing of this traffic."
        )?,
    }
    if month.is_scaled && report.capture_seconds < 86_400.0 {
        let length = age(report.capture_seconds);
        writeln!(
            out,
            "The capture is shorter than a day ({length}), so figures per month are a guess (give --traffic)."
        )?;
    }
    Ok(())
}
