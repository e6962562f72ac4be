//! Archives as folders. Where nothing may be mounted, the tests that mount say that they were skipped.

#[cfg(target_os = "linux")]
mod damage;
#[cfg(target_os = "linux")]
mod mounting;
#[cfg(target_os = "linux")]
mod over_http;
#[cfg(target_os = "linux")]
mod reading;
// It does more than is needed here.
#[allow(dead_code)]
#[cfg(target_os = "linux")]
#[path = "../../../http-ranges/tests/ranges/server.rs"]
mod server;
mod tree;
#[cfg(target_os = "linux")]
mod unmounting;
