//! A table that was removed, with `nft flush ruleset` for example: when that happens, and what becomes of open
//! connections.
//!
//! Without the table, the kernel does not translate the addresses of open connections. The near end's packets then come
//! to the client from an unknown address, so the client's kernel answers them with a reset, which ends the near end's
//! side. The client itself learns nothing, and one that only reads waits for ever.
//!
//! So each client gets a packet that has it confirm its connection (RFC 9293, section 3.10.7.4: a SYN in a connection
//! that is open is answered with an ACK). The answer comes to the near end if the table is loaded again, and otherwise to
//! the server. If the near end still has the connection, this changes nothing. If not, the answer is answered with a
//! reset, which now reaches the client.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use rustix::net::{bind, netlink::SocketAddrNetlink};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UnixDatagram;

use super::{
    netfilter::{self, NLMSG_ERROR},
    netlink::{self, HEADER_BYTES, NLM_F_REQUEST, attribute, bytes_at, kind, messages},
    packet::TCP,
    table::TABLE,
};
use crate::machine::is_of_this_machine;

/// Numbers of linux/netlink.h, and of nfnetlink.h, nf_tables.h and nfnetlink_conntrack.h in linux/netfilter.
const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP: u16 = 0x300;
const NFNLGRP_NFTABLES: u32 = 7;
const NFT_MSG_DELTABLE: u16 = 10 << 8 | 2;
const NFTA_TABLE_NAME: u16 = 1;
const IPCTNL_MSG_CT_NEW: u16 = 1 << 8;
const IPCTNL_MSG_CT_GET: u16 = 1 << 8 | 1;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;

/// The kernel sends at most so much at a time.
const RECEIVED_BYTES: usize = 1 << 16;

/// Tells when the table is removed.
pub struct Removals {
    /// Of netlink.
    socket: UnixDatagram,
}

impl Removals {
    /// Watches the network of this process.
    ///
    /// # Errors
    ///
    /// If this process may not, or the kernel has no nftables.
    pub fn watch() -> io::Result<Removals> {
        let socket = netfilter::open()?;
        let groups = 1 << (NFNLGRP_NFTABLES - 1);
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        let socket = netfilter::into_async(socket)?;
        Ok(Removals { socket })
    }

    /// Waits until the table was removed, by this process too, or may have been.
    pub async fn next(&self) {
        let mut received = vec![0; RECEIVED_BYTES];
        // An error is that of changes that the socket had no space for.
        while let Ok(length) = self.socket.recv(&mut received).await {
            if messages(&received[..length]).any(is_removal) {
                return;
            }
        }
    }
}

/// Whether it is about the removal of the table.
fn is_removal(message: &[u8]) -> bool {
    let (_, own) = TABLE.split_once(' ').unwrap_or_default();
    let mut attributes = netfilter::attributes(message, NFT_MSG_DELTABLE)
        .into_iter()
        .flatten();
    attributes.any(|(kind, value)| {
        kind == NFTA_TABLE_NAME && value.strip_suffix(&[0]) == Some(own.as_bytes())
    })
}

/// The clients of redirected connections.
pub struct Clients(Vec<Redirected>);

/// A connection that is redirected to this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Redirected {
    client: SocketAddr,
    server: SocketAddr,
    near_end: SocketAddr,
}

/// The source and the destination of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    source: SocketAddr,
    destination: SocketAddr,
}

impl Clients {
    /// Those of all connections that are redirected to this machine.
    ///
    /// # Errors
    ///
    /// If this process may not, or the kernel does not list connections (it has no nf_conntrack_netlink).
    pub fn list() -> io::Result<Clients> {
        let mut all = redirected()?;
        all.retain(|redirected| is_of_this_machine(redirected.near_end.ip()));
        Ok(Clients(all))
    }

    /// Has each confirm its connection, after the table was loaded again.
    ///
    /// # Errors
    ///
    /// If this process may not send such packets: it needs CAP_NET_RAW.
    pub fn ask_for_near_end(&self) -> io::Result<()> {
        let mut all = self.0.iter();
        all.try_for_each(|redirected| ask(redirected.near_end, redirected.client))
    }

    /// Has each confirm its connection, after the table was removed.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn ask_for_servers(&self) -> io::Result<()> {
        let mut all = self.0.iter();
        all.try_for_each(|redirected| ask(redirected.server, redirected.client))
    }
}

/// The connections whose destination the kernel replaced.
fn redirected() -> io::Result<Vec<Redirected>> {
    let socket = netfilter::open()?;
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    socket.send(&netfilter::message(IPCTNL_MSG_CT_GET, flags, 0, &[]))?;
    let mut all = Vec::new();
    let mut received = vec![0; RECEIVED_BYTES];
    loop {
        let length = netlink::receive(&socket, &mut received)?;
        for message in messages(&received[..length]) {
            match kind(message) {
                Some(NLMSG_DONE) => return Ok(all),
                Some(NLMSG_ERROR) => {
                    let error = bytes_at(message, HEADER_BYTES).map_or(0, i32::from_ne_bytes);
                    return Err(io::Error::from_raw_os_error(error.saturating_neg()));
                }
                _ => all.extend(read_redirected(message)),
            }
        }
    }
}

/// A connection that the kernel describes, if it is redirected.
fn read_redirected(message: &[u8]) -> Option<Redirected> {
    let (mut request, mut reply) = (None, None);
    for (kind, value) in netfilter::attributes(message, IPCTNL_MSG_CT_NEW)? {
        match kind {
            CTA_TUPLE_ORIG => request = way(value),
            CTA_TUPLE_REPLY => reply = way(value),
            _ => {}
        }
    }
    let (request, reply) = (request?, reply?);
    let is_redirected = reply.source != request.destination && reply.destination == request.source;
    is_redirected.then_some(Redirected {
        client: request.source,
        server: request.destination,
        near_end: reply.source,
    })
}

/// The ends of TCP packets.
fn way(tuple: &[u8]) -> Option<Way> {
    let (ip, protocol) = (
        attribute(tuple, CTA_TUPLE_IP)?,
        attribute(tuple, CTA_TUPLE_PROTO)?,
    );
    let address = |v4, v6| {
        let v4 = attribute(ip, v4).and_then(|bytes| Some(Ipv4Addr::from(bytes_at(bytes, 0)?)));
        let v6 = || Some(Ipv6Addr::from(bytes_at::<16>(attribute(ip, v6)?, 0)?));
        v4.map(IpAddr::V4).or_else(|| v6().map(IpAddr::V6))
    };
    let port = |kind| Some(u16::from_be_bytes(bytes_at(attribute(protocol, kind)?, 0)?));
    let is_tcp = attribute(protocol, CTA_PROTO_NUM)?.first() == Some(&TCP);
    let source = address(CTA_IP_V4_SRC, CTA_IP_V6_SRC)?;
    let destination = address(CTA_IP_V4_DST, CTA_IP_V6_DST)?;
    let way = Way {
        source: (source, port(CTA_PROTO_SRC_PORT)?).into(),
        destination: (destination, port(CTA_PROTO_DST_PORT)?).into(),
    };
    is_tcp.then_some(way)
}

/// Sends the client a packet that it answers with the next number that it expects.
fn ask(source: SocketAddr, client: SocketAddr) -> io::Result<()> {
    let domain = Domain::for_address(source);
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::TCP))?;
    // The source may be another machine's. This is of both families.
    socket.set_ip_transparent_v4(true)?;
    let without_port = |end: SocketAddr| SocketAddr::new(end.ip(), 0).into();
    socket.bind(&without_port(source))?;
    // A client that has just gone may have no route.
    let _ = socket.send_to(&segment(source, client), &without_port(client));
    Ok(())
}

/// A segment of TCP with the flags SYN and ACK, and without data.
fn segment(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    const WORDS_AND_FLAGS: [u8; 2] = [5 << 4, 0x12];
    const CHECKSUM_AT: usize = 16;
    let ports = [source, destination].map(|end| end.port().to_be_bytes());
    let mut segment = ports.concat();
    // The numbers do not matter: a SYN is never expected.
    segment.extend([0; 8]);
    segment.extend(WORDS_AND_FLAGS);
    segment.extend([0; 6]);
    // Over the addresses, the protocol and the length, too. The order of these parts does not matter.
    let mut summed = segment.clone();
    for end in [source, destination] {
        match end.ip() {
            IpAddr::V4(address) => summed.extend(address.octets()),
            IpAddr::V6(address) => summed.extend(address.octets()),
        }
    }
    summed.extend([0, TCP, 0, segment.len() as u8]);
    let words = summed.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    // At most 28 words were summed.
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    segment[CHECKSUM_AT..][..2].copy_from_slice(&(!sum as u16).to_be_bytes());
    segment
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An attribute of attributes.
    fn nested(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        // Behind the headers of a message and of netfilter's part.
        netfilter::message(0, 0, 0, attributes)[20..].to_vec()
    }

    fn tuple(protocol: u8, source: &str, destination: &str) -> Vec<u8> {
        let [source, destination] =
            [source, destination].map(|end| end.parse::<SocketAddr>().expect("an address"));
        let octets = |end: SocketAddr| match end.ip() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let (from, to) = match source.is_ipv4() {
            true => (CTA_IP_V4_SRC, CTA_IP_V4_DST),
            false => (CTA_IP_V6_SRC, CTA_IP_V6_DST),
        };
        let ip = nested(&[(from, &octets(source)), (to, &octets(destination))]);
        let ports = [source, destination].map(|end| end.port().to_be_bytes());
        let protocol = nested(&[
            (CTA_PROTO_NUM, &[protocol]),
            (CTA_PROTO_SRC_PORT, &ports[0]),
            (CTA_PROTO_DST_PORT, &ports[1]),
        ]);
        // The kernel marks attributes of attributes.
        const NESTED: u16 = 0x8000;
        nested(&[
            (CTA_TUPLE_IP | NESTED, &ip),
            (CTA_TUPLE_PROTO | NESTED, &protocol),
        ])
    }

    fn connection(request: &[u8], reply: &[u8]) -> Vec<u8> {
        let attributes: [(u16, &[u8]); 2] = [(CTA_TUPLE_ORIG, request), (CTA_TUPLE_REPLY, reply)];
        netfilter::message(IPCTNL_MSG_CT_NEW, 0, 0, &attributes)
    }

    #[test]
    fn redirected_connections_are_told_from_others() {
        for (client, server, near) in [
            ("10.77.0.1:40000", "10.77.0.2:80", "127.0.0.1:15001"),
            ("[fd77::1]:40000", "[fd77::2]:80", "[::1]:15001"),
        ] {
            let request = tuple(TCP, client, server);
            let read = read_redirected(&connection(&request, &tuple(TCP, near, client)));
            let [client_end, server_end, near_end] =
                [client, server, near].map(|end| end.parse().expect("an address"));
            let expected = Redirected {
                client: client_end,
                server: server_end,
                near_end,
            };
            assert_eq!(read, Some(expected));
            for other in [
                connection(&request, &tuple(TCP, server, client)),
                connection(&tuple(17, client, server), &tuple(17, near, client)),
                // A client whose address is translated.
                connection(&request, &tuple(TCP, near, "192.0.2.1:40000")),
            ] {
                assert_eq!(read_redirected(&other), None);
            }
        }
    }

    #[test]
    fn only_the_removal_of_our_table_counts() {
        let message =
            |kind, name: &[u8]| netfilter::message(kind, 0, 0, &[(NFTA_TABLE_NAME, name)]);
        assert!(is_removal(&message(NFT_MSG_DELTABLE, b"refrain\0")));
        assert!(!is_removal(&message(NFT_MSG_DELTABLE, b"refrain2\0")));
        assert!(!is_removal(&message(NFT_MSG_DELTABLE - 2, b"refrain\0")));
    }

    #[test]
    fn the_sum_of_a_segment_and_its_addresses_is_all_ones() {
        let [near, client] =
            ["10.77.0.2:15001", "10.77.0.1:65535"].map(|end| end.parse().expect("an address"));
        let mut summed = segment(near, client);
        summed.extend([10, 77, 0, 2, 10, 77, 0, 1, 0, TCP, 0, 20]);
        let words = summed.chunks(2);
        let sum: u32 = words
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_not(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0..200_usize,
        ) {
            let tuple = tuple(TCP, "10.77.0.1:40000", "10.77.0.2:80");
            let mut received = connection(&tuple, &tuple);
            let at = at.min(received.len());
            received.splice(at.., bytes);
            for message in messages(&received) {
                let _ = (read_redirected(message), is_removal(message));
            }
        }
    }
}
