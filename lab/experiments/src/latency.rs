//! How long a new flow waits for its first byte: through a pair, and on a connection of its
//! own.

use std::{
    fmt::Write as _,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use refrain_relay::{LinkConfig, Rate};

use crate::{
    machine,
    ways::{Ways, median},
};

const RUNS: usize = 21;

/// Runs the experiment; gives its page.
pub(crate) fn run() -> anyhow::Result<String> {
    let mut page = format!(
        "# The first byte of a new flow\n\n\
         From the connect to the first byte of a small answer, medians of {RUNS}. Link: \
         100 Mbit/s. A connection of its own pays a handshake; a flow of a pair does not.\n\n\
         Machine: {}.\n\n\
         | delay each way | direct | through the pair |\n|--:|--:|--:|\n",
        machine::describe()
    );
    for delay_ms in [0, 5, 20, 80] {
        let link = LinkConfig {
            rate: Some(Rate::mbit(100)),
            delay: Duration::from_millis(delay_ms),
            ..LinkConfig::default()
        };
        let ways = Ways::start(vec![b"a small answer".to_vec()], &link)?;
        let (mut direct, mut pair) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            direct.push(first_byte(ways.direct)?);
            pair.push(first_byte(ways.pair)?);
        }
        let ms = |times| median(times).as_secs_f64() * 1e3;
        writeln!(
            page,
            "| {delay_ms} ms | {:.1} ms | {:.1} ms |",
            ms(direct),
            ms(pair)
        )?;
    }
    Ok(page)
}

fn first_byte(address: SocketAddr) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&0u64.to_le_bytes())?;
    stream.read_exact(&mut [0])?;
    Ok(began.elapsed())
}
