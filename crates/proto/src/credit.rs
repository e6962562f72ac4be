//! Credit: how many plain bytes the other end may still send on a flow.
//!
//! A receiver grants what it can hold, so a slow reader stops its own flow and neither
//! its lane nor the log (`docs/architecture.md`, 5). A window starts small and doubles while
//! the reader empties it within two round trips, as receive buffers do in TCP, as far as
//! the link's pool lasts.

use core::time::Duration;

use crate::{
    fault::Violation,
    limits::{CREDIT_BYTES_INITIAL, CREDIT_BYTES_MAX},
    moment::Moment,
    planted::Bug,
};

/// What a new flow gets at most: enough for 100 Mbit/s and 80 ms, or for a loopback.
const SHARE_BYTES_MAX: u64 = 1 << 20;

/// What the flows of a link may hold together, beyond their initial credit.
#[derive(Debug)]
pub(crate) struct CreditPool {
    free_bytes: u64,
    /// What flows that grow leave for those that begin.
    kept_bytes: u64,
}

/// The receiver's side of one flow's credit.
#[derive(Debug)]
pub(crate) struct ReceiveCredit {
    /// Most that the flow may have sent and its reader not yet taken.
    window_bytes: u64,
    /// Granted, and not yet received.
    granted_bytes: u64,
    /// Received, and not yet taken by the reader.
    held_bytes: u64,
    /// When the present window was last filled anew.
    window_began: Moment,
    taken_in_window_bytes: u64,
}

impl CreditPool {
    pub(crate) fn new(free_bytes: u64) -> Self {
        Self {
            free_bytes,
            kept_bytes: free_bytes / 4,
        }
    }

    fn take(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.free_bytes);
        self.free_bytes -= taken;
        taken
    }

    fn give_back(&mut self, bytes: u64) {
        self.free_bytes += bytes;
    }

    /// What a new flow gets beyond the initial credit: a share that leaves some for others.
    fn share(&mut self) -> u64 {
        let share = (self.free_bytes / 32).min(SHARE_BYTES_MAX);
        self.take(share)
    }

    /// What a flow gets that wants to grow.
    fn growth(&mut self, wanted: u64) -> u64 {
        self.take(wanted.min(self.free_bytes.saturating_sub(self.kept_bytes)))
    }
}

impl ReceiveCredit {
    /// The window of a new flow, whose first [`CREDIT_BYTES_INITIAL`] bytes are granted.
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            window_bytes: CREDIT_BYTES_INITIAL,
            granted_bytes: CREDIT_BYTES_INITIAL,
            held_bytes: 0,
            window_began: now,
            taken_in_window_bytes: 0,
        }
    }

    /// Widens a new flow's window by its share of the pool; says what to grant for it.
    pub(crate) fn widen(&mut self, pool: &mut CreditPool) -> u64 {
        let more = pool.share();
        self.window_bytes += more;
        self.granted_bytes += more;
        more
    }

    pub(crate) fn received(&mut self, bytes: usize) -> Result<(), Violation> {
        let bytes = bytes as u64;
        self.granted_bytes = self
            .granted_bytes
            .checked_sub(bytes)
            .ok_or(Violation::BlockBeyondCredit)?;
        self.held_bytes += bytes;
        Ok(())
    }

    /// The reader took `bytes`; says what to grant now, if it is worth a frame.
    pub(crate) fn taken(
        &mut self,
        bytes: usize,
        now: Moment,
        round_trip: Duration,
        pool: &mut CreditPool,
    ) -> Option<u64> {
        let leak = if Bug::CreditLeak.is_planted() {
            bytes as u64 / 8
        } else {
            0
        };
        self.held_bytes = self.held_bytes.saturating_sub(bytes as u64 - leak);
        self.taken_in_window_bytes += bytes as u64;
        if self.taken_in_window_bytes >= self.window_bytes {
            let quick =
                now.since(self.window_began) <= 2 * round_trip.max(Duration::from_millis(1));
            if quick {
                let wanted = self.window_bytes.min(CREDIT_BYTES_MAX - self.window_bytes);
                self.window_bytes += pool.growth(wanted);
            }
            self.taken_in_window_bytes = 0;
            self.window_began = now;
        }
        let grant = self
            .window_bytes
            .saturating_sub(self.granted_bytes + self.held_bytes);
        if grant < self.window_bytes / 4 {
            return None;
        }
        self.granted_bytes += grant;
        Some(grant)
    }

    /// The flow is over: what it had from the pool serves others.
    pub(crate) fn release(&mut self, pool: &mut CreditPool) {
        pool.give_back(self.window_bytes.saturating_sub(CREDIT_BYTES_INITIAL));
        self.window_bytes = CREDIT_BYTES_INITIAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CREDIT_POOL_BYTES;

    #[test]
    fn more_than_was_granted_is_refused() {
        let mut credit = ReceiveCredit::new(Moment::default());
        assert_eq!(credit.received(CREDIT_BYTES_INITIAL as usize), Ok(()));
        assert_eq!(credit.received(1), Err(Violation::BlockBeyondCredit));
    }

    #[test]
    fn a_quick_reader_gets_more_and_a_slow_one_does_not() {
        let round_trip = Duration::from_millis(100);
        for (pause, grows) in [
            (Duration::from_millis(10), true),
            (Duration::from_secs(9), false),
        ] {
            let mut pool = CreditPool::new(CREDIT_POOL_BYTES);
            let mut now = Moment::default();
            let mut credit = ReceiveCredit::new(now);
            let mut can_send = CREDIT_BYTES_INITIAL;
            for _ in 0..20 {
                credit.received(can_send as usize).expect("granted");
                now = now + pause;
                can_send = credit
                    .taken(can_send as usize, now, round_trip, &mut pool)
                    .expect("all was taken");
            }
            assert_eq!(can_send > CREDIT_BYTES_INITIAL, grows);
            assert!(can_send <= CREDIT_BYTES_MAX);
        }
    }

    #[test]
    fn the_pool_bounds_all_flows_and_is_given_back() {
        let mut pool = CreditPool::new(CREDIT_POOL_BYTES);
        let mut flows: Vec<_> = (0..10_000)
            .map(|_| ReceiveCredit::new(Moment::default()))
            .collect();
        let shares: u64 = flows.iter_mut().map(|flow| flow.widen(&mut pool)).sum();
        assert!(shares <= CREDIT_POOL_BYTES);
        for flow in &mut flows {
            flow.release(&mut pool);
        }
        assert_eq!(pool.free_bytes, CREDIT_POOL_BYTES);
    }
}
