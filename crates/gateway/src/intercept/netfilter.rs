//! Messages to and of netfilter, by netlink (linux/netfilter/nfnetlink.h). They need CAP_NET_ADMIN.

use std::{
    io,
    os::{fd::OwnedFd, unix},
};

use socket2::Socket;
use tokio::net::UnixDatagram;

use super::netlink::{self, NLM_F_REQUEST, bytes_at, kind};

/// Numbers of linux/netlink.h and errno.h.
const NETLINK_NETFILTER: i32 = 12;
pub(super) const NLMSG_ERROR: u16 = 2;
const NLM_F_ACK: u16 = 4;
pub(super) const ENOBUFS: i32 = 105;

/// The headers of a message and of netfilter's part.
const HEADER_BYTES: usize = netlink::HEADER_BYTES + 4;

/// Messages that may come before the kernel's answer.
const MESSAGES_MAX: usize = 4096;

/// A socket for commands, whose answers are waited for.
pub(super) fn open() -> io::Result<Socket> {
    netlink::open(NETLINK_NETFILTER)
}

/// The same socket for tokio, which has no safe type for it: this one calls recv(2) too, once there is something.
pub(super) fn into_async(socket: Socket) -> io::Result<UnixDatagram> {
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(unix::net::UnixDatagram::from(OwnedFd::from(socket)))
}

/// A message about a queue or a group with this number.
pub(super) fn message(kind: u16, flags: u16, number: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    // Of any family, and version 0.
    let [a, b] = number.to_be_bytes();
    netlink::message(kind, flags, &[0, 0, a, b], attributes)
}

/// The attributes of a message, if it is of this kind and whole.
pub(super) fn attributes(
    message: &[u8],
    of_kind: u16,
) -> Option<impl Iterator<Item = (u16, &[u8])>> {
    let length = u32::from_ne_bytes(bytes_at(message, 0)?) as usize;
    let attributes = message.get(HEADER_BYTES..length)?;
    (kind(message) == Some(of_kind)).then(|| netlink::attributes(attributes))
}

/// Sends a command about a queue or a group, and waits for the kernel's answer. Other messages may come before it.
pub(super) fn configure(
    socket: &Socket,
    kind_of_command: u16,
    number: u16,
    attributes: &[(u16, &[u8])],
    mut on_other: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let flags = NLM_F_REQUEST | NLM_F_ACK;
    socket.send(&message(kind_of_command, flags, number, attributes))?;
    let mut buffer = [0; 8192];
    for _ in 0..=MESSAGES_MAX {
        let length = netlink::receive(socket, &mut buffer)?;
        let answer = &buffer[..length];
        if kind(answer) == Some(NLMSG_ERROR) {
            // Where netfilter's part would be. None of all errors is zero.
            let error = bytes_at(answer, 16).map(i32::from_ne_bytes);
            return match error {
                Some(0) => Ok(()),
                Some(error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
                None => Err(io::ErrorKind::InvalidData.into()),
            };
        }
        on_other(answer)?;
    }
    Err(io::ErrorKind::InvalidData.into())
}
