//! Clients, origins and visitors that mean harm, against gateways as users run them. What each of
//! them tries costs nobody else anything.

#[path = "../common/mod.rs"]
mod common;

mod smuggling;
