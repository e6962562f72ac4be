//! HTTP transactions, each on a connection of its own.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

use crate::over_link::Origin;

/// A client that waits longer for bytes gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// When a transaction's steps were done, from the call of `connect` on.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub connected: Duration,
    pub first_byte: Duration,
    pub last_byte: Duration,
}

/// An origin whose objects have numbers for names: `GET /7`.
pub(super) fn origin(object: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static) -> Origin {
    Arc::new(move |stream| answer(stream, &object))
}

fn answer(stream: TcpStream, object: impl Fn(u64) -> Vec<u8>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let name = line
        .strip_prefix("GET /")
        .and_then(|rest| rest.split(' ').next());
    let number = name.and_then(|name| name.parse().ok());
    let number = number.ok_or(io::ErrorKind::InvalidData)?;
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line)?;
    }
    let body = object(number);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let answer = [head.as_bytes(), &body].concat();
    (&stream).write_all(&answer)
}

/// Fetches an object and compares it with `expected`.
pub(super) fn get(address: SocketAddr, number: u64, expected: &[u8]) -> anyhow::Result<Times> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    let connected = began.elapsed();
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("GET /{number} HTTP/1.1\r\nHost: origin\r\nAccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = vec![0; 1];
    stream.read_exact(&mut answer)?;
    let first_byte = began.elapsed();
    stream.read_to_end(&mut answer)?;
    let last_byte = began.elapsed();
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let body = &answer[head.context("a response without a head")? + 4..];
    ensure!(body == expected, "object {number} differs");
    Ok(Times {
        connected,
        first_byte,
        last_byte,
    })
}
