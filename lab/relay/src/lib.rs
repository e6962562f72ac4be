//! Relay.
