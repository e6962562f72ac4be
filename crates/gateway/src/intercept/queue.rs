//! Packets that the firewall hands to this process, which decides about each: a queue of netfilter, by netlink
//! (nfnetlink_queue). It needs CAP_NET_ADMIN.
//!
//! The kernel lets packets pass while no process has the queue, and when it is full. When the socket is closed, the
//! packets in it are dropped, and their senders send them again.

use std::{io, net::SocketAddr};

use socket2::{SockRef, Socket};
use tokio::net::UnixDatagram;

use super::{
    netfilter::{self, ENOBUFS, message},
    netlink::{NLM_F_REQUEST, bytes_at},
    packet::{IpPacket, TCP},
    table::REFUSED_MARK,
};

/// Numbers of linux/netfilter/nfnetlink.h and linux/netfilter/nfnetlink_queue.h.
const NFNL_SUBSYS_QUEUE: u16 = 3 << 8;
const NFQNL_MSG_PACKET: u16 = NFNL_SUBSYS_QUEUE;
const NFQNL_MSG_VERDICT: u16 = NFNL_SUBSYS_QUEUE | 1;
const NFQNL_MSG_CONFIG: u16 = NFNL_SUBSYS_QUEUE | 2;
const NFQNL_CFG_CMD_BIND: u8 = 1;
const NFQNL_CFG_CMD_PF_BIND: u8 = 3;
const NFQNL_COPY_PACKET: u8 = 2;
const NFQA_CFG_CMD: u16 = 1;
const NFQA_CFG_PARAMS: u16 = 2;
const NFQA_CFG_QUEUE_MAXLEN: u16 = 3;
const NFQA_CFG_MASK: u16 = 4;
const NFQA_CFG_FLAGS: u16 = 5;
const NFQA_CFG_F_FAIL_OPEN: u32 = 1;
const NFQA_PACKET_HDR: u16 = 1;
const NFQA_VERDICT_HDR: u16 = 2;
const NFQA_MARK: u16 = 3;
const NFQA_PAYLOAD: u16 = 10;
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;

/// So much of a packet is looked at: the headers of IP and TCP.
const COPIED_BYTES: u32 = 128;

/// Packets in the queue. Further ones pass.
const PACKETS_MAX: u32 = 4096;

/// A queue of the firewall that this process has.
pub(crate) struct Queue {
    socket: UnixDatagram,
    number: u16,
}

/// A packet that waits for its verdict.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its number in the queue.
    pub id: u32,
    /// The source and the destination, if it opens a TCP connection.
    pub opens: Option<(SocketAddr, SocketAddr)>,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    /// Its sender sends it again.
    Drop,
    /// The table answers it with a reset.
    Refuse,
}

/// Whether this process may have queues, and groups of the log.
pub(crate) fn is_permitted() -> bool {
    let command = [NFQNL_CFG_CMD_PF_BIND, 0, 0, 0];
    let Ok(socket) = netfilter::open() else {
        return false;
    };
    // It does nothing since Linux 3.8. A kernel without queues asks for the capability too.
    let asked = configure(&socket, 0, &[(NFQA_CFG_CMD, &command)]);
    !asked.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

impl Queue {
    /// Takes the queue with this number.
    pub(crate) fn bind(number: u16) -> io::Result<Queue> {
        let [a, b, c, d] = COPIED_BYTES.to_be_bytes();
        let flag = NFQA_CFG_F_FAIL_OPEN.to_be_bytes();
        let attributes: [(u16, &[u8]); 5] = [
            (NFQA_CFG_CMD, &[NFQNL_CFG_CMD_BIND, 0, 0, 0]),
            (NFQA_CFG_PARAMS, &[a, b, c, d, NFQNL_COPY_PACKET]),
            (NFQA_CFG_QUEUE_MAXLEN, &PACKETS_MAX.to_be_bytes()),
            (NFQA_CFG_MASK, &flag),
            (NFQA_CFG_FLAGS, &flag),
        ];
        let socket = netfilter::open()?;
        configure(&socket, number, &attributes)?;
        let socket = netfilter::into_async(socket)?;
        Ok(Queue { socket, number })
    }

    /// Waits for a packet.
    pub(crate) async fn next(&self) -> io::Result<Packet> {
        let mut buffer = [0; 4096];
        loop {
            match self.socket.recv(&mut buffer).await {
                Ok(length) => {
                    if let Some(packet) = read_packet(&buffer[..length]) {
                        return Ok(packet);
                    }
                }
                // The socket's buffer was full: the packet passed.
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Decides about a packet.
    pub(crate) fn decide(&self, id: u32, verdict: Verdict) {
        // It fails for packets that are gone, as those of an interface that went down.
        let _ = decide(&SockRef::from(&self.socket), self.number, id, verdict);
    }
}

/// Sends a command about a queue, and waits for the kernel's answer.
fn configure(socket: &Socket, number: u16, attributes: &[(u16, &[u8])]) -> io::Result<()> {
    netfilter::configure(
        socket,
        NFQNL_MSG_CONFIG,
        number,
        attributes,
        |message| match read_packet(message) {
            Some(packet) => decide(socket, number, packet.id, Verdict::Accept),
            None => Ok(()),
        },
    )
}

fn decide(socket: &Socket, number: u16, id: u32, verdict: Verdict) -> io::Result<()> {
    let code = match verdict {
        Verdict::Accept | Verdict::Refuse => NF_ACCEPT,
        Verdict::Drop => NF_DROP,
    };
    let header = [code.to_be_bytes(), id.to_be_bytes()].concat();
    let mark = REFUSED_MARK.to_be_bytes();
    let attributes: [(u16, &[u8]); 2] = [(NFQA_VERDICT_HDR, &header), (NFQA_MARK, &mark)];
    let attributes = match verdict {
        Verdict::Refuse => &attributes[..],
        Verdict::Accept | Verdict::Drop => &attributes[..1],
    };
    let message = message(NFQNL_MSG_VERDICT, NLM_F_REQUEST, number, attributes);
    socket.send(&message).map(drop)
}

/// The packet of a message of the kernel, if it is about one.
pub fn read_packet(message: &[u8]) -> Option<Packet> {
    let mut packet = Packet { id: 0, opens: None };
    let mut has_id = false;
    for (kind, value) in netfilter::attributes(message, NFQNL_MSG_PACKET)? {
        match kind {
            NFQA_PACKET_HDR => {
                packet.id = u32::from_be_bytes(bytes_at(value, 0)?);
                has_id = true;
            }
            NFQA_PAYLOAD => packet.opens = opens(value),
            _ => {}
        }
    }
    has_id.then_some(packet)
}

/// The source and the destination of an IP packet that opens a TCP connection.
fn opens(packet: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    const FLAGS_AT: usize = 13;
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    let packet = IpPacket::read(packet)?;
    let tcp = packet.payload;
    let port = |at| Some(u16::from_be_bytes(bytes_at(tcp, at)?));
    let is_opening = tcp.get(FLAGS_AT)? & (SYN | ACK) == SYN;
    let ends = (
        SocketAddr::new(packet.source, port(0)?),
        SocketAddr::new(packet.destination, port(2)?),
    );
    (is_opening && packet.protocol == TCP).then_some(ends)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    /// A packet as the kernel hands it over, with another attribute before it.
    fn handed_over(packet: &[u8]) -> Vec<u8> {
        let header = [0, 0, 0, 7, 8, 0, 3];
        message(
            NFQNL_MSG_PACKET,
            0,
            15001,
            &[
                (NFQA_PACKET_HDR, &header),
                (NFQA_MARK, &[1, 2, 3, 4]),
                (NFQA_PAYLOAD, packet),
            ],
        )
    }

    fn opening(is_ipv6: bool) -> Vec<u8> {
        let mut packet = match is_ipv6 {
            false => vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0],
            true => vec![0x60, 0, 0, 0, 0, 20, 6, 64],
        };
        match is_ipv6 {
            false => packet.extend([10, 77, 0, 1, 10, 77, 0, 2]),
            true => {
                packet.extend("fd77::1".parse::<Ipv6Addr>().expect("an address").octets());
                packet.extend("fd77::2".parse::<Ipv6Addr>().expect("an address").octets());
            }
        }
        packet.extend([0x9c, 0x40, 0x1f, 0x90]);
        packet.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
        packet
    }

    #[test]
    fn the_ends_of_a_connection_are_read_in_both_families() {
        for (is_ipv6, source, destination) in [
            (false, "10.77.0.1:40000", "10.77.0.2:8080"),
            (true, "[fd77::1]:40000", "[fd77::2]:8080"),
        ] {
            let ends = [source, destination].map(|end| end.parse().expect("an address"));
            let packet = opening(is_ipv6);
            let read = read_packet(&handed_over(&packet)).expect("a packet");
            assert_eq!((read.id, read.opens), (7, Some(ends.into())));
            // All others are passed on as they are.
            let flags_at = packet.len() - 7;
            let protocol_at = if is_ipv6 { 6 } else { 9 };
            for (at, value) in [
                (flags_at, 0x12),
                (flags_at, 0x10),
                (protocol_at, 17),
                (0, 0x15),
            ] {
                let mut other = packet.clone();
                other[at] = value;
                let read = read_packet(&handed_over(&other)).expect("a packet");
                assert_eq!((read.id, read.opens), (7, None), "{at}");
            }
            for length in 0..flags_at {
                assert_eq!(opens(&packet[..length]), None);
            }
        }
        let mut fragment = opening(false);
        fragment[7] = 1;
        assert_eq!(opens(&fragment), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_not(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0..200_usize,
        ) {
            let _ = opens(&bytes);
            let mut message = handed_over(&bytes);
            let _ = read_packet(&message);
            message.truncate(at);
            let _ = read_packet(&message);
            let at = at.min(message.len());
            message.splice(at.., bytes);
            let _ = read_packet(&message);
        }
    }
}
