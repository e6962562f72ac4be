//! Requests that HTTP/2 does not allow.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    World,
    peers::{soon, tls},
};

/// Raw frames that a library would not send. Each ends the stream or the connection, and reaches no site.
#[test]
fn malformed_requests_reach_no_site() {
    for site in ["h2", "http/1.1"] {
        let Some(world) = World::start(&[site]) else {
            return;
        };
        send_malformed(&world);
        assert_eq!(world.seen.streams(), 0, "{site}");
    }
}

fn send_malformed(world: &World) {
    let literal = |name: &str, value: &str| {
        let mut bytes = vec![0, name.len() as u8];
        bytes.extend(name.as_bytes());
        bytes.push(value.len() as u8);
        bytes.extend(value.as_bytes());
        bytes
    };
    let usual = [
        (":method", "POST"),
        (":scheme", "https"),
        (":path", "/1000"),
        (":authority", "localhost"),
    ];
    let with = |further: &[(&str, &str)]| {
        let fields = usual.iter().chain(further);
        let block: Vec<u8> = fields
            .flat_map(|(name, value)| literal(name, value))
            .collect();
        block
    };
    let instead = |index: usize, field: (&str, &str)| {
        let mut fields = usual;
        fields[index] = field;
        fields
            .iter()
            .flat_map(|(name, value)| literal(name, value))
            .collect::<Vec<u8>>()
    };
    let blocks = [
        with(&[("transfer-encoding", "chunked")]),
        with(&[("connection", "close")]),
        with(&[("content-length", "5"), ("content-length", "6")]),
        with(&[("content-length", "5")]),
        with(&[("x", "a\r\nb: c")]),
        with(&[("x", "a\nb")]),
        with(&[("x\r\ny", "a")]),
        with(&[("x y", "a")]),
        with(&[("X", "a")]),
        with(&[(":path", "/2000")]),
        with(&[("x", "a"), (":status", "200")]),
        with(&[("host", "other.example")]),
        instead(0, (":method", "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET")),
        instead(0, (":method", "PO ST")),
        instead(2, (":path", "/1000 HTTP/1.1\r\nX: y")),
        instead(2, (":path", "/a b")),
        instead(2, (":path", "")),
        instead(3, (":authority", "a b")),
        instead(3, (":authority", "user@localhost")),
        instead(3, (":authority", "localhost\r\nX: y")),
    ];
    world.runtime.block_on(async {
        for block in blocks {
            let mut stream = tls(world.near, world.folder.path(), &["h2"]).await;
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
            let length = block.len() as u32;
            bytes.extend(&length.to_be_bytes()[1..]);
            // HEADERS with END_HEADERS and END_STREAM.
            bytes.extend([1, 0x5, 0, 0, 0, 1]);
            bytes.extend(&block);
            stream.write_all(&bytes).await.expect("a connection");
            let mut came = Vec::new();
            let is_over = async {
                loop {
                    if stream.read_buf(&mut came).await.unwrap_or(0) == 0 || has_ended(&came) {
                        return;
                    }
                }
            };
            soon("an end", is_over).await;
        }
    });
}

/// Whether frames have ended stream 1, or the connection.
fn has_ended(mut frames: &[u8]) -> bool {
    while frames.len() >= 9 {
        let length = u32::from_be_bytes([0, frames[0], frames[1], frames[2]]) as usize;
        let (kind, flags, stream) = (frames[3], frames[4], frames[8]);
        let ends = (kind == 3 || (kind == 0 || kind == 1) && flags & 1 == 1) && stream == 1;
        if ends || kind == 7 {
            return true;
        }
        let Some(rest) = frames.get(9 + length..) else {
            return false;
        };
        frames = rest;
    }
    false
}
