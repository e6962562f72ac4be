//! A lane's task: a TLS connection on one side, the link's engine on the other.
//!
//! Reading never waits for anything but the socket (`docs/architecture.md`, 5): the engine takes
//! every byte. Writing asks the engine for the next piece when the last one is gone, so
//! that blocks are encoded when they can leave, not before.

use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use refrain_proto::{
    Fault, LaneFault, LaneId, LinkFault,
    effort::{Unsent, Written},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    net::TcpStream,
    runtime::Handle,
    task::yield_now,
    time::{Instant, timeout},
};

use crate::{
    greeting,
    link::{LaneHandle, SharedLink},
    pace::Pace,
    socket::Congestion,
    tls::Damage,
    wire::{ByteStream, UNSENT_BYTES_FIRST, WireCounts},
};

/// How long the last words of a condemned link may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

const READ_BYTES: usize = 64 << 10;

/// Whether the socket is dry is asked before a write of so many bytes, and otherwise so often: a call of the system for
/// each small message would cost more than it says.
const ASKING_BYTES: usize = 4 << 10;
const ASKING_INTERVAL: Duration = Duration::from_millis(1);

/// Why a lane's task ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaneEnd {
    /// The connection ended or failed.
    #[error("{0}")]
    Io(io::Error),
    /// Bytes were damaged on the way.
    #[error("bytes {} were damaged between the two ends", direction(*.0))]
    Damaged(Damage),
    /// The engine gave the lane up.
    #[error("{0}")]
    Lane(LaneFault),
    /// The link is over.
    #[error("{0}")]
    Link(LinkFault),
    /// The far end said in place of its hello why it takes no lane.
    #[error("the peer refused it: {0}")]
    Refused(String),
}

impl LaneEnd {
    fn of_io(error: io::Error) -> LaneEnd {
        match Damage::of(&error) {
            Some(damage) => LaneEnd::Damaged(damage),
            None => LaneEnd::Io(error),
        }
    }

    /// Whether it says no more than that the peer has stopped, or runs again.
    pub(crate) fn is_departure(&self) -> bool {
        match self {
            LaneEnd::Io(_) => true,
            LaneEnd::Lane(fault) => matches!(
                fault,
                LaneFault::TransportClosed | LaneFault::ClosedByPeer | LaneFault::Silent
            ),
            LaneEnd::Link(fault) => *fault == LinkFault::PeerRestarted,
            LaneEnd::Damaged(_) | LaneEnd::Refused(_) => false,
        }
    }
}

fn direction(damage: Damage) -> &'static str {
    match damage {
        Damage::Received => "from the peer",
        Damage::Sent => "to the peer",
    }
}

/// Makes a lane's connection fit to carry many flows.
pub(crate) fn prepare(
    tcp: &TcpStream,
    dead_after: Duration,
    congestion: &Congestion,
) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    congestion.set(tcp)?;
    let socket = socket2::SockRef::from(tcp);
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_FIRST)?;
        // A peer whose kernel is silent is dead, whatever waits in the queue.
        socket.set_tcp_user_timeout(Some(dead_after * 4))?;
    }
    socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(Duration::from_secs(15)))
}

/// Carries `lane` over a stream until it ends; the engine knows of the end when this returns. What
/// really goes over the wire below is in the stream's `counts`.
pub(crate) async fn run(
    lane: &LaneHandle,
    stream: impl ByteStream,
    counts: Arc<WireCounts>,
    pace: Option<Arc<Pace>>,
) -> LaneEnd {
    let LaneHandle { link, id, signals } = lane;
    link.add_lane(*id, Arc::clone(&counts));
    let (mut reader, writer) = tokio::io::split(stream);
    let end = tokio::select! {
        end = read(link, *id, &mut reader) => end,
        end = write(lane, writer, &counts, pace.as_deref()) => end,
        fault = signals.down() => LaneEnd::Lane(fault),
    };
    // A peer that received damaged bytes reports it in its last record. This end may learn earlier
    // that the lane closed.
    let said = match end {
        LaneEnd::Io(_) | LaneEnd::Lane(LaneFault::ClosedByPeer) => {
            timeout(LAST_WORDS, damage_said(&mut reader)).await
        }
        _ => Ok(None),
    };
    let end = said.ok().flatten().map_or(end, LaneEnd::Damaged);
    if let LaneEnd::Damaged(_) = end {
        link.note_damage();
    }
    link.with(|link, _| link.close_lane(*id, LaneFault::TransportClosed));
    link.remove_lane(*id);
    // A lane that both ends left is closed: that is no failure, whichever of the two is heard first.
    match signals.fault() {
        Some(LaneFault::Spare) => LaneEnd::Lane(LaneFault::Spare),
        _ => end,
    }
}

/// Whether the peer's TLS ended because of damaged bytes.
async fn damage_said(reader: &mut ReadHalf<impl ByteStream>) -> Option<Damage> {
    let mut unused = vec![0; READ_BYTES];
    loop {
        match reader.read(&mut unused).await {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return Damage::of(&error),
        }
    }
}

async fn read(link: &SharedLink, lane: LaneId, reader: &mut ReadHalf<impl ByteStream>) -> LaneEnd {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = match reader.read(&mut buffer).await {
            Ok(0) => return LaneEnd::Io(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) => return LaneEnd::of_io(error),
        };
        match link.with(|link, now| link.receive(now, lane, &buffer[..read])) {
            Ok(()) => {}
            Err(Fault::Lane(LaneFault::Hello(fault))) => {
                let refusal = greeting::refusal(&buffer[..read]);
                return refusal.map_or(LaneEnd::Lane(fault.into()), LaneEnd::Refused);
            }
            Err(Fault::Lane(fault)) => return LaneEnd::Lane(fault),
            Err(Fault::Link(_)) => {
                // The writer says why, and ends the lane.
                let () = std::future::pending().await;
            }
        }
    }
}

async fn write(
    LaneHandle { link, id, signals }: &LaneHandle,
    mut writer: WriteHalf<impl ByteStream>,
    counts: &WireCounts,
    pace: Option<&Pace>,
) -> LaneEnd {
    let mut out = Vec::new();
    let mut asked = Instant::now();
    // On several threads this would wake another one for each message.
    let lets_others_go_first = Handle::current().metrics().num_workers() == 1;
    loop {
        out.clear();
        let began = Instant::now();
        // Not from `began` on: the engine may be busy with other lanes.
        let (fault, encoding, works_since) = link.with(|link, now| {
            let began = Instant::now();
            link.poll_transmit(now, *id, &mut out);
            (link.fault(), began.elapsed(), began)
        });
        if let Some(fault) = fault {
            let last_words = async {
                writer.write_all(&out).await?;
                writer.shutdown().await
            };
            let _ = timeout(LAST_WORDS, last_words).await;
            return LaneEnd::Link(fault);
        }
        if out.is_empty() {
            signals.transmit.notified().await;
            if lets_others_go_first {
                // Flows that were read at the same time then share one record and one call of the system.
                yield_now().await;
            }
            continue;
        }
        if out.len() >= ASKING_BYTES || began.duration_since(asked) > ASKING_INTERVAL {
            counts.ask();
            asked = began;
        }
        let sending = async {
            if let Some(pace) = pace {
                pace.wait(out.len()).await;
            }
            writer.write_all(&out).await?;
            writer.flush().await
        };
        let (sent, waiting) = measure_waiting(sending).await;
        if let Err(error) = sent {
            return LaneEnd::of_io(error);
        }
        let written = Written {
            encoding,
            working: works_since.elapsed().saturating_sub(waiting),
            waiting,
            // A stream of which nobody knows has nothing unsent while it takes all at once.
            unsent: counts.unsent().unwrap_or(match waiting.is_zero() {
                true => Unsent::Nothing,
                false => Unsent::Plenty,
            }),
            bytes: out.len(),
            link_time: counts.link_time(out.len()),
            is_starting: counts.is_starting(),
            loses: counts.take_loss(),
            write_bytes_max: counts.write_bytes_max(),
        };
        link.with(|link, now| link.transmitted(now, *id, written));
    }
}

/// Awaits `future`, and says how long after it first had to wait it was ready. A write that
/// the socket takes at once is all work, however long that took.
async fn measure_waiting<F: Future>(future: F) -> (F::Output, Duration) {
    let mut future = pin!(future);
    let mut waits_since = None;
    let output = poll_fn(|context| {
        let poll = future.as_mut().poll(context);
        if poll.is_pending() {
            waits_since.get_or_insert_with(Instant::now);
        }
        poll
    });
    let output = output.await;
    (
        output,
        waits_since.map_or(Duration::ZERO, |since| since.elapsed()),
    )
}

#[cfg(test)]
mod tests;
