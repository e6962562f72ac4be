//! Whether the answers to clients' addresses come to this machine. The kernel is asked which route their packets take,
//! by netlink (RTM_GETROUTE), which needs no privilege.

use std::{
    io::{self, Read, Write},
    net::IpAddr,
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};

use super::table::ANSWERS_MARK;

/// Numbers of linux/netlink.h, linux/rtnetlink.h and sys/socket.h.
const AF_NETLINK: i32 = 16;
const NETLINK_ROUTE: i32 = 0;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
const RTA_DST: u16 = 1;
const RTA_MARK: u16 = 16;
const RTN_LOCAL: u8 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// The header of a message, and of a route. The type of the latter is its eighth byte.
const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
const TYPE_AT: usize = HEADER_BYTES + 7;

/// The kernel answers at once.
const WITHIN: Duration = Duration::from_secs(1);

/// Whether packets to this client's address come to this machine once the table has marked them.
pub(super) fn come_here(client: IpAddr) -> bool {
    are_local(client, ANSWERS_MARK).unwrap_or(false)
}

fn are_local(address: IpAddr, mark: u32) -> io::Result<bool> {
    let (domain, protocol) = (Domain::from(AF_NETLINK), Protocol::from(NETLINK_ROUTE));
    let mut socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.set_read_timeout(Some(WITHIN))?;
    socket.write_all(&question(address, mark))?;
    let mut answer = [0; 1024];
    let length = socket.read(&mut answer)?;
    let answer = &answer[..length];
    let kind = answer
        .get(4..6)
        .map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    Ok(kind == Some(RTM_NEWROUTE) && answer.get(TYPE_AT) == Some(&RTN_LOCAL))
}

/// The message that asks for the route to an address.
fn question(address: IpAddr, mark: u32) -> Vec<u8> {
    let (family, octets) = match address.to_canonical() {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
    let mut body = vec![0; ROUTE_BYTES];
    body[0] = family;
    body[1] = 8 * octets.len() as u8;
    let mut add = |kind: u16, value: &[u8]| {
        // All values are multiples of four bytes, as attributes must be.
        body.extend((4 + value.len() as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
    };
    add(RTA_DST, &octets);
    add(RTA_MARK, &mark.to_ne_bytes());
    let mut message = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(RTM_GETROUTE.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // A number and a port, which the kernel repeats.
    message.extend([0; 8]);
    message.extend(body);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_its_own_addresses() {
        for (address, is_own) in [
            ("127.0.0.1", true),
            ("127.1.2.3", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            let own = come_here(address.parse().expect("an address"));
            assert_eq!(own, is_own, "{address}");
        }
    }
}
