//! Packets of IP, as far as they are read here: their ends, and what they carry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::netlink::bytes_at;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// A packet, or its beginning.
pub(super) struct IpPacket<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    pub(super) payload: &'a [u8],
}

impl IpPacket<'_> {
    /// Reads a packet that is not a fragment: those are put together before.
    pub(super) fn read(packet: &[u8]) -> Option<IpPacket<'_>> {
        let first = *packet.first()?;
        let (source, destination, header, protocol): (IpAddr, IpAddr, _, _) = match first >> 4 {
            4 => {
                let fragment = u16::from_be_bytes(bytes_at(packet, 6)?) & 0x3fff;
                if fragment != 0 {
                    return None;
                }
                let address = |at| Some(Ipv4Addr::from(bytes_at::<4>(packet, at)?));
                let header = 4 * usize::from(first & 15);
                (address(12)?.into(), address(16)?.into(), header, 9)
            }
            // With headers between, it is none that is known here.
            6 => {
                let address = |at| Some(Ipv6Addr::from(bytes_at::<16>(packet, at)?));
                (address(8)?.into(), address(24)?.into(), 40, 6)
            }
            _ => return None,
        };
        Some(IpPacket {
            source,
            destination,
            protocol: *packet.get(protocol)?,
            payload: packet.get(header..).filter(|_| header >= 20)?,
        })
    }
}
