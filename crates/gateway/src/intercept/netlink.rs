//! Messages to the kernel by netlink (linux/netlink.h): a header, that of the protocol, and attributes.

use std::{io, time::Duration};

use socket2::{Domain, Protocol, Socket, Type};

const AF_NETLINK: i32 = 16;
pub(super) const NLM_F_REQUEST: u16 = 1;

/// The header of a message, and of an attribute.
pub(super) const HEADER_BYTES: usize = 16;
pub(super) const ATTRIBUTE_BYTES: usize = 4;

/// The kernel answers at once.
const WITHIN: Duration = Duration::from_secs(1);

/// A socket for this protocol.
pub(super) fn open(protocol: i32) -> io::Result<Socket> {
    let (domain, protocol) = (Domain::from(AF_NETLINK), Protocol::from(protocol));
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.set_read_timeout(Some(WITHIN))?;
    Ok(socket)
}

/// A message with the protocol's own header and these attributes.
pub(super) fn message(
    kind: u16,
    flags: u16,
    header: &[u8],
    attributes: &[(u16, &[u8])],
) -> Vec<u8> {
    let mut body = header.to_vec();
    for (kind, value) in attributes {
        body.extend(((ATTRIBUTE_BYTES + value.len()) as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(*value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let length = (HEADER_BYTES + body.len()) as u32;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // A number and a port, which the kernel repeats.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// A message's kind.
pub(super) fn kind(message: &[u8]) -> Option<u16> {
    bytes_at(message, 4).map(u16::from_ne_bytes)
}

pub(super) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}
