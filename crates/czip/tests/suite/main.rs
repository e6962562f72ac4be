//! Archives, from outside: made, read, encrypted, extracted, mounted, fetched and served. All in one program, since
//! each one takes as long to build as the library.

mod archive;
mod client;
// They do more than is needed here.
#[allow(dead_code)]
#[path = "../hostile/draft.rs"]
mod draft;
mod encryption;
mod extract;
mod get;
mod making;
mod mount;
#[allow(dead_code)]
#[path = "../../../../tests/common/programs.rs"]
mod programs;
mod proxy;
mod remote_source;
mod running;
mod serve;
#[allow(dead_code)]
#[path = "../../../http-ranges/tests/ranges/server.rs"]
mod server;
mod vectors;
