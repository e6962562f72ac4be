//! A third machine, on which the origin is: behind the service, whose machine is its router.

use std::process::Command;

use super::world::{SERVICE, SERVICE_6, World, answer_at, forward, join, make, ok, remove};

pub(crate) const ORIGIN: &str = "10.99.0.2";
pub(crate) const ORIGIN_6: &str = "fd99::2";
/// The service's addresses in the network of the origin.
pub(crate) const SERVICE_THERE: [&str; 2] = ["10.99.0.1", "fd99::1"];

/// The machine's namespace. A server at port 8080 answers with the address that it sees.
pub(crate) struct Origin(pub(crate) String);

impl Origin {
    pub(crate) fn start(world: &World) -> Origin {
        let origin = Origin(world.behind.replace("behind", "origin"));
        make(&origin.0);
        join(
            (&world.service, "lan", SERVICE_THERE),
            (&origin.0, "lan", [ORIGIN, ORIGIN_6]),
        );
        let [gateway, gateway_6] = SERVICE_THERE;
        for (namespace, family, to, gateway) in [
            (&origin.0, "-4", "default", gateway),
            (&origin.0, "-6", "default", gateway_6),
            (&world.site, "-4", "10.98.0.0/15", SERVICE),
            (&world.site, "-6", "fd98::/15", SERVICE_6),
        ] {
            ok(Command::new("ip")
                .args([family, "-n", namespace, "route", "add", to, "via", gateway]));
        }
        forward(&world.service);
        for address in [ORIGIN, ORIGIN_6] {
            answer_at(&origin.0, address);
        }
        origin
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        remove(&self.0);
    }
}
