//! The header of the PROXY protocol, version 2: it tells a server the address of its client.
//!
//! The format is section 2.2 of HAProxy's specification. Servers expect the header only if they are configured to.

use std::net::{IpAddr, SocketAddr};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, and the command PROXY: the connection is made for a client.
const VERSION_AND_COMMAND: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// The header of a connection from `client` to `server`. Addresses of different families are written as IPv6.
pub(crate) fn header(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let (own, other) = (client.ip().to_canonical(), server.ip().to_canonical());
    let (family, addresses) = match (own, other) {
        (IpAddr::V4(own), IpAddr::V4(other)) => {
            (TCP_OVER_IPV4, [own.octets(), other.octets()].concat())
        }
        (own, other) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            (TCP_OVER_IPV6, [octets(own), octets(other)].concat())
        }
    };
    let ports = [client.port().to_be_bytes(), server.port().to_be_bytes()].concat();
    let length = (addresses.len() + ports.len()) as u16;
    [
        &SIGNATURE[..],
        &[VERSION_AND_COMMAND, family],
        &length.to_be_bytes(),
        &addresses,
        &ports,
    ]
    .concat()
}

#[cfg(test)]
mod tests {

    #[test]
    fn headers_have_the_bytes_of_the_specification() {
        let header = |client: &str, server: &str| {
            let [client, server] = [client, server].map(|text| text.parse().expect("an address"));
            super::header(client, server)
        };
        let signature = [
            0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a,
        ];
        let ipv4 = [
            0x21, 0x11, 0, 12, 10, 1, 0, 2, 10, 20, 0, 5, 0xc0, 0x00, 0x01, 0xbb,
        ];
        assert_eq!(
            header("10.1.0.2:49152", "10.20.0.5:443"),
            [&signature[..], &ipv4].concat()
        );
        let ipv6 = header("[fd00::1]:1", "[fd00::2]:256");
        assert_eq!(ipv6[12..16], [0x21, 0x21, 0, 36]);
        assert_eq!((ipv6[16], ipv6[31], ipv6[32], ipv6[47]), (0xfd, 1, 0xfd, 2));
        assert_eq!(ipv6[48..], [0, 1, 1, 0]);
        // A listener on all addresses has those of IPv4 in IPv6.
        let mapped = header("[::ffff:10.1.0.2]:49152", "10.20.0.5:443");
        assert_eq!(mapped, header("10.1.0.2:49152", "10.20.0.5:443"));
        let mixed = header("10.1.0.2:1", "[fd00::2]:2");
        assert_eq!(mixed[12..16], [0x21, 0x21, 0, 36]);
        assert_eq!(mixed[26..32], [0xff, 0xff, 10, 1, 0, 2]);
    }
}
