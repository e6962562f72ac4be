//! `refrain check`: does this pair work, and how fast is the way between.
//!
//! A check has a lane of its own without a link behind it, at both ends (`greeting` answers it): it carries no
//! flow, and takes nothing of the memory that the peer's link may have.

use std::{collections::VecDeque, io, time::Duration};

use refrain_proto::{
    frame::{Frame, FrameError},
    hello::{Hello, HelloError},
    limits::PADDING_BYTES_MAX,
    link::smoothed_round_trip,
};
use serde::Serialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, sleep, timeout},
};

use crate::{
    config::{Config, Dial},
    gateway::{ConnectError, connect},
    greeting,
    random::random_instance,
    tls::{ClientTls, TlsError},
    wire::LaneStream,
};

/// How many round trips are measured.
const ROUND_TRIPS: usize = 5;

/// Between two attempts to reach a far end that is waited for.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Throughput is measured for so long, each way, or with so many bytes: a check must not
/// cost much on a metered link.
const MEASURING: Duration = Duration::from_secs(2);
const MEASURING_BYTES: usize = 4 << 20;

/// Padding that is on its way at once; the answers of a peer are bounded as well.
const IN_FLIGHT: usize = 32;

/// No more is sent at once where an answer takes this long.
const QUEUE: Duration = Duration::from_millis(500);

/// More bytes than a packet has on usual paths. Slow links carry them in time.
const LARGE_BYTES: usize = 4 << 10;

/// How long they may take, there and back.
const LARGE_WITHIN: Duration = Duration::from_secs(3);

/// What a check found.
#[derive(Debug, Clone, Serialize)]
pub struct CheckReport {
    /// The lane that was made.
    #[serde(flatten)]
    pub reached: Reached,
    /// Throughput of one lane, from there to here.
    pub receive_mbit_per_s: f64,
    /// Throughput of one lane, from here to there.
    pub send_mbit_per_s: f64,
}

/// A lane that was made, and what its answers took.
#[derive(Debug, Clone, Serialize)]
pub struct Reached {
    /// The peer.
    pub peer: String,
    /// TCP and TLS, from the first packet to the proof of both keys.
    pub handshake_ms: f64,
    /// The hellos, from the end of the handshake: wire version and caches agreed.
    pub hello_ms: f64,
    /// The smoothed round trip, through both programs.
    pub round_trip_ms: f64,
    /// The round trips of which it is made, sorted.
    pub round_trips_ms: Vec<f64>,
    /// The wire version that both speak.
    pub wire_version: u8,
}

/// Checks the way to a peer until it can be reached, for at most `patience`. What a far end answers is
/// final.
pub async fn check_within(
    config: &Config,
    dial: &Dial,
    patience: Duration,
) -> Result<CheckReport, CheckError> {
    let began = Instant::now();
    loop {
        match check(config, dial).await {
            Err(error) if error.is_absence() && began.elapsed() < patience => {
                tracing::debug!(%error, "waiting for the far end");
                sleep(RETRY_INTERVAL).await;
            }
            Err(error) if error.is_absence() && !patience.is_zero() => {
                let error = Box::new(error);
                return Err(CheckError::Absent { error, patience });
            }
            checked => return checked,
        }
    }
}

/// Makes one lane to the peer, measures round trips, and whether large packets pass. It moves 10 KB.
pub async fn reach(config: &Config, dial: &Dial) -> Result<Reached, CheckError> {
    let tls = ClientTls::new(&config.key, dial.key);
    let (mut lane, reached) = open(config, dial, &tls).await?;
    let large = async {
        lane.ask(LARGE_BYTES, LARGE_BYTES).await?;
        lane.answer().await
    };
    match timeout(LARGE_WITHIN, large).await {
        Ok(answered) => answered.map(|()| reached),
        Err(_) => Err(CheckError::LargePackets(reached.peer)),
    }
}

/// Makes one lane to the peer, and measures it.
async fn check(config: &Config, dial: &Dial) -> Result<CheckReport, CheckError> {
    let tls = ClientTls::new(&config.key, dial.key);
    let (mut lane, reached) = open(config, dial, &tls).await?;
    let (peer, within) = (reached.peer.clone(), config.timeouts.connect);
    let measuring = async {
        Ok(CheckReport {
            reached,
            receive_mbit_per_s: lane.throughput(0, PADDING_BYTES_MAX).await?,
            send_mbit_per_s: lane.throughput(PADDING_BYTES_MAX, 0).await?,
        })
    };
    let measured = timeout(within + 6 * MEASURING, measuring).await;
    measured.unwrap_or(Err(CheckError::Silent { peer, within }))
}

/// Makes one lane to the peer, exchanges hellos, and measures round trips.
async fn open<'a>(
    config: &Config,
    dial: &Dial,
    tls: &'a ClientTls,
) -> Result<(Lane<'a>, Reached), CheckError> {
    let peer = dial.address.to_string();
    let within = config.timeouts.connect;
    let began = Instant::now();
    let proxy = config.via_proxy.as_ref();
    let (stream, address) = connect(&dial.address, proxy, tls, within, || {}).await?;
    let handshake = began.elapsed();
    let mut lane = Lane {
        stream,
        received: Vec::new(),
        tls,
        address,
    };
    let exchange = async {
        let hello_began = Instant::now();
        lane.exchange_hellos().await?;
        let hello = hello_began.elapsed();
        let (mut smoothed, mut round_trips) = (None, Vec::new());
        for _ in 0..ROUND_TRIPS {
            let began = Instant::now();
            lane.ask(0, 0).await?;
            lane.answer().await?;
            let round_trip = began.elapsed();
            smoothed = Some(smoothed_round_trip(smoothed, round_trip));
            round_trips.push(round_trip);
        }
        round_trips.sort();
        Ok(Reached {
            peer: peer.clone(),
            handshake_ms: milliseconds(handshake),
            hello_ms: milliseconds(hello),
            round_trip_ms: milliseconds(smoothed.unwrap_or_default()),
            round_trips_ms: round_trips.into_iter().map(milliseconds).collect(),
            wire_version: refrain_proto::hello::WIRE_VERSION,
        })
    };
    let exchanged = timeout(within + 6 * MEASURING, exchange).await;
    let reached = exchanged.unwrap_or(Err(CheckError::Silent {
        peer: peer.clone(),
        within,
    }))?;
    Ok((lane, reached))
}

/// A lane without a link behind it.
struct Lane<'a> {
    stream: LaneStream,
    received: Vec<u8>,
    tls: &'a ClientTls,
    address: String,
}

/// Why a check fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// There is no connection to the far end, or the wrong one.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The same after it was waited for.
    #[error("{error}; still failing after {patience:?}")]
    Absent {
        /// The last failure.
        error: Box<CheckError>,
        /// How long it was waited for.
        patience: Duration,
    },
    /// The connection failed before all was measured.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The far end said why it takes no lane.
    #[error("the peer refused the lane: {0}")]
    Refused(String),
    /// Its hello is none that this end can answer.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// What it says is not the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It takes connections, and says nothing.
    #[error("{peer} accepted the connection but did not answer within {within:?}")]
    Silent {
        /// The far end.
        peer: String,
        /// The time that it had.
        within: Duration,
    },
    /// Pings come back, and full packets do not.
    #[error("{0} answers small packets, but no answer to large ones came within {LARGE_WITHIN:?}")]
    LargePackets(String),
}

impl CheckError {
    /// Whether it says no more than that the far end does not run.
    fn is_absence(&self) -> bool {
        match self {
            CheckError::Connect(error) => error.is_absence(),
            CheckError::Tls(error) => error.is_absence(),
            _ => false,
        }
    }
}

impl Lane<'_> {
    async fn exchange_hellos(&mut self) -> Result<(), CheckError> {
        let mut hello = Vec::new();
        let words = Hello {
            is_check: true,
            ..Hello::of_lane(random_instance(), None, 0)
        };
        words.write(&mut hello);
        self.send(&hello).await?;
        loop {
            match Hello::read(&self.received) {
                Ok(Some((_, read))) => {
                    self.received.drain(..read);
                    return Ok(());
                }
                Ok(None) => self.receive().await?,
                Err(error) => {
                    let refusal = greeting::refusal(&self.received);
                    return Err(refusal.map_or(error.into(), CheckError::Refused));
                }
            }
        }
    }

    /// Pings with so much padding there and back.
    async fn ask(&mut self, bytes: usize, answer_bytes: usize) -> Result<(), CheckError> {
        let mut ping = Vec::new();
        let padding = &[0; PADDING_BYTES_MAX][..bytes];
        Frame::Ping {
            nonce: 1,
            answer_bytes,
            padding,
        }
        .write(&mut ping);
        Ok(self.send(&ping).await?)
    }

    async fn answer(&mut self) -> Result<(), CheckError> {
        loop {
            while let Some((frame, read)) = Frame::read(&self.received)? {
                let answered = matches!(frame, Frame::Pong { nonce: 1, .. });
                let asked = match frame {
                    Frame::Ping { nonce, .. } => Some(nonce),
                    _ => None,
                };
                self.received.drain(..read);
                if let Some(nonce) = asked {
                    let mut pong = Vec::new();
                    let padding = &[];
                    Frame::Pong { nonce, padding }.write(&mut pong);
                    self.send(&pong).await?;
                }
                if answered {
                    return Ok(());
                }
            }
            self.receive().await?;
        }
    }

    /// Mbit/s of padding with as many pings on their way as the way takes without a queue that
    /// keep-alives would stand in.
    async fn throughput(&mut self, bytes: usize, answer_bytes: usize) -> Result<f64, CheckError> {
        let mut asked = VecDeque::new();
        let mut wanted = 1;
        let began = Instant::now();
        let (mut measured_from, mut answered, mut moved) = (began, 0, 0);
        while measured_from.elapsed() < MEASURING
            && began.elapsed() < 2 * MEASURING
            && moved < MEASURING_BYTES
        {
            while asked.len() < wanted {
                asked.push_back(Instant::now());
                moved += bytes + answer_bytes;
                self.ask(bytes, answer_bytes).await?;
            }
            self.answer().await?;
            answered += 1;
            let took = asked.pop_front().map_or(MEASURING, |at| at.elapsed());
            if wanted < IN_FLIGHT && took < QUEUE {
                wanted += 1;
                // What was answered before says little about the way.
                (measured_from, answered) = (Instant::now(), 0);
            }
        }
        let took = measured_from.elapsed();
        for _ in asked {
            self.answer().await?;
        }
        Ok((answered * (bytes + answer_bytes) * 8) as f64 / took.as_secs_f64() / 1e6)
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let sent = sending.await;
        sent.map_err(|error| self.tls.explain(error, &self.address))
    }

    async fn receive(&mut self) -> Result<(), TlsError> {
        // A whole TLS record at once, as a refusal comes.
        self.received.reserve(PADDING_BYTES_MAX);
        let error = match self.stream.read_buf(&mut self.received).await {
            Ok(1..) => return Ok(()),
            Ok(0) => io::ErrorKind::UnexpectedEof.into(),
            Err(error) => error,
        };
        Err(self.tls.explain(error, &self.address))
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
