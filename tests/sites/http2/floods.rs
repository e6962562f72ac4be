//! Clients of HTTP/2 that send what costs an end more than themselves, and read nothing. They may be disconnected or held
//! up. Others are served meanwhile, and memory stays bounded.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{
    World,
    peers::{runtime, soon, tls},
};
use crate::common::resident::resident_bytes;

/// How long a client floods an end that takes it all.
const LASTS: Duration = Duration::from_secs(1);

/// A client that cannot send for so long is held up.
const HELD_UP: Duration = Duration::from_millis(300);

/// More than this, and it is the client that decides how much memory is used.
const MORE_BYTES_MAX: u64 = 64 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

struct Flood {
    name: &'static str,
    first: Vec<u8>,
    /// By the number of the turn.
    next: fn(u32) -> Vec<u8>,
    ends: bool,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Fields without compression. The lengths are below 127.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let field = |(name, value): &(&str, &str)| [vec![0], text(name), text(value)].concat();
    fields.iter().flat_map(field).collect()
}

fn request(method: &str, path: &str) -> Vec<u8> {
    block(&[
        (":method", method),
        (":scheme", "https"),
        (":path", path),
        (":authority", "localhost"),
    ])
}

/// Streams of clients have odd numbers.
fn stream(turn: u32) -> u32 {
    2 * turn + 1
}

fn floods() -> Vec<Flood> {
    vec![
        Flood {
            name: "a head without an end",
            first: frame(HEADERS, END_STREAM, 1, &request("GET", "/seen")),
            next: |_| frame(CONTINUATION, 0, 1, &block(&[("x", "y"); 3000])),
            ends: true,
        },
        Flood {
            name: "empty parts of a head",
            first: frame(HEADERS, END_STREAM, 1, &request("GET", "/seen")),
            next: |_| frame(CONTINUATION, 0, 1, &[]),
            ends: true,
        },
        Flood {
            name: "heads that unpack to thousands of times their size",
            first: Vec::new(),
            next: |turn| {
                // A field of 4,000 bytes that is kept, and references to it. The first length takes two further bytes.
                let long = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'y'; 4000]].concat();
                let head = [request("GET", "/seen"), long, vec![0xbe; 12_000]].concat();
                frame(HEADERS, END_STREAM | END_HEADERS, stream(turn), &head)
            },
            ends: false,
        },
        Flood {
            name: "requests beyond the limit",
            first: Vec::new(),
            next: |turn| {
                let head = request("GET", "/wait");
                frame(HEADERS, END_STREAM | END_HEADERS, stream(turn), &head)
            },
            ends: false,
        },
        Flood {
            name: "settings",
            first: Vec::new(),
            next: |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]),
            ends: false,
        },
        Flood {
            name: "pings",
            first: Vec::new(),
            next: |_| frame(PING, 0, 0, &[7; 8]),
            ends: false,
        },
        Flood {
            name: "empty parts of a body",
            first: frame(HEADERS, END_HEADERS, 1, &request("POST", "/wait")),
            next: |_| frame(DATA, 0, 1, &[]),
            ends: false,
        },
        Flood {
            name: "priorities",
            first: Vec::new(),
            next: |turn| frame(PRIORITY, 0, stream(turn), &[0, 0, 0, 0, 1]),
            ends: false,
        },
        Flood {
            name: "a window that is too large",
            first: Vec::new(),
            next: |_| frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            ends: true,
        },
    ]
}

/// Sends it for a while. Returns whether the connection has ended.
async fn send(world: &World, flood: &Flood) -> bool {
    let mut connection = tls(world.near, world.folder.path(), &["h2"]).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut bytes = [preface, &frame(SETTINGS, 0, 0, &[])[..], &flood.first].concat();
    let (until, mut turn) = (Instant::now() + LASTS, 0);
    while Instant::now() < until {
        while bytes.len() < 64 << 10 {
            bytes.extend((flood.next)(turn));
            turn += 1;
        }
        match timeout(HELD_UP, connection.write_all(&bytes)).await {
            Ok(Ok(())) => bytes.clear(),
            Ok(Err(_)) => return true,
            Err(_) => break,
        }
    }
    if flood.ends {
        let mut came = Vec::new();
        let _ = soon(
            "the end of the connection",
            connection.read_to_end(&mut came),
        )
        .await;
    }
    flood.ends
}

#[test]
fn floods_cost_their_client_and_nobody_else() {
    let Some(world) = World::start(&["h2"]) else {
        return;
    };
    let other = world.runtime.block_on(world.client());
    for flood in floods() {
        let (name, before) = (flood.name, resident_bytes(&world.pair.near));
        let is_over = AtomicBool::new(false);
        let (has_ended, served) = thread::scope(|threads| {
            let flooding = threads.spawn(|| {
                let has_ended = runtime().block_on(send(&world, &flood));
                is_over.store(true, Ordering::Relaxed);
                has_ended
            });
            let mut served = 0;
            world.runtime.block_on(async {
                while !is_over.load(Ordering::Relaxed) {
                    other.get("/seen").await.expect("an answer");
                    served += 1;
                }
            });
            (flooding.join().expect("no panic"), served)
        });
        assert!(has_ended || !flood.ends, "{name}: still connected");
        assert!(served > 0, "{name}: nobody else was served");
        let more = resident_bytes(&world.pair.near).saturating_sub(before);
        assert!(more < MORE_BYTES_MAX, "{name}: {more} bytes more");
    }
    // What the floods asked for has ended with their connections.
    let flows = || world.pair.far.peer().flows_open;
    crate::common::eventually("no flow of a flood is left", || {
        (flows() <= 1).then_some(())
    });
}
