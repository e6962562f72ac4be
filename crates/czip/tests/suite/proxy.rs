//! The proxy, between a client that sees every byte and origins right and wrong.

mod changes;
mod content;
mod damage;
mod heads;
mod lies;
mod passing;
mod privacy;
mod sharing;
mod wholes;
mod world;

use crate::{client, draft, server};
