//! Sans-I/O engines of the refrain protocol.
//!
//! Two [`Link`]s, one at each end, exchange flows over lanes. An engine never reads a
//! clock, opens a socket or draws a number: time, bytes and instances are arguments, and
//! the answer is bytes to send, events, and the next deadline. The gateway, the simulator
//! and the fuzzers drive the same engines.
//!
//! In the order in which a byte travels:
//!
//! ```text
//! targets, traffic    where a flow goes, and how its bytes are treated
//! flow                one flow: what waits to be sent, what has arrived
//! credit              how much may be sent on a flow
//! mode, effort        which end finds repeats, and how hard it tries
//! matching            the mirrored cache: sender and receiver, books, second stage
//! predictions         the receiver's history: sender and receiver, offers, learning
//! terms               hints, signatures and digests of predictions, which both ends compute
//! link                the lanes and flows of one link, at one end
//! hello, frame, codes what lanes carry, and every number in it that stands for something
//! in_order            a flow's bytes from several lanes
//! fault               what can end a lane or a link
//! counters            what was counted, with the names that users read
//! limits              every bound, in one place
//! planted             bugs on purpose, for the simulator to find
//! ```
//!
//! Both ends in one program, with a vector for a lane:
//!
//! ```
//! use refrain_codec::geometry::CacheGeometry;
//! use refrain_proto::{Event, Link, LinkConfig, Moment, Role, hello::Hello};
//!
//! let config = LinkConfig::with_cache(CacheGeometry::new(4 << 20).expect("1 MiB to 4 GiB"));
//! let mut near = Link::new(Role::Near, 1, config.clone());
//! let mut far = Link::new(Role::Far, 2, config);
//! let now = Moment::default();
//!
//! // The near end dials a lane, which begins with a hello.
//! let lane = near.dial_lane(now).expect("it has none yet");
//! let mut sent = Vec::new();
//! near.poll_transmit(now, lane, &mut sent);
//! let (hello, read) = Hello::read(&sent).expect("a hello").expect("all of it");
//! assert_eq!(far.accept_lane(now, &hello), Ok(lane));
//! far.receive(now, lane, &sent[read..]).expect("no fault");
//!
//! let carry = |near: &mut Link, far: &mut Link| loop {
//!     let (mut up, mut down) = (Vec::new(), Vec::new());
//!     near.poll_transmit(now, lane, &mut up);
//!     far.receive(now, lane, &up).expect("no fault");
//!     far.poll_transmit(now, lane, &mut down);
//!     near.receive(now, lane, &down).expect("no fault");
//!     if up.is_empty() && down.is_empty() {
//!         break;
//!     }
//! };
//! carry(&mut near, &mut far);
//!
//! let flow = near.open_flow(now, "example.org:80", false).expect("the link is up");
//! assert_eq!(near.write(flow, b"GET / HTTP/1.0\r\n\r\n"), 18);
//! carry(&mut near, &mut far);
//! let mut events = std::iter::from_fn(|| far.poll_event());
//! assert!(events.any(|event| matches!(event, Event::FlowOffered { .. })));
//! far.accept_flow(flow, false);
//! let mut arrived = Vec::new();
//! far.take_ready(flow, &mut arrived);
//! assert_eq!(arrived, b"GET / HTTP/1.0\r\n\r\n");
//! ```
#![forbid(unsafe_code)]

mod format;
pub mod targets;
mod traffic;

mod credit;
mod flow;
pub mod limited;

pub mod effort;
mod mode;

mod matching;
pub mod predictions;
pub mod terms;

pub mod link;

pub mod codes;
pub mod frame;
pub mod hello;

mod in_order;

pub mod counters;
mod fault;
pub mod limits;
mod moment;
mod pending;
pub mod planted;

pub use fault::{CacheViolation, Fault, LaneFault, LinkFault, Violation};
pub use format::{Compressed, Format};
pub use frame::{FlowId, LaneId};
pub use link::{Event, Link, LinkConfig, ResetReason, Role};
pub use mode::{Mode, SecondStage};
pub use moment::Moment;
pub use traffic::{Exclusion, TrafficClass};
