//! Every address that a gateway listens on, with the option that names it.

use std::net::{IpAddr, SocketAddr};

use super::Config;
use crate::options::{ADMIN, LISTEN, OptionSpec};
use crate::settings::{ConfigError, Settings};
use crate::way_in::WayIn;

/// An option and an address that it has the gateway listen on.
pub(super) type Listener = (&'static OptionSpec, SocketAddr);

impl Config {
    /// Where peers, applications and the admin page's clients connect. Proxies come before forwards:
    /// of two at one address, an error is about the forward.
    pub fn listeners(&self) -> Vec<Listener> {
        let own = self.listen.iter().map(|&address| (&LISTEN, address));
        let mut ways_in: Vec<&WayIn> = self.ways_in.iter().collect();
        ways_in.sort_by_key(|way_in| !way_in.is_proxy());
        let ways_in = ways_in.into_iter();
        let admin = self.admin.iter().map(|admin| (&ADMIN, admin.listen));
        let ways_in = ways_in.map(|way_in| (way_in.option, way_in.listen));
        own.chain(ways_in).chain(admin).collect()
    }
}

/// Each address is listened on once; port 0 is another port each time.
pub(super) fn check_distinct(
    listeners: &[Listener],
    settings: &Settings,
) -> Result<(), ConfigError> {
    for (index, (spec, address)) in listeners.iter().enumerate() {
        let overlaps = |(_, other): &&Listener| overlap(*address, *other);
        if let Some((first, other)) = listeners[..index].iter().find(overlaps) {
            let reason = format!("{} already listens at {other}", first.flag());
            let same_option = |(other, _): &&Listener| other.key == spec.key;
            let nth = listeners[..index].iter().filter(same_option).count();
            return Err(settings.wrong_nth(spec, nth, reason));
        }
    }
    Ok(())
}

/// Whether the system gives one of these addresses to one listener only, if the other has its own.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |wide: SocketAddr, narrow: SocketAddr| match wide.ip() {
        IpAddr::V4(ip) => ip.is_unspecified() && narrow.ip().to_canonical().is_ipv4(),
        // Of IPv4 too.
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    let is_same_port = one.port() == other.port() && one.port() != 0;
    is_same_port && (one == other || covers(one, other) || covers(other, one))
}
