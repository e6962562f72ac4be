//! Proto.
