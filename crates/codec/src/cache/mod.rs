//! What an encoder remembers, and the log that both ends mirror.

pub mod chunk_table;
pub mod fingerprint_table;
pub mod log;
