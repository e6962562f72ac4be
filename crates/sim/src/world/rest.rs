//! What must hold once nothing breaks any more: all flows end, dead lanes are settled,
//! nothing is outstanding. An idle link then stays up, and still carries flows.

use std::time::Duration;

use super::{Step, World};
use crate::{
    End, Failure,
    counters::{adds_up, disagreement},
};

/// How far a run has come to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Things still break.
    NotYet,
    /// Flows from before end.
    Ending,
    /// Nothing happens for a while.
    Idle,
    /// A last flow from each end.
    LastFlows,
    /// The run is over.
    Over,
}

/// Between looks at whether there is rest.
const INTERVAL: Duration = Duration::from_millis(500);

/// Longer than any pause of an application, any dead lane's time-out and any transport's
/// slowness together.
const PATIENCE: Duration = Duration::from_secs(90);

/// Longer than two pings of an idle link.
const IDLE: Duration = Duration::from_secs(40);

impl World {
    pub(super) fn rest(&mut self) -> Result<(), Failure> {
        if self.rest == Rest::NotYet {
            self.end_troubles();
            self.rest = Rest::Ending;
        }
        self.forget_stale_links();
        if let Err(what) = self.is_at_rest() {
            self.trace(|| format!("not at rest: {what}"));
            if self.now().since(self.progress_at) > PATIENCE {
                return Err(Failure::Stuck(what));
            }
            self.schedule.after(INTERVAL, Step::Rest);
            return Ok(());
        }
        self.trace(|| format!("at rest after {:?}", self.rest));
        self.progress_at = self.now();
        match self.rest {
            Rest::NotYet | Rest::Ending => {
                self.rest = Rest::Idle;
                // From now on nothing has a reason to end, unless damage from before shows.
                self.is_troubled = self.is_damaged;
                self.schedule.after(IDLE, Step::Rest);
            }
            Rest::Idle => {
                self.rest = Rest::LastFlows;
                for end in End::BOTH {
                    self.open(end, None);
                    self.settle_all(end)?;
                }
                self.schedule.after(INTERVAL, Step::Rest);
            }
            Rest::LastFlows | Rest::Over => self.rest = Rest::Over,
        }
        Ok(())
    }

    fn end_troubles(&mut self) {
        self.progress_at = self.now();
        self.no_dial_before = self.now();
        // Lanes that are dialled later are not harmed.
        self.rare_harm = None;
        for transport in 0..self.transports.len() {
            for end in End::BOTH {
                self.transports[transport].end(end).out.harm = None;
            }
            // Damage may have hidden an end, a reset, or credit.
            if self.transports[transport].is_damaged {
                self.cut(transport, &End::BOTH);
            }
        }
    }

    /// The far end gives up links whose near end is gone, once their lanes are.
    fn forget_stale_links(&mut self) {
        let present = self.near_instance;
        let stale: Vec<u64> = self
            .side(End::Far)
            .links
            .iter()
            .filter(|&(&link, side)| link != present && side.link.lanes_alive() == 0)
            .map(|(&link, _)| link)
            .collect();
        for link in stale {
            self.end_link(End::Far, link);
        }
    }

    /// Nothing is open, outstanding, or unsettled; or what is.
    fn is_at_rest(&self) -> Result<(), String> {
        let mut transports = self.transports.iter();
        if let Some(number) = transports.position(|transport| transport.is_troubled(self.now())) {
            return Err(format!(
                "transport {number} stalls, or an end does not know that it broke"
            ));
        }
        for end in End::BOTH {
            let side = &self.ends[end as usize];
            if let Some((link, flow)) = side.applications.keys().next() {
                return Err(format!("the {end} end's flow {flow:?} of {link:x} is open"));
            }
            if let Some(link) = side.links.keys().find(|&&link| link != self.near_instance) {
                return Err(format!("the {end} end's stale link {link:x} has lanes"));
            }
            let Some(side) = side.links.get(&self.near_instance) else {
                return Err(format!("the {end} end does not know the link"));
            };
            if side.link.lanes_up() == 0 {
                return Err(format!("the {end} end has no lane"));
            }
            if side.link.flows_open() > 0 {
                let left = side.link.flows_open();
                return Err(format!("the {end} end's engine has {left} flows left"));
            }
            let status = side.link.status(self.now());
            if status.sent.outstanding_bytes > 0 {
                let left = status.sent.outstanding_bytes;
                return Err(format!(
                    "{left} bytes of the {end} end's log are outstanding"
                ));
            }
            if status.offered_bytes_held > 0 || status.offers_kept > 0 {
                return Err(format!(
                    "the {end} end holds {} bytes for offers, and keeps {} of the other end's",
                    status.offered_bytes_held, status.offers_kept
                ));
            }
            if status.counters.events.lanes_settled < status.counters.events.lanes_lost {
                return Err(format!(
                    "the {end} end lost {} lanes and settled {}",
                    status.counters.events.lanes_lost, status.counters.events.lanes_settled
                ));
            }
        }
        self.ends_agree()
    }

    /// Both ends counted alike what crossed the link, whatever became of its flows and lanes; or
    /// on what they disagree. What was damaged may have been counted by one of them.
    fn ends_agree(&self) -> Result<(), String> {
        let sides = self.ends.iter();
        let mut links = sides.filter_map(|side| side.links.get(&self.near_instance));
        let (Some(near), Some(far), false) = (links.next(), links.next(), self.is_damaged) else {
            return Ok(());
        };
        let [near, far] = [near, far].map(|side| side.link.status(self.now()));
        if !adds_up(&near) || !adds_up(&far) {
            return Err("the targets' bytes do not add up to the link's bytes".to_owned());
        }
        for (end, sent, received) in [
            (End::Near, &near.counters.sent, &far.counters.received),
            (End::Far, &far.counters.sent, &near.counters.received),
        ] {
            if let Some((counter, sent, received)) = disagreement(&sent.layers, &received.layers) {
                return Err(format!(
                    "of {counter}, the {end} end counted {sent} as sent, but the other end {received} \
                     as received"
                ));
            }
        }
        Ok(())
    }
}
