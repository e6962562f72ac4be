//! Estimates of what each way to remove repeats would have saved of captured traffic: EndRE's evaluation (NSDI 2010,
//! sections 3, 8 and 9) and PACK's (SIGCOMM 2011, section 5), with the engine of this program beside them.
//!
//! ```text
//! capture ─▶ streams ─▶ blocks (bytes of 10 ms) ─▶ a thread per column ─▶ sent bytes by group
//! ```
//!
//! A **column** is one way to remove repeats. It is given each block once, in the order of the capture, and counts the bytes
//! that a link would have carried for it. A **group** is a client, a server, a port and a protocol.

pub mod blocks;
pub mod columns;
pub mod details;
pub mod protocol;
pub mod requests;
pub mod run;
pub mod train;
