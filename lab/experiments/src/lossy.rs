//! Eight flows at once, and one alone, where segments stall as losses would make them:
//! through a pair, and on connections of their own.
//!
//! A stall holds back all flows of its lane, and the hard case is noise, of which nothing is
//! saved. A *fresh* pair has never seen a loss; one *in use* has carried one flow before.

use std::{
    fmt::Write,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::ensure;
use refrain_relay::{LinkConfig, Rate};

use crate::{
    machine,
    pair::fetch,
    ways::{Ways, median},
};

const FLOWS: usize = 8;
const FLOW_BYTES: usize = 3 << 20;
const RUNS: u64 = 3;

/// Runs the experiment; gives its page.
pub(crate) fn run() -> anyhow::Result<String> {
    let mut page = format!(
        "# Flows on a lossy link\n\n\
         Flows of {} MiB at once, from the first connect to the last byte, medians of \
         {RUNS} runs. Link: 100 Mbit/s, 10 ms each way; of the segments of 1460 bytes, 1 % \
         stall their connection for 200 ms. *Direct*: a connection a flow. *In use*: the pair \
         has carried a flow before, so it knows of the loss.\n\nMachine: {}.\n\n\
         | content | flows | direct | a fresh pair | a pair in use | lanes then |\n\
         |---|--:|--:|--:|--:|--:|\n",
        FLOW_BYTES >> 20,
        machine::describe()
    );
    type Make = fn(u64) -> Vec<u8>;
    let cases: [(&str, Make, usize); 4] = [
        ("noise", noise, FLOWS),
        ("text", text, FLOWS),
        ("noise", noise, 1),
        ("text", text, 1),
    ];
    for (name, make, flows) in cases {
        let (mut direct, mut fresh, mut in_use) = (Vec::new(), Vec::new(), Vec::new());
        let mut lanes = 0;
        for seed in 0..RUNS {
            let objects: Vec<_> = (0..2 * flows as u64 + 1)
                .map(|index| make(seed << 8 | index))
                .collect();
            let link = LinkConfig {
                rate: Some(Rate::mbit(100)),
                delay: Duration::from_millis(10),
                stall_probability: 0.01,
                stall: Duration::from_millis(200),
                seed,
                ..LinkConfig::default()
            };
            let ways = Ways::start(objects.clone(), &link)?;
            direct.push(fetch_all(ways.direct, &objects, 0..flows)?);
            fresh.push(fetch_all(ways.pair, &objects, 0..flows)?);
            drop(ways);
            let ways = Ways::start(objects.clone(), &link)?;
            fetch_all(ways.pair, &objects, 0..1)?;
            in_use.push(fetch_all(ways.pair, &objects, flows..2 * flows)?);
            lanes = lanes.max(ways.peer().lanes);
        }
        let seconds = |times| median(times).as_secs_f64();
        writeln!(
            page,
            "| {name} | {flows} | {:.2} s | {:.2} s | {:.2} s | {lanes} |",
            seconds(direct),
            seconds(fresh),
            seconds(in_use)
        )?;
    }
    Ok(page)
}

/// Fetches objects all at once, and compares them.
fn fetch_all(
    address: SocketAddr,
    objects: &[Vec<u8>],
    which: std::ops::Range<usize>,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let clients: Vec<_> = which
            .map(|index| {
                scope.spawn(move || {
                    ensure!(
                        fetch(address, index)? == objects[index],
                        "object {index} differs"
                    );
                    anyhow::Ok(())
                })
            })
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().expect("clients do not panic"))
    })?;
    Ok(began.elapsed())
}

fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..FLOW_BYTES / 8)
        .flat_map(|_| draw().to_le_bytes())
        .collect()
}

/// Lines as a log has them: zstd takes most of it, Max-Match some.
fn text(seed: u64) -> Vec<u8> {
    let numbers = noise(seed);
    let mut text = String::with_capacity(FLOW_BYTES + 100);
    for number in numbers.chunks_exact(4) {
        let number = u32::from_le_bytes(number.try_into().expect("four bytes"));
        let verse = ["comes", "stays", "repeats", "returns"][number as usize % 4];
        writeln!(text, "line {number:08x}: what {verse} again is a refrain").expect("memory");
        if text.len() >= FLOW_BYTES {
            break;
        }
    }
    text.truncate(FLOW_BYTES);
    text.into_bytes()
}
