//! What can end a lane or a link, one variant for each cause.

use refrain_codec::DecodeError;

use crate::{frame::FrameError, hello::HelloError};

/// What [`Link::receive`](crate::Link::receive) may end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// This lane is dead; its transport is to be closed. Other lanes go on.
    #[error("{0}")]
    Lane(#[from] LaneFault),
    /// The link is over: flush its lanes, close them, and begin a new one.
    #[error("{0}")]
    Link(#[from] LinkFault),
}

/// Why a lane died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneFault {
    /// Its transport closed or failed.
    #[error("the connection closed")]
    TransportClosed,
    /// It was one more than the link needs.
    #[error("the lane is not needed any more")]
    Spare,
    /// Nothing came for too long.
    #[error("no answer from the peer")]
    Silent,
    /// The other end says that it is dead.
    #[error("the peer closed the lane")]
    ClosedByPeer,
    /// It reached another gateway than the link's other lanes.
    #[error("the lane reached another gateway than the link's other lanes")]
    OtherGateway,
    /// Its hello could not be read.
    #[error("{0}")]
    Hello(#[from] HelloError),
    /// Its frames could not be read.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// A frame that the protocol does not allow there.
    #[error("the peer broke the protocol: {0}")]
    Protocol(#[from] Violation),
}

/// Why a link is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    /// The mirrored caches contradict each other.
    #[error("the caches of the two ends disagree: {0}")]
    Cache(#[from] CacheViolation),
    /// The other end has lost its state, by a restart most likely.
    #[error("the peer has restarted")]
    PeerRestarted,
    /// The other end found a fault, or no longer accepts this one.
    #[error("the peer ended the link")]
    AbortedByPeer,
    /// This end no longer accepts the peer.
    #[error("the peer's key was removed at this end")]
    Revoked,
}

/// How a block contradicted the mirrored cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheViolation {
    /// The decoder refused it.
    #[error("{0}")]
    Decode(#[from] DecodeError),
    /// It was to be written where the log holds bytes that are still needed.
    #[error("a block at position {at} would overwrite bytes that are still in use")]
    Overlap {
        /// The block's position.
        at: u64,
    },
    /// A count of applied blocks that cannot be.
    #[error("the peer acknowledged blocks that were never sent")]
    ImpossibleCount,
}

/// How a peer broke the protocol. The names are what users read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{self:?}")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are enough")]
pub enum Violation {
    AcknowledgedUnsentBlock,
    AnswersNotRead,
    BlockAfterEnd,
    BlockAtWrongOffset,
    BlockBeyondCredit,
    BlockForMissingLog,
    BlockOnClosedLane,
    BypassedBlockWithReferences,
    ConfirmationBeyondCredit,
    ConfirmationWithoutOffer,
    DamagedSecondStage,
    EmptyConfirmation,
    EndAtWrongOffset,
    FlowNeverOpened,
    FlowNumberOfOtherEnd,
    FlowOpenedTwice,
    HelloForAnotherLane,
    InvalidOffers,
    LaneClosedItself,
    OffersNotAgreedOn,
    PredictionOnAnotherLane,
    SpareUnasked,
    StreamLongerThanBlock,
    TooManyEarlyBlocks,
    TooManyFlows,
    TooManyOffers,
    TooMuchCredit,
    UnexpectedAccept,
    UnexpectedRefusal,
}

impl From<CacheViolation> for Fault {
    fn from(violation: CacheViolation) -> Self {
        Self::Link(violation.into())
    }
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Self::Lane(violation.into())
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        CacheViolation::from(error).into()
    }
}
