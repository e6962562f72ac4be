//! Attacks by visitors without a key, by clients and origins, and by what lies between the ends:
//! none keeps others out, reads what it may not, or costs a byte.
#![allow(missing_docs, reason = "a test's own")]

#[path = "../common/mod.rs"]
mod common;

mod bit_flips;
mod half_requests;
mod own_addresses;
mod rebinding;
mod silent_sources;
mod smuggling;

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpStream},
};

use common::{eventually, origin};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Opens `count` connections and says `text` on each, as a visitor does that says no more.
fn half_requests(address: SocketAddr, text: &[u8], count: usize) -> Vec<TcpStream> {
    // The tests' own connections are many as well.
    let mut limits = getrlimit(Resource::Nofile);
    limits.current = limits.maximum;
    setrlimit(Resource::Nofile, limits).expect("the soft limit may be raised");
    let open = || -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        // The listener may have closed it by now.
        let _ = stream.write_all(text);
        Ok(stream)
    };
    (0..count)
        .map(|_| open().expect("the kernel takes connections"))
        .collect()
}

/// Waits until flows through `listen` work, which must be soon.
#[track_caller]
fn assert_serves(listen: SocketAddr) {
    eventually("a new connection is served", || {
        origin::answers(listen).then_some(())
    });
}
