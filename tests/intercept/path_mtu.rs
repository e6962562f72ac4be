//! Paths whose middle takes smaller packets than the networks at their ends: machines learn of it by ICMP, which must
//! reach the one that sent the packets.
//!
//! ```text
//! client ── hop ── 1,280 bytes ── router of its network ── site, near end ── service, far end ──
//!     router of the origin's network ── 1,280 bytes ── hop ── origin
//! ```

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    thread,
};

use crate::{
    addresses::intercepted,
    common::{
        eventually,
        origin_machine::{self, Origin},
    },
    world::{
        ANSWER_BYTES, BEHIND, HANGS_AFTER, World, answer_at, forward, join, make, ok, remove,
        within,
    },
};

const CLIENT: [&str; 2] = ["10.89.0.2", "fd89::2"];
const CLIENT_HOP: [&str; 2] = ["10.89.0.1", "fd89::1"];
const ORIGIN: [&str; 2] = ["10.98.0.2", "fd98::2"];
const ORIGIN_HOP: [&str; 2] = ["10.98.0.1", "fd98::1"];

/// The ends of the narrow part.
const NARROW: [[&str; 2]; 2] = [["10.101.0.1", "fd65::1"], ["10.101.0.2", "fd65::2"]];
const NARROW_BYTES: &str = "1280";

/// Bytes that fill more packets than a window has: of requests, and of the answers.
const REQUESTS: usize = 75_000;

/// A machine at the end of such a path, and the hop to it.
struct Distant {
    name: String,
    hop: String,
}

impl Distant {
    /// Beyond this machine, which another one reaches at an address.
    fn beyond(
        router: &str,
        addresses: [&str; 2],
        hop_addresses: [&str; 2],
        routes: &[(&str, [&str; 2])],
    ) -> Distant {
        let (name, hop) = (format!("{router}-far"), format!("{router}-hop"));
        make(&hop);
        make(&name);
        let [one, other] = NARROW;
        join((router, "narrow", one), (&hop, "narrow", other));
        join((&hop, "lan", hop_addresses), (&name, "lan", addresses));
        for namespace in [router, &hop] {
            ok(Command::new("ip").args([
                "-n",
                namespace,
                "link",
                "set",
                "narrow",
                "mtu",
                NARROW_BYTES,
            ]));
            forward(namespace);
        }
        let defaults = [(&*hop, one), (&*name, hop_addresses)];
        for (index, family) in ["-4", "-6"].into_iter().enumerate() {
            let network = format!(
                "{}/{}",
                addresses[index],
                if index == 0 { "32" } else { "128" }
            );
            let add = |namespace: &str, to: &str, via: &str| {
                ok(Command::new("ip")
                    .args([family, "-n", namespace, "route", "add", to, "via", via]));
            };
            for (namespace, via) in defaults {
                add(namespace, "default", via[index]);
            }
            add(router, &network, other[index]);
            for (namespace, via) in routes {
                add(namespace, &network, via[index]);
            }
        }
        Distant { name, hop }
    }
}

impl Drop for Distant {
    fn drop(&mut self) {
        remove(&self.name);
        remove(&self.hop);
    }
}

/// Sends and receives, each more than packets or windows hold, and gives the address that the origin sees.
fn exchange(client: &Distant, origin: &str) -> Option<String> {
    let stream = within(&client.name, || TcpStream::connect((origin, 8080)));
    let mut stream = stream.expect("the origin is up");
    stream.set_read_timeout(Some(HANGS_AFTER)).expect("a limit");
    thread::scope(|scope| {
        let mut writer = stream.try_clone().expect("a handle");
        scope.spawn(move || writer.write_all(&b"who?".repeat(REQUESTS)));
        let mut answers = vec![0; REQUESTS * ANSWER_BYTES];
        stream.read_exact(&mut answers).ok()?;
        let seen = String::from_utf8_lossy(&answers[..ANSWER_BYTES]);
        assert_eq!(answers, seen.repeat(REQUESTS).as_bytes());
        Some(seen.trim().to_owned())
    })
}

#[test]
fn paths_with_small_packets_at_both_sides_carry_all_bytes() {
    for (rule, seen) in [
        ("in=lan port=8080 client_address=keep", CLIENT),
        ("in=lan port=8080", origin_machine::SERVICE_THERE),
    ] {
        let Some(world) = World::of_own_addresses(rule) else {
            return;
        };
        let near_origin = Origin::start(&world);
        let origin = Distant::beyond(
            &near_origin.0,
            ORIGIN,
            ORIGIN_HOP,
            &[(
                &world.service,
                [origin_machine::ORIGIN, origin_machine::ORIGIN_6],
            )],
        );
        let client = Distant::beyond(&world.behind, CLIENT, CLIENT_HOP, &[(&world.site, BEHIND)]);
        for address in ORIGIN {
            answer_at(&origin.name, address);
        }
        world.intercept_far();
        world.intercept();
        eventually("connections that are intercepted", || {
            exchange(&client, ORIGIN[0])?;
            (intercepted(&world) > 0).then_some(())
        });
        for (origin, seen) in ORIGIN.into_iter().zip(seen) {
            let before = intercepted(&world);
            assert_eq!(exchange(&client, origin).as_deref(), Some(seen), "{rule}");
            assert_eq!(intercepted(&world), before + 1, "{rule}");
        }
    }
}
