//! Connections: how many, how slow they may be, and how they end.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::{Duration, Instant},
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use refrain_admission::{Admission, Visit};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore, futures::OwnedNotified, watch},
    time::sleep,
};

use super::{
    Shared,
    answer::answer,
    body::Record,
    counters::Counters,
    socket::{Socket, Work},
};

/// Bytes of an answer that are written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// A request's head has no more.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// So long those that are cut off have to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that do nothing, in a line: the one that has done nothing for longest ends for who comes
/// and finds all places taken. So neither who keeps connections for later nor who never sends a request
/// keeps others out.
type Idle = Arc<Notify>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// Answers are sent to their ends, and no more begin.
    Draining,
    Ending,
}

/// Serves connections until `stop`, and then those that are at work to their end, until `end` or for as
/// long as the options say.
pub(super) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    let connections_max = shared.options.connections_max;
    let places = Arc::new(Semaphore::new(connections_max));
    let admission = Admission::new(connections_max, listener.local_addr()?);
    let idle = Idle::default();
    let (phase, phases) = watch::channel(Phase::Serving);
    tokio::pin!(stop);
    loop {
        let accept = async {
            admission.ready().await;
            listener.accept().await
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            () = &mut stop => break,
        };
        let (connection, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                // No descriptors, as a rule: one that does nothing gives its own, others end some time.
                tracing::error!(%error, "cannot accept a connection");
                idle.notify_one();
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let place = tokio::select! {
            place = place(&places, &idle) => place,
            () = &mut stop => break,
        };
        let (visit, _) = admission.enter(client);
        let phases = phases.clone();
        spawn_conversation(&shared, connection, visit, place, phases, idle.clone());
    }
    drop(listener);
    let _ = phase.send(Phase::Draining);
    let all = u32::try_from(connections_max).unwrap_or(u32::MAX);
    let is_drained = tokio::select! {
        _ = places.acquire_many(all) => true,
        () = sleep(shared.options.drain_timeout) => false,
        () = end => false,
    };
    if !is_drained {
        let _ = phase.send(Phase::Ending);
        let _ = tokio::time::timeout(END_TIMEOUT, places.acquire_many(all)).await;
        let cut_off = shared.counters.drain_cut_off.load(Ordering::Relaxed);
        tracing::warn!(cut_off, "stopped, and cut off open answers");
    }
    Ok(())
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// A place for a connection; if there is none, that of the one that has done nothing for longest, or of
/// the next one that has nothing to do.
async fn place(places: &Arc<Semaphore>, idle: &Idle) -> OwnedSemaphorePermit {
    if let Ok(place) = places.clone().try_acquire_owned() {
        return place;
    }
    idle.notify_one();
    let place = places.clone().acquire_owned().await;
    // If another one ended first, nobody need give way any more.
    let _ = pin!(idle.notified()).enable();
    place.expect("it is never closed")
}

/// A connection in the line, until dropped.
struct InLine {
    /// Ends when it is to give way.
    called: Pin<Box<OwnedNotified>>,
    counters: Arc<Counters>,
}

impl InLine {
    fn new(idle: &Idle, shared: &Shared) -> Self {
        let mut called = Box::pin(idle.clone().notified_owned());
        // From here on; a call may have come already.
        called.as_mut().enable();
        Counters::add(&shared.counters.connections_idle, 1);
        Self {
            called,
            counters: shared.counters.clone(),
        }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let idle = &self.counters.connections_idle;
        idle.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Not part of [`serve`], which is generic: each of its callers would compile all this again.
fn spawn_conversation(
    shared: &Arc<Shared>,
    connection: TcpStream,
    visit: Visit,
    place: OwnedSemaphorePermit,
    phases: watch::Receiver<Phase>,
    idle: Idle,
) {
    let shared = shared.clone();
    tokio::spawn(async move {
        Counters::add(&shared.counters.connections, 1);
        Counters::add(&shared.counters.connections_now, 1);
        if let Err(error) = converse(&shared, connection, &visit, phases, idle).await {
            tracing::debug!(client = %visit.address(), %error, "a connection ended");
        }
        let now = &shared.counters.connections_now;
        now.fetch_sub(1, Ordering::Relaxed);
        drop(place);
    });
}

async fn converse(
    shared: &Arc<Shared>,
    connection: TcpStream,
    visit: &Visit,
    phases: watch::Receiver<Phase>,
    idle: Idle,
) -> Result<(), hyper::Error> {
    let (options, client) = (&shared.options, visit.address());
    let work = Arc::new(Work::default());
    let socket = Socket::new(connection, options.stall_timeout, work.clone());
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        visit.prove();
        let answering = work.answer();
        async move {
            Counters::add(&shared.counters.requests, 1);
            let mut record = Record {
                counters: shared.counters.clone(),
                client,
                method: request.method().to_string(),
                path: request.uri().path().to_owned(),
                status: 0,
                began: Instant::now(),
                bytes: 0,
                is_failed: false,
                answering,
            };
            let answer = answer(shared, client, request).await;
            record.status = answer.status().as_u16();
            Ok::<_, std::convert::Infallible>(answer.map(|body| body.with_record(record)))
        }
    });
    // Without `pipeline_flush`: with it hyper takes all that there is, whether the client does or not.
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(BUFFER_BYTES)
        .max_header_size(HEAD_BYTES_MAX)
        .max_headers(64)
        .serve_connection(TokioIo::new(socket), service);
    let mut conversation = pin!(conversation);
    let (mut drains, mut ends) = (phases.clone(), phases);
    let mut drain = pin!(drains.wait_for(|&phase| phase >= Phase::Draining));
    let mut end = pin!(ends.wait_for(|&phase| phase == Phase::Ending));
    let mut displaced = pin!(visit.displaced());
    let mut is_stopping = false;
    let mut in_line = None;
    poll_fn(|context| {
        loop {
            let requests = work.requests();
            if let Poll::Ready(ended) = conversation.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            if displaced.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if end.as_mut().poll(context).is_ready() {
                if !work.is_none() {
                    work.cut_off();
                    Counters::add(&shared.counters.drain_cut_off, 1);
                }
                return Poll::Ready(Ok(()));
            }
            if !is_stopping && drain.as_mut().poll(context).is_ready() {
                is_stopping = true;
                conversation.as_mut().graceful_shutdown();
                continue;
            }
            // It may have been answered at once.
            if !work.is_none() || work.requests() > requests {
                in_line = None;
            }
            if !work.is_none() {
                return Poll::Pending;
            }
            if is_stopping {
                return Poll::Ready(Ok(()));
            }
            let in_line = in_line.get_or_insert_with(|| InLine::new(&idle, shared));
            return in_line.called.as_mut().poll(context).map(Ok);
        }
    })
    .await
}
