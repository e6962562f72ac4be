//! When a near end dials lanes, and how many: without sockets, and by its caller's clock.
//!
//! Without a lane, one is dialled at a time: it finds out whether there is a peer, and decides
//! about the link. Once it stands, the others follow at once. A lane that fails is dialled again
//! after a rest, a longer one each time; others do not wait for it. A lane that lived is dialled
//! again at once.

use std::time::Duration;

use refrain_proto::limits::LOSS_REMEMBERED;
use tokio::time::Instant;

use crate::random::random_number;

/// What a near end knows that decides about its next dials.
pub(super) struct DialPlan {
    /// The lanes that a link keeps open where nothing asks for more.
    lanes: usize,
    lanes_up: usize,
    /// At most one for each lane that was dialled.
    failures: Vec<Failure>,
    /// When loss last held lanes up: as many are kept as there may be, for a while.
    wants_all_lanes: Option<Instant>,
    /// The far end took no more than so many lanes, not long ago.
    enough: Option<(usize, Instant)>,
}

/// A lane that is to be dialled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dial {
    /// How long to wait before the next one, should it fail.
    rest: Duration,
}

/// How a dialled lane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It carried flows for a while.
    Lived,
    /// It did not come up, or died young.
    Failed,
    /// The far end said that it does not take it.
    Refused,
}

/// A lane that failed and was not dialled again.
struct Failure {
    failed_at: Instant,
    rests_until: Instant,
    next: Dial,
}

impl DialPlan {
    /// A plan for links of so many lanes.
    pub(super) fn new(lanes: usize) -> DialPlan {
        DialPlan {
            lanes,
            lanes_up: 0,
            failures: Vec::new(),
            wants_all_lanes: None,
            enough: None,
        }
    }

    /// The link is over, and its lanes do not count any more. The peer may end the next one
    /// just as fast, so there is a rest between them.
    pub(crate) fn begin_link(&mut self, now: Instant) {
        *self = DialPlan::new(self.lanes);
        self.lane_ended(now, Dial::FIRST, Ending::Failed);
    }

    /// So many lanes are up. Says whether that is more than before.
    pub(crate) fn note_lanes_up(&mut self, lanes_up: usize) -> bool {
        let before = core::mem::replace(&mut self.lanes_up, lanes_up);
        if before == 0 && lanes_up > 0 {
            // They failed for want of a peer, and there is one now, which may take more than before.
            self.failures.clear();
            self.enough = None;
        }
        before < lanes_up
    }

    /// Loss holds lanes up.
    pub(crate) fn want_all_lanes(&mut self, now: Instant) {
        self.wants_all_lanes = Some(now);
    }

    /// A lane has ended.
    pub(crate) fn lane_ended(&mut self, now: Instant, dial: Dial, ending: Ending) {
        if ending == Ending::Lived {
            return;
        }
        if ending == Ending::Refused && self.lanes_up > 0 {
            self.enough = Some((self.lanes_up, now));
        }
        self.failures.push(Failure {
            failed_at: now,
            rests_until: now + shortened_at_random(dial.rest),
            next: Dial {
                rest: (dial.rest * 2).min(REST_MAX),
            },
        });
    }

    /// Somebody waits for a lane: each that failed is dialled again as soon as after its first
    /// failure.
    pub(crate) fn shorten_rests(&mut self) {
        for failure in &mut self.failures {
            failure.rests_until = failure.rests_until.min(failure.failed_at + REST_MIN);
        }
    }

    /// What to dial now that `alive` lanes are up or being dialled, and the link may have
    /// `lanes_max`.
    pub(crate) fn next_dials(&mut self, now: Instant, alive: usize, lanes_max: usize) -> Vec<Dial> {
        let is_resting = |failure: &&Failure| failure.rests_until > now;
        let resting = self.failures.iter().filter(is_resting).count();
        let wanted = self.wanted_lanes(now, lanes_max);
        let dials = wanted.saturating_sub(alive + resting);
        (0..dials).map(|_| self.next_dial(now)).collect()
    }

    /// When a lane will have rested enough, if one rests.
    pub(crate) fn next_rested(&self, now: Instant) -> Option<Instant> {
        let rests = self.failures.iter().map(|failure| failure.rests_until);
        rests.filter(|&until| until > now).min()
    }

    /// How many lanes the link is to have. The first decides about the link, and finds out whether there is a peer;
    /// the others join it.
    pub(super) fn wanted_lanes(&self, now: Instant, lanes_max: usize) -> usize {
        if self.lanes_up == 0 {
            return 1;
        }
        let wanted = match self.wants_all_lanes {
            Some(since) if now - since < LOSS_REMEMBERED => lanes_max,
            _ => lanes_max.min(self.lanes),
        };
        match self.enough {
            Some((lanes, since)) if now - since < ENOUGH => wanted.min(lanes),
            _ => wanted,
        }
    }

    /// In the place of the lane that failed most often, so that the rests become longer also
    /// while several lanes take turns.
    fn next_dial(&mut self, now: Instant) -> Dial {
        let rested = self.failures.iter().enumerate();
        let rested = rested.filter(|(_, failure)| failure.rests_until <= now);
        match rested.max_by_key(|(_, failure)| failure.next.rest) {
            Some((index, _)) => self.failures.swap_remove(index).next,
            None => Dial::FIRST,
        }
    }
}

impl Dial {
    /// Of a lane that did not fail before.
    pub(super) const FIRST: Dial = Dial { rest: REST_MIN };
}

impl Ending {
    /// Of a lane that was up, or tried to be, for so long.
    pub(super) fn after(lived: Duration) -> Ending {
        if lived > REST_MAX {
            Ending::Lived
        } else {
            Ending::Failed
        }
    }
}

/// A far end that restarts is not to meet all its near ends in step.
fn shortened_at_random(rest: Duration) -> Duration {
    let share = random_number() as f64 / u64::MAX as f64;
    rest.mul_f64(0.5 + share / 2.0)
}

/// Between attempts to have a lane: doubled each time, up to the second.
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(2);

/// How long the number of lanes is kept at which the far end took no more.
const ENOUGH: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const LANES: usize = 4;
    const LANES_MAX: usize = 16;

    /// What comes to a plan, in any order.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        LanesUp(usize),
        /// The eldest dialled lane ends.
        Ends(Ending),
        Passes(Duration),
        Loss,
    }

    fn step() -> impl Strategy<Value = Step> {
        let ending = prop_oneof![
            Just(Ending::Lived),
            Just(Ending::Failed),
            Just(Ending::Refused)
        ];
        prop_oneof![
            (0..=LANES).prop_map(Step::LanesUp),
            ending.prop_map(Step::Ends),
            (0..4000_u64).prop_map(|ms| Step::Passes(Duration::from_millis(ms))),
            Just(Step::Loss),
        ]
    }

    /// A plan, its clock, and the lanes that it had dialled.
    struct World {
        plan: DialPlan,
        now: Instant,
        alive: Vec<Dial>,
    }

    impl World {
        fn new() -> World {
            World {
                plan: DialPlan::new(LANES),
                now: Instant::now(),
                alive: Vec::new(),
            }
        }

        /// Dials what is to be dialled now, and says how many lanes that were.
        fn dial(&mut self) -> usize {
            let dials = self.plan.next_dials(self.now, self.alive.len(), LANES_MAX);
            self.alive.extend(&dials);
            dials.len()
        }

        /// The eldest dialled lane ends.
        fn end(&mut self, ending: Ending) {
            if !self.alive.is_empty() {
                let dial = self.alive.remove(0);
                self.plan.lane_ended(self.now, dial, ending);
            }
        }

        fn take(&mut self, step: Step) {
            match step {
                Step::LanesUp(lanes) => {
                    self.plan.note_lanes_up(lanes);
                }
                Step::Ends(ending) => self.end(ending),
                Step::Passes(time) => self.now += time,
                Step::Loss => self.plan.want_all_lanes(self.now),
            }
            self.dial();
        }

        /// Until the plan dials, which must be soon.
        fn wait_for_dial(&mut self) -> usize {
            let dialled = self.dial();
            if dialled > 0 {
                return dialled;
            }
            let mut rested = self.now;
            while let Some(at) = self.plan.next_rested(rested) {
                rested = at;
            }
            assert!(rested <= self.now + REST_MAX);
            self.now = rested;
            self.dial()
        }
    }

    proptest! {
        /// Whatever the end of the link before was like, no trace of it is left on the next.
        #[test]
        fn a_new_link_has_all_its_lanes_once_the_first_stands(history in vec(step(), 0..60)) {
            let mut world = World::new();
            history.into_iter().for_each(|step| world.take(step));
            world.alive.clear();
            world.plan.begin_link(world.now);
            prop_assert_eq!(world.wait_for_dial(), 1);
            world.plan.note_lanes_up(1);
            prop_assert_eq!(world.dial(), LANES - 1);
        }

        /// The same where the link outlives its lanes.
        #[test]
        fn a_link_that_stands_again_has_all_its_lanes(history in vec(step(), 0..60)) {
            let mut world = World::new();
            for step in history {
                if !matches!(step, Step::Loss) {
                    world.take(step);
                }
            }
            world.plan.note_lanes_up(0);
            while !world.alive.is_empty() {
                world.end(Ending::Failed);
            }
            prop_assert_eq!(world.wait_for_dial(), 1);
            world.plan.note_lanes_up(1);
            prop_assert_eq!(world.dial(), LANES - 1);
        }

        #[test]
        fn never_more_lanes_than_there_may_be(history in vec(step(), 0..200)) {
            let mut world = World::new();
            for step in history {
                world.take(step);
                prop_assert!(world.alive.len() <= LANES_MAX);
                prop_assert!(world.plan.failures.len() <= LANES_MAX);
            }
        }
    }

    /// Lets all lanes but the first `standing` ones fail for a minute, and counts the dials.
    fn dials_in_a_minute(standing: usize) -> usize {
        let mut world = World::new();
        world.dial();
        world.plan.note_lanes_up(standing);
        let end = world.now + Duration::from_secs(60);
        let mut dials = 0;
        while world.now < end {
            dials += world.dial();
            world.alive.rotate_left(standing);
            while world.alive.len() > standing {
                world.end(Ending::Failed);
            }
            let next = world.plan.next_rested(world.now);
            world.now = next.expect("a lane that failed rests");
        }
        dials
    }

    /// At most 6 dials until a rest has its full length, then one each second at most.
    #[test]
    fn a_lane_that_always_fails_is_dialled_less_and_less_often() {
        for (standing, failing) in [(0, 1), (1, LANES - 1), (LANES - 1, 1)] {
            let dials = dials_in_a_minute(standing);
            let expected = failing * 30..=failing * 66;
            assert!(expected.contains(&dials), "{dials} beside {standing}");
        }
    }

    #[test]
    fn somebody_who_waits_shortens_a_rest_to_the_first_and_no_more() {
        let mut world = World::new();
        for _ in 0..8 {
            world.wait_for_dial();
            world.end(Ending::Failed);
        }
        let failed_at = world.now;
        for _ in 0..100 {
            world.plan.shorten_rests();
        }
        world.now = failed_at + REST_MIN / 2;
        assert_eq!(world.dial(), 0);
        world.now = failed_at + REST_MIN;
        assert_eq!(world.dial(), 1);
        // Only this one: where nobody waits, the rests are as long as before.
        world.end(Ending::Failed);
        world.now += REST_MIN;
        assert_eq!(world.dial(), 0);
    }

    #[test]
    fn a_lane_that_fails_holds_up_no_other() {
        let mut world = World::new();
        world.dial();
        world.plan.note_lanes_up(1);
        assert_eq!(world.dial(), LANES - 1);
        world.end(Ending::Failed);
        assert_eq!(world.dial(), 0);
        world.end(Ending::Lived);
        assert_eq!(world.dial(), 1);
    }

    #[test]
    fn further_lanes_are_for_loss_and_for_a_while() {
        let mut plan = DialPlan::new(LANES);
        plan.note_lanes_up(LANES);
        let began = Instant::now();
        assert_eq!(plan.wanted_lanes(began, LANES_MAX), LANES);
        plan.want_all_lanes(began);
        let end = began + LOSS_REMEMBERED;
        assert_eq!(plan.wanted_lanes(end - REST_MIN, LANES_MAX), LANES_MAX);
        assert_eq!(plan.wanted_lanes(end, LANES_MAX), LANES);
    }

    #[test]
    fn what_the_far_end_refuses_is_left_alone_for_a_while() {
        let mut world = World::new();
        world.dial();
        world.plan.note_lanes_up(1);
        world.dial();
        world.plan.note_lanes_up(2);
        world.alive.rotate_left(2);
        world.end(Ending::Refused);
        world.end(Ending::Refused);
        world.now += ENOUGH / 2;
        assert_eq!(world.dial(), 0);
        world.end(Ending::Lived);
        assert_eq!(world.dial(), 1, "it took so many");
        world.now += ENOUGH / 2;
        assert_eq!(world.dial(), LANES - 2);
    }
}
