//! What a pair saves, against the honest rival: one `zstd -3 --long=27` stream over all
//! flows in one order, which no pair of gateways could have; and against zstd on each file.

use std::{fmt::Write, io::Write as _, path::Path};

use crate::{
    corpus::{self, Corpus},
    machine,
    pair::{self, Outcome, Run},
};

const RUNS: [Run; 6] = [
    Run {
        effort: "max",
        flows: 1,
        mbit: None,
    },
    Run {
        effort: "max",
        flows: 4,
        mbit: None,
    },
    Run {
        effort: "auto",
        flows: 1,
        mbit: Some(100),
    },
    Run {
        effort: "auto",
        flows: 4,
        mbit: Some(100),
    },
    Run {
        effort: "auto",
        flows: 1,
        mbit: None,
    },
    Run {
        effort: "auto",
        flows: 4,
        mbit: None,
    },
];

/// The page of results.
pub(crate) fn run(data: &Path) -> anyhow::Result<String> {
    let mut page = format!(
        "# Savings of a pair\n\n\
         Written by `cargo run --release -p refrain-experiments -- savings --write docs/results.md`.\n\
         {}.\n\n\
         Bytes on the link's TCP connections in both directions, as a share of the application bytes. The bytes on\n\
         the link include TLS and its handshakes. Options are the defaults (cache 128 MiB per direction) except the effort.\n\
         Every byte was compared. All transfers go over sockets; a rate is that of a relay between the gateways. *Rival*:\n\
         `zstd -3 --long=27` over all objects as one stream, with a window of 128 MiB. In brackets: the pair's bytes\n\
         divided by the rival's; above 1, the pair loses. Figures with a speed are from loopback, where `auto` trades\n\
         bytes for speed. `lab/data get linux pages mail silesia` gets the data sets.\n\n",
        machine::describe(),
    );
    writeln!(
        page,
        "| corpus | MB | zstd -3 per file | rival | max | max, 4 flows | auto, 100 Mbit/s | auto, 100 Mbit/s, 4 \
         flows | auto, loopback | auto, loopback, 4 flows |"
    )?;
    writeln!(page, "|---|---|---|---|---|---|---|---|---|---|")?;
    for corpus in corpus::load_all(data)? {
        eprintln!("{}", corpus.name);
        writeln!(page, "{}", row(&corpus)?)?;
    }
    Ok(page)
}

fn row(corpus: &Corpus) -> anyhow::Result<String> {
    let whole = corpus.bytes();
    let share = |bytes: u64| format!("{:.2} %", 100.0 * bytes as f64 / whole as f64);
    let each = corpus::zstd_each(corpus)?;
    let rival = zstd_long(corpus)?;
    let mut row = format!(
        "| {} | {:.1} | {} | {}",
        corpus.name,
        whole as f64 / 1e6,
        share(each),
        share(rival)
    );
    for run in RUNS {
        let Outcome {
            link_bytes,
            time,
            bypassed_blocks,
        } = pair::run(corpus, run)?;
        write!(
            row,
            " | {} ({:.2})",
            share(link_bytes),
            link_bytes as f64 / rival as f64
        )?;
        if run.mbit.is_none() && run.effort == "auto" {
            write!(row, ", {:.0} MB/s", whole as f64 / time.as_secs_f64() / 1e6)?;
        }
        eprintln!(
            "  {} {} flows {:?} Mbit/s: {} in {:.2} s, {bypassed_blocks} blocks bypassed",
            run.effort,
            run.flows,
            run.mbit,
            share(link_bytes),
            time.as_secs_f64(),
        );
    }
    Ok(row + " |")
}

fn zstd_long(corpus: &Corpus) -> anyhow::Result<u64> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3)?;
    encoder.long_distance_matching(true)?;
    encoder.window_log(27)?;
    for object in &corpus.objects {
        encoder.write_all(object)?;
    }
    Ok(encoder.finish()?.len() as u64)
}
