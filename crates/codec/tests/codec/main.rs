//! What the codec promises, tested from outside: two ends that share nothing but what was
//! sent, any content, any parameters, and peers that lie.
//!
//! With `--cfg refrain_weak_hashes` nearly all fingerprints collide and many chunk hashes do.
//! All that is compiled in that build holds there too; [`collisions`] is made for it.

mod content;
#[cfg(not(refrain_weak_hashes))]
mod data;
mod ends;
mod model;

mod collisions;
mod diverged;
mod hostile;
#[cfg(not(refrain_weak_hashes))]
mod pack;
mod reach;
mod round_trips;
#[cfg(not(refrain_weak_hashes))]
mod savings;
#[cfg(not(refrain_weak_hashes))]
mod savings_pinned;
