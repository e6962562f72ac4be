//! Keeps a near end's link: dials its lanes, and dials again those that end.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use refrain_proto::{LaneFault, Link};

use super::{
    Near, Outlook, connect_noting,
    dial_plan::{Dial, DialPlan, Ending},
};
use crate::{
    lane::{self, LaneEnd},
    link::SharedLink,
};

/// How often the link is looked at: it may have expired or faulted.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How often memory for a link is asked for.
const MEMORY_INTERVAL: Duration = Duration::from_millis(100);

/// Keeps a link, and its lanes, for as long as the gateway runs.
pub(super) struct Dialer {
    near: Arc<Near>,
    /// Not held, so that a link which is over gives its memory to the next.
    link: Option<Weak<SharedLink>>,
    /// The tasks of the link's lanes.
    lanes: JoinSet<(Dial, Ending)>,
    plan: DialPlan,
}

impl Dialer {
    pub(super) fn new(near: Arc<Near>) -> Dialer {
        Dialer {
            plan: DialPlan::new(near.config.common.lanes.into()),
            near,
            link: None,
            lanes: JoinSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let Some(link) = self.near.present_link(!self.lanes.is_empty()) else {
                if !self.last_link_is_held() {
                    let error = "not enough memory for even the smallest caches: raise --memory";
                    self.near.note_error(error.to_owned());
                }
                sleep(MEMORY_INTERVAL).await;
                continue;
            };
            self.follow(&link);
            let mut lanes_up = link.lanes_up();
            self.note_lanes_up(*lanes_up.borrow_and_update());
            let now = Instant::now();
            let lanes_max = link.with(|link, _| link.lanes_max());
            for dial in self.plan.next_dials(now, self.lanes.len(), lanes_max) {
                let lane = keep_lane(Arc::clone(&self.near), Arc::clone(&link));
                self.lanes.spawn(async move { (dial, lane.await) });
            }
            let look = now + LOOK_INTERVAL;
            let wake = self.plan.next_rested(now).map_or(look, |at| at.min(look));
            tokio::select! {
                Some(ended) = self.lanes.join_next() => {
                    let (dial, ending) = ended.unwrap_or((Dial::FIRST, Ending::Failed));
                    // Lanes that came up before this one ended count for what is made of it.
                    self.note_lanes_up(*lanes_up.borrow());
                    self.plan.lane_ended(Instant::now(), dial, ending);
                }
                // Both are looked at above.
                Ok(()) = lanes_up.changed() => {}
                () = sleep_until(wake) => {}
                () = link.want_lanes.notified() => self.plan.want_all_lanes(Instant::now()),
            }
        }
    }

    fn note_lanes_up(&mut self, lanes_up: usize) {
        let outlook = *self.near.outlook.borrow();
        match (lanes_up, outlook) {
            (0, Outlook::Up) => self.near.note_outlook(Outlook::Dialling),
            (1.., _) => self.near.note_outlook(Outlook::Up),
            (0, _) => {}
        }
        if self.plan.note_lanes_up(lanes_up) {
            self.near.clear_error();
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
async fn keep_lane(near: Arc<Near>, link: Arc<SharedLink>) -> Ending {
    let within = near.policy.load().timeouts.connect;
    let peer = near.config.peer.to_string();
    let answered = || near.peer_is_back_from(Outlook::Refused);
    let dialled = connect_noting(&peer, &near.tls, within, answered).await;
    let (stream, address) = match dialled {
        Ok(dialled) => dialled,
        Err(error) => {
            if error.is_definite() {
                near.peer_is_gone(&link, Outlook::Refused);
            }
            near.note_error(error.to_string());
            return Ending::Failed;
        }
    };
    near.peer_is_back_from(Outlook::Silent);
    let begun = lane::prepare(
        stream.get_ref().0.tcp(),
        near.config.common.timeouts.dead_after,
    )
    .map_err(|error| error.to_string())
    .and_then(|()| {
        let dial = |link: &mut Link, now| link.dial_lane(now).ok_or("the link has no lane left");
        Ok(link.begin_lane(dial)?)
    });
    let (lane, signals) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            near.note_error(error);
            return Ending::Failed;
        }
    };
    let began = Instant::now();
    let mut lanes_up = link.lanes_up();
    let had_lanes = *lanes_up.borrow_and_update() > 0;
    let end = lane::run(Arc::clone(&link), lane, signals, stream, near.pace.clone()).await;
    let came_up = had_lanes || lanes_up.has_changed().unwrap_or(true);
    match end {
        LaneEnd::Lane(LaneFault::Silent) => near.peer_is_gone(&link, Outlook::Silent),
        _ if !came_up => near.peer_is_gone(&link, Outlook::Refused),
        _ => {}
    }
    let ending = match end {
        LaneEnd::Refused(_) => Ending::Refused,
        _ => Ending::after(began.elapsed()),
    };
    let text = match end {
        LaneEnd::Io(error) => near.tls.explain(error, address).to_string(),
        LaneEnd::Damaged(_) => {
            let times = link.damaged_lanes();
            format!("{end}, at {address} ({times} so far on this link)")
        }
        other => other.to_string(),
    };
    near.note_error(format!("a lane ended: {text}"));
    ending
}

impl Near {
    /// The far end gave a sign of life that ends this outlook.
    fn peer_is_back_from(&self, outlook: Outlook) {
        if *self.outlook.borrow() == outlook {
            self.note_outlook(Outlook::Dialling);
        }
    }

    /// The far end is out of reach; but for lanes that are still up.
    fn peer_is_gone(&self, link: &SharedLink, outlook: Outlook) {
        if *link.lanes_up().borrow() == 0 {
            self.note_outlook(outlook);
        }
    }
}
