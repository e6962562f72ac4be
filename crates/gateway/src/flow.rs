//! A flow's task: an application's connection on one side, the link on the other.
//!
//! Both directions run until each has ended; half-close passes on as half-close, a reset as
//! a reset, and back-pressure by credit: the application is read only as far as its bytes
//! can go, the link's bytes are taken only as fast as the application takes them.

pub(crate) mod connection;
mod exchange;
pub(crate) mod http2;
pub(crate) mod pipe;
pub(crate) mod subtask;

pub(crate) use exchange::Ended;

use std::{
    cell::RefCell,
    io,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use h2::Reason;
use refrain_proto::{
    FlowId, Link, Moment, ResetReason, codes::reset, limits::PENDING_BYTES_MAX, planted::Bug,
};
use tokio::{
    io::Interest,
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::{
    crumbs::Crumbs,
    flow::{
        connection::Connection,
        pipe::{StreamReset, wants_certificate},
    },
    http_proxy::{
        RequestHead,
        secrets::{Exchanges, Part},
    },
    link::{FlowSignals, SharedLink, Standing},
    refusal::Refusal,
    socket::bound_unsent,
};

/// Probing of silent applications: a dead one is noticed after about two minutes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Unsent bytes that an application's socket may hold: its kernel would take 4 MB of one that does not read. Where many
/// do not, TCP's memory is used up, and lanes get receive windows of a few kilobytes.
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// How long the last bytes of an application that failed have to arrive, before the other end hears
/// that it failed.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

thread_local! {
    /// Reads go through one buffer a thread, not one a flow. Each tells the application's kernel how
    /// much room there is now: the fewer, the better.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PENDING_BYTES_MAX]);
}

/// A flow of the link, as its task holds it. Dropped before both directions have ended, it
/// resets the flow.
pub(crate) struct FlowHandle {
    link: Arc<SharedLink>,
    id: FlowId,
    signals: Arc<FlowSignals>,
    /// Its exchanges, of which answers may be secret.
    exchanges: Option<Box<Mutex<Exchanges>>>,
    /// Whether all that this end writes is secret.
    is_secret: bool,
    is_over: bool,
}

impl FlowHandle {
    /// Takes a flow over.
    pub(crate) fn new(link: Arc<SharedLink>, id: FlowId, signals: Arc<FlowSignals>) -> FlowHandle {
        FlowHandle {
            link,
            id,
            signals,
            exchanges: None,
            is_secret: false,
            is_over: false,
        }
    }

    /// The same, which carries these exchanges.
    pub(crate) fn with_exchanges(mut self, exchanges: Exchanges) -> FlowHandle {
        self.exchanges = Some(Box::new(Mutex::new(exchanges)));
        self
    }

    /// The same, of which all that this end writes is secret.
    pub(crate) fn with_secret_bytes(mut self) -> FlowHandle {
        self.is_secret = true;
        self
    }

    /// What wakes the flow's task.
    pub(crate) fn signals(&self) -> &FlowSignals {
        &self.signals
    }

    /// The code of the HTTP/2 stream whose reset at the other end ended it.
    pub(crate) fn stream_reset(&self) -> Option<Reason> {
        let Standing::Reset(ResetReason::ByPeer(code)) = self.signals.standing() else {
            return None;
        };
        let code = code.checked_sub(reset::HTTP2)?;
        (code <= reset::HTTP2_MAX).then(|| Reason::from(u32::from(code)))
    }

    /// Whether its link has a lane.
    pub(crate) fn is_link_up(&self) -> bool {
        self.link.is_up()
    }

    /// Whether the other end said that it speaks TLS with targets.
    pub(crate) fn peer_speaks_tls_to_targets(&self) -> bool {
        let asked = |link: &mut Link, _| link.peer_speaks_tls_to_targets();
        self.link.with(asked)
    }

    /// Writes bytes that were read before the flow was open. They must be within the
    /// initial credit.
    pub(crate) fn write_first(&self, bytes: &[u8]) -> usize {
        self.link.with(|link, _| self.write(link, bytes))
    }

    /// Says how many bytes the link took.
    fn write(&self, link: &mut Link, bytes: &[u8]) -> usize {
        match self.is_secret {
            true => link.write_secret(self.id, bytes),
            false => link.write(self.id, bytes),
        }
    }

    /// The same of what predictions may confirm.
    fn write_and_confirm(&self, link: &mut Link, now: Moment, bytes: &[u8]) -> usize {
        match self.is_secret {
            true => link.write_secret(self.id, bytes),
            false => link.write_and_confirm(now, self.id, bytes),
        }
    }

    /// Writes a request's head from its byte `from` on, as far as the link takes it. Says how many bytes that is.
    pub(crate) fn write_head(&self, head: &RequestHead, from: usize) -> usize {
        self.link
            .with(|link, now| self.write_head_to(link, now, head, from))
    }

    fn write_head_to(
        &self,
        link: &mut Link,
        now: Moment,
        head: &RequestHead,
        from: usize,
    ) -> usize {
        let secret_from = head.secret_from.max(from);
        let taken = self.write_and_confirm(link, now, &head.bytes[from..secret_from]);
        match from + taken == secret_from {
            true => taken + link.write_secret(self.id, &head.bytes[secret_from..]),
            false => taken,
        }
    }

    /// Passes bytes both ways until both have ended, `rest` first. Says why the other end refused
    /// the flow, if it did so meanwhile.
    pub(crate) async fn run(
        mut self,
        connection: Connection,
        rest: Vec<u8>,
        idle: Duration,
    ) -> Option<Refusal> {
        connection.prepare();
        let activity = Activity::new();
        let mut refused = None;
        let code = tokio::select! {
            result = self.both_ways(&connection, rest, &activity) => match result {
                Ok(()) => None,
                Err(error) => {
                    tracing::debug!(flow = self.id.0, %error, "an application's connection failed");
                    Some(code_of(&error))
                }
            },
            standing = self.signals.over(), if !Bug::DeafFlows.is_planted() => {
                if let Standing::Refused(refusal) = standing {
                    refused = Some(refusal);
                }
                (!Bug::EndForReset.is_planted()).then_some(reset::GATEWAY)
            }
            () = activity.idle_for(idle) => Some(reset::IDLE),
        };
        match code {
            Some(code) => self.reset(code),
            // Both directions have ended: what is still on its way is to arrive.
            None => {
                let _ = connection.close_in_order();
                self.is_over = true;
            }
        }
        refused
    }

    async fn both_ways(
        &self,
        connection: &Connection,
        rest: Vec<u8>,
        activity: &Activity,
    ) -> io::Result<()> {
        let mut up = pin!(self.upwards(connection, rest, activity));
        let mut down = pin!(self.downwards(connection, activity));
        let (mut has_sent, mut has_received) = (false, false);
        let error = loop {
            tokio::select! {
                result = &mut up, if !has_sent => match result {
                    Ok(()) => has_sent = true,
                    Err(error) => break error,
                },
                result = &mut down, if !has_received => match result {
                    Ok(()) => has_received = true,
                    Err(error) => {
                        // It takes no more, and may have said why before it closed.
                        activity.note_failure();
                        if !has_sent {
                            let _ = timeout(LAST_WORDS, up).await;
                        }
                        break error;
                    }
                },
            }
            if has_sent && has_received {
                return Ok(());
            }
        };
        // A reset would overtake the application's last bytes where the other end has not yet
        // passed them on.
        sleep(LAST_WORDS.saturating_sub(activity.since_read())).await;
        Err(error)
    }

    /// From the application to the link.
    async fn upwards(
        &self,
        connection: &Connection,
        rest: Vec<u8>,
        activity: &Activity,
    ) -> io::Result<()> {
        let mut crumbs = Crumbs::default();
        self.write_all(connection, &rest).await?;
        drop(rest);
        loop {
            let all = |bytes: &[u8]| bytes.len();
            let read = match &self.exchanges {
                None => {
                    self.pass_in(connection, usize::MAX, all, activity, &mut crumbs)
                        .await?
                }
                Some(exchanges) => {
                    self.pass_parts(connection, exchanges, activity, &mut crumbs)
                        .await?
                }
            };
            if read > 0 {
                continue;
            }
            if activity.has_failed() {
                // Who took the error left this in its place: it is not an end.
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            self.link.with(|link, _| link.finish(self.id));
            return Ok(());
        }
    }

    /// Reads once, as much as the link takes and no more than `bytes_max`, and passes on what `own`
    /// says is the flow's: so many bytes at the front. Says how many were read: none at the end.
    async fn pass_in(
        &self,
        connection: &Connection,
        bytes_max: usize,
        mut own: impl FnMut(&[u8]) -> usize,
        activity: &Activity,
        crumbs: &mut Crumbs,
    ) -> io::Result<usize> {
        loop {
            let room = self.room(connection).await?.min(bytes_max);
            connection.readable().await?;
            let read = SCRATCH.with_borrow_mut(|buffer| {
                let wanted = room.min(buffer.len());
                let read = connection.try_read(&mut buffer[..wanted])?;
                let own = own(&buffer[..read]);
                let taken = match read {
                    0 => 0,
                    _ => self
                        .link
                        .with(|link, now| self.write_and_confirm(link, now, &buffer[..own])),
                };
                Ok::<_, io::Error>((read, buffer[taken..own].to_vec()))
            });
            match read {
                Ok((0, _)) => return Ok(0),
                Ok((read, left)) => {
                    activity.note_read();
                    // The whole link filled up between the two calls.
                    self.write_all(connection, &left).await?;
                    crumbs.after_read(read).await;
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads once, and passes on what exchanges make of it. Says how many bytes were read: none at the end.
    async fn pass_parts(
        &self,
        connection: &Connection,
        exchanges: &Mutex<Exchanges>,
        activity: &Activity,
        crumbs: &mut Crumbs,
    ) -> io::Result<usize> {
        loop {
            let room = self.room(connection).await?;
            connection.readable().await?;
            let mut parts = Vec::new();
            let read = SCRATCH.with_borrow_mut(|buffer| {
                let wanted = room.min(buffer.len());
                let read = connection.try_read(&mut buffer[..wanted])?;
                let mut exchanges = exchanges.lock().expect("held for a moment");
                match read {
                    0 => exchanges.finish(&mut parts),
                    _ => exchanges.came(&buffer[..read], &mut parts),
                }
                Ok::<_, io::Error>(read)
            });
            let read = match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                read => read?,
            };
            if read > 0 {
                activity.note_read();
            }
            for Part { bytes, is_secret } in parts {
                let mut rest = &bytes[..];
                loop {
                    let taken = self.link.with(|link, now| match is_secret {
                        true => link.write_secret(self.id, rest),
                        false => link.write_and_confirm(now, self.id, rest),
                    });
                    rest = &rest[taken..];
                    if rest.is_empty() {
                        break;
                    }
                    self.writable(connection).await?;
                }
            }
            if read > 0 {
                crumbs.after_read(read).await;
            }
            return Ok(read);
        }
    }

    /// From the link to the application.
    async fn downwards(&self, connection: &Connection, activity: &Activity) -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            let finished = self.take(&mut buffer);
            if let Some(exchanges) = &self.exchanges {
                exchanges.lock().expect("held for a moment").sent(&buffer);
            }
            if buffer.len() > 1000 && Bug::LostByte.is_planted() {
                buffer.pop();
            }
            self.pass_on(connection, &buffer, buffer.len(), activity)
                .await?;
            if finished {
                // The last bytes came with the end, and nobody tells of it twice.
                return connection.finish().await;
            }
            if !buffer.is_empty() {
                continue;
            }
            self.readable(connection).await?;
        }
    }

    /// How many bytes the link takes: waits until it takes some.
    async fn room(&self, connection: &Connection) -> io::Result<usize> {
        loop {
            let room = self.link.with(|link, now| link.room(now, self.id));
            if room > 0 {
                return Ok(room);
            }
            self.writable(connection).await?;
        }
    }

    /// Hands all of `bytes` to the link, as fast as it takes them.
    async fn write_all(&self, connection: &Connection, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.link.with(|link, _| self.write(link, rest));
            rest = &rest[taken..];
            if !rest.is_empty() {
                self.writable(connection).await?;
            }
        }
        Ok(())
    }

    /// Takes what came from the link into `buffer`, which is cleared; says whether that was the last.
    fn take(&self, buffer: &mut Vec<u8>) -> bool {
        self.link.with(|link, _| {
            link.take_ready(self.id, buffer);
            link.take_end(self.id)
        })
    }

    /// Writes `bytes` to the application. They stand for `came` bytes from the link, for which its
    /// credit is given back as they leave.
    async fn pass_on(
        &self,
        connection: &Connection,
        bytes: &[u8],
        came: usize,
        activity: &Activity,
    ) -> io::Result<()> {
        let mut owed = came;
        let give_back = |bytes: usize| {
            if bytes > 0 {
                self.link.with(|link, _| link.taken(self.id, bytes));
            }
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            match connection.try_write(rest) {
                Ok(written) => {
                    activity.note();
                    rest = &rest[written..];
                    let credit = written.min(owed);
                    owed -= credit;
                    give_back(credit);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        connection.flush().await?;
        give_back(owed);
        Ok(())
    }

    /// Waits until something can be taken from the link; an application that dies meanwhile is
    /// noticed.
    async fn readable(&self, connection: &Connection) -> io::Result<()> {
        tokio::select! {
            () = self.signals.readable.notified() => Ok(()),
            error = connection.failed() => Err(error),
        }
    }

    /// Waits until the link takes bytes; an application that dies meanwhile is noticed. Boxed, so that flows have no memory
    /// for it while they do not wait.
    fn writable(&self, connection: &Connection) -> impl Future<Output = io::Result<()>> {
        Box::pin(async {
            tokio::select! {
                () = self.signals.writable.notified() => Ok(()),
                error = connection.failed() => Err(error),
            }
        })
    }

    /// Ends the flow by a reset.
    fn reset(&mut self, code: u8) {
        self.link.with(|link, _| link.reset(self.id, code));
        self.is_over = true;
    }
}

/// The code of a reset, after this error of the application's connection.
fn code_of(error: &io::Error) -> u8 {
    if wants_certificate(error) {
        return reset::CLIENT_CERTIFICATE;
    }
    let reason = StreamReset::reason_in(error).map(u32::from);
    let code = reason.and_then(|reason| u8::try_from(reason).ok());
    match code.filter(|code| *code <= reset::HTTP2_MAX) {
        Some(code) => reset::HTTP2 + code,
        None => reset::APPLICATION,
    }
}

impl Drop for FlowHandle {
    fn drop(&mut self) {
        if !self.is_over {
            self.link
                .with(|link, _| link.reset(self.id, reset::GATEWAY));
        }
        self.link.forget_flow(self.id);
    }
}

/// When something last moved.
pub(crate) struct Activity {
    origin: Instant,
    last_ms: AtomicU64,
    /// When something was last read of the application, if it was.
    read_ms: AtomicU64,
    /// Whether the application's connection has failed, so that it cannot end any more.
    has_failed: AtomicBool,
}

impl Activity {
    pub(crate) fn new() -> Activity {
        Activity {
            origin: Instant::now(),
            last_ms: AtomicU64::new(0),
            read_ms: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    fn note_read(&self) {
        self.note();
        let last = self.last_ms.load(Ordering::Relaxed);
        self.read_ms.store(last.max(1), Ordering::Relaxed);
    }

    /// How long ago something was read.
    fn since_read(&self) -> Duration {
        match self.read_ms.load(Ordering::Relaxed) {
            0 => Duration::MAX,
            read => (self.origin.elapsed()).saturating_sub(Duration::from_millis(read)),
        }
    }

    pub(crate) fn note(&self) {
        self.last_ms
            .store(self.origin.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    pub(crate) async fn idle_for(&self, limit: Duration) {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let Some(left) = limit.checked_sub(self.origin.elapsed().saturating_sub(last)) else {
                return;
            };
            sleep(left + Duration::from_millis(1)).await;
        }
    }
}

/// Waits until the connection has failed, without reading from it.
pub(crate) async fn failed(tcp: &TcpStream) -> io::Error {
    match tcp.ready(Interest::ERROR).await {
        Ok(_) => match tcp.take_error() {
            Ok(Some(error)) | Err(error) => error,
            Ok(None) => io::ErrorKind::ConnectionReset.into(),
        },
        Err(error) => error,
    }
}

/// Small writes leave at once; a silent application is asked whether it is alive; one that does not read holds little of
/// the kernel's memory; and until both directions have ended, closing is a reset, whoever closes: a process that was
/// killed must not look like one that had sent everything.
pub(crate) fn prepare(tcp: &TcpStream) {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_INTERVAL);
    // Best effort: a connection that is gone already fails at its first use.
    let socket = socket2::SockRef::from(tcp);
    let _ = tcp.set_nodelay(true);
    bound_unsent(tcp, UNSENT_BYTES_MAX);
    // One from a client's address is asked sooner.
    if !socket.keepalive().unwrap_or(false) {
        let _ = socket.set_tcp_keepalive(&keepalive);
    }
    let _ = socket.set_linger(Some(Duration::ZERO));
}
