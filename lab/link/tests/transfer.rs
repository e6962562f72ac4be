//! Real transfers over a link have its rate, its delay and its loss, within wide bounds: others may use the machine.
#![allow(missing_docs, reason = "a test's own")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use refrain_link::{End, Link, LinkConfig};
use refrain_relay::Rate;
use socket2::SockRef;

const BYTES: usize = 2_000_000;

/// Listens at the far end and answers one connection with `BYTES` bytes; gives the name of its congestion control.
fn serve(link: &Link) -> anyhow::Result<(SocketAddr, thread::JoinHandle<anyhow::Result<String>>)> {
    let address = SocketAddr::from((link.address(End::Far), 8080));
    let listener = link.at(End::Far, || Ok(TcpListener::bind(address)?))?;
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.write_all(&vec![7; BYTES])?;
        let name = SockRef::from(&stream).tcp_congestion()?;
        let name = String::from_utf8(name)?;
        Ok(name.trim_end_matches('\0').to_owned())
    });
    Ok((address, server))
}

/// What one transfer took: the connect, and all of it.
fn transfer(link: &Link, congestion: &str) -> anyhow::Result<[Duration; 2]> {
    link.set_congestion(congestion)?;
    let (address, server) = serve(link)?;
    let took = link.at(End::Near, || {
        let began = Instant::now();
        let mut stream = TcpStream::connect(address)?;
        let connected = began.elapsed();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        anyhow::ensure!(bytes == vec![7; BYTES], "the bytes differ");
        Ok([connected, began.elapsed()])
    })?;
    let name = server.join().expect("the server does not panic")?;
    assert_eq!(name, congestion);
    Ok(took)
}

#[test]
fn a_transfer_has_the_rate_and_the_delay() -> anyhow::Result<()> {
    let Some(link) = Link::for_test(LinkConfig {
        rate: Some(Rate::mbit(20)),
        delay: Duration::from_millis(20),
        ..LinkConfig::default()
    })?
    else {
        return Ok(());
    };
    for congestion in ["cubic", "reno"] {
        let before = link.counts(End::Far).bytes();
        let [connected, took] = transfer(&link, congestion)?;
        assert!(connected >= Duration::from_millis(40), "{connected:?}");
        let least = Duration::from_secs_f64(8.0 * BYTES as f64 / 20e6);
        assert!((least..10 * least).contains(&took), "{took:?} of {least:?}");
        let carried = link.counts(End::Far).bytes() - before;
        assert!(
            (BYTES as u64..2 * BYTES as u64).contains(&carried),
            "{carried} bytes"
        );
        assert_eq!(link.counts(End::Far).lost(), 0);
    }
    Ok(())
}

#[test]
fn a_transfer_loses_segments_and_arrives() -> anyhow::Result<()> {
    let Some(link) = Link::for_test(LinkConfig {
        loss: 0.05,
        seed: 3,
        ..LinkConfig::default()
    })?
    else {
        return Ok(());
    };
    transfer(&link, "reno")?;
    let counts = link.counts(End::Far);
    let share = counts.lost() as f64 / (counts.lost() + counts.packets()) as f64;
    assert!((0.02..0.1).contains(&share), "{share} of {counts:?}");
    Ok(())
}

#[test]
fn a_link_is_gone_when_it_is_dropped() -> anyhow::Result<()> {
    let Some(link) = Link::for_test(LinkConfig::default())? else {
        return Ok(());
    };
    let names = [End::Near, End::Far].map(|end| link.name(end).to_owned());
    let is_there = |name: &String| std::path::Path::new("/run/netns").join(name).exists();
    assert!(names.iter().all(is_there));
    drop(link);
    assert!(!names.iter().any(is_there));
    Ok(())
}
