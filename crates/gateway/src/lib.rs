//! The world around the engines: listeners, lanes over TLS, policies, status.
//!
//! A byte of an application travels from `listeners` down to `lane`, and at the other end up again to `offered`:
//!
//! ```text
//! options, arguments, settings, config   what users ask for: defined once, merged, valid
//! start, gateway      the listeners and the peers of one end, and what dials or takes their lanes
//! acceptor            sockets that listen, with bounds on who has sent nothing yet
//! listeners, way_in   connections of applications: a file each for forwards, SOCKS, HTTP and redirected ones
//! intercept           rules for the firewall, its table, and the gate that opens it
//! virtual_names       addresses for names, so that redirected connections keep their names
//! dns                 messages of DNS
//! held_flows, refused_targets   redirected connections that wait for their targets, and those that go direct
//! access, policy, rules   who may use a listener, and which targets and peers a flow may have
//! flow, crumbs        an application's connection, read as fast as the link takes it
//! link                the engine of one peer, shared by flows and lanes
//! lane, pace, wire, greeting, tls   one connection to the peer, over any stream of bytes
//! via_proxy           that connection through an HTTP proxy
//! client_hello, own_certificate, expiry   TLS with clients of services
//! opening             TLS of clients that is opened, by the site's own CA
//! offered, lookups    flows that the peer opened: names, targets, connections
//! origin_tls          TLS with their targets
//! history             the store of what was received, and what predictions ask it
//! memory, descriptors what links and flows may take
//! status, admin, local_socket, check   what users ask a gateway that runs
//! loopback            a pair in one program, as below
//! ```
//!
//! ```
//! use std::{io::{Read, Write}, net::{TcpListener, TcpStream}, thread};
//!
//! use refrain_gateway::loopback::Keys;
//!
//! // A service that answers in capitals.
//! let service = TcpListener::bind("127.0.0.1:0")?;
//! let forward = format!("127.0.0.1:0={}", service.local_addr()?);
//! thread::spawn(move || {
//!     let (mut client, _) = service.accept().expect("a client");
//!     let mut word = [0; 5];
//!     client.read_exact(&mut word).expect("five bytes");
//!     client.write_all(&word.to_ascii_uppercase()).expect("it reads");
//! });
//!
//! // Options are those of the command line.
//! let keys = Keys::new()?;
//! let far = keys.far(&[])?;
//! let near = keys.near(far.gateway.listening()[0], &["--forward", &forward])?;
//! let mut client = TcpStream::connect(near.gateway.listening()[0])?;
//! client.write_all(b"hello")?;
//! let mut answer = [0; 5];
//! client.read_exact(&mut answer)?;
//! assert_eq!(&answer, b"HELLO");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod arguments;
pub mod options;
pub mod settings;
pub mod text_file;
pub mod units;

mod access;
pub mod address;
pub mod config;
mod dns;
mod expiry;
pub mod keys;
pub mod machine;
pub mod memory;
mod policy;
pub mod rules;
mod shared;
pub mod target;
pub mod virtual_names;
pub mod way_in;

pub mod acceptor;
pub mod client_hello;
mod descriptors;
pub mod http_proxy;
pub mod intercept;
mod listeners;
pub mod redirected;
mod refusal;
mod refused_targets;
pub mod socks4;
pub mod socks5;

mod crumbs;
mod flow;
mod greeting;
mod lane;
mod link;
mod lookups;
mod offered;
pub mod opening;
mod origin_tls;
mod own_certificate;
mod pace;
#[allow(unsafe_code)]
mod socket;
pub mod tls;
pub mod via_proxy;
pub mod wire;

pub mod gateway;
mod held_flows;
pub mod history;
mod last_error;
mod random;
pub mod rate_limited_log;
pub mod start;
pub mod start_tls;

pub mod admin;
pub mod check;
pub mod explain;
pub mod local_socket;
pub mod loopback;
pub mod status;
