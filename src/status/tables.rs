//! A status as tables for people: the savings first, then peers, targets and flows.
//!
//! With `--verbose`, traffic is shown as a sum that adds up: the bytes of applications, less those that each layer
//! saved, plus those of the link itself, are the bytes on the link.

use std::io::{self, Write};

use refrain_gateway::status::{
    Direction, Driver, Flow, LimitedBy, Peer, Predictions, Status, TargetTraffic,
};

use crate::table::{Table, age, bytes, percent};

/// Rows of targets that are shown; JSON has all.
const TARGETS_SHOWN: usize = 12;

/// How much is shown.
#[derive(Clone, Copy)]
pub(super) struct View {
    /// Caches, effort and layers too.
    pub is_verbose: bool,
    /// The characters of a line.
    pub columns_max: usize,
}

/// Writes the tables of `status`.
pub(super) fn print(status: &Status, view: View, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", headline(status))?;
    match view.is_verbose {
        true => details(status, out)?,
        false => summary(status, out)?,
    }
    if let Some(store) = &status.store {
        for also in &store.also {
            let held = match also.is_there {
                true => format!("{} chunks, {} in the realm", also.chunks, also.realm_chunks),
                false => "not available yet".to_owned(),
            };
            writeln!(out, "also read: {}: {held}", also.path)?;
            if let Some(trouble) = &also.trouble {
                writeln!(out, "  {trouble}")?;
            }
        }
        if store.damaged_chunks > 0 {
            writeln!(
                out,
                "store: {} damaged chunks were found and dropped; `refrain store verify --store {}` \
                 searches for more",
                store.damaged_chunks, store.path,
            )?;
        }
        let peers = status.peers.iter();
        let unlearnt: u64 = peers.map(|peer| peer.counters.unlearnt_chunks).sum();
        if unlearnt > 0 {
            writeln!(
                out,
                "store: {unlearnt} chunks were not stored because it was too slow"
            )?;
        }
        if let Some(error) = &store.last_error {
            writeln!(out, "store: {error}{}", ago(store.last_error_s))?;
        }
    }
    writeln!(out)?;
    let columns_max = view.columns_max;
    match view.is_verbose {
        true => {
            links(&status.peers).print(out)?;
            writeln!(out)?;
            traffic(&status.peers).print(out)?;
        }
        false => peers(&status.peers).print_within(columns_max, out)?,
    }
    for peer in status.peers.iter().filter(|_| status.peers.len() > 1) {
        if let (Some(serves), Some(reason)) = (peer.serves, &peer.serves_reason) {
            let new = if serves { "new" } else { "no new" };
            writeln!(out, "{}: gets {new} connections: {reason}", peer.label())?;
        }
    }
    for peer in &status.peers {
        if let Some(error) = &peer.last_error {
            writeln!(out, "{}: {error}{}", peer.label(), ago(peer.last_error_s))?;
        }
    }
    writeln!(out)?;
    if !status.targets.is_empty() {
        targets(&status.targets).print_within(columns_max, out)?;
        let more = status.targets.len().saturating_sub(TARGETS_SHOWN);
        if more > 0 {
            writeln!(out, "and {more} more rows (--json prints all)")?;
        }
        writeln!(out)?;
    }
    match status.flows.as_slice() {
        [] => writeln!(out, "no open flows"),
        open if view.is_verbose => flow_details(open).print(out),
        open => flows(open).print_within(columns_max, out),
    }
}

/// What the program is for, in a line.
fn headline(status: &Status) -> String {
    let total = &status.total;
    let (mut app, mut link) = both(&total.sent, &total.received);
    if link == 0 {
        // A program that did not count it.
        for peer in &status.peers {
            let of_peer = both(&peer.sent, &peer.received);
            (app, link) = (app + of_peer.0, link + of_peer.1);
        }
    }
    if app == 0 {
        return "no traffic yet".to_owned();
    }
    let (saved, app, link) = (saved(app, link), bytes(app), bytes(link));
    format!("saved {saved}: {app} of application data, {link} over the link")
}

/// The program in a line.
fn summary(status: &Status, out: &mut impl Write) -> io::Result<()> {
    let store = match &status.store {
        Some(store) => format!(
            "store {} ({} of {})",
            store.path,
            bytes(store.disk_bytes),
            bytes(store.disk_bytes_max)
        ),
        None => "no store".to_owned(),
    };
    writeln!(
        out,
        "{} end, up {}, memory {} (limit {}), mode {}, {store}",
        status.role,
        age(status.uptime_s),
        bytes(status.memory.allocated_bytes),
        bytes(status.memory.bound_bytes),
        status.mode,
    )
}

fn details(status: &Status, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "refrain {} {}, SIMD path {}, up {}; memory {} of {} reserved, {} in caches and tables{}",
        status.role,
        status.version,
        status.kernels,
        age(status.uptime_s),
        bytes(status.memory.reserved_bytes),
        bytes(status.memory.bound_bytes),
        bytes(status.memory.allocated_bytes),
        match status.memory.resident_bytes {
            Some(resident) => format!("; process {}", bytes(resident)),
            None => String::new(),
        },
    )?;
    if let Some(store) = &status.store {
        writeln!(
            out,
            "mode {}; store {}: {} chunks, {} of {} on disk; realm {}: {} chunks",
            status.mode,
            store.path,
            store.chunks,
            bytes(store.disk_bytes),
            bytes(store.disk_bytes_max),
            store.realm,
            store.realm_chunks,
        )
    } else {
        writeln!(out, "mode {}, no store", status.mode)
    }
}

/// One row per peer, with both directions of its traffic.
fn peers(peers: &[Peer]) -> Table {
    let mut table = Table::new("peer  lanes  ?rtt  ?flows  app  link  saved");
    for peer in peers {
        let (app, link) = both(&peer.sent, &peer.received);
        table.row([
            peer.label(),
            lanes(peer),
            round_trip(peer),
            peer.flows_open.to_string(),
            bytes(app),
            bytes(link),
            saved(app, link),
        ]);
    }
    table
}

fn lanes(peer: &Peer) -> String {
    match (peer.up, peer.down_s) {
        (true, _) => peer.lanes.to_string(),
        (false, Some(seconds)) => format!("down {}", age(seconds)),
        (false, None) => "down".to_owned(),
    }
}

fn round_trip(peer: &Peer) -> String {
    let time = peer.round_trip_ms;
    time.map_or("-".to_owned(), |time| format!("{time:.1} ms"))
}

/// Bytes of applications and bytes on the link, both ways.
fn both(sent: &Direction, received: &Direction) -> (u64, u64) {
    (
        sent.app_bytes + received.app_bytes,
        sent.link_bytes + received.link_bytes,
    )
}

/// The share of the bytes of applications that the link did not carry.
fn saved(app: u64, link: u64) -> String {
    match app {
        0 => "-".to_owned(),
        _ if app > link => percent((app - link) as f64, app as f64),
        _ => "nothing".to_owned(),
    }
}

fn links(peers: &[Peer]) -> Table {
    let mut table = Table::new(
        "peer  lanes  rtt  flows  uncached blocks  cache gaps  cache sent  received  <effort",
    );
    for peer in peers {
        let bypassed = peer.sent.bypassed_blocks + peer.received.bypassed_blocks;
        let filled = |counts: &Direction| {
            percent(counts.cache_filled_bytes as f64, counts.cache_bytes as f64)
        };
        let effort = peer.effort.as_ref().map_or("-".to_owned(), |effort| {
            let (period, level) = (effort.period_bytes, effort.zstd_level);
            format!(
                "sampling period {period} B, zstd {level} ({})",
                effort.reason
            )
        });
        table.row([
            peer.label(),
            lanes(peer),
            round_trip(peer),
            peer.flows_open.to_string(),
            bypassed.to_string(),
            peer.holes.to_string(),
            filled(&peer.sent),
            filled(&peer.received),
            effort,
        ]);
    }
    table
}

fn traffic(peers: &[Peer]) -> Table {
    let mut table =
        Table::new("peer  <direction  app  predicted  matching  zstd  overhead  link  saved");
    for peer in peers {
        for (direction, counts) in [("sent", &peer.sent), ("received", &peer.received)] {
            let cells = [peer.label(), direction.to_owned()];
            table.row(cells.into_iter().chain(sum(counts)));
        }
    }
    table
}

/// What was carried since the start, those first that carried most.
fn targets(targets: &[TargetTraffic]) -> Table {
    let mut table = Table::new("target  ?<class  ?sent  ?received  link  saved");
    for traffic in targets.iter().take(TARGETS_SHOWN) {
        let (app, link) = (traffic.app_bytes(), traffic.link_bytes());
        table.row([
            traffic
                .target
                .clone()
                .unwrap_or_else(|| "other targets".to_owned()),
            traffic.class.clone(),
            bytes(traffic.sent.app_bytes),
            bytes(traffic.received.app_bytes),
            bytes(link),
            saved(app, link),
        ]);
    }
    table
}

/// One row per flow, with both directions.
fn flows(flows: &[Flow]) -> Table {
    let mut table = Table::new("flow  <target  ?<class  ?age  app  link  saved  ?<waited for");
    for flow in flows {
        let (app, link) = both(&flow.sent, &flow.received);
        table.row([
            flow.id.to_string(),
            flow.target.clone(),
            flow.class.clone(),
            age(flow.age_s),
            bytes(app),
            bytes(link),
            saved(app, link),
            waited(&flow.limited_by, flow.age_s),
        ]);
    }
    table
}

/// Two rows per flow.
fn flow_details(flows: &[Flow]) -> Table {
    let mut table = Table::new(
        "flow  <target  <opened  <class  <direction  <driven by  age  app  predicted  matching  zstd  \
         overhead  link  saved  <waited for  <reason for driver",
    );
    for flow in flows {
        // What is received was classed at the other end.
        let waited = waited(&flow.limited_by, flow.age_s);
        for (direction, class, counts, driver, waited) in [
            (
                "sent",
                flow.class.as_str(),
                &flow.sent,
                &flow.send_driver,
                waited.as_str(),
            ),
            ("received", "-", &flow.received, &flow.receive_driver, "-"),
        ] {
            let cells = [
                flow.id.to_string(),
                flow.target.clone(),
                flow.opened.clone(),
                class.to_owned(),
                direction.to_owned(),
                driver.by.clone(),
                age(flow.age_s),
            ];
            let why = why(driver, &counts.predictions);
            let last = [waited.to_owned(), why];
            table.row(cells.into_iter().chain(sum(counts)).chain(last));
        }
    }
    table
}

/// What a flow of this age waited for, and for how much of it.
fn waited(limited_by: &LimitedBy, age_s: f64) -> String {
    let waits = [
        ("reader", limited_by.reader_s),
        ("credit", limited_by.credit_s),
        ("link", limited_by.link_s),
        ("CPU", limited_by.processor_s),
    ];
    let waits = waits
        .into_iter()
        .filter(|(_, seconds)| *seconds >= age_s / 100.0);
    let waits: Vec<String> = waits
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(name, seconds)| format!("{name} {}", percent(seconds, age_s)))
        .collect();
    match waits.is_empty() {
        true => "-".to_owned(),
        false => waits.join(", "),
    }
}

/// Why an end drives a direction of a flow, and what came of its predictions.
fn why(driver: &Driver, predictions: &Predictions) -> String {
    let mut why = driver.reason.clone();
    if let Some(level) = driver.dispersion.filter(|&level| level > 0) {
        why += &format!("; dispersion {level}");
    }
    for (what, count) in [
        ("offered", predictions.offered_bytes),
        ("too late", predictions.overtaken_bytes),
        ("wasted", predictions.wasted_bytes),
    ] {
        if count > 0 {
            why += &format!("; {what} {}", bytes(count));
        }
    }
    why
}

/// When something was last met.
fn ago(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, |seconds| format!(" ({} ago)", age(seconds)))
}

/// What all layers left of the applications' bytes.
fn left(counts: &Direction) -> i64 {
    let predicted = counts.prediction_saved_bytes as i64;
    let saved = predicted + counts.matching_saved_bytes + counts.zstd_saved_bytes;
    counts.app_bytes as i64 - saved
}

/// What the link costs by itself, and bytes on their way, which count once they have come.
fn overhead(counts: &Direction) -> i64 {
    counts.link_bytes as i64 - left(counts)
}

/// Application bytes, what each layer made of them, what the link cost, what went over it, and
/// the share that was saved.
fn sum(counts: &Direction) -> [String; 7] {
    let predicted = counts.prediction_saved_bytes as i64;
    let overhead = overhead(counts);
    // A share says nothing about a link that has carried less than it costs by itself.
    let saved = match counts.app_bytes as i64 > overhead {
        true => percent(
            counts.app_bytes as f64 - counts.link_bytes as f64,
            counts.app_bytes as f64,
        ),
        false => "-".to_owned(),
    };
    [
        bytes(counts.app_bytes),
        change(-predicted),
        change(-counts.matching_saved_bytes),
        change(-counts.zstd_saved_bytes),
        change(overhead),
        bytes(counts.link_bytes),
        saved,
    ]
}

/// Bytes that come on top, or go.
fn change(count: i64) -> String {
    let sign = match count {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", bytes(count.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use refrain_gateway::status::{CarriedBytes, Effort, Total};

    use super::*;

    #[test]
    fn the_first_line_has_the_savings() {
        let text = |app_bytes, link_bytes| {
            let carried = Direction {
                app_bytes,
                link_bytes,
                ..Direction::default()
            };
            let mut status = status();
            status.total.received = carried;
            let first = headline(&status);
            // An older program has no total.
            status.total = Total::default();
            let mut peer = Peer::default();
            peer.sent = carried;
            status.peers = vec![peer];
            assert_eq!(headline(&status), first);
            first
        };
        let saved = text(39_100, 7_800);
        assert_eq!(
            saved,
            "saved 80.1 %: 39.1 kB of application data, 7.80 kB over the link"
        );
        assert!(text(100, 2_000).starts_with("saved nothing: 100 B"));
        assert_eq!(text(0, 0), "no traffic yet");
    }

    #[test]
    fn the_savings_are_shown_however_narrow_the_terminal_is() {
        let mut status = status();
        let mut peer = Peer::default();
        (peer.name, peer.up) = (Some("frankfurt.example.org:7000".to_owned()), true);
        status.peers = vec![peer];
        let view = View {
            is_verbose: false,
            columns_max: 60,
        };
        let mut out = Vec::new();
        print(&status, view, &mut out).expect("memory");
        let out = String::from_utf8(out).expect("text");
        let head = out
            .lines()
            .find(|line| line.starts_with("peer "))
            .expect("a head");
        assert!(head.len() <= 60 && head.ends_with("saved"), "{out}");
    }

    fn status() -> Status {
        serde_json::from_value(serde_json::json!({
            "role": "near", "version": "0.1.0", "kernels": "avx2", "uptime_s": 3.0, "mode": "auto",
            "memory": { "bound_bytes": 6_320_000_000_u64, "reserved_bytes": 0, "allocated_bytes": 28_000_000 },
            "store": null, "peers": [], "flows": [],
        }))
        .expect("a status")
    }

    #[test]
    fn it_is_said_why_an_end_drives_and_what_came_of_it() {
        let mut driver = Driver {
            by: "receiver".to_owned(),
            reason: "it has history".to_owned(),
            dispersion: Some(0),
        };
        let mut predictions = Predictions::default();
        assert_eq!(why(&driver, &predictions), "it has history");
        driver.dispersion = Some(31);
        predictions.offered_bytes = 3_200_000;
        predictions.wasted_bytes = 5000;
        assert_eq!(
            why(&driver, &predictions),
            "it has history; dispersion 31; offered 3.20 MB; wasted 5.00 kB"
        );
    }

    #[test]
    fn a_sum_adds_up_and_shows_a_share_only_of_what_outweighs_the_links_own_cost() {
        let mut counts = Direction {
            app_bytes: 7_000_000,
            link_bytes: 3_500_000,
            matching_saved_bytes: 3_300_000,
            zstd_saved_bytes: 250_000,
            ..Direction::default()
        };
        assert_eq!(
            sum(&counts),
            [
                "7.00 MB", "0 B", "-3.30 MB", "-250 kB", "+50.0 kB", "3.50 MB", "50.0 %"
            ]
        );
        // What does not shrink costs its overhead, and that is a share worth showing.
        (counts.matching_saved_bytes, counts.zstd_saved_bytes) = (0, -3_000);
        counts.link_bytes = 7_013_000;
        assert_eq!(
            sum(&counts),
            [
                "7.00 MB", "0 B", "0 B", "+3.00 kB", "+10.0 kB", "7.01 MB", "-0.2 %"
            ]
        );
        let tiny = Direction {
            app_bytes: 113,
            link_bytes: 2310,
            zstd_saved_bytes: -1,
            ..Direction::default()
        };
        let [app, .., overhead, link, saved] = sum(&tiny);
        assert_eq!(
            [app, overhead, link, saved],
            ["113 B", "+2.20 kB", "2.31 kB", "-"]
        );
        assert_eq!(sum(&Direction::default())[6], "-");
    }

    #[test]
    fn a_target_that_saves_nothing_is_said_to() {
        let carried = |app_bytes, link_bytes| CarriedBytes {
            app_bytes,
            link_bytes,
        };
        let row = |target: Option<&str>, class: &str, sent, received| TargetTraffic {
            target: target.map(str::to_owned),
            class: class.to_owned(),
            sent,
            received,
        };
        let rows = [
            row(
                Some("db:5432"),
                "TLS",
                carried(1000, 1010),
                carried(58_000_000, 58_002_000),
            ),
            row(None, "ordinary", carried(0, 0), carried(9000, 900)),
        ];
        let mut out = Vec::new();
        targets(&rows).print(&mut out).expect("memory");
        let out = String::from_utf8(out).expect("text");
        let lines: Vec<Vec<&str>> = out
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[1][..2], ["db:5432", "TLS"], "{out}");
        assert_eq!(lines[1].last(), Some(&"nothing"), "{out}");
        assert_eq!(lines[2][..3], ["other", "targets", "ordinary"], "{out}");
        assert_eq!(lines[2][lines[2].len() - 2..], ["90.0", "%"], "{out}");
    }

    #[test]
    fn a_flows_class_is_shown_for_what_this_end_sends() {
        let driver = Driver {
            by: "sender".to_owned(),
            reason: "nothing is predicted".to_owned(),
            dispersion: None,
        };
        let flow = Flow {
            id: 1,
            peer: "far".to_owned(),
            target: "target:80".to_owned(),
            opened: "out".to_owned(),
            age_s: 1.0,
            class: "ordinary".to_owned(),
            lane: 0,
            sent: Direction::default(),
            received: Direction::default(),
            send_driver: driver.clone(),
            receive_driver: driver,
            limited_by: LimitedBy {
                link_s: 0.25,
                reader_s: 0.001,
                ..LimitedBy::default()
            },
        };
        let mut out = Vec::new();
        flow_details(&[flow]).print(&mut out).expect("memory");
        let out = String::from_utf8(out).expect("text");
        let class = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
        let classes: Vec<_> = out.lines().skip(1).filter_map(class).collect();
        assert_eq!(classes, ["ordinary", "-"], "{out}");
        assert!(out.contains("link 25.0 %"), "{out}");
        assert!(!out.contains("reader"), "{out}");
    }

    #[test]
    fn waits_are_named_and_a_flow_without_any_has_a_dash() {
        assert_eq!(waited(&LimitedBy::default(), 1.0), "-");
        let busy = LimitedBy {
            processor_s: 0.5,
            ..LimitedBy::default()
        };
        assert_eq!(waited(&busy, 1.0), "CPU 50.0 %");
    }

    #[test]
    fn columns_of_links_have_plain_names() {
        let mut peer = Peer::default();
        peer.effort = Some(Effort {
            period_bytes: 32,
            zstd_level: 3,
            reason: "nothing measured yet".to_owned(),
        });
        let mut out = Vec::new();
        links(&[peer]).print(&mut out).expect("memory");
        let out = String::from_utf8(out).expect("text");
        for part in [
            "uncached blocks  cache gaps",
            "sampling period 32 B, zstd 3 (nothing measured yet)",
        ] {
            assert!(out.contains(part), "{part} is not in\n{out}");
        }
    }

    #[test]
    fn what_was_predicted_has_its_share_of_the_sum() {
        let counts = Direction {
            app_bytes: 5_000_000,
            prediction_saved_bytes: 4_000_000,
            link_bytes: 1_010_000,
            ..Direction::default()
        };
        assert_eq!(sum(&counts)[1..5], ["-4.00 MB", "0 B", "0 B", "+10.0 kB"]);
    }
}
