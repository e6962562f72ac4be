//! Keeps a near end's link: dials its lanes, and dials again those that end.

use std::{sync::Arc, time::Duration};

use refrain_proto::limits::LOSS_REMEMBERED;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{Near, connect};
use crate::{
    lane::{self, LaneEnd},
    link::SharedLink,
};

/// Between attempts to reach the peer: doubled each time, up to the second.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// How long the number of lanes is kept at which the far end took no more.
const ENOUGH: Duration = Duration::from_secs(30);

/// Keeps a link, and its lanes, for as long as the gateway runs.
pub(super) struct Dialer {
    near: Arc<Near>,
    link: Option<Arc<SharedLink>>,
    /// The tasks of the link's lanes, each of which says how long its lane lived.
    lanes: JoinSet<Duration>,
    /// When loss last held lanes up: as many are kept as there may be, for a while.
    wants_all_lanes: Option<Instant>,
    /// The far end took no more than so many lanes, not long ago.
    enough: Option<(usize, Instant)>,
    retry: Duration,
}

impl Dialer {
    pub(super) fn new(near: Arc<Near>) -> Dialer {
        Dialer {
            near,
            link: None,
            lanes: JoinSet::new(),
            wants_all_lanes: None,
            enough: None,
            retry: RETRY_MIN,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let Some(link) = self.near.present_link() else {
                let error = "not enough memory for even the smallest caches: raise --memory";
                self.near.note_error(error.to_owned());
                self.back_off().await;
                continue;
            };
            if !self
                .link
                .as_ref()
                .is_some_and(|known| Arc::ptr_eq(known, &link))
            {
                // The lanes of the link before end by themselves.
                self.lanes.detach_all();
                self.wants_all_lanes = None;
                self.link = Some(Arc::clone(&link));
            }
            let mut up = link.lanes_up();
            let lanes_up = *up.borrow_and_update();
            while self.lanes.len() < self.wanted_lanes(&link, lanes_up) {
                let lane = keep_lane(Arc::clone(&self.near), Arc::clone(&link));
                self.lanes.spawn(lane);
            }
            tokio::select! {
                Some(ended) = self.lanes.join_next() => {
                    self.lanes_ended(ended.unwrap_or_default(), &link).await;
                }
                Ok(()) = up.changed() => {
                    if *up.borrow() > lanes_up {
                        self.near.clear_error();
                    }
                }
                () = link.want_lanes.notified() => self.wants_all_lanes = Some(Instant::now()),
                // The link may have expired or faulted.
                () = sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// The first lane decides about the link, and finds out whether there is a peer; the
    /// others join it.
    fn wanted_lanes(&self, link: &SharedLink, lanes_up: usize) -> usize {
        if lanes_up == 0 {
            return 1;
        }
        let most = link.with(|link, _| link.lanes_max());
        let wanted = match self.wants_all_lanes {
            Some(since) if since.elapsed() < LOSS_REMEMBERED => most,
            _ => most.min(self.near.config.common.lanes.into()),
        };
        match self.enough {
            Some((lanes, since)) if since.elapsed() < ENOUGH => wanted.min(lanes),
            _ => wanted,
        }
    }

    /// A lane that lived is dialled again at once; one that died young is not. Those that end
    /// together are waited for together.
    async fn lanes_ended(&mut self, mut lived: Duration, link: &SharedLink) {
        while let Some(ended) = self.lanes.try_join_next() {
            lived = lived.max(ended.unwrap_or_default());
        }
        if lived > RETRY_MAX {
            self.retry = RETRY_MIN;
            return;
        }
        if link.fault().is_some() {
            // The peer is there, and a new link is all it takes.
            self.retry = RETRY_MIN;
        }
        let lanes_up = *link.lanes_up().borrow();
        if lanes_up > 0 {
            self.enough = Some((lanes_up, Instant::now()));
        }
        self.back_off().await;
    }

    async fn back_off(&mut self) {
        sleep(self.retry).await;
        self.retry = (self.retry * 2).min(RETRY_MAX);
    }
}

/// Dials a lane and carries it until it ends; says how long it lived.
async fn keep_lane(near: Arc<Near>, link: Arc<SharedLink>) -> Duration {
    let within = near.policy.load().timeouts.connect;
    let peer = near.config.peer.to_string();
    let dialled = async {
        let (stream, address) = connect(&peer, &near.tls, within).await?;
        lane::prepare(
            stream.get_ref().0.tcp(),
            near.config.common.timeouts.dead_after,
        )
        .map_err(|error| error.to_string())?;
        let (lane, signals) =
            link.begin_lane(|link, now| link.dial_lane(now).ok_or("the link has no lane left"))?;
        Ok::<_, String>((stream, address, lane, signals))
    };
    let (stream, address, lane, signals) = match dialled.await {
        Ok(dialled) => dialled,
        Err(error) => {
            near.note_error(error);
            return Duration::ZERO;
        }
    };
    let began = Instant::now();
    let end = lane::run(link, lane, signals, stream, near.pace.clone()).await;
    let text = match end {
        LaneEnd::Io(error) => near.tls.explain(error, address).to_string(),
        other => other.to_string(),
    };
    near.note_error(format!("a lane ended: {text}"));
    began.elapsed()
}
