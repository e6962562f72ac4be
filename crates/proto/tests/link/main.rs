//! Two links, joined by lanes: what users of the engine rely on.

mod memory;
mod pair;

mod blocks;
mod bounds;
mod caches;
mod confirming;
mod credit;
mod early;
mod flows;
mod hostile;
mod lanes;
mod loss;
mod modes;
mod offered;
mod openings;
mod predictions;
mod questions;
mod responses;
mod spare;
mod strands;
mod windows;
