//! Unmodified programs and their servers, on each way through a pair: intercepted on their own machine, intercepted on
//! their router, and inside `refrain run`. Needs root.
//!
//! ```text
//! behind 10.88.0.2 ── site, near end 10.77.0.1 ── link ── 10.77.0.2 service, far end ── 10.99.0.2 origin
//! ```
//!
//! The link is the lab's: 100 Mbit/s, 2 ms one way.
//!
//! Programs connect to both addresses of the origin, IPv4 and IPv6. The origin refuses connections that do not come from
//! the address that the way promises, and after each test its connections must be as many as the near end's flows.
//!
//! A further program is a file with its `PROGRAM`, and a line of the table below.

mod apt;
mod cargo;
#[path = "../common/mod.rs"]
mod common;
mod crowd;
mod git;
mod pip;
mod place;
mod postgres;
mod samba;
mod ssh;
mod static_binary;
mod stream;
mod tls;
mod untouched;
mod websocket;

/// Makes a test of each program and way.
macro_rules! tests {
    ($($program:ident: $($way:ident),+;)*) => {
        mod programs {
            $(mod $program {
                $(#[test]
                fn $way() {
                    crate::place::drive(crate::place::$way, &crate::$program::PROGRAM);
                })+
            })*
        }
    };
}

tests! {
    apt: intercepted, forwarded, inside_run;
    cargo: intercepted, inside_run;
    crowd: intercepted, forwarded, inside_run;
    git: intercepted, forwarded, inside_run;
    pip: intercepted, inside_run;
    postgres: intercepted, forwarded, inside_run;
    samba: intercepted, forwarded, inside_run;
    ssh: intercepted, forwarded, inside_run;
    static_binary: intercepted, forwarded, inside_run;
    stream: intercepted, forwarded, inside_run;
    tls: intercepted, forwarded, inside_run;
    websocket: intercepted, forwarded, inside_run;
}
