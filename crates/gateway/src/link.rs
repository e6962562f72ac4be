//! A link's engine, shared by the tasks of its lanes and flows.
//!
//! [`SharedLink::with`] is the only way in: it locks the engine, calls it with the present
//! moment, and turns the events that come out into wake-ups. No task sleeps with the lock.

mod ended_flows;
mod prefault;
mod totals;

use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use refrain_proto::{
    Event, FlowId, LaneFault, LaneId, Link, LinkFault, Moment, ResetReason, Role,
    codes::refusal,
    counters::LinkCounters,
    link::{LinkStatus, OpenError},
    predictions::history::{Found, HistoryRequest, Wanted},
};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep_until},
};

use crate::{
    history::{Asker, Attached, History},
    keys::{PublicKey, SharedPeerKeys},
    memory::Reservation,
    refusal::Refusal,
    wire::WireCounts,
};
use ended_flows::EndedFlow;
pub(crate) use totals::{Counted, Totals};

/// So many flows may be closing at once, however few may be open.
const CLOSING_MIN: usize = 64;

/// One end of a link and everybody who waits for it.
pub(crate) struct SharedLink {
    /// Who is at the other end.
    pub peer: PublicKey,
    /// What logs call the peer.
    labels: Arc<SharedPeerKeys>,
    state: Mutex<State>,
    origin: Instant,
    /// The engine's next deadline came nearer.
    deadline_moved: Arc<Notify>,
    /// There is memory to prefault, or the link is dropped.
    prefault_wanted: Arc<Notify>,
    /// Lanes that are up.
    lanes_up: watch::Sender<usize>,
    /// Changes with that, for all links of the gateway.
    changes: watch::Sender<()>,
    /// Whether this end or the other takes no new flows.
    draining: watch::Sender<bool>,
    /// Loss holds up lanes: more would help.
    pub(crate) want_lanes: Notify,
    /// Offers of flows by the other end.
    offers: mpsc::UnboundedSender<FlowOffer>,
    /// What its receivers predict from, if they do.
    history: Option<Attached>,
    /// Lanes that ended since bytes were damaged on the way.
    damaged_lanes: AtomicU64,
    /// Where it leaves its counts when it is over.
    totals: Arc<Totals>,
    memory: Reservation,
}

struct State {
    link: Link,
    lanes: HashMap<LaneId, Arc<LaneSignals>>,
    flows: HashMap<FlowId, Arc<FlowSignals>>,
    /// When the task that keeps the deadlines looks at them next.
    awake_at: Moment,
    lanes_gone_at: Option<Instant>,
    had_lanes: bool,
    /// What the history did not take yet.
    unsent: Option<HistoryRequest>,
    /// What the lanes' connections carry.
    wires: HashMap<LaneId, Arc<WireCounts>>,
    /// What the connections of ended lanes carried.
    ended_wires: WireCounts,
}

/// A lane of a link, as its task holds it.
pub(crate) struct LaneHandle {
    pub(crate) link: Arc<SharedLink>,
    pub(crate) id: LaneId,
    pub(crate) signals: Arc<LaneSignals>,
}

/// What wakes a lane's tasks.
#[derive(Debug, Default)]
pub(crate) struct LaneSignals {
    /// There is something to send.
    pub transmit: Notify,
    /// Why the engine gave the lane up.
    fault: watch::Sender<Option<LaneFault>>,
}

/// What wakes a flow's task.
#[derive(Debug, Default)]
pub(crate) struct FlowSignals {
    /// Bytes, or their end, can be taken.
    pub readable: Notify,
    /// Bytes can be written.
    pub writable: Notify,
    /// Less memory than a channel of tokio's, and there are many flows.
    standing: Mutex<Standing>,
    changed: Notify,
}

/// How a flow stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The other end has not answered.
    #[default]
    Opening,
    /// The target was reached.
    Open,
    /// The target was not reached.
    Refused(Refusal),
    /// Over, by a reset.
    Reset(ResetReason),
}

/// A flow that the other end wants to a target here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlowOffer {
    /// The flow.
    pub flow: FlowId,
    /// `host:port` as the other end's user named it.
    pub target: String,
    /// Whether it stays out of the cache.
    pub excluded: bool,
}

impl SharedLink {
    /// Shares `link`; the task that keeps its deadlines runs until the link is dropped.
    pub(crate) fn start(
        peer: PublicKey,
        labels: Arc<SharedPeerKeys>,
        link: Link,
        memory: Reservation,
        history: Option<(&History, &str)>,
        totals: Arc<Totals>,
        changes: watch::Sender<()>,
    ) -> (Arc<SharedLink>, mpsc::UnboundedReceiver<FlowOffer>) {
        let (offers, offered) = mpsc::unbounded_channel();
        let shared = Arc::new_cyclic(|shared: &Weak<SharedLink>| SharedLink {
            peer,
            labels,
            history: history
                .map(|(history, realm)| history.attach(shared.clone() as Weak<dyn Asker>, realm)),
            state: Mutex::new(State {
                link,
                lanes: HashMap::new(),
                flows: HashMap::new(),
                awake_at: Moment::default(),
                lanes_gone_at: Some(Instant::now()),
                had_lanes: false,
                unsent: None,
                wires: HashMap::new(),
                ended_wires: WireCounts::default(),
            }),
            origin: Instant::now(),
            deadline_moved: Arc::default(),
            prefault_wanted: Arc::default(),
            lanes_up: watch::Sender::new(0),
            changes,
            draining: watch::Sender::new(false),
            want_lanes: Notify::new(),
            offers,
            damaged_lanes: AtomicU64::new(0),
            totals,
            memory,
        });
        let weak = Arc::downgrade(&shared);
        shared.totals.begin(Weak::clone(&weak));
        tokio::spawn(prefault::run(
            Weak::clone(&weak),
            Arc::clone(&shared.prefault_wanted),
        ));
        tokio::spawn(async move {
            while let Some(shared) = weak.upgrade() {
                let at = shared.with_state(|state, now| {
                    let link = &mut state.link;
                    if link.poll_timeout().is_some_and(|due| due <= now) {
                        link.handle_timeout(now);
                    }
                    let latest = now + Duration::from_secs(1);
                    state.awake_at = link.poll_timeout().map_or(latest, |due| due.min(latest));
                    state.awake_at
                });
                let at = shared.origin + at.0;
                let moved = Arc::clone(&shared.deadline_moved);
                // Held only while awake: a link that is over gives its memory back at once.
                drop(shared);
                tokio::select! {
                    () = sleep_until(at) => {}
                    () = moved.notified() => {}
                }
            }
        });
        (shared, offered)
    }

    /// What logs call the peer: its name, or the short form of its key.
    pub(crate) fn label(&self) -> String {
        self.labels.load().label(&self.peer)
    }

    /// Calls the engine, and wakes whom its events concern.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut Link, Moment) -> R) -> R {
        self.with_state(|state, now| call(&mut state.link, now))
    }

    fn with_state<R>(&self, call: impl FnOnce(&mut State, Moment) -> R) -> R {
        let now = Moment(self.now());
        let mut state = self.lock();
        let result = call(&mut state, now);
        while let Some(event) = state.link.poll_event() {
            self.dispatch(&mut state, event);
        }
        if let Some(history) = &self.history {
            let State { link, unsent, .. } = &mut *state;
            history.pass_on(unsent, || link.poll_history());
        }
        let deadline = state.link.poll_timeout();
        // A later one is found when that task looks.
        let nearer = deadline.filter(|deadline| *deadline < state.awake_at);
        state.awake_at = nearer.unwrap_or(state.awake_at);
        let wants_prefault = state.link.wants_prefault();
        drop(state);
        if wants_prefault {
            self.prefault_wanted.notify_one();
        }
        if nearer.is_some() {
            self.deadline_moved.notify_one();
        }
        result
    }

    /// Begins a lane by `begin`, and registers its signals.
    pub(crate) fn begin_lane<E>(
        self: &Arc<Self>,
        begin: impl FnOnce(&mut Link, Moment) -> Result<LaneId, E>,
    ) -> Result<LaneHandle, E> {
        self.with_state(|state, now| {
            let id = begin(&mut state.link, now)?;
            let signals = Arc::clone(state.lanes.entry(id).or_default());
            let link = Arc::clone(self);
            Ok(LaneHandle { link, id, signals })
        })
    }

    /// Opens a flow, and registers its signals.
    pub(crate) fn open_flow(
        &self,
        target: &str,
        excluded: bool,
    ) -> Result<(FlowId, Arc<FlowSignals>), OpenError> {
        self.with_state(|state, now| {
            let flow = state.link.open_flow(now, target, excluded)?;
            Ok((flow, Arc::clone(state.flows.entry(flow).or_default())))
        })
    }

    /// The signals of a flow that the other end offered.
    pub(crate) fn offered_flow(&self, flow: FlowId) -> Arc<FlowSignals> {
        Arc::clone(self.lock().flows.entry(flow).or_default())
    }

    /// The flow's task is over.
    pub(crate) fn forget_flow(&self, flow: FlowId) {
        self.lock().flows.remove(&flow);
    }

    /// A lane has this connection now.
    pub(crate) fn add_lane(&self, lane: LaneId, counts: Arc<WireCounts>) {
        self.lock().wires.insert(lane, counts);
    }

    /// A lane's connection has ended.
    pub(crate) fn remove_lane(&self, lane: LaneId) {
        let mut state = self.lock();
        if let Some(counts) = state.wires.remove(&lane) {
            state.ended_wires.add(&counts);
        }
    }

    /// The link as it stands. Its connections' bytes are counted with all of TLS.
    pub(crate) fn status(&self) -> LinkStatus {
        // Its counters stand, whatever panicked.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = state.link.status(Moment(self.now()));
        status.counters = state.counters();
        status
    }

    /// What it has counted so far.
    pub(crate) fn counts(&self) -> Counted {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let targets = state.link.targets().clone();
        ([(self.peer, state.counters())].into(), targets)
    }

    /// A lane ended since bytes were damaged on the way.
    pub(crate) fn note_damage(&self) {
        self.damaged_lanes.fetch_add(1, Ordering::Relaxed);
    }

    /// How many lanes ended since bytes were damaged on the way.
    pub(crate) fn damaged_lanes(&self) -> u64 {
        self.damaged_lanes.load(Ordering::Relaxed)
    }

    /// The number of lanes that are up, as it changes.
    pub(crate) fn lanes_up(&self) -> watch::Receiver<usize> {
        self.lanes_up.subscribe()
    }

    /// Takes no more flows, and tells the other end.
    pub(crate) fn drain(&self) {
        self.with(|link, _| link.drain());
        self.draining.send_replace(true);
    }

    /// Waits until this end or the other takes no more flows: what is open for later is to end.
    pub(crate) async fn draining(&self) {
        // The sender lives as long as `self`.
        let _ = self.draining.subscribe().wait_for(|&drains| drains).await;
    }

    /// Whether this end or the other takes no new flows.
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Whether it has a lane.
    pub(crate) fn is_up(&self) -> bool {
        self.lanes_gone_at().is_none()
    }

    /// Whether it has ever had a lane.
    pub(crate) fn had_lanes(&self) -> bool {
        self.lock().had_lanes
    }

    /// Since when the link has no lane, if it has none.
    pub(crate) fn lanes_gone_at(&self) -> Option<Instant> {
        self.lock().lanes_gone_at
    }

    /// Why the link is over, if it is.
    pub(crate) fn fault(&self) -> Option<LinkFault> {
        self.lock().link.fault()
    }

    /// The present moment, as the engine counts it.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("engines do not panic")
    }

    fn dispatch(&self, state: &mut State, event: Event) {
        match event {
            Event::LaneUp(_) => self.count_lanes(state, None),
            Event::LaneDown(lane, fault) => {
                if let Some(signals) = state.lanes.remove(&lane) {
                    signals.fault.send_replace(Some(fault));
                }
                self.count_lanes(state, Some(fault));
            }
            Event::Transmit(lane) => {
                if let Some(signals) = state.lanes.get(&lane) {
                    signals.transmit.notify_one();
                }
            }
            Event::WantLanes => self.want_lanes.notify_one(),
            Event::FlowOffered {
                flow,
                target,
                excluded,
            } => {
                // A peer that opens and resets flows for ever is refused when the tasks of
                // those that are over cannot keep up.
                let flows_max = state.link.flows_max();
                let closing_max = flows_max + flows_max.max(CLOSING_MIN);
                if state.flows.len() >= closing_max {
                    let text = format!(
                        "{closing_max} connections are open or being closed, {}",
                        state.link.flows_limit()
                    );
                    state.link.refuse_flow(flow, refusal::LIMIT, &text);
                    return;
                }
                // Registered here, so that no later event is missed.
                state.flows.entry(flow).or_default();
                // The receiver ends with the link.
                let _ = self.offers.send(FlowOffer {
                    flow,
                    target,
                    excluded,
                });
            }
            Event::FlowAccepted(flow) => state.change(flow, Standing::Open),
            Event::FlowRefused {
                flow,
                code,
                ref text,
            } => {
                state.change(flow, Standing::Refused(Refusal::from_wire(code, text)));
            }
            Event::FlowReset(flow, reason) => {
                if reason == ResetReason::Misconfirmed {
                    tracing::warn!(
                        peer = %self.label(),
                        "a confirmation was wrong: its connection is reset, and the chunks that it named are forgotten"
                    );
                }
                state.change(flow, Standing::Reset(reason));
            }
            Event::Readable(flow) => {
                if let Some(signals) = state.flows.get(&flow) {
                    signals.readable.notify_one();
                }
            }
            Event::Writable(flow) => {
                if let Some(signals) = state.flows.get(&flow) {
                    signals.writable.notify_one();
                }
            }
            Event::FlowEnded(flow) => self.totals.ended_flows.add(EndedFlow {
                peer: self.peer,
                ended: Instant::now(),
                flow,
            }),
            Event::PeerDraining => {
                self.draining.send_replace(true);
                // At its end, the log has the line that the link is down.
                tracing::debug!(peer = %self.label(), "the peer is shutting down: it does not accept new connections");
            }
        }
    }

    /// A lane came up, or `ended`.
    fn count_lanes(&self, state: &mut State, ended: Option<LaneFault>) {
        let up = state.link.lanes_up();
        state.lanes_gone_at = match up {
            0 => state.lanes_gone_at.or_else(|| Some(Instant::now())),
            _ => None,
        };
        let mut before = up;
        self.lanes_up.send_if_modified(|count| {
            before = core::mem::replace(count, up);
            before != up
        });
        if before != up {
            self.changes.send_replace(());
        }
        match (before, up) {
            (0, 1..) => {
                state.had_lanes = true;
                tracing::info!(peer = %self.label(), "the link is up");
                if state.link.offers_heeded() == Some(false) {
                    tracing::warn!(
                        peer = %self.label(),
                        "the mode of the far end does not use predictions: the store learns, but \
                         nothing is predicted"
                    );
                }
            }
            (1.., 0) => {
                let of_link = state.link.fault().map(|fault| fault.to_string());
                let of_lane = ended.map(|fault| fault.to_string());
                let role = state.link.role();
                let reason = match (state.link.peer_is_draining(), role) {
                    (true, Role::Near) => "the far end has shut down".to_owned(),
                    (true, Role::Far) => "the near end has shut down".to_owned(),
                    (false, _) => of_link.or(of_lane).unwrap_or_default(),
                };
                // A site may be offline. Clients of a near end have no other link.
                match role {
                    Role::Near => {
                        tracing::warn!(peer = %self.label(), "the link is down: {reason}");
                    }
                    Role::Far => {
                        tracing::info!(peer = %self.label(), "the link is down: {reason}");
                    }
                }
            }
            _ => {}
        }
    }
}

impl Asker for SharedLink {
    fn answer(&self, wanted: Wanted, found: Found) {
        self.with(|link, _| link.history_answered(wanted.flow, wanted.request, found));
    }

    fn ask_again(&self) {
        self.with(|_, _| ());
    }
}

impl Drop for SharedLink {
    fn drop(&mut self) {
        self.totals.end(self, &self.counts());
        self.prefault_wanted.notify_one();
    }
}

impl State {
    fn counters(&self) -> LinkCounters {
        let wire = WireCounts::default();
        wire.add(&self.ended_wires);
        self.wires.values().for_each(|counts| wire.add(counts));
        let mut counters = self.link.counters();
        counters.sent.link_bytes = wire.sent();
        counters.received.link_bytes = wire.received();
        counters
    }

    fn change(&mut self, flow: FlowId, standing: Standing) {
        if let Some(signals) = self.flows.get(&flow) {
            *signals.standing.lock().expect("held for a moment") = standing;
            signals.changed.notify_waiters();
        }
    }
}

impl LaneSignals {
    /// Why the engine gave the lane up, if it did.
    pub(crate) fn fault(&self) -> Option<LaneFault> {
        *self.fault.borrow()
    }

    /// Waits until the engine gives the lane up.
    pub(crate) async fn down(&self) -> LaneFault {
        let mut fault = self.fault.subscribe();
        let fault = fault.wait_for(Option::is_some).await;
        fault
            .ok()
            .and_then(|fault| *fault)
            .expect("its sender is here")
    }
}

impl FlowSignals {
    /// Waits until the other end has answered.
    pub(crate) async fn opened(&self) -> Standing {
        self.until(|standing| *standing != Standing::Opening).await
    }

    /// How the flow stands now.
    pub(crate) fn standing(&self) -> Standing {
        self.standing.lock().expect("held for a moment").clone()
    }

    /// Waits until the flow is over by a reset or a refusal.
    pub(crate) async fn over(&self) -> Standing {
        self.until(|standing| !matches!(standing, Standing::Opening | Standing::Open))
            .await
    }

    async fn until(&self, is_wanted: impl Fn(&Standing) -> bool) -> Standing {
        loop {
            let mut changed = pin!(self.changed.notified());
            // A change between the look and the wait is not missed.
            changed.as_mut().enable();
            let standing = self.standing();
            if is_wanted(&standing) {
                return standing;
            }
            changed.await;
        }
    }
}
