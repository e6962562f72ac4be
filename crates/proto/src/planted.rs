//! Bugs on purpose, which the simulator and tests must find: `crates/sim/planted` and
//! `tests/planted`. One at a time can be planted, and only in a build with the feature
//! `planted`; in any other there are none, and asking costs nothing.

#[cfg(feature = "planted")]
use std::sync::{
    LazyLock,
    atomic::{AtomicU8, Ordering},
};

use refrain_codec::names;

/// No bug.
#[cfg(feature = "planted")]
const NONE: u8 = u8::MAX;

/// The environment names the bug, for programs and tests that have no option for it.
#[cfg(feature = "planted")]
static PLANTED: LazyLock<AtomicU8> = LazyLock::new(|| {
    let name = std::env::var("REFRAIN_PLANT")
        .ok()
        .filter(|name| !name.is_empty());
    let bug = name.map(|name| name.parse::<Bug>().expect("REFRAIN_PLANT names a bug"));
    AtomicU8::new(bug.map_or(NONE, |bug| bug as u8))
});

names! {
    /// A bug that can be planted.
    pub enum Bug {
        /// Blocks refer to bytes that another lane carries and that may not have come.
        ReferAcrossLanes = "refer-across-lanes",
        /// What was on a dead lane counts as applied.
        NoSettlement = "no-settlement",
        /// Holes are made before the receiver has said that it reads no more: late blocks overwrite
        /// newer bytes.
        EarlyHoles = "early-holes",
        /// Blocks overwrite what blocks on their way refer to.
        SpanOverwrites = "span-overwrites",
        /// A flow's credit leaks, until it stands still.
        CreditLeak = "credit-leak",
        /// Offers are let go while a confirmation of them may still come, on another lane.
        EarlyRelease = "early-release",
        /// A block that refers to what was never written is delivered.
        UncheckedReferences = "unchecked-references",
        /// A confirmation holds whatever its digest is.
        SignatureIsProof = "signature-is-proof",
        /// An offer is confirmed whose signature does not fit.
        HintIsProof = "hint-is-proof",
        /// Secret bytes are matched and compressed as others.
        SecretsAreOrdinary = "secrets-are-ordinary",
        /// A second stage unpacks to whatever its peer wants.
        UnboundedStage = "unbounded-stage",
        /// A flow is cached although its opener excludes it.
        OpenFlagIgnored = "open-flag-ignored",
        /// A flow is cached although the other end excludes it with its answer.
        AcceptFlagIgnored = "accept-flag-ignored",
        /// Flows of a dead lane are not reset.
        LostLaneKeepsFlows = "lost-lane-keeps-flows",
        /// A flow may be opened again.
        ReplayAccepted = "replay-accepted",
        /// A flow has no floor: others may take all that it could send.
        NoFloor = "no-floor",
        /// A flow may take all that others leave of the window.
        WholeWindowForOne = "whole-window-for-one",
        /// Flows that are not proven may have all of the window.
        UnprovenShareAll = "unproven-share-all",
        /// A flow that was proven once stays so.
        ProvenForEver = "proven-for-ever",
        /// One CREDIT proves a flow, though its reader may have taken nothing.
        OneCreditProves = "one-credit-proves",
        /// What was sent on a flow counts no longer once the flow is over here.
        WindowFreedEarly = "window-freed-early",
        /// A receiver takes more than its window.
        WindowWithoutBound = "window-without-bound",
        /// A log's span is long although the other end's is not.
        LongSpanUnasked = "long-span-unasked",
        /// A window is shared with a peer that shares none.
        WindowUnasked = "window-unasked",
        /// SPARE is sent to a peer of wire version 1.
        SpareForVersion1 = "spare-for-version-1",
        /// The far end closes a spare lane, so that its last frames may be lost.
        FarEndClosesSpare = "far-end-closes-spare",
        /// A spare lane is closed although flows depend on it.
        SpareLaneInUse = "spare-lane-in-use",
        /// Flows depend on a spare lane although all that it brings has come.
        SpareLaneKeepsFlows = "spare-lane-keeps-flows",
        /// Hunger counts in full although the matcher takes the time.
        MatcherIsHunger = "matcher-is-hunger",
        /// Hunger counts in full although the link needs the time.
        LinkTimeIsHunger = "link-time-is-hunger",
        /// All rest counts while a lane's rate still grows.
        RestWhileStarting = "rest-while-starting",
        /// A rung that was shed keeps the cost of its first blocks for ever.
        FirstCostStays = "first-cost-stays",
        /// Time that lanes spend side by side counts once for each of them.
        EachLaneHasAClock = "each-lane-has-a-clock",
        /// In the gateway: a reset looks to applications like an end.
        EndForReset = "end-for-reset",
        /// In the gateway: a byte does not reach the application.
        LostByte = "lost-byte",
        /// In the gateway: a peer gets the link that another one has.
        LinksOfAllPeers = "links-of-all-peers",
        /// In the gateway: all realms are one.
        OneRealm = "one-realm",
        /// In the gateway: what a link has reserved may be reserved again.
        MemoryPromisedTwice = "memory-promised-twice",
        /// In the gateway: a link takes all the memory, whatever other peers there are.
        WholeMemoryForOne = "whole-memory-for-one",
        /// In the gateway: a hello may be as long as it says.
        EndlessHello = "endless-hello",
        /// In the gateway: no rule excludes anything.
        ExcludeRulesIgnored = "exclude-rules-ignored",
        /// In the gateway: an application does not hear of its flow's reset.
        DeafFlows = "deaf-flows",
        /// In the gateway: no field of a message is secret.
        NoSecretFields = "no-secret-fields",
        /// In the gateway: sessions of TLS may be resumed.
        Tickets = "tickets",
        /// In the gateway: a link's instance, and so its part of the keys of hashes, is known before.
        KnownInstance = "known-instance",
    }
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

    /// Plants it for all of the process.
    #[cfg(feature = "planted")]
    pub fn plant(self) {
        PLANTED.store(self as u8, Ordering::Relaxed);
    }
}
