//! The threads of one direction: one takes packets from a TUN and asks the wire for their fate, the other gives
//! them to the other TUN when they arrive.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tun_rs::{GROTable, SyncDevice, VIRTIO_NET_HDR_LEN};

use crate::wire::Wire;

/// The real-time priority of a link's threads, in the middle of those that there are.
const PRIORITY: u8 = 50;

/// What the kernel hands over at once, at most, and in how many segments.
const SUPER_PACKET_BYTES: usize = 1 << 16;
const SEGMENTS_MAX: usize = 256;
const SEGMENT_BYTES: usize = 2048;

/// Packets that are given to a TUN at once.
const BATCH: usize = 128;

/// A packet on its way: when it arrives, its number, and its bytes behind room for a header.
type Packet = (Reverse<(Duration, u64)>, Vec<u8>);

/// Packets on their way.
#[derive(Default)]
struct Under {
    way: Mutex<BinaryHeap<Packet>>,
    came: Condvar,
}

/// Starts both threads; they end with their devices.
pub(crate) fn start(
    source: Arc<SyncDevice>,
    sink: Arc<SyncDevice>,
    mut wire: Wire,
    is_over: Arc<AtomicBool>,
) -> anyhow::Result<[JoinHandle<()>; 2]> {
    let began = Instant::now();
    let under = Arc::new(Under::default());
    let (to_writer, writer_is_over) = (Arc::clone(&under), Arc::clone(&is_over));
    let reader = spawn("link-takes", move || {
        // It ends with an error: the device is gone.
        let _ = take(&source, &mut wire, &to_writer, began);
        is_over.store(true, Ordering::Relaxed);
        to_writer.came.notify_one();
    })?;
    let writer = spawn("link-gives", move || {
        give(&sink, &under, began, &writer_is_over)
    })?;
    Ok([reader, writer])
}

/// A thread that runs before all that is not real-time.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    let (say, hear) = std::sync::mpsc::channel();
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
        let priority = PRIORITY.try_into().map(ThreadPriority::Crossplatform);
        let set = priority
            .map_err(|error| anyhow!("{error}"))
            .and_then(|priority| {
                set_thread_priority_and_policy(thread_native_id(), priority, policy)
                    .map_err(|error| anyhow!("{error:?}"))
            });
        let is_set = set.is_ok();
        let _ = say.send(set);
        if is_set {
            run();
        }
    })?;
    hear.recv()
        .context("a thread failed")?
        .context("cannot set SCHED_FIFO")?;
    Ok(thread)
}

fn take(source: &SyncDevice, wire: &mut Wire, under: &Under, began: Instant) -> io::Result<()> {
    let mut whole = vec![0; SUPER_PACKET_BYTES + VIRTIO_NET_HDR_LEN];
    let mut segments = vec![vec![0; SEGMENT_BYTES]; SEGMENTS_MAX];
    let mut sizes = vec![0; SEGMENTS_MAX];
    let mut number = 0;
    loop {
        let count =
            source.recv_multiple(&mut whole, &mut segments, &mut sizes, VIRTIO_NET_HDR_LEN)?;
        let now = began.elapsed();
        let mut way = under.lock();
        for (segment, &bytes) in segments.iter().zip(&sizes).take(count) {
            if let Some(arrives) = wire.take(now, bytes) {
                // With room for the others that it may be joined with.
                let mut packet = Vec::with_capacity(SUPER_PACKET_BYTES + VIRTIO_NET_HDR_LEN);
                packet.extend_from_slice(&segment[..VIRTIO_NET_HDR_LEN + bytes]);
                way.push((Reverse((arrives, number)), packet));
                number += 1;
            }
        }
        drop(way);
        under.came.notify_one();
    }
}

fn give(sink: &SyncDevice, under: &Under, began: Instant, is_over: &AtomicBool) {
    let mut joined = GROTable::default();
    let mut batch = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let mut way = under.lock();
        let now = began.elapsed();
        while batch.len() < BATCH
            && let Some((Reverse((arrives, _)), _)) = way.peek()
            && *arrives <= now
        {
            batch.extend(way.pop().map(|(_, packet)| packet));
        }
        if batch.is_empty() {
            let wait = way.peek().map_or(Duration::from_millis(100), |packet| {
                packet.0.0.0.saturating_sub(now)
            });
            drop(under.came.wait_timeout(way, wait));
            continue;
        }
        drop(way);
        // An end whose queue is full drops packets as any other does.
        let _ = sink.send_multiple(&mut joined, &mut batch, VIRTIO_NET_HDR_LEN);
        batch.clear();
    }
}

impl Under {
    fn lock(&self) -> MutexGuard<'_, BinaryHeap<Packet>> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
