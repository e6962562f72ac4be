//! Applications that compare every byte: clients that open flows through a listener, and
//! the server behind the other end.
//!
//! A flow starts with its number. From it both sides know its [`Plan`]: how much goes each
//! way, whether one side resets it and where, whether the server answers only once the
//! client has finished. Whoever is not the one that resets must get every byte and then
//! the end, or a prefix and then an error; a prefix and then the end is a lie.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::content::{Content, Kind, mix};

const PIECE_BYTES: usize = 32 << 10;

/// The side of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// What a flow does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub id: u64,
    /// Bytes from the client and from the server.
    pub up_bytes: u64,
    pub down_bytes: u64,
    /// Who resets the flow once it has sent so many bytes, always fewer than it should.
    pub reset: Option<(Side, u64)>,
    /// Whether the server sends only once the client has finished.
    pub in_turn: bool,
}

/// What a side saw of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every byte and the end, both ways.
    Complete,
    /// An error after some bytes, all of them right.
    Reset,
    /// It did the resetting.
    DidReset,
    /// What must never happen.
    Wrong(String),
}

/// A server for planned flows; what it saw of each, by number.
pub(crate) struct Server {
    pub address: SocketAddr,
    outcomes: Arc<Mutex<HashMap<u64, Outcome>>>,
    received_bytes: Arc<Mutex<u64>>,
}

impl Plan {
    /// The plan of flow `id`, no direction longer than `bytes_max`.
    pub(crate) fn draw(id: u64, bytes_max: u64) -> Self {
        let draw = |what: u64| mix(mix(id) ^ what);
        let size = |what: u64| {
            let fraction = draw(what + 1);
            let ceiling = match draw(what) % 100 {
                0..=11 => return 0,
                12..=51 => 64 << 10,
                52..=81 => 1 << 20,
                82..=96 => 8 << 20,
                _ => 50 << 20,
            };
            fraction % u64::min(ceiling, bytes_max) + 1
        };
        let (up_bytes, down_bytes) = (size(10), size(20));
        let reset = match draw(30) % 8 {
            0 if up_bytes > 0 => Some((Side::Client, draw(31) % up_bytes)),
            1 if down_bytes > 0 => Some((Side::Server, draw(31) % down_bytes)),
            _ => None,
        };
        Self {
            id,
            up_bytes,
            down_bytes,
            reset,
            in_turn: draw(40) % 3 == 0,
        }
    }

    fn content(&self, side: Side) -> Content {
        let kind = match mix(self.id ^ 50) % 4 {
            0 => Kind::Noise,
            _ => Kind::Mixed,
        };
        Content::new(mix(self.id) ^ side as u64, kind)
    }

    fn sends(&self, side: Side) -> u64 {
        match side {
            Side::Client => self.up_bytes,
            Side::Server => self.down_bytes,
        }
    }
}

impl Server {
    pub(crate) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = Self {
            address: listener.local_addr()?,
            outcomes: Arc::default(),
            received_bytes: Arc::default(),
        };
        let (outcomes, received) = (
            Arc::clone(&server.outcomes),
            Arc::clone(&server.received_bytes),
        );
        tokio::spawn(async move {
            loop {
                let (mut tcp, _) = listener.accept().await.expect("accepted");
                let (outcomes, received) = (Arc::clone(&outcomes), Arc::clone(&received));
                tokio::spawn(async move {
                    let (Ok(id), Ok(bytes_max)) = (tcp.read_u64().await, tcp.read_u64().await)
                    else {
                        // Reset before it said its number.
                        return;
                    };
                    let plan = Plan::draw(id, bytes_max);
                    let (outcome, bytes) = converse(tcp, plan, Side::Server).await;
                    outcomes.lock().expect("no panic").insert(id, outcome);
                    *received.lock().expect("no panic") += bytes;
                });
            }
        });
        Ok(server)
    }

    /// What was seen of the flow, if it came so far.
    pub(crate) fn outcome(&self, id: u64) -> Option<Outcome> {
        self.outcomes.lock().expect("no panic").get(&id).cloned()
    }

    /// Plain bytes that arrived, and were right.
    pub(crate) fn received_bytes(&self) -> u64 {
        *self.received_bytes.lock().expect("no panic")
    }
}

/// Opens a flow through `listener` and does its client's part; says what became of it and
/// how many bytes came.
pub(crate) async fn run_client(listener: SocketAddr, plan: Plan, bytes_max: u64) -> (Outcome, u64) {
    let opened = async {
        let mut tcp = TcpStream::connect(listener).await?;
        tcp.write_u64(plan.id).await?;
        tcp.write_u64(bytes_max).await?;
        io::Result::Ok(tcp)
    };
    match opened.await {
        Ok(tcp) => converse(tcp, plan, Side::Client).await,
        Err(error) => (Outcome::Wrong(format!("cannot open: {error}")), 0),
    }
}

async fn converse(mut tcp: TcpStream, plan: Plan, side: Side) -> (Outcome, u64) {
    let other = match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    };
    let (reader, mut writer) = tcp.split();
    let receiving = receive(reader, plan.content(other));
    if let Some((_, at)) = plan.reset.filter(|(who, _)| *who == side) {
        let received = tokio::select! {
            _ = send(&mut writer, plan.content(side), at) => None,
            received = receiving_wrong(receiving) => Some(received),
        };
        socket2::SockRef::from(&tcp)
            .set_linger(Some(Duration::ZERO))
            .expect("a socket");
        return match received {
            Some(wrong) => (Outcome::Wrong(wrong), 0),
            None => (Outcome::DidReset, 0),
        };
    }
    let (heard_end, mut end_heard) = watch::channel(false);
    let sending = async {
        if plan.in_turn && side == Side::Server {
            // An error ends the wait as well; then sending fails.
            let _ = end_heard.wait_for(|heard| *heard).await;
        }
        send(&mut writer, plan.content(side), plan.sends(side)).await?;
        writer.shutdown().await
    };
    let receiving = async {
        let received = receiving.await;
        heard_end.send_replace(true);
        received
    };
    let (sent, received) = tokio::join!(sending, receiving);
    let outcome = judge(plan, sent, &received, plan.sends(other));
    (outcome, received.bytes)
}

/// What came of one direction.
struct Received {
    bytes: u64,
    end: End,
}

enum End {
    Finished,
    Failed(io::Error),
    Differs,
}

async fn send(
    writer: &mut (impl AsyncWrite + Unpin),
    content: Content,
    len: u64,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut sent = 0;
    while sent < len {
        let size = u64::min(len - sent, PIECE_BYTES as u64) as usize;
        content.fill(sent, &mut piece[..size]);
        writer.write_all(&piece[..size]).await?;
        sent += size as u64;
    }
    Ok(())
}

async fn receive(mut reader: impl AsyncRead + Unpin, content: Content) -> Received {
    let mut piece = vec![0; PIECE_BYTES];
    let mut bytes = 0;
    let end = loop {
        match reader.read(&mut piece).await {
            Ok(0) => break End::Finished,
            Ok(read) if content.is_at(bytes, &piece[..read]) => bytes += read as u64,
            Ok(_) => break End::Differs,
            Err(error) => break End::Failed(error),
        }
    };
    Received { bytes, end }
}

/// Ends only when something wrong was received.
async fn receiving_wrong(receiving: impl Future<Output = Received>) -> String {
    let received = receiving.await;
    match received.end {
        End::Differs => format!("wrong bytes after {}", received.bytes),
        _ => std::future::pending().await,
    }
}

fn judge(plan: Plan, sent: io::Result<()>, received: &Received, expected: u64) -> Outcome {
    let bytes = received.bytes;
    match (&received.end, sent, plan.reset) {
        (End::Differs, ..) => Outcome::Wrong(format!("wrong bytes after {bytes}")),
        (End::Finished, Ok(()), None) if bytes == expected => Outcome::Complete,
        (End::Failed(_), _, Some(_)) | (End::Finished, Err(_), Some(_)) => Outcome::Reset,
        (End::Finished, sent, _) => Outcome::Wrong(format!(
            "ended after {bytes} of {expected}, sending: {sent:?}"
        )),
        (End::Failed(error), sent, None) => {
            Outcome::Wrong(format!("failed after {bytes}: {error}, sending: {sent:?}"))
        }
    }
}
