//! An HTTP client that keeps its connection, decodes answers as they come, and notes when they came.

use std::{
    io::Write,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use brotli_decompressor::DecompressorWriter;
use bytes::Bytes;
use flate2::write::GzDecoder;
use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, StatusCode,
    client::conn::http1::{SendRequest, handshake},
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    runtime::{Builder, Runtime},
    time::timeout,
};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes that the decoder of brotli hands on at once.
const BROTLI_PIECE_BYTES: usize = 64 << 10;

/// A connection, until dropped.
pub(super) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    address: SocketAddr,
    runtime: Runtime,
}

/// An answer.
pub(super) struct Answer {
    pub body: Vec<u8>,
    /// When its head was there, and when it was there and decoded.
    pub first_byte: Instant,
    pub last_byte: Instant,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> anyhow::Result<Connection> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            anyhow::Ok(sender)
        })?;
        Ok(Connection {
            sender,
            address,
            runtime,
        })
    }

    /// Asks for a file, in that coding.
    pub(super) fn get(&mut self, path: &str, coding: &str) -> anyhow::Result<Answer> {
        let request = Request::get(format!("/{path}"))
            .header(HOST, self.address.to_string())
            .header(ACCEPT_ENCODING, coding)
            .body(Empty::new())?;
        let answer = receive(&mut self.sender, request, coding);
        let answer = self
            .runtime
            .block_on(async { timeout(PATIENCE, answer).await });
        let answer = answer.context("the response timed out").flatten();
        answer.with_context(|| path.to_owned())
    }
}

async fn receive(
    sender: &mut SendRequest<Empty<Bytes>>,
    request: Request<Empty<Bytes>>,
    coding: &str,
) -> anyhow::Result<Answer> {
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let first_byte = Instant::now();
    ensure!(
        response.status() == StatusCode::OK,
        "the server answered {}",
        response.status()
    );
    let coded = response.headers().get(CONTENT_ENCODING);
    let coded = coded.map_or("identity", |value| value.to_str().unwrap_or("unknown"));
    ensure!(coded == coding, "coding is {coded} instead of {coding}");
    let mut decoder = Decoder::new(coding);
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        if let Some(bytes) = frame?.data_ref() {
            decoder.write(bytes)?;
        }
    }
    let body = decoder.finish()?;
    Ok(Answer {
        body,
        first_byte,
        last_byte: Instant::now(),
    })
}

/// What decodes an answer.
enum Decoder {
    Identity(Vec<u8>),
    Gzip(Box<GzDecoder<Vec<u8>>>),
    Brotli(Box<DecompressorWriter<Vec<u8>>>),
}

impl Decoder {
    fn new(coding: &str) -> Self {
        match coding {
            "gzip" => Self::Gzip(Box::new(GzDecoder::new(Vec::new()))),
            "br" => Self::Brotli(Box::new(DecompressorWriter::new(
                Vec::new(),
                BROTLI_PIECE_BYTES,
            ))),
            _ => Self::Identity(Vec::new()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Identity(body) => body.write_all(bytes),
            Self::Gzip(decoder) => decoder.write_all(bytes),
            Self::Brotli(decoder) => decoder.write_all(bytes),
        }
    }

    fn finish(self) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Identity(body) => Ok(body),
            Self::Gzip(decoder) => Ok(decoder.finish()?),
            Self::Brotli(mut decoder) => {
                decoder.close()?;
                let body = decoder.into_inner();
                body.ok().context("the response is truncated")
            }
        }
    }
}
