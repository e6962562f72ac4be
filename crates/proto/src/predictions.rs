//! Receiver-driven elimination: the receiver knows what comes next, the sender checks it
//! (PACK, sections 3 and 4).
//!
//! The receiver of a flow cuts what arrives into chunks, keeps them in a history that lasts,
//! and looks up what followed them the last time. It *offers* what it expects; the sender,
//! which remembers nothing between flows, holds its next bytes against the offers and
//! *confirms* those that are right instead of sending them.
//!
//! | file | what |
//! |---|---|
//! | `sender` | what a flow's sender was offered, and what of its bytes it need not send |
//! | `receiver` | what a flow's receiver expects: offers, confirmations, withdrawals |
//! | `offers` | the offers that a receiver still holds |
//! | `learner` | a flow's bytes as chunks, for the history |
//! | `window` | how much may be offered |
//! | `dispersion` | how often chains break |
//! | `opening` | what a flow looks like before its first byte |
//! | `response_head` | where the head of an HTTP/1 response ends, which is new each time |
//! | `history` | what is asked of the store |
//! | `link_history` | what the flows of a link share for that |
//!
//! `sender` and `receiver` mirror each other: who changes one reads the other.
//!
//! Two modes, one engine. *Aligned* is the paper's: offers are ranges of several chunks at
//! stream offsets, read along one chain; the virtual window doubles with each success and is
//! reset by a failure. *Window* offers expected chunks without a place: the sender looks for
//! them at its own anchors, so that an insertion, a deletion or a replaced file costs its own
//! bytes and no round trip. Decision 16 has what each is worth.

pub(crate) mod dispersion;
pub mod history;
pub(crate) mod learner;
pub(crate) mod link_history;
pub(crate) mod offers;
pub(crate) mod opening;
pub(crate) mod receiver;
pub(crate) mod response_head;
pub(crate) mod sender;
pub(crate) mod window;
