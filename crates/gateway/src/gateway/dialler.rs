//! Keeps the link to a peer: dials its lanes, and dials again those that end.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use refrain_proto::{LaneFault, LinkFault};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    Gateway,
    dial::{ConnectError, connect},
    dial_plan::{Dial, DialPlan, Ending},
    peer::{Dialled, Outlook, Peer},
};
use crate::{
    lane::{self, LaneEnd},
    link::{LaneHandle, SharedLink},
    tls::TlsError,
    wire::LaneStream,
};

/// How often the link is looked at: it may have expired or faulted.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The lanes to a peer that is gone end one after the other, within this time.
const LANES_END_WITHIN: Duration = Duration::from_millis(200);

/// How often memory for a link is asked for.
const MEMORY_INTERVAL: Duration = Duration::from_millis(100);

/// Keeps a link, and its lanes, for as long as the gateway runs.
pub(super) struct Dialer {
    gateway: Arc<Gateway>,
    peer: Arc<Peer>,
    /// Not held, so that a link which is over gives its memory to the next.
    link: Option<Weak<SharedLink>>,
    /// The tasks of the link's lanes.
    lanes: JoinSet<(Dial, EndedLane)>,
    plan: DialPlan,
}

/// What a lane that is over says of the next: how it ended, and the outlook of its peer, if the link
/// has no other lane.
type EndedLane = (Ending, Option<Outlook>);

impl Dialer {
    pub(super) fn new(gateway: Arc<Gateway>, peer: Arc<Peer>) -> Dialer {
        Dialer {
            plan: DialPlan::new(gateway.config.lanes.into()),
            gateway,
            peer,
            link: None,
            lanes: JoinSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let Some(link) = self.present_link() else {
                if !self.last_link_is_held() {
                    let error = "not enough memory for even the smallest caches: raise --memory";
                    self.peer.note_error(error.to_owned(), false);
                }
                sleep(MEMORY_INTERVAL).await;
                continue;
            };
            self.follow(&link);
            let mut lanes_up = link.lanes_up();
            self.note_lanes_up(*lanes_up.borrow_and_update());
            let now = Instant::now();
            let lanes_max = link.with(|link, _| link.lanes_max());
            let wanted = self.plan.wanted_lanes(now, lanes_max);
            let spare = link.with(|link, _| {
                link.leave_spare_lane(wanted);
                link.spare_lanes()
            });
            let alive = self.lanes.len().saturating_sub(spare);
            // The link counts them among those that it may have.
            let may_have = lanes_max.saturating_sub(spare).max(1);
            for dial in self.plan.next_dials(now, alive, may_have) {
                let (gateway, peer) = (Arc::clone(&self.gateway), Arc::clone(&self.peer));
                let lane = keep_lane(gateway, peer, Arc::clone(&link));
                self.lanes.spawn(async move { (dial, lane.await) });
            }
            let look = now + LOOK_INTERVAL;
            let wake = self.plan.next_rested(now).map_or(look, |at| at.min(look));
            tokio::select! {
                Some(ended) = self.lanes.join_next() => {
                    let failed = (Dial::FIRST, (Ending::Failed, None));
                    let (dial, (ending, outlook)) = ended.unwrap_or(failed);
                    // Lanes that came up before this one ended count for what is made of it.
                    let lanes_up = *lanes_up.borrow();
                    self.note_lanes_up(lanes_up);
                    self.plan.lane_ended(Instant::now(), dial, ending);
                    if let (0, Some(outlook)) = (lanes_up, outlook) {
                        self.peer.dialled().note_outlook(outlook);
                    }
                }
                // Both are looked at above.
                Ok(()) = lanes_up.changed() => {}
                () = sleep_until(wake) => {}
                () = link.want_lanes.notified() => self.plan.want_all_lanes(Instant::now()),
                () = self.peer.dialled().wanted.notified() => self.plan.shorten_rests(),
            }
        }
    }

    /// The link, a new one if the last is over. One of which lanes live or are dialled is over only
    /// by a fault: a lane that came up on a link that is forgotten would hold its memory, and carry
    /// nothing.
    fn present_link(&self) -> Option<Arc<SharedLink>> {
        let keep = self.gateway.policy.load().timeouts.keep_link;
        let mut links = self.peer.lock_links();
        if let Some(link) = links.last() {
            let (has_fault, out_of_lanes) =
                link.with(|link, _| (link.fault().is_some(), link.is_out_of_lanes()));
            let gone_at = link.lanes_gone_at();
            let expired = gone_at.is_some_and(|at| at.elapsed() > keep);
            if !has_fault && !(self.lanes.is_empty() && (out_of_lanes || expired)) {
                return Some(Arc::clone(link));
            }
            // Its memory goes to its successor.
            links.clear();
        }
        let Gateway { budget, config, .. } = &*self.gateway;
        let memory = budget.link(self.peer.key, config)?;
        links.push(self.gateway.begin_link(&self.peer, memory));
        links.last().cloned()
    }

    fn note_lanes_up(&mut self, lanes_up: usize) {
        let dialled = self.peer.dialled();
        match lanes_up {
            0 => dialled.is_back_from(|outlook| outlook == Outlook::Up),
            _ => dialled.note_outlook(Outlook::Up),
        }
        if self.plan.note_lanes_up(lanes_up) {
            self.peer.trouble.clear();
        }
    }

    /// Whether tasks that will end within moments still have the memory of the last link.
    fn last_link_is_held(&self) -> bool {
        let last = self.link.as_ref();
        last.is_some_and(|link| link.strong_count() > 0)
    }

    /// Turns to `link`, if it is another than before.
    fn follow(&mut self, link: &Arc<SharedLink>) {
        let link = Arc::downgrade(link);
        let before = self.link.replace(link.clone());
        if before.is_some_and(|before| !before.ptr_eq(&link)) {
            // The lanes of the link before end by themselves.
            self.lanes.detach_all();
            self.plan.begin_link(Instant::now());
        }
    }
}

/// Dials a lane and carries it until it ends.
async fn keep_lane(gateway: Arc<Gateway>, peer: Arc<Peer>, link: Arc<SharedLink>) -> EndedLane {
    let has_left = |link: &SharedLink| link.with(|link, _| link.peer_is_draining());
    let (lane, stream, address) = match dial(&gateway, peer.dialled(), &link).await {
        Ok(dialled) => dialled,
        Err(error) => {
            let announced = error.is_absence() && has_left(&link);
            match error {
                // Of others, such as a proxy, the end of the link says nothing.
                ConnectError::Tcp { .. } | ConnectError::Tls(_)
                    if error.is_absence() && !announced =>
                {
                    note_absence(Arc::clone(&peer), &link, error.to_string());
                }
                _ => peer.note_error(error.to_string(), announced),
            }
            let outlook = match peer.dialled().outlook() {
                _ if error.is_definite() => Some(Outlook::Refused(Instant::now())),
                Outlook::Refused(_) => Some(Outlook::Silent),
                _ => None,
            };
            return (Ending::Failed, outlook);
        }
    };
    tracing::debug!(peer = %peer.label(), %address, lane = lane.id.0, "dialled a lane");
    let began = Instant::now();
    let mut lanes_up = link.lanes_up();
    let had_lanes = *lanes_up.borrow_and_update() > 0;
    let counts = stream.get_ref().0.counts();
    let pace = gateway.pace.clone();
    let end = lane::run(&lane, stream, counts, pace).await;
    tracing::debug!(peer = %peer.label(), %address, lane = lane.id.0, "a lane ended: {end}");
    peer.remember_effort(&link);
    let came_up = had_lanes || lanes_up.has_changed().unwrap_or(true);
    if let LaneEnd::Lane(LaneFault::Spare) = end {
        return (Ending::Lived, None);
    }
    let has_restarted = matches!(end, LaneEnd::Link(LinkFault::PeerRestarted));
    let outlook = match end {
        LaneEnd::Lane(LaneFault::Silent) => Some(Outlook::Silent),
        // It is there, and takes the next link.
        LaneEnd::Link(LinkFault::PeerRestarted) => None,
        _ if !came_up => Some(Outlook::Refused(Instant::now())),
        _ => None,
    };
    let ending = match end {
        LaneEnd::Refused(_) => Ending::Refused,
        _ => Ending::after(began.elapsed()),
    };
    let ended = format!("a connection to the far end at {address} ended");
    let (text, is_absence) = match end {
        LaneEnd::Io(error) => {
            // It has the address.
            let error = peer.dialled().tls.explain(error, &address);
            let text = format!("a connection to the far end ended: {error}");
            (text, error.is_absence())
        }
        LaneEnd::Damaged(_) => {
            let times = link.damaged_lanes();
            let text = format!("{ended}: {end} ({times} so far on this link)");
            (text, false)
        }
        other => (format!("{ended}: {other}"), other.is_departure()),
    };
    let announced = is_absence && has_left(&link);
    let was_up = came_up || has_restarted;
    if announced || !is_absence || !was_up {
        peer.note_error(text, announced);
    } else {
        note_absence(peer, &link, text);
    }
    (ending, outlook)
}

/// Notes that the far end does not answer. If that ends a link that was up, the log has a line about it, and needs no other.
fn note_absence(peer: Arc<Peer>, link: &Arc<SharedLink>, error: String) {
    let (mut lanes_up, link) = (link.lanes_up(), Arc::clone(link));
    tokio::spawn(async move {
        let is_down = lanes_up.wait_for(|up| *up == 0);
        let is_down = timeout(LANES_END_WITHIN, is_down).await.is_ok();
        peer.note_error(error, is_down && link.had_lanes());
    });
}

/// Connects, and begins a lane of the link on it.
async fn dial(
    gateway: &Gateway,
    dialled: &Dialled,
    link: &Arc<SharedLink>,
) -> Result<(LaneHandle, LaneStream, String), ConnectError> {
    let within = gateway.policy.load().timeouts.connect;
    let is_refused = |outlook| matches!(outlook, Outlook::Refused(_));
    let answered = || dialled.is_back_from(is_refused);
    let proxy = gateway.config.via_proxy.as_ref();
    let connecting = connect(&dialled.address, proxy, &dialled.tls, within, answered);
    let (stream, address) = connecting.await?;
    dialled.is_back_from(|outlook| outlook == Outlook::Silent);
    let (dead_after, congestion) = (
        gateway.config.timeouts.dead_after,
        &gateway.config.congestion,
    );
    lane::prepare(stream.get_ref().0.inner(), dead_after, congestion).map_err(|source| {
        TlsError::Io {
            peer: address.clone(),
            source,
        }
    })?;
    let lane = link.begin_lane(|link, now| link.dial_lane(now).ok_or(ConnectError::NoLaneLeft))?;
    // Flows may follow its hello.
    gateway.changes.send_replace(());
    Ok((lane, stream, address))
}
