//! What happens next: steps in the order of their moments, and of their booking where the
//! moments are equal, so that a run depends on its seed alone.

use std::{collections::BTreeMap, time::Duration};

use refrain_proto::Moment;

/// Steps to come.
#[derive(Debug)]
pub(crate) struct Schedule<Step> {
    now: Moment,
    steps: BTreeMap<(Moment, u64), Step>,
    booked: u64,
    /// Steps taken at the present moment: many of them mean that time stands still.
    steps_at_once: u32,
}

impl<Step> Schedule<Step> {
    pub(crate) fn new() -> Self {
        Self {
            now: Moment::default(),
            steps: BTreeMap::new(),
            booked: 0,
            steps_at_once: 0,
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    pub(crate) fn steps_at_once(&self) -> u32 {
        self.steps_at_once
    }

    /// Books `step` for `at`, or for now if that is past.
    pub(crate) fn at(&mut self, at: Moment, step: Step) {
        self.booked += 1;
        self.steps.insert((at.max(self.now), self.booked), step);
    }

    pub(crate) fn after(&mut self, delay: Duration, step: Step) {
        self.at(self.now + delay, step);
    }

    /// Goes on to the next step.
    pub(crate) fn next(&mut self) -> Option<Step> {
        let ((at, _), step) = self.steps.pop_first()?;
        self.steps_at_once = if at == self.now {
            self.steps_at_once + 1
        } else {
            0
        };
        self.now = at;
        Some(step)
    }
}
