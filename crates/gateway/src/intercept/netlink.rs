//! Messages to the kernel by netlink (linux/netlink.h): a header, that of the protocol, and attributes.

use std::{
    io::{self, Read},
    iter,
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};

const AF_NETLINK: i32 = 16;
pub(super) const NLM_F_REQUEST: u16 = 1;

/// The header of a message, and of an attribute.
pub(super) const HEADER_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;

/// The kernel answers at once.
const WITHIN: Duration = Duration::from_secs(1);

/// A socket for this protocol.
pub(super) fn open(protocol: i32) -> io::Result<Socket> {
    let (domain, protocol) = (Domain::from(AF_NETLINK), Protocol::from(protocol));
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.set_read_timeout(Some(WITHIN))?;
    Ok(socket)
}

/// Receives once, with the socket's time limit. Without the loop, a process that is stopped and continued meanwhile
/// would fail.
pub(super) fn receive(mut socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received,
        }
    }
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

/// The messages that were received together.
pub(super) fn messages(mut received: &[u8]) -> impl Iterator<Item = &[u8]> {
    iter::from_fn(move || {
        let length = u32::from_ne_bytes(bytes_at(received, 0)?) as usize;
        let message = received.get(..length).filter(|_| length >= HEADER_BYTES)?;
        received = received
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some(message)
    })
}

/// The kinds and values of attributes, up to one that is cut.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    // Two bits say how the value is written.
    const KIND: u16 = 0x3fff;
    iter::from_fn(move || {
        let [a, b, c, d] = bytes_at(bytes, 0)?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(ATTRIBUTE_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & KIND, value))
    })
}

/// The value of the attribute of this kind.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(other, value)| (other == kind).then_some(value))
}

pub(super) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}
