//! Interception by the firewall: programs of a machine without proxy settings, in network namespaces of the test. Needs
//! root.
//!
//! ```text
//! namespace of the site: client, near end   10.77.0.1 ── 10.77.0.2   namespace of the service: far end, origin
//! ```
//!
//! The origin answers with the address that it sees: the client's if the connection came direct, else the far end's.
//!
//! Each crowd of clients has an address of its own. For some time after a redirected connection has ended, the kernel
//! redirects a further one with the same addresses and ports, whatever the rules are then.

mod addresses;
#[path = "../common/mod.rs"]
mod common;
mod container_host;
mod dns_names;
mod doctor;
mod failing;
mod lacks;
mod names;
mod path_mtu;
mod refusals;
mod rules;

use common::world;
