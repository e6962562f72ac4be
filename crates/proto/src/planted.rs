//! Bugs on purpose, which the simulator and the tests of promises must find: `crates/sim/planted`
//! and `tests/planted`. One at a time can be planted, and only in a build with the feature
//! `planted`; in any other there are none, and asking costs nothing.

#[cfg(feature = "planted")]
use std::sync::{
    LazyLock,
    atomic::{AtomicU8, Ordering},
};

/// The environment names the bug, for programs and tests that have no option for it.
#[cfg(feature = "planted")]
static PLANTED: LazyLock<AtomicU8> = LazyLock::new(|| {
    let name = std::env::var("REFRAIN_PLANT")
        .ok()
        .filter(|name| !name.is_empty());
    let bug = name.map(|name| Bug::named(&name).expect("REFRAIN_PLANT names a bug"));
    AtomicU8::new(bug.map_or(0, |bug| bug as u8))
});

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// Blocks refer to bytes that another lane carries and that may not have come.
    ReferAcrossLanes = 1,
    /// What was on a dead lane counts as applied.
    NoSettlement,
    /// Holes are made before the receiver has said that it reads no more: late blocks overwrite
    /// newer bytes.
    EarlyHoles,
    /// A flow's credit leaks, until it stands still.
    CreditLeak,
    /// Offers are let go while a confirmation of them may still come, on another lane.
    EarlyRelease,
    /// A block that refers to what was never written is delivered.
    UncheckedReferences,
    /// A confirmation holds whatever its digest is.
    SignatureIsProof,
    /// An offer is confirmed whose signature does not fit.
    HintIsProof,
    /// A second stage unpacks to whatever its peer wants.
    UnboundedStage,
    /// A flow is cached although its opener excludes it.
    OpenFlagIgnored,
    /// A flow is cached although the other end excludes it with its answer.
    AcceptFlagIgnored,
    /// Flows of a dead lane are not reset.
    LostLaneKeepsFlows,
    /// A flow may be opened again.
    ReplayAccepted,
    /// In the gateway: a reset looks to applications like an end.
    EndForReset,
    /// In the gateway: a byte does not reach the application.
    LostByte,
    /// In the gateway: a peer gets the link that another one has.
    LinksOfAllPeers,
    /// In the gateway: all realms are one.
    OneRealm,
    /// In the gateway: what a link has reserved may be reserved again.
    MemoryPromisedTwice,
    /// In the gateway: a link takes all the memory, whatever other peers there are.
    WholeMemoryForOne,
    /// In the gateway: a hello may be as long as it says.
    EndlessHello,
    /// In the gateway: no rule excludes anything.
    ExcludeRulesIgnored,
    /// In the gateway: an application does not hear of its flow's reset.
    DeafFlows,
    /// In the gateway: sessions of TLS may be resumed.
    Tickets,
    /// In the gateway: a link's instance, and so its part of the keys of hashes, is known before.
    KnownInstance,
}

impl Bug {
    /// Whether it is planted in this process.
    #[must_use]
    pub fn is_planted(self) -> bool {
        #[cfg(feature = "planted")]
        return PLANTED.load(Ordering::Relaxed) == self as u8;
        #[cfg(not(feature = "planted"))]
        return false;
    }

    /// The bug of this name.
    #[cfg(feature = "planted")]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "refer-across-lanes" => Some(Self::ReferAcrossLanes),
            "no-settlement" => Some(Self::NoSettlement),
            "early-holes" => Some(Self::EarlyHoles),
            "credit-leak" => Some(Self::CreditLeak),
            "early-release" => Some(Self::EarlyRelease),
            "unchecked-references" => Some(Self::UncheckedReferences),
            "signature-is-proof" => Some(Self::SignatureIsProof),
            "hint-is-proof" => Some(Self::HintIsProof),
            "unbounded-stage" => Some(Self::UnboundedStage),
            "open-flag-ignored" => Some(Self::OpenFlagIgnored),
            "accept-flag-ignored" => Some(Self::AcceptFlagIgnored),
            "lost-lane-keeps-flows" => Some(Self::LostLaneKeepsFlows),
            "replay-accepted" => Some(Self::ReplayAccepted),
            "end-for-reset" => Some(Self::EndForReset),
            "lost-byte" => Some(Self::LostByte),
            "links-of-all-peers" => Some(Self::LinksOfAllPeers),
            "one-realm" => Some(Self::OneRealm),
            "memory-promised-twice" => Some(Self::MemoryPromisedTwice),
            "whole-memory-for-one" => Some(Self::WholeMemoryForOne),
            "endless-hello" => Some(Self::EndlessHello),
            "exclude-rules-ignored" => Some(Self::ExcludeRulesIgnored),
            "deaf-flows" => Some(Self::DeafFlows),
            "tickets" => Some(Self::Tickets),
            "known-instance" => Some(Self::KnownInstance),
            _ => None,
        }
    }

    /// Plants it for all of the process.
    #[cfg(feature = "planted")]
    pub fn plant(self) {
        PLANTED.store(self as u8, Ordering::Relaxed);
    }
}
