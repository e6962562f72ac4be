//! What may change while a gateway runs: rules and time-outs, replaced whole on SIGHUP.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::{
    access::Access,
    config::{Config, Timeouts},
    http_proxy::{AcceptEncoding, secrets::PrivateAnswers},
    intercept::rule::InterceptRule,
    keys::PublicKey,
    machine::is_of_this_machine,
    opening::Opening,
    origin_tls::OriginTrust,
    refusal::Refusal,
    rules::{AllowRules, ExcludeRules, Route},
    shared::Shared,
    target::Target,
};

/// Rules and time-outs that new flows obey.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// Where this end connects to for its peer.
    pub allow: AllowRules,
    /// The addresses of clients that this end connects from for its peer.
    client_addresses: Vec<IpNet>,
    /// The certificates of HTTPS origins that this end accepts.
    pub(crate) origin_trust: OriginTrust,
    /// The names whose TLS is opened.
    pub(crate) opening: Opening,
    /// The peers that flows to some targets go to.
    pub(crate) routes: Vec<Route>,
    /// What is sent as it is.
    pub exclude: ExcludeRules,
    /// What happens to redirected connections.
    pub(crate) intercept: Vec<InterceptRule>,
    /// What the HTTP proxy asks for, but of excluded targets.
    accept_encoding: AcceptEncoding,
    /// How this end sends the bodies of answers that shared caches must not keep.
    pub(crate) private_answers: PrivateAnswers,
    /// Whether requests to HTTPS sites, and their answers, are secret unless they are for all clients.
    pub(crate) is_secret_safe: bool,
    /// Who may use the listeners for applications.
    pub access: Access,
    /// When to give up.
    pub timeouts: Timeouts,
    pub(crate) own: OwnAddresses,
}

/// Where this gateway listens itself. A peer that could connect there would read its admin pages,
/// or send flows round in circles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwnAddresses(Vec<SocketAddr>);

/// The policy of the moment.
pub(crate) type SharedPolicy = Shared<Policy>;

impl Policy {
    /// The policy that `config` states, of a gateway that listens at `own`.
    pub(crate) fn new(config: &Config, own: OwnAddresses) -> Policy {
        Policy {
            own,
            allow: config.allow.clone(),
            client_addresses: config.client_addresses.clone(),
            origin_trust: config.origin_trust.clone(),
            opening: config.opening.clone(),
            routes: config.routes.clone(),
            exclude: config.exclude.clone(),
            intercept: config.intercept.clone(),
            accept_encoding: config.accept_encoding,
            private_answers: config.private_answers,
            is_secret_safe: config.is_secret_safe,
            access: config.access.clone(),
            timeouts: config.timeouts,
        }
    }

    /// The peers that rules name for a new flow to `target`, in the rules' order.
    pub(crate) fn routes_of(&self, target: &Target) -> Vec<PublicKey> {
        let routes = self.routes.iter().filter(|route| route.covers(target));
        routes.map(|route| route.peer).collect()
    }

    /// Whether a flow that this end opens to `target` is sent as it is.
    pub(crate) fn excludes(&self, target: &Target) -> bool {
        let host = target.host.to_string();
        self.exclude.excludes(&host, None, target.port)
    }

    /// What the HTTP proxy asks `target` for. Nothing compresses what is sent as it is: there plain
    /// content would only be longer.
    pub(crate) fn accept_encoding(&self, target: &Target) -> AcceptEncoding {
        match self.excludes(target) {
            true => AcceptEncoding::Keep,
            false => self.accept_encoding,
        }
    }

    /// Whether this end may connect from the address of this client.
    pub(crate) fn judge_client(&self, client: IpAddr) -> Result<(), Refusal> {
        let is_of_a_host =
            !client.is_loopback() && !client.is_unspecified() && !client.is_multicast();
        let mut nets = self.client_addresses.iter();
        let is_covered = is_of_a_host && nets.any(|net| net.contains(&client));
        is_covered.then_some(()).ok_or(Refusal::ClientAddress)
    }

    /// Whether this end may connect to `address` for a peer whose flow asked for `host`; if not,
    /// why not. A gateway's own addresses need a rule that names them exactly.
    pub(crate) fn judge(&self, host: &str, address: SocketAddr) -> Result<(), Refusal> {
        if !self.allow.allows(host, address) {
            return Err(Refusal::NotAllowed);
        }
        if self.own.reached_by(address) && !self.allow.names_exactly(host, address) {
            return Err(Refusal::OwnAddress);
        }
        Ok(())
    }
}

impl OwnAddresses {
    /// The addresses of these listeners, and where the admin pages are.
    pub(crate) fn new(listeners: impl IntoIterator<Item = SocketAddr>, config: &Config) -> Self {
        let admin = config.admin.as_ref().map(|admin| admin.listen);
        OwnAddresses(listeners.into_iter().chain(admin).collect())
    }

    /// Whether a connection to `target` may end at one of them. Of listeners on loopback or on all
    /// addresses, each loopback or unspecified address counts, of both families.
    fn reached_by(&self, target: SocketAddr) -> bool {
        let host = target.ip().to_canonical();
        self.0.iter().any(|own| {
            let listens = own.ip().to_canonical();
            own.port() == target.port()
                && (listens == host
                    || (is_here(listens) && is_here(host))
                    || (listens.is_unspecified() && is_of_this_machine(host)))
        })
    }
}

/// Whether it is a loopback address, or stands for one: connections to the unspecified address
/// reach this machine.
fn is_here(address: IpAddr) -> bool {
    let embedded = match address {
        // ::127.0.0.1, an old form that no system should route.
        IpAddr::V6(address) => address.to_ipv4().map(IpAddr::V4),
        IpAddr::V4(_) => None,
    };
    let is_here = |address: IpAddr| {
        // All of 0.0.0.0/8 is "this host on this network" (RFC 1122, section 3.2.1.3).
        let is_zero_net = matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 0);
        address.is_loopback() || address.is_unspecified() || is_zero_net
    };
    is_here(address) || embedded.is_some_and(is_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(listeners: &[&str]) -> OwnAddresses {
        let parsed = listeners
            .iter()
            .map(|text| text.parse().expect("an address"));
        OwnAddresses(parsed.collect())
    }

    #[test]
    fn each_spelling_of_a_listener_on_this_machine_reaches_it() {
        for listener in ["127.0.0.1:9002", "[::1]:9002", "0.0.0.0:9002", "[::]:9002"] {
            let own = own(&["10.0.0.1:1", listener]);
            for target in [
                "127.0.0.1:9002",
                "127.0.0.2:9002",
                "127.255.255.254:9002",
                "0.0.0.0:9002",
                "0.1.2.3:9002",
                "[::1]:9002",
                "[::]:9002",
                "[::ffff:127.0.0.1]:9002",
                "[::ffff:0.0.0.0]:9002",
                "[::127.0.0.1]:9002",
            ] {
                let target = target.parse().expect("an address");
                assert!(own.reached_by(target), "{listener} by {target}");
            }
            for target in ["127.0.0.1:9003", "192.0.2.1:9002", "[2001:db8::1]:9002"] {
                let target = target.parse().expect("an address");
                assert!(!own.reached_by(target), "{listener} by {target}");
            }
        }
    }

    #[test]
    fn a_listener_of_one_interface_is_reached_by_its_address() {
        let own = own(&["192.0.2.7:7000"]);
        for target in ["192.0.2.7:7000", "[::ffff:192.0.2.7]:7000"] {
            assert!(own.reached_by(target.parse().expect("an address")));
        }
        assert!(!own.reached_by("127.0.0.1:7000".parse().expect("an address")));
    }
}
