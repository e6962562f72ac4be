//! How a run can fail.

use refrain_proto::{Fault, FlowId, LaneFault, Moment};

use crate::End;

/// A promise that a run broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// An application got bytes that were not sent (P1).
    #[error("flow {flow:?} delivered wrong bytes from the {from} end, at byte {at}")]
    WrongBytes {
        /// The flow.
        flow: FlowId,
        /// The end that sent.
        from: End,
        /// Bytes that were delivered before.
        at: usize,
    },
    /// An application saw a flow end without an error, before its last byte (P1).
    #[error(
        "flow {flow:?} ended without an error after {delivered} bytes from the {from} end, which \
         wrote {written}"
    )]
    CutShort {
        /// The flow.
        flow: FlowId,
        /// The end that sent.
        from: End,
        /// Bytes that were delivered.
        delivered: usize,
        /// Bytes that were written so far.
        written: usize,
    },
    /// A flow reached the other end's gateway twice.
    #[error("flow {0:?} was offered twice")]
    OfferedTwice(FlowId),
    /// A flow ended although neither an application nor a lane gave reason to.
    #[error("flow {0:?} was reset for no reason")]
    ResetForNoReason(FlowId),
    /// A lane ended although no transport broke.
    #[error("at the {end} end, a lane ended for no reason: {fault}")]
    LaneForNoReason {
        /// The end that gave the lane up.
        end: End,
        /// Its reason.
        fault: LaneFault,
    },
    /// What came was damaged by nobody, and refused all the same.
    #[error("at the {end} end, undamaged bytes were refused: {fault}")]
    FaultForNoReason {
        /// The end that refused.
        end: End,
        /// Its reason.
        fault: Fault,
    },
    /// More of the log was outstanding than the guard window allows.
    #[error("at the {end} end, {outstanding} bytes of the log are outstanding")]
    WindowExceeded {
        /// The end that sends.
        end: End,
        /// Bytes.
        outstanding: u64,
    },
    /// A counter fell.
    #[error("at the {end} end, the counter {counter} fell from {from} to {to}")]
    CounterFell {
        /// The end that counts.
        end: End,
        /// The counter.
        counter: String,
        /// What it was.
        from: u64,
        /// What it is now.
        to: u64,
    },
    /// Faults had stopped, and still something waited for ever.
    #[error("the run is stuck: {0}")]
    Stuck(String),
    /// The engine asked to be called again and again, and time stood still.
    #[error("time stands still: {0}")]
    Livelock(String),
    /// An engine panicked.
    #[error("panicked: {0}")]
    Panicked(String),
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed} failed after {:.3} s: {failure} (replay: refrain-sim --seed {seed} --trace)", at.0.as_secs_f64())]
pub struct FailedRun {
    /// The run's seed.
    pub seed: u64,
    /// When, in the run's own time.
    pub at: Moment,
    /// What.
    pub failure: Failure,
}
