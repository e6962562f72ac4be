//! Captures of packets, and the streams of TCP in them.
//!
//! ```text
//! packets     the packets of a pcap or pcapng file, which may be compressed
//! layers      a packet's segment of TCP, through the layers below it; fragments of IP
//! streams     segments → the bytes of both directions of each connection, in order
//! ```
//!
//! Captures are hostile input: each length is checked, and what is held is bounded. Bytes that a capture lacks are counted
//! and reported, never invented.

mod layers;
mod packets;
mod streams;

pub use layers::{Fragments, Layer, Segment};
pub use packets::{CaptureError, Ended, Packet, decompressed, read_packets};
pub use streams::{Direction, Flow, FlowNumber, Limits, Sink, StreamCounts, Streams};

/// Nanoseconds since 1970, as the capture says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);
