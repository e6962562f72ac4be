//! What was measured, as a page.

use std::{fmt::Write, process::Command};

use crate::{
    contests::Place,
    machine::Machine,
    report::{Beside, Report, Row},
};

/// Of other machines.
const PAPERS: &str = include_str!("papers.md");
/// Measured by hand, with the commands that it names.
const GPUS_ELSEWHERE: &str = include_str!("gpus.md");
const SMALL_MESSAGES: &str = include_str!("small_messages.md");

/// The page of results.
pub(crate) fn page(report: &Report) -> String {
    [
        introduction(report),
        overview(report),
        chunks(report),
        gpus(report),
        peers(report),
        PAPERS.to_owned(),
        SMALL_MESSAGES.to_owned(),
    ]
    .concat()
}

fn introduction(report: &Report) -> String {
    let Machine {
        processor, cores, ..
    } = &report.machine;
    format!(
        "# How fast it is\n\n\
         Written by `cargo run --release -p refrain-speed -- --write docs/performance.md`, with \
         {} s for each row.\n{processor}, {cores} cores (virtual). A fixed loop's slowest run took {:.2} times its \
         fastest.\n\n\
         GB/s = 10^9 plain bytes per second, on one core. Only in the pair's rows, origin, both \
         gateways, client\nand relay share the machine. Only these rows and *Small messages* go over \
         sockets; all others measure\nfunctions in one process. All programs and SIMD paths of a row \
         took turns in one run. Speeds and ratios\nare medians.\n\n\
         - *Hot*: 64 KiB blocks whose bytes are in the second-level cache. Scanners get the same MiB \
         again.\n  Encoders and decoders get new content, fetched just before, and a log of \
         16 MiB.\n\
         - *File*: each byte is read once from memory, after the caches were filled with other \
         bytes.\n  The log has 64 MiB.\n\
         - *memcpy* copies the same blocks into a ring as large as the log. *naive twin* is\n  \
         Max-Match by the book.\n\
         - *random* is new, *redundant* was seen before;\n  {}.\n\n",
        report.seconds_a_row, report.unsteadiness, report.data,
    )
}

/// A line for each kernel and kind of data: hot and file, all backends.
fn overview(report: &Report) -> String {
    let mut sets = report.machine.instructions.clone();
    sets.reverse();
    let speeds = |row: Option<&Row>| -> String {
        let cells = sets.iter().map(|set| {
            let speed = row.and_then(|row| row.speed_on(set, &report.backend));
            speed.map_or_else(|| " |".to_owned(), |speed| format!(" {speed:.2} |"))
        });
        cells.collect()
    };
    let mut page = "## SIMD paths\n\n| operation | data |".to_owned();
    for place in ["hot", "file"] {
        for set in &sets {
            write!(page, " {place}, {set} |").expect("memory");
        }
    }
    page += " share of a read | of a memcpy |\n|---|---|";
    page += &"---|".repeat(2 * sets.len() + 2);
    page.push('\n');
    for row in report.rows.iter().filter(|row| row.place == Place::Hot) {
        // Text is too little to be streamed past the larger log.
        let data = if row.data == "text" { "real" } else { row.data };
        let file = report.rows.iter().find(|other| {
            other.kernel == row.kernel && other.place == Place::File && other.data == data
        });
        let label = match file {
            Some(file) if file.data != row.data => format!("{}; {}", row.data, file.data),
            _ => row.data.to_owned(),
        };
        let share = |peer: &str| {
            let ratio = file
                .and_then(|file| file.beside(peer))
                .map(|peer| peer.ratio);
            ratio.map_or_else(String::new, |ratio| format!("{:.0} %", 100.0 * ratio))
        };
        writeln!(
            page,
            "| {} | {label} |{}{} {} | {} |",
            row.kernel,
            speeds(Some(row)),
            speeds(file),
            share("read"),
            share("memcpy"),
        )
        .expect("memory");
    }
    page
}

/// A line for each row that is about chunks.
fn chunks(report: &Report) -> String {
    let mut page = "\n## Chunks\n\n\
        A chunk has 8 KiB: exactly in the store's rows, on average in the others. They are also in the table \
        of\nother programs.\n\n\
        - *Store*: in a temporary directory, which the system keeps in memory. Chunks are added to a full \
        store of\n  256 MiB, and looked up among 1,000,000. A look-up counts as its chunk's bytes.\n\
        - *Sender*, *receiver*: the CPU time of one end's engine, without sockets, TLS and store, for flows \
        of\n  8 MiB. Of *redundant* flows every chunk is predicted in time. Of *random* flows no chunk is \
        predicted,\n  but the receiver offers earlier data.\n\n\
        | row | GB/s | chunks per second |\n|---|--:|--:|\n"
        .to_owned();
    for row in &report.rows {
        if let Some(chunks_per_s) = row.chunks_per_s {
            writeln!(
                page,
                "| {} | {:.2} | {chunks_per_s:.0} |",
                row.name(),
                row.gb_per_s
            )
            .expect("memory");
        }
    }
    page
}

/// A line for each thing that a GPU does.
fn gpus(report: &Report) -> String {
    let mut page = "\n## GPUs\n\n\
        These rows find the anchors at which `refrain bulk --method harens` cuts, on average 2 KiB apart, \
        in noise.\n*Device*: 256 MiB in the GPU's memory. *File*: batches of 16 MiB from main memory, \
        with their anchors copied back.\nA machine with a GPU prints these rows with \
        `cargo run --release -p refrain-speed -- --filter GPU`.\n\n"
        .to_owned();
    let mut rows = report
        .rows
        .iter()
        .filter(|row| row.kernel.starts_with("GPU "))
        .peekable();
    if rows.peek().is_none() {
        return page + GPUS_ELSEWHERE;
    }
    let Machine {
        gpus, gpu_driver, ..
    } = &report.machine;
    writeln!(
        page,
        "On {}, {}, {}.\n\n| row | GB/s |\n|---|--:|",
        gpus.join(", "),
        gpu_driver
            .as_deref()
            .unwrap_or("a driver of unknown version"),
        today(),
    )
    .expect("memory");
    for row in rows {
        writeln!(
            page,
            "| {}, {} | {:.1} |",
            row.kernel, row.place, row.gb_per_s
        )
        .expect("memory");
    }
    page
}

/// The date, as far as the system can tell it.
fn today() -> String {
    let date = Command::new("date").args(["-u", "+%F"]).output();
    date.map_or_else(
        |_| "on an unknown day".to_owned(),
        |date| String::from_utf8_lossy(&date.stdout).trim().to_owned(),
    )
}

/// A line for each peer in each row.
fn peers(report: &Report) -> String {
    let mut page = "\n## Compared with others\n\n\
        Below 1, the other program is faster. lz4 and zstd store incompressible data, and only copy it \
        back, to one\nhot buffer. Our decoder checks each block, and also writes it to the log. The log \
        costs an encoder one memcpy.\n\n\
        | row | GB/s | other | GB/s | ratio |\n\
        |---|---|---|---|---|\n"
        .to_owned();
    for row in &report.rows {
        let name = row.name();
        let peers = row.beside.iter().filter(|peer| !peer.is_ours());
        for peer in peers {
            writeln!(
                page,
                "| {name} | {:.2} | {} | {:.2} | {:.2} |",
                row.gb_per_s, peer.peer, peer.gb_per_s, peer.ratio
            )
            .expect("memory");
        }
    }
    page
}

impl Row {
    fn beside(&self, peer: &str) -> Option<&Beside> {
        self.beside.iter().find(|beside| beside.peer == peer)
    }

    /// Our speed with the instructions of `set`; the row's own is that of `backend`.
    fn speed_on(&self, set: &str, backend: &str) -> Option<f64> {
        if set == backend {
            return Some(self.gb_per_s);
        }
        let beside = self.beside(&format!("refrain, {set}"))?;
        Some(beside.gb_per_s)
    }
}

impl Beside {
    fn is_ours(&self) -> bool {
        self.peer.starts_with("refrain, ")
    }
}
