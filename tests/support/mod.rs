//! What the tests under load share: gateways as processes, content, applications.
#![allow(dead_code, reason = "each test uses its part")]

pub mod applications;
pub mod content;
pub mod gateways;
pub mod hostile;
