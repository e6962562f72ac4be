//! Names of targets that keep being names: a DNS server that gives each name an address of its own.
//!
//! A redirected connection has an address as its destination, but the far end's rules and its resolver want the
//! name. So [`VirtualNames`] answers each query at once, with an address that nothing else has, and remembers which
//! name it stands for. Nobody is asked whether a name exists: the far end finds that out when it connects.
//!
//! Of a query, only the header and the question are read.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex},
};

use tokio::{net::UdpSocket, time::sleep};

use crate::{
    acceptor::ACCEPT_PAUSE,
    dns::{A, AAAA, HEADER_BYTES, Header, INTERNET, OPCODE, Question, RESPONSE},
    target::Host,
};

/// Names that are remembered. The one that was not asked for the longest gives its addresses to the next one.
const NAMES_MAX: usize = 1 << 16;

/// The addresses of names follow this one. The network 198.18.0.0/15 is for benchmarks (RFC 2544), so no host has them.
const FIRST_IPV4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// The same for IPv6: a unique local network (RFC 4193) with a random identifier.
const FIRST_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd6e, 0x8a51, 0xc3f7, 0, 0, 0, 0, 1);

/// How long clients may keep an address, in seconds. They can ask again at no cost.
const TTL_S: u32 = 1;

/// The greatest length of a query that is read, in bytes: EDNS clients may append options.
const QUERY_BYTES_MAX: usize = 4096;

/// Bits of the header's second field.
const RECURSION_DESIRED: u16 = 1 << 8;
const RECURSION_AVAILABLE: u16 = 1 << 7;
/// A type and a class.
const ANY: u16 = 255;
/// The name of a record, as a pointer to that of the question.
const NAME_OF_QUESTION: u16 = 0xc000 | HEADER_BYTES as u16;

/// Names and the addresses that stand for them.
#[derive(Debug, Default)]
pub struct VirtualNames(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    places: HashMap<String, u32>,
    /// By place, each with the number of the query that asked for it last.
    names: Vec<(String, u64)>,
    queries: u64,
}

/// An error of an answer, as its number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rcode {
    Format = 1,
    NoSuchName = 3,
    NotImplemented = 4,
    Refused = 5,
}

impl VirtualNames {
    /// Answers the queries that come to `socket`, until the task is aborted.
    pub async fn serve(self: Arc<Self>, socket: UdpSocket) {
        let mut query = vec![0; QUERY_BYTES_MAX];
        loop {
            let Ok((bytes, client)) = socket.recv_from(&mut query).await else {
                // Of a client that went, or for lack of memory.
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            if let Some(answer) = self.answer(&query[..bytes]) {
                let _: io::Result<usize> = socket.send_to(&answer, client).await;
            }
        }
    }

    /// The answer to a DNS query, of at most 512 bytes; none if it is not a query.
    pub fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let Header {
            id,
            flags,
            questions,
            ..
        } = Header::read(query)?;
        if flags & RESPONSE != 0 {
            return None;
        }
        let question = match () {
            () if flags & OPCODE != 0 => Err(Rcode::NotImplemented),
            () if questions != 1 => Err(Rcode::Format),
            () => Question::read(&query[HEADER_BYTES..]).ok_or(Rcode::Format),
        };
        let records = question.as_ref().map_err(|rcode| *rcode);
        let records = records.and_then(|question| self.records(question));
        let rcode = records.as_ref().err().map_or(0, |rcode| *rcode as u16);
        let records = records.unwrap_or_default();
        let repeated = question.as_ref().map_or(&[][..], |question| question.bytes);
        let flags = RESPONSE | flags & (OPCODE | RECURSION_DESIRED) | RECURSION_AVAILABLE | rcode;
        let counts = [question.is_ok().into(), records.len() as u16, 0, 0];
        let mut answer = id.to_vec();
        let mut add = |field: u16| answer.extend_from_slice(&field.to_be_bytes());
        add(flags);
        counts.into_iter().for_each(&mut add);
        answer.extend_from_slice(repeated);
        for address in records {
            let (kind, data) = match address {
                IpAddr::V4(address) => (A, address.octets().to_vec()),
                IpAddr::V6(address) => (AAAA, address.octets().to_vec()),
            };
            let mut add = |field: u16| answer.extend_from_slice(&field.to_be_bytes());
            [NAME_OF_QUESTION, kind, INTERNET]
                .into_iter()
                .for_each(&mut add);
            answer.extend_from_slice(&TTL_S.to_be_bytes());
            answer.extend_from_slice(&(data.len() as u16).to_be_bytes());
            answer.extend(data);
        }
        Some(answer)
    }

    /// The name that `address` stands for, if it does.
    pub fn name(&self, address: IpAddr) -> Option<Host> {
        let place = place_of(address)?;
        let table = self.0.lock().expect("held for a moment");
        let (name, _) = table.names.get(place)?;
        Some(Host::Domain(name.clone()))
    }

    /// Whether `address` is one that only names have.
    pub(crate) fn is_virtual(address: IpAddr) -> bool {
        place_of(address).is_some_and(|place| place < NAMES_MAX)
    }

    /// The addresses that the question asks for: none for other records, which no name has, as far as is known.
    fn records(&self, question: &Question<'_>) -> Result<Vec<IpAddr>, Rcode> {
        if ![INTERNET, ANY].contains(&question.class) {
            return Err(Rcode::Refused);
        }
        if question.name.is_empty() {
            return Ok(Vec::new());
        }
        let Ok(Host::Domain(name)) = Host::from_name(&question.name) else {
            return Err(Rcode::NoSuchName);
        };
        // Addresses have no names here, and those of RFC 7050 would say that IPv4 is translated.
        let of_addresses = [".in-addr.arpa", ".ip6.arpa", "ipv4only.arpa"];
        if of_addresses.iter().any(|suffix| name.ends_with(suffix)) {
            return Err(Rcode::NoSuchName);
        }
        let [wants_ipv4, wants_ipv6] = [A, AAAA].map(|kind| [kind, ANY].contains(&question.kind));
        if !wants_ipv4 && !wants_ipv6 {
            return Ok(Vec::new());
        }
        let (ipv4, ipv6) = match name == "localhost" || name.ends_with(".localhost") {
            // RFC 6761, section 6.3.
            true => (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
            false => self.addresses(name),
        };
        let addresses = [
            wants_ipv4.then_some(ipv4.into()),
            wants_ipv6.then_some(ipv6.into()),
        ];
        Ok(addresses.into_iter().flatten().collect())
    }

    /// The addresses of `name`, which it gets now if it has none.
    fn addresses(&self, name: String) -> (Ipv4Addr, Ipv6Addr) {
        let place = self.0.lock().expect("held for a moment").place(name);
        let ipv4 = FIRST_IPV4.to_bits() + place;
        let ipv6 = FIRST_IPV6.to_bits() + u128::from(place);
        (ipv4.into(), ipv6.into())
    }
}

fn place_of(address: IpAddr) -> Option<usize> {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let place = address.to_bits().checked_sub(FIRST_IPV4.to_bits())?;
            Some(place as usize)
        }
        IpAddr::V6(address) => {
            let place = address.to_bits().checked_sub(FIRST_IPV6.to_bits())?;
            place.try_into().ok()
        }
    }
}

impl Table {
    fn place(&mut self, name: String) -> u32 {
        self.queries += 1;
        let asked = self.queries;
        if let Some(&place) = self.places.get(&name) {
            self.names[place as usize].1 = asked;
            return place;
        }
        let place = match self.names.len() < NAMES_MAX {
            true => {
                self.names.push((name.clone(), asked));
                self.names.len() - 1
            }
            false => {
                let names = self.names.iter().enumerate();
                let oldest = names.min_by_key(|(_, (_, asked))| *asked);
                let place = oldest.map_or(0, |(place, _)| place);
                let (forgotten, _) =
                    std::mem::replace(&mut self.names[place], (name.clone(), asked));
                self.places.remove(&forgotten);
                place
            }
        };
        // Below `NAMES_MAX`.
        let place = place as u32;
        self.places.insert(name, place);
        place
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MX: u16 = 15;
    const PTR: u16 = 12;
    /// One that few libraries know.
    const SSHFP: u16 = 44;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.').filter(|label| !label.is_empty()) {
            query.push(label.len() as u8);
            query.extend_from_slice(label.as_bytes());
        }
        query.push(0);
        query.extend_from_slice(&kind.to_be_bytes());
        query.extend_from_slice(&INTERNET.to_be_bytes());
        query
    }

    /// The addresses that a client reads from the answer, or its error.
    fn ask(names: &VirtualNames, name: &str, kind: u16) -> Result<Vec<IpAddr>, u8> {
        let query = query(name, kind);
        let answer = names.answer(&query).expect("an answer");
        read(&query, &answer)
    }

    #[track_caller]
    fn read(query: &[u8], answer: &[u8]) -> Result<Vec<IpAddr>, u8> {
        assert!(answer.len() <= 512);
        assert_eq!((&answer[..2], answer[2]), (&query[..2], 0x81));
        let rcode = answer[3] & 0xf;
        assert_eq!(answer[3], 0x80 | rcode);
        let question = &query[HEADER_BYTES..];
        let (repeated, mut records) = answer[HEADER_BYTES..].split_at(question.len());
        assert_eq!((&answer[4..6], repeated), (&[0, 1][..], question));
        let count = u16::from_be_bytes([answer[6], answer[7]]);
        let mut addresses = Vec::new();
        for _ in 0..count {
            let (head, rest) = records.split_at(12);
            assert_eq!(
                (&head[..2], &head[4..10]),
                (&[0xc0, 12][..], &[0, 1, 0, 0, 0, 1][..])
            );
            let (data, rest) = rest.split_at(u16::from_be_bytes([head[10], head[11]]).into());
            addresses.push(match head[3] {
                1 => IpAddr::from(<[u8; 4]>::try_from(data).expect("four bytes")),
                28 => IpAddr::from(<[u8; 16]>::try_from(data).expect("sixteen bytes")),
                other => panic!("type {other}"),
            });
            records = rest;
        }
        assert!(records.is_empty());
        match rcode {
            0 => Ok(addresses),
            rcode => Err(rcode),
        }
    }

    #[test]
    fn a_name_has_the_same_addresses_each_time_and_they_have_its_name() {
        let names = VirtualNames::default();
        let mut addresses = Vec::new();
        for (asked, name) in [
            ("example.org", "example.org"),
            ("InTranet", "intranet"),
            ("_x.y-1", "_x.y-1"),
            ("router.home.arpa", "router.home.arpa"),
        ] {
            for kind in [A, AAAA] {
                let found = ask(&names, asked, kind).expect("it has some");
                assert_eq!(found, ask(&names, name, kind).expect("it has some"));
                assert_eq!(found.len(), 1);
                assert_eq!(found[0].is_ipv4(), kind == A);
                assert!(VirtualNames::is_virtual(found[0]));
                assert_eq!(names.name(found[0]), Some(Host::Domain(name.to_owned())));
                addresses.extend(found);
            }
        }
        addresses.dedup();
        assert_eq!(addresses.len(), 8, "{addresses:?}");
        assert_eq!(ask(&names, "intranet", ANY).map(|found| found.len()), Ok(2));
        let unknown = "198.18.9.9".parse().expect("an address");
        assert!(VirtualNames::is_virtual(unknown));
        assert_eq!(names.name(unknown), None);
    }

    #[test]
    fn loopback_and_other_records_are_not_virtual() {
        let names = VirtualNames::default();
        let localhost = ask(&names, "a.localhost", A).expect("it has one");
        assert_eq!(localhost, [IpAddr::from(Ipv4Addr::LOCALHOST)]);
        for kind in [MX, SSHFP, 65_280] {
            assert_eq!(ask(&names, "example.org", kind), Ok(Vec::new()));
        }
        assert_eq!(ask(&names, "", A), Ok(Vec::new()));
        let no_such_name = Rcode::NoSuchName as u8;
        assert_eq!(
            ask(&names, "1.0.18.198.in-addr.arpa", PTR),
            Err(no_such_name)
        );
        assert_eq!(ask(&names, "a b", A), Err(no_such_name));
        for address in [
            "127.0.0.1",
            "198.17.255.255",
            "198.20.0.0",
            "::1",
            "10.0.0.1",
        ] {
            let address = address.parse().expect("an address");
            assert!(!VirtualNames::is_virtual(address), "{address}");
            assert_eq!(names.name(address), None);
        }
        assert!(names.0.lock().expect("no panic").names.is_empty());
    }

    #[test]
    fn each_fault_of_a_query_has_its_answer() {
        let names = VirtualNames::default();
        let whole = query("example.org", A);
        let rcode = |query: &[u8]| names.answer(query).map(|answer| answer[3] & 0xf);
        let changed = |at: usize, value: u8| {
            let mut query = whole.clone();
            query[at] = value;
            rcode(&query)
        };
        for bytes in 0..HEADER_BYTES {
            assert_eq!(rcode(&whole[..bytes]), None);
        }
        for bytes in HEADER_BYTES..whole.len() {
            assert_eq!(rcode(&whole[..bytes]), Some(Rcode::Format as u8));
        }
        assert_eq!(changed(2, 0x81), None, "an answer");
        assert_eq!(changed(2, 0x29), Some(Rcode::NotImplemented as u8));
        assert_eq!(changed(5, 2), Some(Rcode::Format as u8), "two questions");
        assert_eq!(
            changed(HEADER_BYTES, 0xc0),
            Some(Rcode::Format as u8),
            "a pointer"
        );
        assert_eq!(
            changed(whole.len() - 1, 3),
            Some(Rcode::Refused as u8),
            "another class"
        );
        let options = [&whole[..], &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(rcode(&options), Some(0), "EDNS");
        let long = vec!["a".repeat(63); 5].join(".");
        assert_eq!(rcode(&query(&long, A)), Some(Rcode::Format as u8));
    }

    #[test]
    fn the_name_that_was_not_asked_for_the_longest_gives_way() {
        let names = VirtualNames::default();
        let first = names.addresses("first".to_owned()).0;
        let second = names.addresses("second".to_owned()).0;
        for number in 2..NAMES_MAX {
            names.addresses(number.to_string());
        }
        assert_eq!(names.addresses("first".to_owned()).0, first);
        assert_eq!(names.addresses("next".to_owned()).0, second);
        let name = |address: Ipv4Addr| names.name(address.into());
        assert_eq!(name(first), Some(Host::Domain("first".to_owned())));
        assert_eq!(name(second), Some(Host::Domain("next".to_owned())));
        assert_ne!(names.addresses("second".to_owned()).0, second);
        let table = names.0.lock().expect("no panic");
        assert_eq!(table.places.len(), NAMES_MAX);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Some(answer) = VirtualNames::default().answer(&bytes) {
                prop_assert!(answer.len() <= 512);
            }
        }
    }
}
