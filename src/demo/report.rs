//! What a demo found, as a table or as JSON.

use std::io::{self, Write};

use refrain_gateway::status::Direction;
use serde::Serialize;

use super::{
    TRANSFER_SECONDS_MAX,
    link::Link,
    transfer::Transfer,
    ways::{Setting, Way},
};
use crate::{
    report,
    table::{Table, bytes, count, percent},
};

/// What was measured.
#[derive(Clone, Copy)]
pub(super) struct Findings {
    pub objects: usize,
    /// Of all objects.
    pub body_bytes: u64,
    /// The same, compressed one by one.
    pub zstd_bytes: u64,
    pub direct: Transfer,
    pub zstd: Transfer,
    pub pair: Transfer,
    /// What the near gateway counted of its link.
    pub sent: Direction,
    pub received: Direction,
}

/// What a demo found. Fields that do not name a way are of the pair.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    objects: usize,
    /// How many were fetched at the same time.
    flows: u8,
    /// Plain bytes that the flows carried, both ways.
    app_bytes: u64,
    /// Bytes on the link's TCP connections, both ways, TLS and its handshakes included.
    link_bytes: u64,
    /// What `zstd -3` makes of the same, each file on its own.
    zstd_only_bytes: u64,
    /// Whether all bytes that were transferred by any way are identical to the sent ones.
    pub verified: bool,
    layers: Layers,
    seconds: f64,
    app_mb_per_s: f64,
    effort: String,
    /// `None` is loopback.
    link: Option<Link>,
    /// Direct, zstd, pair.
    ways: [WayReport; 3],
}

/// What became of the bytes, layer by layer.
#[derive(Debug, Serialize)]
struct Layers {
    max_match_saved_bytes: i64,
    zstd_saved_bytes: i64,
    /// Frames, TLS, handshakes, acknowledgements.
    overhead_bytes: i64,
}

/// How all objects came by one way.
#[derive(Debug, Serialize)]
struct WayReport {
    way: Way,
    seconds: f64,
    /// Whether the seconds are the least that the link's rate and delay allow, and nothing was transferred.
    calculated: bool,
    /// Bytes of TCP connections on the link, both ways. Without a link, and where nothing was transferred, they
    /// follow from the lengths of requests and answers through the pair.
    link_bytes: u64,
}

impl Report {
    pub(super) fn new(setting: Setting<'_>, findings: Findings) -> Self {
        let Findings {
            objects,
            body_bytes,
            zstd_bytes,
            direct,
            zstd,
            pair,
            sent,
            received,
        } = findings;
        let app_bytes = sent.app_bytes + received.app_bytes;
        let link_bytes = sent.link_bytes + received.link_bytes;
        let zstd_only_bytes = app_bytes - body_bytes + zstd_bytes;
        let max_match_saved_bytes = sent.matching_saved_bytes + received.matching_saved_bytes;
        let zstd_saved_bytes = sent.zstd_saved_bytes + received.zstd_saved_bytes;
        Self {
            objects,
            flows: setting.flows,
            app_bytes,
            link_bytes,
            zstd_only_bytes,
            verified: direct.is_identical && zstd.is_identical && pair.is_identical,
            layers: Layers {
                max_match_saved_bytes,
                zstd_saved_bytes,
                overhead_bytes: link_bytes as i64
                    - (app_bytes as i64 - max_match_saved_bytes - zstd_saved_bytes),
            },
            seconds: pair.seconds,
            app_mb_per_s: body_bytes as f64 / pair.seconds / 1e6,
            effort: setting.effort.to_owned(),
            link: setting.link,
            ways: [
                WayReport::new(Way::Direct, direct, direct.link_bytes.unwrap_or(app_bytes)),
                WayReport::new(Way::Zstd, zstd, zstd.link_bytes.unwrap_or(zstd_only_bytes)),
                WayReport::new(Way::Pair, pair, link_bytes),
            ],
        }
    }

    /// The answer first, then a row for each way. What the pair's layers saved follows with `--verbose`.
    pub(super) fn print(&self, is_json: bool, is_verbose: bool) -> anyhow::Result<()> {
        report::to_stdout(is_json, self, |out| {
            self.print_ways(out)?;
            if is_verbose {
                self.print_layers(out)?;
            }
            self.print_notes(out)
        })
    }

    fn print_ways(&self, out: &mut dyn Write) -> io::Result<()> {
        let [direct, _, pair] = &self.ways;
        let calculated = match direct.calculated {
            true => " (calculated)",
            false => "",
        };
        writeln!(
            out,
            "the pair sent {} in {} s; direct: {} in {} s{calculated}\n",
            bytes(pair.link_bytes),
            digits(pair.seconds),
            bytes(direct.link_bytes),
            digits(direct.seconds),
        )?;
        let mut table = Table::new(&format!("way  seconds  {}", self.carried()));
        for way in &self.ways {
            let seconds = match way.calculated {
                true => format!("calculated: {}", digits(way.seconds)),
                false => digits(way.seconds),
            };
            let title = way.way.title().to_owned();
            table.row([title, seconds, bytes(way.link_bytes)]);
        }
        table.print(out)?;
        writeln!(out)
    }

    /// What the bytes of a way are called.
    fn carried(&self) -> &'static str {
        match self.link {
            Some(_) => "bytes on the link",
            None => "bytes sent",
        }
    }

    fn print_layers(&self, out: &mut dyn Write) -> io::Result<()> {
        let share = |part: i64| percent(part as f64, self.app_bytes as f64);
        let mut table = Table::new("pair  bytes  share of application bytes");
        let mut row = |name: &str, count: i64| {
            let shown = match count {
                0.. => bytes(count as u64),
                _ => format!("-{}", bytes(count.unsigned_abs())),
            };
            table.row([name.to_owned(), shown, share(count)]);
        };
        row("application bytes", self.app_bytes as i64);
        row("  saved by Max-Match", self.layers.max_match_saved_bytes);
        row("  saved by zstd on the rest", self.layers.zstd_saved_bytes);
        row("  added by frames and TLS", self.layers.overhead_bytes);
        row(self.carried(), self.link_bytes as i64);
        table.print(out)?;
        writeln!(
            out,
            "\n{} bytes than direct, {} than zstd -3 per object (effort {}, {:.1} MB/s)\n",
            compared(self.link_bytes, self.app_bytes),
            compared(self.link_bytes, self.zstd_only_bytes),
            self.effort,
            self.app_mb_per_s
        )
    }

    fn print_notes(&self, out: &mut dyn Write) -> io::Result<()> {
        let link = match &self.link {
            Some(link) => format!("over a link ({link}) that is simulated inside this program"),
            None => "over loopback, without a link".to_owned(),
        };
        let objects = count(self.objects as u64, "object", "objects");
        let at_a_time = self.objects.min(self.flows.into());
        writeln!(out, "{objects}, {at_a_time} at a time, {link}")?;
        let [direct, zstd, pair] = &self.ways;
        let is_beaten =
            |way: &&WayReport| way.link_bytes < pair.link_bytes && way.seconds > pair.seconds;
        let beaten = [direct, zstd].into_iter().filter(is_beaten);
        let beaten: Vec<_> = beaten.map(|way| way.way.title()).collect();
        if !beaten.is_empty() {
            writeln!(
                out,
                "the pair sent more bytes than {} in less time: its connections were open before, and it \
                 compresses data while it sends",
                beaten.join(" and ")
            )?;
        }
        if self.ways.iter().any(|way| way.calculated) {
            writeln!(
                out,
                "calculated: the shortest time that rate and delay allow, since a transfer would take longer \
                 than {TRANSFER_SECONDS_MAX} s"
            )?;
        }
        match self.verified {
            true => writeln!(out, "verified: received data is identical to sent data"),
            false => writeln!(out, "FAILED: SOME RECEIVED DATA DIFFERS FROM SENT DATA"),
        }
    }
}

impl WayReport {
    fn new(way: Way, transfer: Transfer, link_bytes: u64) -> Self {
        Self {
            way,
            seconds: transfer.seconds,
            calculated: transfer.is_calculated,
            link_bytes,
        }
    }
}

/// Seconds with as many digits as a repeated transfer may agree in.
fn digits(seconds: f64) -> String {
    if seconds < 0.995 {
        format!("{seconds:.2}")
    } else if seconds < 99.95 {
        format!("{seconds:.1}")
    } else {
        format!("{seconds:.0}")
    }
}

/// How much fewer or more `bytes` are than `others`.
fn compared(bytes: u64, others: u64) -> String {
    let difference = percent(bytes.abs_diff(others) as f64, others as f64);
    let word = if bytes > others { "more" } else { "fewer" };
    format!("{difference} {word}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use refrain_gateway::units::{BitRate, TimeSpan};

    use super::*;

    /// Of a demo whose direct transfer took `direct_seconds`, or would have.
    fn report(direct_seconds: f64, is_calculated: bool) -> Report {
        let link = Link {
            rate: BitRate(20_000_000),
            delay: TimeSpan(Duration::from_millis(25)),
        };
        let setting = Setting {
            origin: ([127, 0, 0, 1], 80).into(),
            link: Some(link),
            flows: 6,
            effort: "max",
        };
        let made = |seconds, link_bytes| Transfer {
            seconds,
            is_calculated: false,
            is_identical: true,
            link_bytes: Some(link_bytes),
        };
        let received = Direction {
            app_bytes: 1_000_100,
            link_bytes: 50_000,
            matching_saved_bytes: 900_000,
            zstd_saved_bytes: 60_000,
            ..Direction::default()
        };
        let findings = Findings {
            objects: 2,
            body_bytes: 1_000_000,
            zstd_bytes: 300_000,
            direct: match is_calculated {
                true => Transfer::calculated(direct_seconds),
                false => made(direct_seconds, 1_000_090),
            },
            zstd: made(2.5, 300_090),
            pair: made(0.25, 50_000),
            sent: Direction::default(),
            received,
        };
        Report::new(setting, findings)
    }

    fn printed(report: &Report, is_verbose: bool) -> String {
        let mut out = Vec::new();
        report.print_ways(&mut out).expect("memory");
        if is_verbose {
            report.print_layers(&mut out).expect("memory");
        }
        report.print_notes(&mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_answer_is_the_first_line_and_each_way_has_a_row() {
        let text = "\
the pair sent 50.0 kB in 0.25 s; direct: 1.00 MB in 17.6 s

way                 seconds  bytes on the link
direct                 17.6            1.00 MB
zstd -3 per object      2.5             300 kB
pair                   0.25            50.0 kB

2 objects, 2 at a time, over a link (20 Mbit/s, 25 ms each way) that is simulated inside this program
verified: received data is identical to sent data
";
        let report = report(17.6, false);
        assert_eq!(printed(&report, false), text);
        let details = printed(&report, true);
        for part in [
            "saved by Max-Match",
            "95.0 % fewer bytes than direct",
            "effort max",
        ] {
            assert!(details.contains(part), "{part:?} is not in\n{details}");
        }
    }

    #[test]
    fn calculated_seconds_are_labelled() {
        let report = report(400.0, true);
        let text = printed(&report, false);
        for part in [
            "in 0.25 s; direct: 1.00 MB in 400 s (calculated)\n",
            "direct              calculated: 400            1.00 MB\n",
            "\ncalculated: the shortest time that rate and delay allow, since a transfer would take longer than 20 s\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        // Nothing was transferred, so the bytes are those of the same requests through the pair.
        assert_eq!(report.ways[0].link_bytes, report.app_bytes);
        assert_eq!(report.ways[1].link_bytes, 300_090);
    }

    #[test]
    fn more_bytes_in_less_time_are_explained() {
        let mut report = report(17.6, false);
        assert!(!printed(&report, false).contains("more bytes"));
        report.ways[1].link_bytes = 49_999;
        let text = printed(&report, false);
        let reason =
            "the pair sent more bytes than zstd -3 per object in less time: its connections";
        assert!(text.contains(reason), "{text}");
    }

    #[test]
    fn without_a_link_no_heading_names_one() {
        let mut report = report(17.6, false);
        report.link = None;
        let text = printed(&report, true);
        assert!(
            text.contains("way                 seconds  bytes sent\n"),
            "{text}"
        );
        for name in ["on the link", "link bytes"] {
            assert!(!text.contains(name), "{text}");
        }
    }

    #[test]
    fn fields_of_earlier_versions_describe_the_pair() {
        let json = serde_json::to_value(report(17.6, false)).expect("JSON");
        for (field, value) in [
            ("objects", 2),
            ("flows", 6),
            ("app_bytes", 1_000_100),
            ("link_bytes", 50_000),
            ("zstd_only_bytes", 300_100),
        ] {
            assert_eq!(json[field], value, "{field}");
        }
        assert_eq!(json["seconds"], 0.25);
        assert_eq!(json["app_mb_per_s"], 4.0);
        assert_eq!(json["layers"]["overhead_bytes"], 9_900);
        assert_eq!(json["link"]["bits_per_second"], 20_000_000);
        assert_eq!(json["link"]["delay_ms"], 25);
        let ways = json["ways"].as_array().expect("an array");
        let names: Vec<_> = ways.iter().map(|way| way["way"].as_str()).collect();
        assert_eq!(names, ["direct", "zstd", "pair"].map(Some));
    }

    #[test]
    fn more_bytes_are_not_shown_as_fewer() {
        for (bytes, others, text) in [
            (2_530_000, 43_700_000, "94.2 % fewer"),
            (100, 105, "4.8 % fewer"),
            (100, 104, "3.8 % fewer"),
            (100, 100, "0.0 % fewer"),
            (111, 100, "11.0 % more"),
            (30_000, 200, "14900.0 % more"),
        ] {
            assert_eq!(compared(bytes, others), text);
        }
    }
}
