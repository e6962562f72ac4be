//! Every address that a gateway listens on, with the option that names it, and the rules of interception.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use super::{Config, FindPeer};
use crate::address::{self, ListenError};
use crate::client_hello::PROTOCOLS;
use crate::http_proxy::Service;
use crate::intercept::rule::InterceptRule;
use crate::options::{
    ADMIN, CERT, CERT_KEY, Entrance, FORWARD, INTERCEPT, LISTEN, OptionSpec, SERVICE, TRANSPARENT,
    ways_in,
};
use crate::own_certificate::{CertificateError, CertificateFiles, OwnCertificate};
use crate::settings::{BoxedError, ConfigError, Settings};
use crate::start_tls::StartTls;
use crate::target::{Host, Target, TargetError};
use crate::way_in::{Named, StartTlsSite, WayIn};

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

    /// The port to which the firewall redirects connections, if there is a listener for them.
    pub fn redirected_port(&self) -> Option<u16> {
        let mut ways_in = self.ways_in.iter();
        let way_in = ways_in.find(|way_in| *way_in.option == TRANSPARENT)?;
        Some(way_in.listen.port())
    }

    /// Whether forwarded connections can be redirected to it.
    pub fn takes_forwarded(&self) -> bool {
        let mut ways_in = self.ways_in.iter();
        ways_in.any(|way_in| *way_in.option == TRANSPARENT && way_in.listen.ip().is_unspecified())
    }

    /// Whether this end connects from the addresses of clients.
    pub(crate) fn uses_clients_addresses(&self) -> bool {
        let of_rules = self.intercept.iter().any(InterceptRule::is_for_clients);
        of_rules || !self.client_addresses.is_empty()
    }

    /// Whether the near end of this configuration has a listener for the connections of this rule, and decides about their
    /// first packets, should it need to.
    pub fn has_listener_of(&self, rule: &InterceptRule) -> bool {
        let listeners = InterceptRule::handlings(&self.intercept);
        let is_held = |needed| InterceptRule::any_is_exact(&self.intercept, needed);
        rule.handling().is_none_or(|needed| {
            listeners.contains(&needed) && (!rule.is_exact() || is_held(needed))
        })
    }
}

/// The listeners for applications that options ask for.
pub(super) fn read_ways_in(
    settings: &Settings,
    find_peer: FindPeer<'_>,
) -> Result<Vec<WayIn>, ConfigError> {
    let read = |spec: &'static OptionSpec| match spec.entrance {
        Some(Entrance::Forward) => settings.many_with(spec, |text| parse_forward(text, find_peer)),
        Some(Entrance::Service) => {
            let services = settings.many_with(spec, |text| parse_service(text, find_peer))?;
            with_certificates(services, settings)
        }
        Some(Entrance::Transparent) => {
            let listeners = settings.many_with(spec, address::parse_redirected)?;
            let addresses = listeners.into_iter().flatten();
            Ok(addresses
                .map(|address| WayIn::any_target(spec, address))
                .collect())
        }
        _ => settings.many_with(spec, |text| {
            Ok::<_, ListenError>(WayIn::any_target(spec, address::parse_listen(text)?))
        }),
    };
    let ways_in = ways_in().map(read).collect::<Result<Vec<_>, _>>()?;
    with_handlings(ways_in.concat(), settings)
}

/// Adds the listeners for redirected connections that rules have handled otherwise than most.
fn with_handlings(ways_in: Vec<WayIn>, settings: &Settings) -> Result<Vec<WayIn>, ConfigError> {
    let handlings = InterceptRule::handlings(&settings.many::<InterceptRule>(&INTERCEPT)?);
    let mut all = Vec::new();
    for way_in in ways_in {
        if *way_in.option != TRANSPARENT {
            all.push(way_in);
            continue;
        }
        for &handling in &handlings {
            let mut own = way_in.clone();
            let port = own.listen.port();
            let needs = "rules with name, client_address, action=pass or on_refusal need a port from 1 to 65522";
            own.listen.set_port(match (port, handling.port_offset()) {
                (port, 0) => port,
                (1..=65522, offset) => port + offset,
                _ => return Err(settings.wrong(&TRANSPARENT, needs)),
            });
            own.handling = handling;
            all.push(own);
        }
    }
    Ok(all)
}

/// The rules, which need a listener that their connections reach.
pub(super) fn read_intercept_rules(
    settings: &Settings,
    ways_in: &[WayIn],
) -> Result<Vec<InterceptRule>, ConfigError> {
    let rules = settings.many::<InterceptRule>(&INTERCEPT)?;
    InterceptRule::check_all(&rules).map_err(|error| {
        let is_at_fault = |rule: &InterceptRule| rule.to_string() == error.rule();
        let nth = rules.iter().position(is_at_fault).unwrap_or_default();
        settings.wrong_nth(&INTERCEPT, nth, error)
    })?;
    let mut listeners = ways_in
        .iter()
        .filter(|way_in| *way_in.option == TRANSPARENT);
    let is_wide = |way_in: &WayIn| way_in.listen.ip().is_unspecified();
    let forwarded = rules.iter().position(InterceptRule::is_forwarded);
    match (listeners.next(), forwarded) {
        (None, _) if !rules.is_empty() => {
            let reason = "needs a listener for redirected connections (transparent = \"PORT\", or --transparent PORT)";
            Err(settings.wrong(&INTERCEPT, reason))
        }
        (Some(way_in), Some(nth)) if !is_wide(way_in) => {
            let reason = "in= is for connections of other machines: it needs --transparent *:PORT";
            Err(settings.wrong_nth(&INTERCEPT, nth, reason))
        }
        _ => Ok(rules),
    }
}

/// `LISTEN=TARGET` or, as ssh has it, `LISTEN:TARGET`; with `@PEER` or without.
pub(super) fn parse_forward(text: &str, find_peer: FindPeer<'_>) -> Result<WayIn, BoxedError> {
    // First, for a key has equals signs.
    let (ends, peer) = text.split_once('@').unwrap_or((text, ""));
    let ends = ends.split_once('=').or_else(|| split_at_target(ends));
    let (listen, target) = ends.ok_or(
        "expected a listener and a target, such as 8080:intranet:80, 8080=intranet:80 or \
         10.0.0.5:8080:intranet:80",
    )?;
    let wrong = |part: &str, text: &str, reason: &dyn fmt::Display| {
        format!(
            "invalid {part} \"{text}\": {reason} (write PORT:HOST:PORT, such as 8080:intranet:80)"
        )
    };
    let listen = address::parse_listen(listen)
        .map_err(|error| wrong_target(text).unwrap_or_else(|| wrong("listener", listen, &error)))?;
    Ok(WayIn {
        target: Some(
            target
                .parse::<Target>()
                .and_then(Target::unless_mistyped)
                .map_err(|error| wrong("target", target, &error))?,
        ),
        peer: find_peer(peer)?,
        ..WayIn::any_target(&FORWARD, listen)
    })
}

/// `LISTEN=URL[,HOST...]`, with `@PEER` or without.
fn parse_service(text: &str, find_peer: FindPeer<'_>) -> Result<WayIn, BoxedError> {
    let (ends, peer) = text.split_once('@').unwrap_or((text, ""));
    let (listen, site) = ends
        .split_once('=')
        .map_or((None, ends), |(listen, site)| (Some(listen), site));
    if let Some((scheme, target)) = site.split_once("://")
        && let Some(protocol) = StartTls::of(scheme)
    {
        let (listen, start_tls) = parse_start_tls(protocol, listen, target)?;
        return Ok(WayIn {
            start_tls: Some(start_tls),
            peer: find_peer(peer)?,
            ..WayIn::any_target(&SERVICE, listen)
        });
    }
    let (listen, service) = match ends.split_once('=') {
        Some((listen, site)) => {
            let site: Service = site.parse()?;
            let (listen, service) = match listen.split_once("://") {
                Some((scheme, listen)) if scheme.eq_ignore_ascii_case("https") => {
                    (listen, site.by_its_own_name()?)
                }
                Some((scheme, _)) if StartTls::of(scheme).is_some() => {
                    let reason = format!("the site must begin with {scheme}:// too");
                    return Err(reason.into());
                }
                _ => (listen, site),
            };
            let listen = address::parse_listen(listen);
            (
                listen.map_err(|error| format!("invalid listener: {error}"))?,
                service,
            )
        }
        None if site.contains("://") && !site.to_ascii_lowercase().starts_with("http://") => {
            let service = ends.parse::<Service>()?.by_its_own_name()?;
            let port = service.site.target.port;
            ((Ipv6Addr::UNSPECIFIED, port).into(), service)
        }
        None => {
            return Err(
                "expected a listener and a URL, such as 5000=https://registry.example.org or \
                        10.0.0.5:5000=https://registry.example.org"
                    .into(),
            );
        }
    };
    Ok(WayIn {
        service: Some(Arc::new(service)),
        peer: find_peer(peer)?,
        ..WayIn::any_target(&SERVICE, listen)
    })
}

/// The same of another protocol. Its certificate is found later.
fn parse_start_tls(
    protocol: &'static StartTls,
    listen: Option<&str>,
    target: &str,
) -> Result<(SocketAddr, StartTlsSite), BoxedError> {
    let scheme = protocol.scheme;
    let parsed = Target::with_default_port(target, protocol.port);
    let parsed = parsed.and_then(Target::unless_mistyped);
    let target = parsed.map_err(|error| format!("invalid host \"{target}\": {error}"))?;
    let own = format!("{scheme}://");
    let listen = match listen.map(|listen| listen.strip_prefix(&own)) {
        None => (Ipv6Addr::UNSPECIFIED, target.port).into(),
        Some(Some(listen)) => {
            let listen = address::parse_listen(listen);
            listen.map_err(|error| format!("invalid listener: {error}"))?
        }
        Some(None) => {
            let reason = format!("clients of {own} speak TLS: begin the listener with {own} too");
            return Err(reason.into());
        }
    };
    let site = StartTlsSite {
        protocol,
        target,
        certificate: None,
    };
    Ok((listen, site))
}

/// The first of these certificates that is for the name of the `nth` service.
fn certificate_of(
    name: &Host,
    files: &[CertificateFiles],
    protocols: &[&[u8]],
    nth: usize,
    settings: &Settings,
) -> Result<OwnCertificate, ConfigError> {
    let reason = "needs the site's certificate (--cert and --cert-key)";
    let mut failure = settings.wrong_nth(&SERVICE, nth, reason);
    for (file, files) in files.iter().enumerate() {
        match OwnCertificate::load(files, name, protocols) {
            Ok(certificate) => return Ok(certificate),
            Err(error @ CertificateError::OtherName { .. }) => {
                failure = settings.wrong_nth(&CERT, file, error);
            }
            Err(error @ CertificateError::Key(_)) => {
                return Err(settings.wrong_nth(&CERT_KEY, file, error));
            }
            Err(error) => return Err(settings.wrong_nth(&CERT, file, error)),
        }
    }
    Err(failure)
}

/// Finds the certificates of services that are known by their own names. Those at one address share a listener.
fn with_certificates(services: Vec<WayIn>, settings: &Settings) -> Result<Vec<WayIn>, ConfigError> {
    let [chains, keys] = [&CERT, &CERT_KEY].map(|spec| settings.many::<PathBuf>(spec));
    let (chains, keys) = (chains?, keys?);
    if chains.len() != keys.len() {
        let spec = if chains.is_empty() { &CERT_KEY } else { &CERT };
        return Err(settings.wrong(spec, "give one --cert-key for each --cert"));
    }
    let files = chains.into_iter().zip(keys);
    let files: Vec<_> = files
        .map(|(chain, key)| CertificateFiles { chain, key })
        .collect();
    let mut all: Vec<WayIn> = Vec::new();
    for (nth, mut way_in) in services.into_iter().enumerate() {
        if let Some(site) = &mut way_in.start_tls {
            let (host, alpn) = (&site.target.host, site.protocol.alpn);
            site.certificate = Some(certificate_of(host, &files, alpn, nth, settings)?);
        }
        let Some(service) = way_in.service.take_if(|service| service.is_by_own_name) else {
            all.push(way_in);
            continue;
        };
        let name = &service.site.target.host;
        let certificate = certificate_of(name, &files, &PROTOCOLS, nth, settings)?;
        let named = Named {
            service,
            certificate,
        };
        let mut others = all.iter_mut();
        let shared = others.find(|other| {
            !other.named.is_empty() && (other.listen, other.peer) == (way_in.listen, way_in.peer)
        });
        match shared {
            Some(other)
                if other
                    .named
                    .iter()
                    .any(|other| other.service == named.service) =>
            {
                return Err(settings.wrong_nth(&SERVICE, nth, "is there twice"));
            }
            Some(other) => other.named.push(named),
            None => {
                way_in.named.push(named);
                all.push(way_in);
            }
        }
    }
    Ok(all)
}

/// What is wrong with a forward as ssh has it, if its target has more colons than a name and a port: a URL, or an IPv6
/// address without brackets.
fn wrong_target(text: &str) -> Option<String> {
    let (listen, target) = text.split_once(':')?;
    let is_port = listen.parse::<u16>().is_ok();
    match target.parse::<Target>() {
        Err(TargetError::Url(target)) if is_port => Some(format!("a URL: write {listen}:{target}")),
        Err(TargetError::BadIpv6) if is_port => {
            let (host, port) = target.rsplit_once(':')?;
            let host: Ipv6Addr = host.parse().ok()?;
            Some(format!(
                "put the IPv6 address in brackets: {listen}:[{host}]:{port}"
            ))
        }
        _ => None,
    }
}

/// Splits at the colon in front of the `HOST:PORT` at the end.
fn split_at_target(text: &str) -> Option<(&str, &str)> {
    let (rest, _port) = text.rsplit_once(':')?;
    let host_at = match rest.ends_with(']') {
        true => rest.rfind('[')?,
        false => rest.rfind(':')? + 1,
    };
    let listen = rest[..host_at].strip_suffix(':')?;
    Some((listen, &text[host_at..]))
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
