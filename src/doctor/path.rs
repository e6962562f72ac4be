//! The routes to the peers, and what a router needs so that packets pass in both directions.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket},
};

use refrain_gateway::{target::Host, via_proxy::ViaProxy};

use super::{Finding, context::Context, firewall};
use crate::kernel_file::text_of;

/// Addresses of a name that are looked at.
const ADDRESSES_MAX: usize = 4;

/// Any interface, in rules.
const ANY: &str = "*";

/// The own address that the kernel uses for each peer.
pub(super) fn routes(context: &Context) -> Vec<Finding> {
    let Some(config) = context.config() else {
        return Vec::new();
    };
    // The proxy connects to the peers.
    let proxy = config.via_proxy.as_ref().map(ViaProxy::address);
    let dials = config.dials.iter().map(|dial| &dial.address);
    let ends: Vec<_> = proxy.map_or_else(|| dials.collect(), |proxy| vec![proxy]);
    let findings = ends.into_iter().filter_map(|end| {
        let (host, port) = (&end.host, end.port);
        let addresses: Vec<SocketAddr> = match host {
            Host::Ipv4(ip) => vec![(*ip, port).into()],
            Host::Ipv6(ip) => vec![(*ip, port).into()],
            // What cannot be resolved is a problem of the peer.
            Host::Domain(name) => (name.as_str(), port).to_socket_addrs().ok()?.collect(),
        };
        let addresses = addresses.into_iter().take(ADDRESSES_MAX);
        let routes: Vec<_> = addresses.map(|to| (to, route(to))).collect();
        Some(route_to(&end.to_string(), &routes))
    });
    findings.collect()
}

fn route_to(peer: &str, routes: &[(SocketAddr, Option<IpAddr>)]) -> Finding {
    let known = routes
        .iter()
        .filter_map(|(to, from)| Some((to.ip(), (*from)?)));
    let known: Vec<_> = known
        .map(|(to, from)| format!("{to} from {from}"))
        .collect();
    match known.is_empty() {
        true => Finding::problem(
            format!("{peer}: this machine has no route to it"),
            "add a route, or correct the address",
        ),
        false => Finding::ok(format!("{peer}: {}", known.join(", "))),
    }
}

/// The own address for packets to there. Nothing is sent.
fn route(to: SocketAddr) -> Option<IpAddr> {
    let any = match to {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Interfaces of rules that are not there. They may come later; a misspelt one never does.
pub(super) fn missing_interfaces(context: &Context) -> Vec<Finding> {
    let Some(devices) = text_of("/proc/net/dev") else {
        return Vec::new();
    };
    let devices: BTreeSet<_> = devices
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim()))
        .collect();
    let rules = context.config().map_or(&[][..], |config| &config.intercept);
    let named = rules.iter().flat_map(|rule| rule.interfaces());
    let missing: BTreeSet<_> = named
        .filter(|name| *name != ANY && !devices.contains(name.as_str()))
        .collect();
    let notes = missing.into_iter().map(|name| {
        let text = format!(
            "no network interface is named \"{name}\" now (in={name}): its rule matches nothing"
        );
        Finding::note(text).advise("correct the name in the rule, unless the interface comes later")
    });
    notes.collect()
}

/// Whether the kernel forwards, where rules are about forwarded connections.
pub(super) fn forwarding(context: &Context) -> Vec<Finding> {
    if interfaces(context).is_empty() {
        return Vec::new();
    }
    let is_off = |setting: &str| {
        text_of(format!("/proc/sys/net/{setting}")).is_some_and(|value| value.trim() == "0")
    };
    let ipv4 = match is_off("ipv4/ip_forward") {
        true => Finding::problem(
            "rules are about forwarded connections, and the kernel forwards no IPv4: connections that go direct are \
             dropped",
            "sysctl -w net.ipv4.ip_forward=1, and the same in /etc/sysctl.d",
        ),
        false => Finding::ok("the kernel forwards IPv4"),
    };
    let ipv6 = is_off("ipv6/conf/all/forwarding").then(|| {
        Finding::note("the kernel does not forward IPv6").advise(
            "if this router connects a network with IPv6: sysctl -w net.ipv6.conf.all.forwarding=1",
        )
    });
    [ipv4].into_iter().chain(ipv6).collect()
}

/// Whether answers may come back by another interface than the kernel would send by.
pub(super) fn reverse_path_filter(context: &Context) -> Vec<Finding> {
    let interfaces = interfaces(context);
    let strict: Vec<_> = interfaces.iter().filter(|name| is_strict(name)).collect();
    if interfaces.is_empty() {
        return Vec::new();
    }
    vec![match &strict[..] {
        [] => Finding::ok("no interface of the rules has a strict reverse path filter"),
        names => {
            let names = names.iter().map(|name| name.as_str());
            Finding::note(format!(
                "strict reverse path filter on {}: packets that come by another way than answers go are dropped",
                names.collect::<Vec<_>>().join(", ")
            ))
            .advise("if routes are asymmetric: set net.ipv4.conf.*.rp_filter to 2")
        }
    }]
}

/// The larger of both settings counts.
fn is_strict(interface: &str) -> bool {
    let of = |name: &str| {
        let value = text_of(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        value.and_then(|value| value.trim().parse::<u8>().ok())
    };
    of("all").max(of(interface)) == Some(1)
}

/// The interfaces of rules about forwarded connections: those of the file, or all if such rules are loaded.
fn interfaces(context: &Context) -> BTreeSet<String> {
    let rules = context.config().map_or(&[][..], |config| &config.intercept);
    let named = rules.iter().flat_map(|rule| rule.interfaces());
    let mut named: BTreeSet<String> = named.cloned().collect();
    let is_loaded = context.is_root
        && context
            .table()
            .is_ok_and(|table| table.is_some_and(firewall::is_about_forwarded));
    if named.remove(ANY) || named.is_empty() && is_loaded {
        let all = fs::read_dir("/proc/sys/net/ipv4/conf")
            .into_iter()
            .flatten();
        let all = all
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        named.extend(all.filter(|name| !["all", "default", "lo"].contains(&name.as_str())));
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn loopback_has_a_route_to_itself() {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let routes = [(to, route(to))];
        let finding = route_to("here", &routes);
        assert_eq!(finding.text, "here: 127.0.0.1 from 127.0.0.1");
        assert_eq!(route_to("there", &[(to, None)]).state, State::Problem);
    }
}
