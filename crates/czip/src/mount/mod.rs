//! An archive as a folder: read-only, at random, by FUSE.
//!
//! An open archive and a folder enter; while it is mounted, the folder shows what the catalog lists.
//! Nothing is extracted: what is read is decompressed then, and the kernel keeps it. So a program that
//! knows nothing of CZIP reads a little of a large archive, on disk or on a web server.
//!
//! The [`Tree`](crate::tree::Tree) is what is shown, and all of it that can be tested without a kernel; it is there on all
//! systems. Mounting is Linux's ([`mount`]).

#[cfg(target_os = "linux")]
mod file_system;
#[cfg(target_os = "linux")]
mod session;
#[cfg(target_os = "linux")]
mod table;

#[cfg(target_os = "linux")]
pub use file_system::ReadFailure;
#[cfg(target_os = "linux")]
pub use session::{MountError, MountOptions, Mounted, UnmountError, Unmounter, mount};
