//! Whether the answers to clients' addresses come to this machine. The kernel is asked which route their packets take,
//! by netlink (RTM_GETROUTE), which needs no privilege.

use std::{
    io::{self, Write},
    net::IpAddr,
    sync::Mutex,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    netlink::{self, HEADER_BYTES, NLM_F_REQUEST, kind},
    table::ANSWERS_MARK,
};

/// Numbers of linux/rtnetlink.h and sys/socket.h.
const NETLINK_ROUTE: i32 = 0;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_MARK: u16 = 16;
const RTN_LOCAL: u8 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// The header of a route. Its type is the eighth byte.
const ROUTE_BYTES: usize = 12;
const TYPE_AT: usize = HEADER_BYTES + 7;

/// How often open connections look.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The last answers of the kernel, for open connections. One of each family counts for all.
#[derive(Debug, Default)]
pub(crate) struct Answers([Mutex<Option<(Instant, bool)>>; 2]);

impl Answers {
    /// Waits until packets to this client's address no longer come to this machine: the rules were removed.
    pub(crate) async fn gone(&self, client: IpAddr) {
        loop {
            sleep(LOOK_INTERVAL).await;
            let mut last = self.0[usize::from(client.is_ipv4())]
                .lock()
                .expect("held for a moment");
            let come_here = match *last {
                Some((at, come_here)) if at.elapsed() < LOOK_INTERVAL => come_here,
                // Without a further descriptor, this is not known, and nothing has changed.
                _ => come_here(client).unwrap_or(true),
            };
            *last = Some((Instant::now(), come_here));
            if !come_here {
                return;
            }
        }
    }
}

/// Whether packets to this client's address come to this machine once the table has marked them.
pub(super) fn come_here(client: IpAddr) -> io::Result<bool> {
    are_local(client, ANSWERS_MARK)
}

fn are_local(address: IpAddr, mark: u32) -> io::Result<bool> {
    let mut socket = netlink::open(NETLINK_ROUTE)?;
    socket.write_all(&question(address, mark))?;
    let mut answer = [0; 1024];
    let length = netlink::receive(&socket, &mut answer)?;
    let answer = &answer[..length];
    Ok(kind(answer) == Some(RTM_NEWROUTE) && answer.get(TYPE_AT) == Some(&RTN_LOCAL))
}

/// The message that asks for the route to an address.
fn question(address: IpAddr, mark: u32) -> Vec<u8> {
    let (family, octets) = match address.to_canonical() {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
    let mut route = [0; ROUTE_BYTES];
    route[0] = family;
    route[1] = 8 * octets.len() as u8;
    let mark = mark.to_ne_bytes();
    let attributes: [(u16, &[u8]); 2] = [(RTA_DST, &octets), (RTA_MARK, &mark)];
    netlink::message(RTM_GETROUTE, NLM_F_REQUEST, &route, &attributes)
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
            assert_eq!(own.ok(), Some(is_own), "{address}");
        }
    }
}
