//! Names of targets that keep being names: a DNS server that gives each name an address of its own.
//!
//! A redirected connection has an address as its destination, but the far end's rules and its resolver want the
//! name. So [`VirtualNames`] answers each query at once, with an address that nothing else has, and remembers which
//! name it stands for. Nobody is asked whether a name exists: the far end finds that out when it connects.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex},
};

use simple_dns::{
    CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE,
    rdata::{A, AAAA, RData},
};
use tokio::{net::UdpSocket, time::sleep};

use crate::{acceptor::ACCEPT_PAUSE, target::Host};

/// Names that are remembered. The oldest gives its addresses to the next one.
const NAMES_MAX: u32 = 1 << 16;

/// The addresses of names follow this one. The network 198.18.0.0/15 is for benchmarks (RFC 2544), so no host has them.
const FIRST_IPV4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// The same for IPv6: a unique local network (RFC 4193) with a random identifier.
const FIRST_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd6e, 0x8a51, 0xc3f7, 0, 0, 0, 0, 1);

/// How long clients may keep an address, in seconds. They can ask again at no cost.
const TTL_S: u32 = 1;

/// The greatest length of a query, in bytes: that of a message of EDNS clients.
const QUERY_BYTES_MAX: usize = 4096;

/// Names and the addresses that stand for them.
#[derive(Debug, Default)]
pub struct VirtualNames(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    places: HashMap<String, u32>,
    /// By place.
    names: Vec<String>,
    /// The place of the next new name, once all are taken.
    oldest: u32,
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

    /// The answer to a DNS query; none if it is not a query.
    pub fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let query = Packet::parse(query).ok()?;
        if query.has_flags(PacketFlag::RESPONSE) {
            return None;
        }
        let mut answer = Packet::new_reply(query.id());
        answer.set_flags(PacketFlag::RECURSION_AVAILABLE);
        if query.has_flags(PacketFlag::RECURSION_DESIRED) {
            answer.set_flags(PacketFlag::RECURSION_DESIRED);
        }
        match &query.questions[..] {
            [question] => {
                match self.records(question) {
                    Ok(records) => answer.answers = records,
                    Err(rcode) => *answer.rcode_mut() = rcode,
                }
                answer.questions = vec![question.clone()];
            }
            _ => *answer.rcode_mut() = RCODE::FormatError,
        }
        answer.build_bytes_vec().ok()
    }

    /// The name that `address` stands for, if it does.
    pub fn name(&self, address: IpAddr) -> Option<Host> {
        let place = match address.to_canonical() {
            IpAddr::V4(address) => address.to_bits().checked_sub(FIRST_IPV4.to_bits())?,
            IpAddr::V6(address) => {
                let place = address.to_bits().checked_sub(FIRST_IPV6.to_bits())?;
                place.try_into().ok()?
            }
        };
        let table = self.0.lock().expect("held for a moment");
        let name = table.names.get(place as usize)?;
        Some(Host::Domain(name.clone()))
    }

    /// Whether `address` is one that only names have.
    pub fn is_virtual(address: IpAddr) -> bool {
        let (bits, first) = match address.to_canonical() {
            IpAddr::V4(address) => (address.to_bits().into(), FIRST_IPV4.to_bits().into()),
            IpAddr::V6(address) => (address.to_bits(), FIRST_IPV6.to_bits()),
        };
        bits.checked_sub(first)
            .is_some_and(|place: u128| place < NAMES_MAX.into())
    }

    fn records<'a>(&self, question: &Question<'a>) -> Result<Vec<ResourceRecord<'a>>, RCODE> {
        let name = question.qname.to_string();
        let Ok(Host::Domain(name)) = Host::from_name(&name) else {
            return Err(RCODE::NameError);
        };
        if !matches!(question.qclass, QCLASS::CLASS(CLASS::IN) | QCLASS::ANY) {
            return Err(RCODE::Refused);
        }
        let [wants_ipv4, wants_ipv6] = [TYPE::A, TYPE::AAAA]
            .map(|kind| [QTYPE::TYPE(kind), QTYPE::ANY].contains(&question.qtype));
        // Addresses have no names here. A name has no other records, as far as is known.
        if name.ends_with(".arpa") {
            return Err(RCODE::NameError);
        }
        if !wants_ipv4 && !wants_ipv6 {
            return Ok(Vec::new());
        }
        let (ipv4, ipv6) = match name == "localhost" || name.ends_with(".localhost") {
            // RFC 6761, section 6.3.
            true => (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
            false => self.addresses(name),
        };
        let ipv4 = RData::A(A {
            address: ipv4.to_bits(),
        });
        let ipv6 = RData::AAAA(AAAA {
            address: ipv6.to_bits(),
        });
        let records = [wants_ipv4.then_some(ipv4), wants_ipv6.then_some(ipv6)];
        let record =
            |data| ResourceRecord::new(Name::clone(&question.qname), CLASS::IN, TTL_S, data);
        Ok(records.into_iter().flatten().map(record).collect())
    }

    /// The addresses of `name`, which it gets now if it has none.
    fn addresses(&self, name: String) -> (Ipv4Addr, Ipv6Addr) {
        let place = self.0.lock().expect("held for a moment").place(name);
        let ipv4 = FIRST_IPV4.to_bits() + place;
        let ipv6 = FIRST_IPV6.to_bits() + u128::from(place);
        (ipv4.into(), ipv6.into())
    }
}

impl Table {
    fn place(&mut self, name: String) -> u32 {
        if let Some(&place) = self.places.get(&name) {
            return place;
        }
        let place = match self.names.len() as u32 {
            NAMES_MAX => {
                let place = self.oldest;
                self.oldest = (place + 1) % NAMES_MAX;
                let forgotten = std::mem::replace(&mut self.names[place as usize], name.clone());
                self.places.remove(&forgotten);
                place
            }
            place => {
                self.names.push(name.clone());
                place
            }
        };
        self.places.insert(name, place);
        place
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn query(name: &str, kind: TYPE) -> Vec<u8> {
        let mut packet = Packet::new_query(0x1234);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new(name).expect("a name");
        let question = Question::new(name, kind.into(), CLASS::IN.into(), false);
        packet.questions.push(question);
        packet.build_bytes_vec().expect("it fits")
    }

    /// The addresses that a client reads from the answer, or its error.
    fn ask(names: &VirtualNames, name: &str, kind: TYPE) -> Result<Vec<IpAddr>, RCODE> {
        let answer = names.answer(&query(name, kind)).expect("an answer");
        let answer = Packet::parse(&answer).expect("a message");
        assert!(answer.has_flags(PacketFlag::RESPONSE));
        assert_eq!((answer.id(), answer.questions.len()), (0x1234, 1));
        if answer.rcode() != RCODE::NoError {
            return Err(answer.rcode());
        }
        let address = |record: &ResourceRecord| match &record.rdata {
            RData::A(data) => Ipv4Addr::from_bits(data.address).into(),
            RData::AAAA(data) => Ipv6Addr::from_bits(data.address).into(),
            other => panic!("{other:?}"),
        };
        Ok(answer.answers.iter().map(address).collect())
    }

    #[test]
    fn a_name_has_the_same_addresses_each_time_and_they_have_its_name() {
        let names = VirtualNames::default();
        let mut addresses = Vec::new();
        for (asked, name) in [
            ("example.org", "example.org"),
            ("Intranet", "intranet"),
            ("_x.y-1", "_x.y-1"),
        ] {
            for kind in [TYPE::A, TYPE::AAAA] {
                let found = ask(&names, asked, kind).expect("it has some");
                assert_eq!(found, ask(&names, name, kind).expect("it has some"));
                assert_eq!(found.len(), 1);
                assert_eq!(found[0].is_ipv4(), kind == TYPE::A);
                assert!(VirtualNames::is_virtual(found[0]));
                assert_eq!(names.name(found[0]), Some(Host::Domain(name.to_owned())));
                addresses.extend(found);
            }
        }
        addresses.dedup();
        assert_eq!(addresses.len(), 6, "{addresses:?}");
        let unknown = "198.18.9.9".parse().expect("an address");
        assert!(VirtualNames::is_virtual(unknown));
        assert_eq!(names.name(unknown), None);
    }

    #[test]
    fn loopback_and_other_records_are_not_virtual() {
        let names = VirtualNames::default();
        let localhost = ask(&names, "a.localhost", TYPE::A).expect("it has one");
        assert_eq!(localhost, [IpAddr::from(Ipv4Addr::LOCALHOST)]);
        assert_eq!(ask(&names, "example.org", TYPE::MX), Ok(Vec::new()));
        let reverse = "1.0.18.198.in-addr.arpa";
        assert_eq!(ask(&names, reverse, TYPE::PTR), Err(RCODE::NameError));
        assert_eq!(ask(&names, "a b", TYPE::A), Err(RCODE::NameError));
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
    fn the_oldest_name_gives_way() {
        let names = VirtualNames::default();
        let first = names.addresses("first".to_owned()).0;
        let second = names.addresses("second".to_owned()).0;
        for number in 2..NAMES_MAX {
            names.addresses(number.to_string());
        }
        assert_eq!(names.addresses("first".to_owned()).0, first);
        assert_eq!(names.addresses("next".to_owned()).0, first);
        let name = |address: Ipv4Addr| names.name(address.into());
        assert_eq!(name(first), Some(Host::Domain("next".to_owned())));
        assert_eq!(name(second), Some(Host::Domain("second".to_owned())));
        assert_ne!(names.addresses("first".to_owned()).0, first);
        let table = names.0.lock().expect("no panic");
        assert_eq!(table.places.len(), NAMES_MAX as usize);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            VirtualNames::default().answer(&bytes);
        }

        #[test]
        fn a_changed_query_is_answered_or_not(at in 0usize..29, value: u8) {
            let mut query = query("example.org", TYPE::A);
            query[at] = value;
            if let Some(answer) = VirtualNames::default().answer(&query) {
                Packet::parse(&answer).expect("a message");
            }
        }
    }
}
