//! Archives as folders. Where nothing may be mounted, the tests that mount say that they were skipped.

#[cfg(target_os = "linux")]
mod damage;
#[cfg(target_os = "linux")]
mod mounting;
#[cfg(target_os = "linux")]
mod over_http;
#[cfg(target_os = "linux")]
mod reading;
mod tree;
#[cfg(target_os = "linux")]
mod unmounting;

#[cfg(target_os = "linux")]
use crate::server;
