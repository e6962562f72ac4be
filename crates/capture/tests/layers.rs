//! Segments are found below all layers that captures have, and headers that are none are no panic.
#![allow(missing_docs, reason = "a test's own")]

use etherparse::{IpFragOffset, IpNumber, Ipv4Header, PacketBuilder};
use pcap_parser::Linktype;
use proptest::prelude::*;
use refrain_capture::{Fragments, Layer, Packet, Segment, Time};

const TEXT: &[u8] = b"the bytes of a segment";

fn ip() -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(40_000, 80, 7, 1000)
        .ack(9)
        .write(&mut packet, TEXT)
        .expect("a packet");
    packet
}

fn ip6() -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv6([1; 16], [2; 16], 64)
        .tcp(40_000, 80, 7, 1000)
        .write(&mut packet, TEXT)
        .expect("a packet");
    packet
}

/// `kind` and what follows, in a frame that is padded as short ones are.
fn ethernet(kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = [&[1; 12], &kind.to_be_bytes()[..], rest].concat();
    frame.resize(frame.len().max(60) + 4, 0);
    frame
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4([10, 1, 0, 1], [10, 1, 0, 2], 64)
        .udp(1234, port)
        .write(&mut packet, payload)
        .expect("a packet");
    packet
}

fn over_ip(protocol: IpNumber, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Header::new(
        payload.len() as u16,
        64,
        protocol,
        [10, 1, 0, 1],
        [10, 1, 0, 2],
    );
    let mut packet = header.expect("a header").to_bytes().to_vec();
    packet.extend(payload);
    packet
}

fn found(link: Linktype, bytes: &[u8], fragments: &mut Fragments, check: impl FnOnce(&Layer<'_>)) {
    let packet = Packet {
        at: Time(0),
        link,
        bytes,
        length: bytes.len() as u32,
    };
    check(&Layer::of(&packet, fragments));
}

#[track_caller]
fn assert_found(name: &str, link: Linktype, bytes: &[u8]) {
    found(
        link,
        bytes,
        &mut Fragments::default(),
        |layer| match layer {
            Layer::Tcp(segment) => {
                assert_eq!(
                    (segment.bytes, segment.length),
                    (TEXT, TEXT.len() as u32),
                    "{name}"
                );
                assert_eq!(
                    (segment.source.port(), segment.destination.port()),
                    (40_000, 80)
                );
                assert_eq!(segment.sequence, 7);
            }
            other => panic!("{name}: {other:?}"),
        },
    );
}

#[test]
fn all_layers_lead_to_a_segment() {
    let (ip, ip6) = (ip(), ip6());
    let tag = |kind: u16, rest: &[u8]| [&[0, 5], &kind.to_be_bytes()[..], rest].concat();
    let plain = ethernet(0x0800, &ip);
    for (name, bytes) in [
        ("ethernet", plain.clone()),
        ("IPv6", ethernet(0x86dd, &ip6)),
        ("VLAN", ethernet(0x8100, &tag(0x0800, &ip))),
        ("QinQ", ethernet(0x88a8, &tag(0x8100, &tag(0x86dd, &ip6)))),
        (
            "MPLS",
            ethernet(0x8847, &[&[0, 0, 0x10, 9, 0, 0, 0x21, 9][..], &ip].concat()),
        ),
        (
            "MPLS with frames",
            ethernet(0x8847, &[&[0, 0, 0x11, 9, 0, 0, 0, 0][..], &plain].concat()),
        ),
        (
            "GRE",
            ethernet(
                0x0800,
                &over_ip(IpNumber::GRE, &[&[0, 0, 8, 0][..], &ip].concat()),
            ),
        ),
        (
            "GRE with a key and frames",
            ethernet(
                0x0800,
                &over_ip(
                    IpNumber::GRE,
                    &[&[0x20, 0, 0x65, 0x58, 0, 0, 0, 1][..], &plain].concat(),
                ),
            ),
        ),
        (
            "VXLAN",
            ethernet(
                0x0800,
                &udp(4789, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &plain].concat()),
            ),
        ),
        ("IP in IP", ethernet(0x0800, &over_ip(IpNumber::IPV4, &ip))),
    ] {
        assert_found(name, Linktype::ETHERNET, &bytes);
    }
    for (name, link, header) in [
        ("raw", Linktype::RAW, &[][..]),
        ("raw IPv4", Linktype::IPV4, &[]),
        ("loopback", Linktype::NULL, &[2, 0, 0, 0]),
        (
            "cooked",
            Linktype::LINUX_SLL,
            &[0, 0, 0, 1, 0, 6, 1, 1, 1, 1, 1, 1, 0, 0, 8, 0],
        ),
        (
            "cooked, version 2",
            Linktype::LINUX_SLL2,
            &[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 1, 1, 1, 1, 1, 0, 0],
        ),
    ] {
        assert_found(name, link, &[header, &ip].concat());
    }
}

#[test]
fn what_is_another_protocol_is_counted_as_such() {
    let mut fragments = Fragments::default();
    let twice = udp(
        4789,
        &[
            &[8, 0, 0, 0, 0, 0, 1, 0][..],
            &ethernet(
                0x0800,
                &over_ip(IpNumber::GRE, &[&[0, 0, 8, 0][..], &ip()].concat()),
            ),
        ]
        .concat(),
    );
    for (bytes, expected) in [
        (ethernet(0x0800, &udp(53, b"query")), "OtherOverIp"),
        (ethernet(0x0800, &twice), "OtherOverIp"),
        (ethernet(0x0806, &[0; 28]), "Other"),
        (ethernet(0x0800, &ip())[..30].to_vec(), "Malformed"),
        (vec![1; 5], "Malformed"),
    ] {
        found(Linktype::ETHERNET, &bytes, &mut fragments, |layer| {
            assert_eq!(
                format!("{layer:?}").split('(').next(),
                Some(expected),
                "{bytes:?}"
            );
        });
    }
    found(Linktype(147), &ip(), &mut fragments, |layer| {
        assert!(matches!(layer, Layer::Other))
    });
}

#[test]
fn bytes_that_were_cut_off_are_known_to_lack() {
    let whole = ethernet(0x0800, &ip());
    let cut = &whole[..14 + 20 + 20 + 5];
    found(
        Linktype::ETHERNET,
        cut,
        &mut Fragments::default(),
        |layer| match layer {
            Layer::Tcp(Segment { bytes, length, .. }) => {
                assert_eq!((*bytes, *length as usize), (&TEXT[..5], TEXT.len()));
            }
            other => panic!("{other:?}"),
        },
    );
    // A kernel that cuts segments late says no length.
    let mut late = ip();
    late[2..4].fill(0);
    assert_found("late", Linktype::RAW, &late);
}

/// The parts of a packet in fragments of `step` bytes.
fn in_fragments(packet: &[u8], step: usize, number: u16) -> Vec<Vec<u8>> {
    let content = &packet[20..];
    let parts = content.chunks(step).enumerate();
    let parts = parts.map(|(nth, part)| {
        let mut header = Ipv4Header::new(
            part.len() as u16,
            64,
            IpNumber::TCP,
            [10, 0, 0, 1],
            [10, 0, 0, 2],
        )
        .expect("a header");
        header.identification = number;
        header.dont_fragment = false;
        header.fragment_offset = IpFragOffset::try_new((nth * step / 8) as u16).expect("an offset");
        header.more_fragments = (nth + 1) * step < content.len();
        [&header.to_bytes()[..], part].concat()
    });
    parts.collect()
}

#[test]
fn fragments_in_any_order_are_a_segment() {
    let parts = in_fragments(&ip(), 16, 5);
    assert_eq!(parts.len(), 3);
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let mut fragments = Fragments::default();
        let mut segments = 0;
        for nth in order {
            found(
                Linktype::RAW,
                &parts[nth],
                &mut fragments,
                |layer| match layer {
                    Layer::Tcp(segment) => {
                        assert_eq!(segment.bytes, TEXT);
                        segments += 1;
                    }
                    other => assert!(matches!(other, Layer::Fragment), "{other:?}"),
                },
            );
        }
        assert_eq!((segments, fragments.incomplete()), (1, 0));
    }
}

#[test]
fn fragments_whose_rest_never_comes_are_given_up() {
    let mut fragments = Fragments::default();
    for number in 0..5000 {
        let parts = in_fragments(&ip(), 16, number);
        found(Linktype::RAW, &parts[0], &mut fragments, |layer| {
            assert!(matches!(layer, Layer::Fragment));
        });
    }
    assert_eq!(fragments.incomplete(), 5000);
}

proptest! {
    #[test]
    fn no_bytes_are_a_panic(
        link in prop_oneof![Just(1), Just(0), Just(101), Just(113), Just(276), Just(228), any::<i32>()],
        start in 0..6usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let ip = ip();
        let mut packet = match start {
            0 => bytes,
            1 => ethernet(0x0800, &ip),
            2 => ethernet(0x86dd, &ip6()),
            3 => ethernet(0x0800, &over_ip(IpNumber::GRE, &[&[0xb0, 0, 8, 0][..], &bytes].concat())),
            4 => in_fragments(&ip, 16, 5).remove(1),
            _ => ethernet(0x8847, &bytes),
        };
        for (at, byte) in flips {
            if !packet.is_empty() {
                let at = at.index(packet.len());
                packet[at] = byte;
            }
        }
        found(Linktype(link), &packet, &mut Fragments::default(), |layer| {
            if let Layer::Tcp(segment) = layer {
                assert!(segment.bytes.len() <= segment.length as usize);
            }
        });
    }
}
