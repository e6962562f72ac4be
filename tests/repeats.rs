//! What repeats whole is sent once, even noise; what looks encrypted stays out of the cache.
#![allow(missing_docs, reason = "a test's own")]

mod common;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};

use common::{
    content::{Content, Kind},
    gateways::{Gateway, Keys},
};

#[test]
fn a_second_download_of_noise_costs_next_to_nothing() {
    let mut file = vec![0; 50_000_000];
    Content::new(1, Kind::Noise).fill(0, &mut file);
    let (near, _far) = pair_in_front_of(file.clone());
    let before = link_bytes(&near);
    assert!(
        download(near.addresses[0]) == file,
        "the first arrives equal"
    );
    let first = link_bytes(&near) - before;
    assert!(first >= file.len() as u64, "noise cannot shrink: {first}");

    let before = link_bytes(&near);
    assert!(
        download(near.addresses[0]) == file,
        "the second arrives equal"
    );
    let second = link_bytes(&near) - before;
    assert!(
        second * 50 <= file.len() as u64,
        "{second} bytes for the second"
    );
}

#[test]
fn what_looks_encrypted_stays_out_of_the_cache() {
    // The record header of a TLS handshake, then what nobody else can read.
    let mut answer = vec![0; 4_000_000];
    Content::new(2, Kind::Noise).fill(0, &mut answer);
    answer[..6].copy_from_slice(&[0x16, 3, 1, 2, 0, 1]);
    let (near, _far) = pair_in_front_of(answer.clone());
    for _ in 0..2 {
        assert!(download(near.addresses[0]) == answer, "it arrives equal");
    }
    let received = near.status().peers[0].received;
    assert_eq!(received.cache_filled_bytes, 0, "{received:?}");
    assert!(received.bypassed_blocks > 0, "{received:?}");
    assert!(
        received.link_bytes >= 2 * answer.len() as u64,
        "{received:?}"
    );
}

/// Both gateways with their default settings, and a server that answers any byte with `file`.
fn pair_in_front_of(file: Vec<u8>) -> (Gateway, Gateway) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let origin = listener.local_addr().expect("an address");
    let file = Arc::new(file);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let file = Arc::clone(&file);
            std::thread::spawn(move || {
                let mut stream = stream.expect("a connection");
                stream.read_exact(&mut [0]).expect("a request");
                stream.write_all(&file).expect("taken");
            });
        }
    });
    let keys = Keys::new();
    let far = Gateway::far(&keys, 0, &[]);
    let forward = format!("127.0.0.1:0={origin}");
    let near = Gateway::near(&keys, far.addresses[0], 1, &["--forward", &forward]);
    near.wait_until_up(1);
    (near, far)
}

fn download(address: SocketAddr) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the near end listens");
    stream.write_all(b"?").expect("sent");
    let mut file = Vec::new();
    stream.read_to_end(&mut file).expect("the whole file");
    file
}

/// All that went over the link so far, both ways, TLS included.
fn link_bytes(near: &Gateway) -> u64 {
    let peer = near.status().peers.remove(0);
    peer.sent.link_bytes + peer.received.link_bytes
}
