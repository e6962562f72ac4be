//! The connection below a lane: any stream of bytes, a count of what really goes over it, TLS included, and what
//! the kernel knows of it.

mod drain;
mod records;

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use refrain_proto::effort::Unsent;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsStream;

use crate::socket::{self, Congestion, TcpInfo};
use drain::Drain;
use records::Records;

/// Unsent bytes that a socket may hold: so many that it is never short of any, and so few that control frames,
/// short flows and effort see the link as it is. The time that they take at the connection's rate, within these
/// bounds. A write begins while there are fewer, and adds at most half as many.
const UNSENT_TIME: Duration = Duration::from_millis(20);
const UNSENT_BYTES_MIN: u64 = 16 << 10;
const UNSENT_BYTES_MAX: u64 = 2 << 20;
/// Before the rate is known.
pub(crate) const UNSENT_BYTES_FIRST: u32 = 128 << 10;

/// A kernel fills its last buffer, of up to 64 KiB, before it asks whether more may be unsent. Where less may be, buffers
/// end with whole segments.
const BUFFER_BYTES: u32 = 64 << 10;

/// So many looks that find further losses by chance, within so long, are a lossy link.
const LOSSES: usize = 3;
const LOSSES_WITHIN: Duration = Duration::from_secs(5);

/// A queue of so many microseconds, beside a quarter of the round trip, is none.
const QUEUED_US: u32 = 2_000;

/// From so many on, the link has something to carry even if the socket is empty.
const PATH_FULL_US: u32 = 5_000;

/// A connection's rate still grows for so many round trips after it last grew to so many times what it was: in slow start
/// it doubles with each.
const STARTING_ROUND_TRIPS: u32 = 2;
const GROWTH: f64 = 1.25;

/// BBR keeps so many segments on the path, however short the round trip is.
const OWN_SEGMENTS: u32 = 8;

/// How often the rate is asked for.
const RATE_INTERVAL: Duration = Duration::from_millis(20);

/// What a lane can run over.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {
    /// Notes what the kernel knows of it, before something is written.
    fn look(&self, _seen: &WireCounts) {}

    /// Need not wake its reader before so many bytes came, or its end.
    fn wait_for(&self, _bytes: usize) {}

    /// Writes as [`AsyncWrite::poll_write_vectored`] does. What is written later is added to no segment of this.
    fn poll_write_apart(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, slices)
    }
}

impl ByteStream for TcpStream {
    fn look(&self, seen: &WireCounts) {
        seen.look_at(self);
    }

    fn wait_for(&self, bytes: usize) {
        socket::wait_for(self, bytes);
    }

    #[cfg(target_os = "linux")]
    fn poll_write_apart(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_ready(context))?;
            let written = self.try_io(tokio::io::Interest::WRITABLE, || {
                socket::write_apart(&*self, slices)
            });
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl ByteStream for DuplexStream {}

impl<S: ByteStream> ByteStream for Counted<S> {}

impl<S: ByteStream> ByteStream for TlsStream<Counted<S>> {}

/// A lane's connection: TLS over a stream, counted between the two.
pub type LaneStream<S = TcpStream> = TlsStream<Counted<S>>;

/// A stream that counts its bytes.
#[derive(Debug)]
pub struct Counted<S> {
    inner: S,
    counts: Arc<WireCounts>,
    /// Bytes that were written behind the last whole segment.
    in_segment: usize,
    /// The records that were read.
    incoming: Records,
}

/// Bytes of one or several connections, without TCP's and IP's own, and of one connection its state.
#[derive(Debug, Default)]
pub struct WireCounts {
    sent: AtomicU64,
    received: AtomicU64,
    /// What it had left to send: one of the constants below.
    unsent: AtomicU8,
    /// Whether loss has slowed it down, and nobody has asked since.
    loses: AtomicBool,
    /// 0 before it is known.
    unsent_bytes_max: AtomicU32,
    /// The most bytes a second that the link may carry; 0 before anything is known.
    rate_max: AtomicU64,
    /// Whether its rate still grows.
    is_starting: AtomicBool,
    /// The bytes of a segment.
    segment_bytes: AtomicU32,
    rate: Mutex<Rate>,
}

const UNASKED: u8 = 0;
const ASKED: u8 = 1;
const NOTHING: u8 = 2;
const LITTLE: u8 = 3;
const PLENTY: u8 = 4;
const ON_PATH: u8 = 5;

/// What a connection's kernel said of its rate.
#[derive(Debug)]
struct Rate {
    asked_at: Option<Instant>,
    info: TcpInfo,
    /// Whether it slows down where segments are lost by chance.
    minds_loss: bool,
    /// When segments were lost by chance, of late.
    losses: VecDeque<Instant>,
    /// The most segments that seemed lost so far.
    lost_most: u32,
    /// The bound that its socket has.
    unsent_bytes_max: u32,
    /// Whether the bound follows the rate.
    is_known: bool,
    /// The highest rate so far, and when it was last much higher than before.
    highest: u64,
    grew_at: Option<Instant>,
    drain: Drain,
    /// The highest rate of late, and when it last faded.
    recent: u64,
    faded_at: Option<Instant>,
}

impl<S> Counted<S> {
    /// Counts from now on.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            counts: Arc::default(),
            in_segment: 0,
            incoming: Records::default(),
        }
    }

    /// The stream.
    pub(crate) fn inner(&self) -> &S {
        &self.inner
    }

    /// What was counted so far, and what will be.
    pub fn counts(&self) -> Arc<WireCounts> {
        Arc::clone(&self.counts)
    }
}

impl WireCounts {
    /// Bytes sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Wants to know what the next write finds unsent.
    pub(crate) fn ask(&self) {
        self.unsent.store(ASKED, Ordering::Relaxed);
    }

    /// What it found. `None` if nobody knows.
    pub(crate) fn unsent(&self) -> Option<Unsent> {
        match self.unsent.load(Ordering::Relaxed) {
            NOTHING => Some(Unsent::Nothing),
            LITTLE => Some(Unsent::Little),
            PLENTY => Some(Unsent::Plenty),
            ON_PATH => Some(Unsent::OnPath),
            _ => None,
        }
    }

    /// Whether loss has slowed it down since this was last asked.
    pub(crate) fn take_loss(&self) -> bool {
        self.loses.swap(false, Ordering::Relaxed)
    }

    /// How many bytes are written at a time, once its rate is known: half of what its socket may hold unsent.
    pub(crate) fn write_bytes_max(&self) -> Option<usize> {
        match self.unsent_bytes_max.load(Ordering::Relaxed) {
            0 => None,
            bytes => Some(bytes as usize / 2),
        }
    }

    /// How long the link is busy with so many bytes at least. None at all before its rate is known.
    pub(crate) fn link_time(&self, bytes: usize) -> Duration {
        match self.rate_max.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
        }
    }

    /// Whether its rate still grows.
    pub(crate) fn is_starting(&self) -> bool {
        self.is_starting.load(Ordering::Relaxed)
    }

    /// The bytes of a segment, where buffers end with whole ones.
    fn segment_bytes(&self) -> Option<usize> {
        let unsent_bytes_max = self.unsent_bytes_max.load(Ordering::Relaxed);
        let segment = self.segment_bytes.load(Ordering::Relaxed);
        (segment > 0 && (1..2 * BUFFER_BYTES).contains(&unsent_bytes_max))
            .then_some(segment as usize)
    }

    /// Looks at a connection that is about to be written to.
    fn look_at(&self, tcp: &TcpStream) {
        if self.unsent.load(Ordering::Relaxed) != ASKED {
            return;
        }
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        if rate.look_at(tcp) {
            self.loses.store(true, Ordering::Relaxed);
        }
        let unsent = match socket::unsent_bytes(tcp) {
            Some(0) if rate.is_path_full() => ON_PATH,
            Some(0) => NOTHING,
            Some(bytes) if bytes < rate.unsent_bytes_max / 2 => LITTLE,
            Some(_) => PLENTY,
            None => UNASKED,
        };
        self.unsent.store(unsent, Ordering::Relaxed);
        self.is_starting
            .store(rate.is_starting(Instant::now()), Ordering::Relaxed);
        if rate.is_known {
            let bytes = rate.unsent_bytes_max;
            self.unsent_bytes_max.store(bytes, Ordering::Relaxed);
            self.rate_max.store(rate.most(), Ordering::Relaxed);
            self.segment_bytes
                .store(rate.info.segment_bytes, Ordering::Relaxed);
        }
    }

    /// Adds what `other` counted.
    pub fn add(&self, other: &WireCounts) {
        self.sent.fetch_add(other.sent(), Ordering::Relaxed);
        self.received.fetch_add(other.received(), Ordering::Relaxed);
    }
}

impl Default for Rate {
    fn default() -> Self {
        Self {
            asked_at: None,
            info: TcpInfo::default(),
            minds_loss: false,
            lost_most: 0,
            losses: VecDeque::new(),
            unsent_bytes_max: UNSENT_BYTES_FIRST,
            is_known: false,
            highest: 0,
            grew_at: None,
            drain: Drain::default(),
            recent: 0,
            faded_at: None,
        }
    }
}

impl Rate {
    /// Lets its socket hold what fits its rate. Says whether loss has slowed it down of late.
    fn look_at(&mut self, tcp: &TcpStream) -> bool {
        let now = Instant::now();
        if self
            .asked_at
            .is_some_and(|at| now.duration_since(at) < RATE_INTERVAL)
        {
            return false;
        }
        let Some(info) = socket::tcp_info(tcp) else {
            return false;
        };
        if self.asked_at.replace(now).is_none() {
            self.minds_loss = Congestion::minds_loss(tcp);
        }
        let is_news = info.acked_bytes != self.info.acked_bytes;
        self.info = info;
        self.note_growth(now);
        if let Some(bytes) = self.new_bound() {
            socket::bound_unsent(tcp, bytes);
        }
        if let Some(bytes_per_second) = self.new_rate_bound(now, is_news) {
            socket::bound_rate(tcp, bytes_per_second);
        }
        self.loses(now)
    }

    fn note_growth(&mut self, now: Instant) {
        let rate = self.info.delivery_rate;
        if rate as f64 >= GROWTH * self.highest as f64 && rate > 0 {
            self.grew_at = Some(now);
            self.highest = rate;
        }
    }

    /// Whether its rate still grows: what it carries is then no measure of the path. It ends, since the highest rate so
    /// far cannot grow for ever. The shortest round trip counts: a queue on a thin link makes the others many times
    /// longer, and shows that the rate has stopped growing.
    fn is_starting(&self, now: Instant) -> bool {
        let round_trips =
            Duration::from_micros(self.info.round_trip_min_us.into()) * STARTING_ROUND_TRIPS;
        self.grew_at
            .is_some_and(|at| now.duration_since(at) < round_trips)
    }

    /// Whether loss by chance slows it down.
    fn loses(&mut self, now: Instant) -> bool {
        // A peer that is short of a processor answers late. The kernel then sends a segment again that was not lost
        // (RFC 8985, tail loss probe), and a round trip later the peer says that it got it twice.
        let lost = self.info.retransmitted.saturating_sub(self.info.duplicates);
        if lost <= self.lost_most {
            return false;
        }
        self.lost_most = lost;
        // What is lost while a queue is full says that the link is full.
        let is_by_chance = !self.is_queued_for(QUEUED_US);
        if !self.minds_loss || !is_by_chance {
            return false;
        }
        self.losses
            .retain(|&at| now.duration_since(at) < LOSSES_WITHIN);
        self.losses.push_back(now);
        self.losses.len() >= LOSSES
    }

    /// The most bytes a second that the link may carry: twice what it did where it could have done more.
    fn most(&self) -> u64 {
        self.info.delivery_rate << u32::from(self.info.is_app_limited)
    }

    /// Whether packets wait on the path: longer than for want of a processor at either end, and longer than round trips
    /// differ from each other.
    fn is_path_full(&self) -> bool {
        self.is_queued_for(PATH_FULL_US.max(2 * self.info.round_trip_deviation_us))
    }

    /// Whether packets wait on the path for so many microseconds, beside a quarter of the round trip.
    fn is_queued_for(&self, us: u32) -> bool {
        self.queued_us() > self.info.round_trip_min_us / 4 + us
    }

    /// By how much the round trip of late is longer than the shortest.
    fn queued_us(&self) -> u32 {
        let TcpInfo {
            round_trip_us,
            round_trip_min_us,
            ..
        } = self.info;
        round_trip_us.saturating_sub(round_trip_min_us)
    }

    /// The most bytes a second that it is to send from now on, if that changes. Other congestion controls than BBR fill
    /// the queue on purpose. `is_news` says whether the peer acknowledged something since the last look: after a rest, rate
    /// and round trip are those of before it.
    fn new_rate_bound(&mut self, now: Instant, is_news: bool) -> Option<u64> {
        let round_trip = Duration::from_micros(self.info.round_trip_min_us.into());
        if is_news {
            // A rate is that of one moment, and low after a pause of the path.
            let faded_at = *self.faded_at.get_or_insert(now);
            if !self.info.is_app_limited && now.duration_since(faded_at) >= round_trip {
                self.faded_at = Some(now);
                self.recent -= self.recent / 8;
            }
            self.recent = self.recent.max(self.info.delivery_rate);
        }
        let own_us = u64::from(OWN_SEGMENTS * self.info.segment_bytes) * 1_000_000;
        let least_us = u64::from(self.info.round_trip_min_us);
        let usual_us = (least_us / 4).max(own_us / self.recent.max(1))
            + u64::from(PATH_FULL_US.max(2 * self.info.round_trip_deviation_us));
        // On a shorter path the queue is short too, and a look would be many round trips after the one before.
        let is_queued = !self.minds_loss
            && !self.is_starting(now)
            && round_trip >= RATE_INTERVAL
            && u64::from(self.queued_us()) > usual_us
            && self.has_more_on_path_than(self.recent);
        let is_queued = is_news.then_some(is_queued);
        self.drain.look(now, round_trip, self.recent, is_queued)
    }

    /// Whether more of it is on the path than the path holds at this rate. Otherwise the queue is one of others.
    fn has_more_on_path_than(&self, bytes_per_second: u64) -> bool {
        let TcpInfo {
            unacknowledged,
            segment_bytes,
            round_trip_min_us,
            ..
        } = self.info;
        let on_path = u64::from(unacknowledged) * u64::from(segment_bytes);
        on_path * 1_000_000 > bytes_per_second.saturating_mul(round_trip_min_us.into())
    }

    /// The bound that fits its rate, if that is another than its socket has.
    fn new_bound(&mut self) -> Option<u32> {
        let bytes = self.info.delivery_rate as f64 * UNSENT_TIME.as_secs_f64();
        let bytes = (bytes as u64).clamp(UNSENT_BYTES_MIN, UNSENT_BYTES_MAX) as u32;
        let before = self.unsent_bytes_max;
        // The rate of a connection that had nothing to send says only that the path takes as much. A small change
        // is not worth a system call.
        let is_new =
            bytes > before + before / 8 || bytes < before - before / 8 && !self.info.is_app_limited;
        is_new.then(|| {
            self.unsent_bytes_max = bytes;
            self.is_known = true;
            bytes
        })
    }
}

/// The first `bytes` bytes.
fn front<'a>(slices: &'a [IoSlice<'_>], mut bytes: usize) -> Vec<IoSlice<'a>> {
    let mut front = Vec::with_capacity(slices.len());
    for slice in slices {
        let (taken, _) = slice.split_at(bytes.min(slice.len()));
        bytes -= taken.len();
        front.push(IoSlice::new(taken));
    }
    front
}

impl<S: ByteStream> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        let polled = Pin::new(&mut this.inner).poll_read(context, buffer);
        let read = &buffer.filled()[before..];
        this.incoming.note(read);
        this.counts
            .received
            .fetch_add(read.len() as u64, Ordering::Relaxed);
        if polled.is_pending()
            && let Some(bytes) = this.incoming.newly_awaited()
        {
            this.inner.wait_for(bytes);
        }
        polled
    }
}

impl<S: ByteStream> AsyncWrite for Counted<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner.look(&self.counts);
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        let segment = self.counts.segment_bytes();
        let whole = segment.map_or(0, |segment| {
            let in_segment = self.in_segment % segment;
            ((in_segment + bytes) / segment * segment).saturating_sub(in_segment)
        });
        let inner = Pin::new(&mut self.inner);
        let written = ready!(match whole {
            0 => inner.poll_write_vectored(context, slices),
            _ => inner.poll_write_apart(context, &front(slices, whole)),
        })?;
        self.in_segment = (self.in_segment + written) % segment.unwrap_or(1);
        self.counts
            .sent
            .fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
