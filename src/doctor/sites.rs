//! The web sites of a near end's services: each listener that speaks plain HTTP is asked for a page, as a client does.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use super::{Finding, context::Context};

/// How long a site may take, with the link's round trips.
const WITHIN: Duration = Duration::from_secs(8);

/// What is read of an answer: its head, and a reason.
const ANSWER_BYTES_MAX: u64 = 4 << 10;

/// Begins the body of an answer that a gateway gives in place of the site.
const OWN_ANSWER: &str = "\r\n\r\nrefrain: ";

/// Each site of the file, through the gateway that runs.
pub(super) fn sites(context: &Context) -> Vec<Finding> {
    let ways_in = context.config().map_or(&[][..], |config| &config.ways_in);
    let looks: Vec<_> = ways_in
        .iter()
        .flat_map(|way_in| {
            let look = if way_in.service.is_some() {
                look
            } else {
                by_name
            };
            let sites = way_in.sites().into_iter();
            sites.map(move |site| (look, site, way_in.listen))
        })
        .map(|(look, site, listen)| thread::spawn(move || look(&site, listen)))
        .collect();
    // One that panics is reported as this check's own.
    let found = looks.into_iter().map(|look| look.join().expect("no panic"));
    found.flatten().collect()
}

/// Clients speak TLS with it, or another protocol.
fn by_name(site: &str, listen: SocketAddr) -> Option<Finding> {
    let advice = match site.strip_prefix("https://") {
        Some(_) => format!("try `curl --connect-to ::{} {site}`", local(listen)),
        None => "try it with a client".to_owned(),
    };
    Some(Finding::skipped(format!("{site}: clients speak TLS with the near end")).advise(advice))
}

fn look(site: &str, listen: SocketAddr) -> Option<Finding> {
    let answer = match ask(local(listen)) {
        Ok(answer) => answer,
        // No near end listens: other checks say so.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return None,
        Err(error) => {
            let text = format!("{site}: no answer through {listen}: {error}");
            return Some(Finding::problem(text, "see \"gateways\" and \"peers\""));
        }
    };
    let status = answer.split(' ').nth(1).unwrap_or_default();
    Some(match answer.split_once(OWN_ANSWER) {
        Some((_, reason)) => Finding::problem(
            format!("{site}: {}", reason.trim()),
            "see the chapter about services, and the log of the far end",
        ),
        None if answer.starts_with("HTTP/1.1 ") => {
            Finding::ok(format!("{site} answers, with status {status}"))
        }
        // Such as a client that `clients` does not list.
        None => Finding::skipped(format!(
            "{site}: the listener {listen} closed the connection"
        ))
        .advise("add 127.0.0.1 to `clients`, or try it from a client"),
    })
}

/// The beginning of the answer to a request for the first page.
fn ask(listen: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&listen, WITHIN)?;
    stream.set_read_timeout(Some(WITHIN))?;
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: {listen}\r\nUser-Agent: refrain-doctor\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
    match read {
        Err(error) if answer.is_empty() && error.kind() != io::ErrorKind::ConnectionReset => {
            Err(error)
        }
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Where this machine reaches a listener.
fn local(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
