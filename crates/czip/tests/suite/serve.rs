//! The server of archives, asked by a client that sees every byte.

mod changes;
mod chunks;
mod codings;
mod conditions;
mod content;
mod crowds;
mod curl;
mod damage;
mod limits;
mod paths;
mod sharing;
mod whole;
mod world;

use crate::client;
