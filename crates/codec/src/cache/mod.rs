//! What an encoder remembers, and the log that both ends mirror.

pub(crate) mod chunk_table;
pub(crate) mod fingerprint_table;
pub(crate) mod log;
pub(crate) mod seen_windows;
