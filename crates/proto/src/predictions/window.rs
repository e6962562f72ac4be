//! The virtual window: plain bytes that a receiver may have offered and not yet had answered
//! (PACK, section 4.1).
//!
//! It begins small, doubles as offers prove right, and in aligned mode is reset by a failure,
//! as Proc. 4 and 5 say. In window mode offers are not tied to an offset, so that a failure does
//! not make the others useless: what was offered in vain is taken off again.

use super::history::Predict;
use crate::limits::{OFFERED_BYTES_FLOW_MAX, PREDICTED_BYTES_START};

/// Bytes that are offered and wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VirtualWindow {
    predict: Predict,
    /// start <= allowed <= [`OFFERED_BYTES_FLOW_MAX`]
    allowed_bytes: u64,
    outstanding_bytes: u64,
}

impl VirtualWindow {
    pub(crate) fn new(predict: Predict) -> Self {
        Self {
            predict,
            allowed_bytes: PREDICTED_BYTES_START,
            outstanding_bytes: 0,
        }
    }

    /// Bytes that may be offered now.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.allowed_bytes.saturating_sub(self.outstanding_bytes)
    }

    pub(crate) fn allowed_bytes(&self) -> u64 {
        self.allowed_bytes
    }

    pub(crate) fn outstanding_bytes(&self) -> u64 {
        self.outstanding_bytes
    }

    /// A flow's opening may be offered whole.
    pub(crate) fn widen_to(&mut self, bytes: u64) {
        self.allowed_bytes = self.allowed_bytes.max(bytes.min(OFFERED_BYTES_FLOW_MAX));
    }

    pub(crate) fn offered(&mut self, bytes: u64) {
        self.outstanding_bytes += bytes;
    }

    /// An offer of `bytes` proved right. One window's worth of such doubles it.
    pub(crate) fn succeeded(&mut self, bytes: u64) {
        self.allowed_bytes = (self.allowed_bytes + bytes).min(OFFERED_BYTES_FLOW_MAX);
    }

    /// An offer of `bytes` is over, whatever became of it.
    pub(crate) fn released(&mut self, bytes: u64) {
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(bytes);
    }

    /// Offers of `bytes` proved wrong.
    pub(crate) fn failed(&mut self, bytes: u64) {
        let start = PREDICTED_BYTES_START;
        self.allowed_bytes = match self.predict {
            Predict::Aligned => start,
            Predict::Window => self.allowed_bytes.saturating_sub(bytes).max(start),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_successes_doubles_it_and_a_failure_resets_it() {
        let mut window = VirtualWindow::new(Predict::Aligned);
        for doublings in 1..=4 {
            let room = window.room_bytes();
            window.offered(room);
            assert_eq!(window.room_bytes(), 0);
            window.succeeded(room);
            window.released(room);
            assert_eq!(window.room_bytes(), PREDICTED_BYTES_START << doublings);
        }
        window.failed(1);
        assert_eq!(window.room_bytes(), PREDICTED_BYTES_START);
    }

    #[test]
    fn it_is_bounded_whatever_succeeds() {
        let mut window = VirtualWindow::new(Predict::Window);
        window.succeeded(u64::MAX / 2);
        window.widen_to(u64::MAX);
        assert_eq!(window.room_bytes(), OFFERED_BYTES_FLOW_MAX);
        window.failed(u64::MAX);
        assert_eq!(window.room_bytes(), PREDICTED_BYTES_START);
    }
}
