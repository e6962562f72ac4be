//! A packet's segment of TCP, through the layers below it: Ethernet with tags of VLANs, cooked captures of Linux, raw IP,
//! labels of MPLS; fragments of IP; and one tunnel, GRE or VXLAN.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
};

use etherparse::{
    EtherType, IpNumber, Ipv6ExtensionSlice, LaxIpSlice, TcpSlice, UdpSlice,
    defrag::IpDefragBuf,
    ether_type::{IPV4, IPV6, PROVIDER_BRIDGING, VLAN_DOUBLE_TAGGED_FRAME, VLAN_TAGGED_FRAME},
};
use pcap_parser::Linktype;

use crate::Packet;

const MPLS: [u16; 2] = [0x8847, 0x8848];
const ETHERNET_BRIDGED: u16 = 0x6558;
const VXLAN_PORT: u16 = 4789;

/// Tags before the content of a frame.
const TAGS_MAX: usize = 4;
const LABELS_MAX: usize = 16;

/// A segment of TCP, as far as it was captured.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// The number of its first byte.
    pub sequence: u32,
    /// The number of the next byte that the sender expects.
    pub acknowledgment: Option<u32>,
    /// The sender begins.
    pub is_syn: bool,
    /// The sender has no more bytes.
    pub is_fin: bool,
    /// The connection is over.
    pub is_reset: bool,
    /// Its bytes, or the first of them.
    pub bytes: &'a [u8],
    /// All of its bytes on the wire.
    pub length: u32,
}

/// Where a packet leads.
#[derive(Clone, Copy, Debug)]
pub enum Layer<'a> {
    /// To a segment of TCP.
    Tcp(Segment<'a>),
    /// To another protocol over IP.
    OtherOverIp,
    /// To a fragment whose packet is not complete, or never will be.
    Fragment,
    /// To another protocol than IP.
    Other,
    /// To headers that were cut off, or are none.
    Malformed,
}

/// The content of a link's frame.
enum Below<'a> {
    Ip(&'a [u8]),
    Other,
    Malformed,
}

impl<'a> Layer<'a> {
    /// Finds it. Fragments wait in `fragments`, which also holds whole packets.
    pub fn of(packet: &Packet<'a>, fragments: &'a mut Fragments) -> Layer<'a> {
        let below = match packet.link {
            Linktype::ETHERNET => ethernet(packet.bytes),
            Linktype::LINUX_SLL => match packet.bytes.get(14..16) {
                Some(kind) => of_ether_type(be16(kind), &packet.bytes[16..]),
                None => Below::Malformed,
            },
            Linktype::LINUX_SLL2 => match packet.bytes.get(..20) {
                Some(header) => of_ether_type(be16(header), &packet.bytes[20..]),
                None => Below::Malformed,
            },
            // A number of an address family, whose order of bytes and values depend on the system.
            Linktype::NULL | Linktype::LOOP => match packet.bytes.get(4..) {
                Some(rest) => Below::Ip(rest),
                None => Below::Malformed,
            },
            // 12 and 14 are raw IP too, in old captures.
            Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | Linktype(12 | 14) => {
                Below::Ip(packet.bytes)
            }
            _ => Below::Other,
        };
        match below {
            Below::Ip(bytes) => of_ip(bytes, fragments, true),
            Below::Other => Layer::Other,
            Below::Malformed => Layer::Malformed,
        }
    }
}

fn be16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

fn ethernet(frame: &[u8]) -> Below<'_> {
    match frame.get(12..14) {
        Some(kind) => of_ether_type(be16(kind), &frame[14..]),
        None => Below::Malformed,
    }
}

fn of_ether_type(mut kind: u16, mut rest: &[u8]) -> Below<'_> {
    for _ in 0..TAGS_MAX {
        match EtherType(kind) {
            IPV4 | IPV6 => return Below::Ip(rest),
            VLAN_TAGGED_FRAME | PROVIDER_BRIDGING | VLAN_DOUBLE_TAGGED_FRAME => {
                let Some(tag) = rest.get(..4) else {
                    return Below::Malformed;
                };
                kind = be16(&tag[2..]);
                rest = &rest[4..];
            }
            _ if MPLS.contains(&kind) => return of_labels(rest),
            _ => return Below::Other,
        }
    }
    Below::Other
}

fn of_labels(mut rest: &[u8]) -> Below<'_> {
    for _ in 0..LABELS_MAX {
        let Some(label) = rest.get(..4) else {
            return Below::Malformed;
        };
        let is_last = label[2] & 1 == 1;
        rest = &rest[4..];
        if is_last {
            return match rest.first().map(|byte| byte >> 4) {
                Some(4 | 6) => Below::Ip(rest),
                // A control word, and a frame.
                Some(0) if rest.len() >= 4 => ethernet(&rest[4..]),
                Some(_) => Below::Other,
                None => Below::Malformed,
            };
        }
    }
    Below::Malformed
}

fn of_ip<'a>(bytes: &'a [u8], fragments: &'a mut Fragments, may_be_tunnel: bool) -> Layer<'a> {
    let Ok((ip, _)) = LaxIpSlice::from_slice(bytes) else {
        return Layer::Malformed;
    };
    let ends = (ip.source_addr(), ip.destination_addr());
    let payload = ip.payload();
    if payload.fragmented {
        let Some(number) = fragments.add(&ip) else {
            return Layer::Fragment;
        };
        let whole = &fragments.whole[..];
        return match number {
            // No fragments within these.
            IpNumber::TCP => of_tcp(ends, whole, whole.len()),
            _ => Layer::OtherOverIp,
        };
    }
    match payload.ip_number {
        IpNumber::TCP => of_tcp(ends, payload.payload, length_of(&ip)),
        IpNumber::GRE if may_be_tunnel => of_tunnel(gre(payload.payload), fragments),
        IpNumber::UDP if may_be_tunnel => match UdpSlice::from_slice_lax(payload.payload) {
            Ok(udp) if udp.destination_port() == VXLAN_PORT => {
                let frame = udp.payload().get(8..).map_or(Below::Malformed, ethernet);
                of_tunnel(frame, fragments)
            }
            _ => Layer::OtherOverIp,
        },
        IpNumber::IPV4 | IpNumber::IPV6 if may_be_tunnel => {
            of_ip(payload.payload, fragments, false)
        }
        _ => Layer::OtherOverIp,
    }
}

fn of_tunnel<'a>(below: Below<'a>, fragments: &'a mut Fragments) -> Layer<'a> {
    match below {
        Below::Ip(bytes) => of_ip(bytes, fragments, false),
        Below::Other => Layer::OtherOverIp,
        Below::Malformed => Layer::Malformed,
    }
}

fn gre(bytes: &[u8]) -> Below<'_> {
    let Some(header) = bytes.get(..4) else {
        return Below::Malformed;
    };
    // Checksum, key, number: four bytes each.
    let optional = [0x80, 0x20, 0x10]
        .iter()
        .filter(|&&bit| header[0] & bit != 0);
    let Some(rest) = bytes.get(4 + 4 * optional.count()..) else {
        return Below::Malformed;
    };
    match be16(&header[2..]) {
        ETHERNET_BRIDGED => ethernet(rest),
        kind => of_ether_type(kind, rest),
    }
}

/// All bytes behind the headers of IP, also those that were not captured. Kernels that cut segments late leave the length
/// of the header empty.
fn length_of(ip: &LaxIpSlice<'_>) -> usize {
    let captured = ip.payload().payload.len();
    let said = match ip {
        LaxIpSlice::Ipv4(ip) => {
            let header = ip.header();
            usize::from(header.total_len()).checked_sub(header.slice().len())
        }
        LaxIpSlice::Ipv6(ip) => {
            let extensions = ip.extensions().slice().len();
            usize::from(ip.header().payload_length()).checked_sub(extensions)
        }
    };
    said.map_or(captured, |said| said.max(captured))
}

fn of_tcp<'a>(
    (source, destination): (IpAddr, IpAddr),
    bytes: &'a [u8],
    length: usize,
) -> Layer<'a> {
    let Ok(tcp) = TcpSlice::from_slice(bytes) else {
        return Layer::Malformed;
    };
    let header = tcp.header_slice().len();
    Layer::Tcp(Segment {
        source: SocketAddr::new(source, tcp.source_port()),
        destination: SocketAddr::new(destination, tcp.destination_port()),
        sequence: tcp.sequence_number(),
        acknowledgment: tcp.ack().then(|| tcp.acknowledgment_number()),
        is_syn: tcp.syn(),
        is_fin: tcp.fin(),
        is_reset: tcp.rst(),
        bytes: tcp.payload(),
        length: (length - header.min(length)) as u32,
    })
}

/// Packets of which fragments have come.
const PACKETS_MAX: usize = 1024;

/// Packets of IP in fragments. At most 1,024 wait for their rest, of 64 KiB each; then the oldest is given up.
#[derive(Default)]
pub struct Fragments {
    waiting: HashMap<Identity, IpDefragBuf>,
    /// By age. Packets that are complete may still be named.
    oldest: VecDeque<Identity>,
    whole: Vec<u8>,
    /// Packets whose rest never came.
    incomplete: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    source: IpAddr,
    destination: IpAddr,
    number: u32,
    protocol: IpNumber,
}

impl Fragments {
    /// Packets that were given up, and those whose rest has not come.
    #[must_use]
    pub fn incomplete(&self) -> u64 {
        self.incomplete + self.waiting.len() as u64
    }

    /// Takes a fragment. If its packet is complete, `whole` is its content, of the protocol that is returned.
    fn add(&mut self, ip: &LaxIpSlice<'_>) -> Option<IpNumber> {
        let payload = ip.payload();
        if payload.incomplete {
            return None;
        }
        let (number, offset, more) = match ip {
            LaxIpSlice::Ipv4(ip) => {
                let header = ip.header();
                (
                    u32::from(header.identification()),
                    header.fragments_offset(),
                    header.more_fragments(),
                )
            }
            LaxIpSlice::Ipv6(ip) => {
                let fragment =
                    ip.extensions()
                        .clone()
                        .into_iter()
                        .find_map(|extension| match extension {
                            Ipv6ExtensionSlice::Fragment(fragment) => Some(fragment),
                            _ => None,
                        })?;
                (
                    fragment.identification(),
                    fragment.fragment_offset(),
                    fragment.more_fragments(),
                )
            }
        };
        let identity = Identity {
            source: ip.source_addr(),
            destination: ip.destination_addr(),
            number,
            protocol: payload.ip_number,
        };
        if !self.waiting.contains_key(&identity) {
            self.make_room();
            self.oldest.push_back(identity);
        }
        let buffer = self
            .waiting
            .entry(identity)
            .or_insert_with(|| IpDefragBuf::new(payload.ip_number, Vec::new(), Vec::new()));
        if buffer.add(offset, more, payload.payload).is_err() {
            self.waiting.remove(&identity);
            self.incomplete += 1;
            return None;
        }
        if !buffer.is_complete() {
            return None;
        }
        let buffer = self.waiting.remove(&identity).expect("it was there");
        (self.whole, _) = buffer.take_bufs();
        Some(payload.ip_number)
    }

    fn make_room(&mut self) {
        while self.waiting.len() >= PACKETS_MAX || self.oldest.len() >= 4 * PACKETS_MAX {
            let Some(oldest) = self.oldest.pop_front() else {
                return;
            };
            if self.waiting.remove(&oldest).is_some() {
                self.incomplete += 1;
            }
        }
    }
}
