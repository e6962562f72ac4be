//! The proxy, between a client that sees every byte and origins right and wrong.

mod changes;
#[allow(dead_code)]
#[path = "../serve/client.rs"]
mod client;
mod content;
mod damage;
#[allow(dead_code)]
#[path = "../hostile/draft.rs"]
mod draft;
mod heads;
mod lies;
mod passing;
mod privacy;
#[allow(dead_code)]
#[path = "../../../http-ranges/tests/ranges/server.rs"]
mod server;
mod sharing;
mod wholes;
mod world;
