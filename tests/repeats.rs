//! What repeats whole is sent once, even noise; what looks encrypted stays out of the cache.
#![allow(missing_docs, reason = "a test's own")]

mod common;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use common::{addresses::forward, content::noise, server::serve, site::Pair};

#[test]
fn a_second_download_of_noise_costs_next_to_nothing() {
    let file = noise(1, 50_000_000);
    let (pair, listen) = pair_in_front_of(file.clone());
    let before = pair.near.link_bytes();
    assert!(download(listen) == file, "the first arrives equal");
    let first = pair.near.link_bytes() - before;
    assert!(first >= file.len() as u64, "noise cannot shrink: {first}");

    let before = pair.near.link_bytes();
    assert!(download(listen) == file, "the second arrives equal");
    let second = pair.near.link_bytes() - before;
    assert!(
        second * 50 <= file.len() as u64,
        "{second} bytes for the second"
    );
}

#[test]
fn what_looks_encrypted_stays_out_of_the_cache() {
    // The record header of a TLS handshake, then what nobody else can read.
    let mut answer = noise(2, 4_000_000);
    answer[..6].copy_from_slice(&[0x16, 3, 1, 2, 0, 1]);
    let (pair, listen) = pair_in_front_of(answer.clone());
    for _ in 0..2 {
        assert!(download(listen) == answer, "it arrives equal");
    }
    let received = pair.near.peer().received;
    assert_eq!(received.cache_filled_bytes, 0, "{received:?}");
    assert!(received.bypassed_blocks > 0, "{received:?}");
    assert!(
        received.link_bytes >= 2 * answer.len() as u64,
        "{received:?}"
    );
}

/// A pair with its default settings, and a way in that leads to a server which answers any
/// byte with `file`.
fn pair_in_front_of(file: Vec<u8>) -> (Pair, SocketAddr) {
    let file = Arc::new(file);
    let origin = serve(move |mut stream| {
        stream.read_exact(&mut [0])?;
        stream.write_all(&file)
    });
    let (listen, option) = forward(origin);
    (Pair::start(&[], &["--forward", &option]), listen)
}

fn download(address: SocketAddr) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the near end listens");
    stream.write_all(b"?").expect("sent");
    let mut file = Vec::new();
    stream.read_to_end(&mut file).expect("the whole file");
    file
}
