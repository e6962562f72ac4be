//! How long a new flow waits for its first byte: through a pair, and on a connection of its own.

use std::{
    fmt::Write as _,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use refrain_link::LinkConfig;
use refrain_relay::Rate;

use crate::{
    machine,
    over_link::{Origin, OverLink},
    ways::median,
};

/// Runs the experiment; gives its page.
pub(crate) fn run(refrain: &Path, runs: usize) -> anyhow::Result<String> {
    let mut page = format!(
        "# The first byte of a new flow\n\n\
         From the connect to the first byte of a small answer, medians of {runs}. Link: \
         100 Mbit/s. A direct connection needs a handshake; a flow of a pair does not.\n\n\
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
        let over = OverLink::start(&link, Origin::objects(vec![b"a small answer".to_vec()]))?;
        eprintln!("{}", over.checked);
        let pair = over.pair(refrain, &[], &[])?;
        let address = over.direct("cubic")?;
        let (mut direct, mut by_pair) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            direct.push(over.client(|| first_byte(address))?);
            by_pair.push(over.client(|| first_byte(pair.address))?);
        }
        let ms = |times| median(times).as_secs_f64() * 1e3;
        writeln!(
            page,
            "| {delay_ms} ms | {:.1} ms | {:.1} ms |",
            ms(direct),
            ms(by_pair)
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
