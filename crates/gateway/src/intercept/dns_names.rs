//! Names of servers from DNS: those of the answers that a client got, for connections whose first bytes have no name.
//!
//! A name counts only for the client that got the answer: otherwise one client could decide about the connections of
//! others. Programs of this machine count as one client, since the firewall shows which machine an answer is for and
//! not which program.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr},
    sync::{Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use refrain_admission::source;
use tokio::time::Instant;

use super::{
    copies::{Copies, NFULA_PAYLOAD, NFULNL_MSG_PACKET},
    netfilter,
    netlink::bytes_at,
    packet::{IpPacket, UDP},
    server_name::host_name,
};
use crate::dns;

/// Where resolvers answer from.
pub(super) const DNS_PORT: u16 = 53;

/// How long a name counts after the last answer. Programs use addresses for longer than DNS lets them, and most answers
/// are for less than an hour.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Names that are remembered: in all, of a source, and of a server for a client. Of these, the one whose last answer is
/// the oldest gives way.
const NAMES_MAX: usize = 8192;
const NAMES_OF_SOURCE_MAX: usize = 1024;
const NAMES_OF_SERVER_MAX: usize = 8;

/// Addresses of an answer that are read.
const ADDRESSES_MAX: usize = 16;

/// An answer of DNS on its way to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsAnswer {
    /// The machine that it goes to.
    pub client: IpAddr,
    /// The name that was asked for, in lower case.
    pub name: String,
    /// The addresses of the name.
    pub addresses: Vec<IpAddr>,
}

/// The DNS answer of a message of the kernel, if it has one about a host.
pub fn read_answer(message: &[u8]) -> Option<DnsAnswer> {
    let mut attributes = netfilter::attributes(message, NFULNL_MSG_PACKET)?;
    let (_, packet) = attributes.find(|(kind, _)| *kind == NFULA_PAYLOAD)?;
    of_packet(packet)
}

fn of_packet(packet: &[u8]) -> Option<DnsAnswer> {
    const HEADER_BYTES: usize = 8;
    let packet = IpPacket::read(packet)?;
    let udp = packet.payload;
    let port = u16::from_be_bytes(bytes_at(udp, 0)?);
    if packet.protocol != UDP || port != DNS_PORT {
        return None;
    }
    // A long packet was cut.
    let length = usize::from(u16::from_be_bytes(bytes_at(udp, 4)?)).min(udp.len());
    let (name, mut addresses) = dns::addresses(udp.get(HEADER_BYTES..length)?)?;
    addresses.truncate(ADDRESSES_MAX);
    Some(DnsAnswer {
        client: packet.destination,
        name: host_name(&name)?,
        addresses,
    })
}

/// The names of servers that clients got answers about.
#[derive(Debug, Default)]
pub(crate) struct DnsNames {
    /// Of answers to programs of this machine, and to other machines; none where they are not read.
    copies: [OnceLock<Copies>; 2],
    names: Mutex<Names>,
}

impl DnsNames {
    /// Takes the group of netfilter's log that has the answers to programs of this machine, or to other machines.
    pub(crate) fn bind(&self, is_forwarded: bool, group: u16) -> io::Result<()> {
        let copies = Copies::bind(group)?;
        let _ = self.copies[usize::from(is_forwarded)].set(copies);
        Ok(())
    }

    /// Reads answers as they come, and remembers the names that are wanted. Ends with an error.
    pub(crate) async fn read(
        &self,
        is_forwarded: bool,
        is_wanted: impl Fn(&str) -> bool,
    ) -> io::Error {
        let Some(copies) = self.copies[usize::from(is_forwarded)].get() else {
            return io::ErrorKind::NotConnected.into();
        };
        loop {
            if let Err(error) = copies.wait().await {
                return error;
            }
            // Before they are read: `of` is to see them in the socket, or in memory.
            let mut names = self.lock();
            let learn = |message: &[u8]| names.learn(is_forwarded, message, &is_wanted);
            if let Err(error) = copies.read_awaited(learn) {
                return error;
            }
        }
    }

    /// The names of a server for a client.
    pub(crate) fn of(
        &self,
        is_forwarded: bool,
        client: IpAddr,
        server: IpAddr,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut names = self.lock();
        // The answer may have come just before the connection, and its reader had no CPU yet.
        if let Some(copies) = self.copies[usize::from(is_forwarded)].get() {
            copies.read(|message| names.learn(is_forwarded, message, &is_wanted));
        }
        names.of(client_of(is_forwarded, client), server)
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().expect("held for a moment")
    }
}

/// Who got an answer: a machine, or none for the programs of this one.
type Client = Option<IpAddr>;

fn client_of(is_forwarded: bool, address: IpAddr) -> Client {
    is_forwarded.then(|| address.to_canonical())
}

/// The names, with the times of their last answers.
#[derive(Debug, Default)]
struct Names(BTreeMap<Key, Instant>);

/// In an order that has all of a source together, and of these all of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// What the client is counted by.
    source: Client,
    client: Client,
    server: IpAddr,
    name: String,
}

impl Key {
    fn new(client: Client, server: IpAddr, name: String) -> Key {
        Key {
            source: client.map(source),
            client,
            server: server.to_canonical(),
            name,
        }
    }

    /// Whether it is about the same server for the same client.
    fn has_ends_of(&self, other: &Key) -> bool {
        (self.client, self.server) == (other.client, other.server)
    }
}

impl Names {
    fn learn(&mut self, is_forwarded: bool, message: &[u8], is_wanted: impl Fn(&str) -> bool) {
        let answer = read_answer(message).filter(|answer| is_wanted(&answer.name));
        let Some(DnsAnswer {
            client,
            name,
            addresses,
        }) = answer
        else {
            return;
        };
        for server in addresses {
            let client = client_of(is_forwarded, client);
            self.add(Key::new(client, server, name.clone()));
        }
    }

    fn add(&mut self, key: Key) {
        let now = Instant::now();
        if let Some(at) = self.0.get_mut(&key) {
            *at = now;
            return;
        }
        if let Some(oldest) = self.oldest_of_too_many(&key).cloned() {
            self.0.remove(&oldest);
        }
        self.0.insert(key, now);
    }

    /// The name that gives way to this one.
    fn oldest_of_too_many(&self, key: &Key) -> Option<&Key> {
        let first = Key {
            client: None,
            server: Ipv4Addr::UNSPECIFIED.into(),
            name: String::new(),
            ..key.clone()
        };
        let of_source = self.0.range(first..);
        let of_source = of_source.take_while(|(other, _)| other.source == key.source);
        let of_ends = of_source
            .clone()
            .filter(|(other, _)| other.has_ends_of(key));
        let oldest = match () {
            () if of_ends.clone().count() >= NAMES_OF_SERVER_MAX => {
                of_ends.min_by_key(|entry| entry.1)
            }
            () if of_source.clone().count() >= NAMES_OF_SOURCE_MAX => {
                of_source.min_by_key(|entry| entry.1)
            }
            () if self.0.len() >= NAMES_MAX => self.0.iter().min_by_key(|entry| entry.1),
            () => None,
        };
        oldest.map(|(key, _)| key)
    }

    fn of(&self, client: Client, server: IpAddr) -> Vec<String> {
        let first = Key::new(client, server, String::new());
        let of_ends = self.0.range(&first..);
        let of_ends = of_ends.take_while(|(key, _)| key.has_ends_of(&first));
        let recent = of_ends.filter(|(_, at)| at.elapsed() < REMEMBERED);
        recent.map(|(key, _)| key.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dns::tests::answer;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// The message of the kernel about a packet, with another attribute before it.
    fn copied(packet: &[u8]) -> Vec<u8> {
        let attributes: [(u16, &[u8]); 2] = [(1, &[8, 0, 1, 0]), (NFULA_PAYLOAD, packet)];
        netfilter::message(NFULNL_MSG_PACKET, 0, 15013, &attributes)
    }

    fn packet(client: IpAddr, content: &[u8]) -> Vec<u8> {
        let length = 8 + content.len() as u16;
        let mut packet = match client {
            IpAddr::V4(client) => {
                let [a, b] = (20 + length).to_be_bytes();
                let mut packet = vec![0x45, 0, a, b, 0, 0, 0x40, 0, 64, UDP, 0, 0];
                packet.extend([10, 77, 0, 2]);
                packet.extend(client.octets());
                packet
            }
            IpAddr::V6(client) => {
                let [a, b] = length.to_be_bytes();
                let mut packet = vec![0x60, 0, 0, 0, a, b, UDP, 64];
                packet.extend([0xfd; 16]);
                packet.extend(client.octets());
                packet
            }
        };
        for field in [DNS_PORT, 40_000, length, 0] {
            packet.extend(field.to_be_bytes());
        }
        packet.extend(content);
        packet
    }

    fn message(client: &str, name: &str, servers: &[&str]) -> Vec<u8> {
        let servers: Vec<_> = servers.iter().map(|server| address(server)).collect();
        copied(&packet(address(client), &answer(name, &servers)))
    }

    #[test]
    fn answers_are_read_from_packets_of_both_families() {
        let servers = ["10.77.0.2", "fd77::2"];
        for client in ["10.88.0.2", "fd88::2"] {
            let found = DnsAnswer {
                client: address(client),
                name: "db.example.org".to_owned(),
                addresses: servers.map(address).to_vec(),
            };
            assert_eq!(
                read_answer(&message(client, "DB.example.org", &servers)),
                Some(found)
            );
            let whole = packet(
                address(client),
                &answer("db.example.org", &[address(servers[0])]),
            );
            let protocol_at = if client.contains(':') { 6 } else { 9 };
            let udp_at = if client.contains(':') { 40 } else { 20 };
            for (at, value) in [
                (protocol_at, 6),
                (udp_at + 1, 54),
                (udp_at + 5, 0),
                (0, 0x15),
            ] {
                let mut other = whole.clone();
                other[at] = value;
                other[udp_at + 4] = 0;
                assert_eq!(read_answer(&copied(&other)), None, "{at}");
            }
            for length in 0..whole.len() {
                let cut = read_answer(&copied(&whole[..length]));
                assert!(cut.is_none_or(|cut| cut.addresses.is_empty()), "{length}");
            }
        }
        let many: Vec<_> = (0..200_u32)
            .map(|number| Ipv4Addr::from(number).into())
            .collect();
        let read = read_answer(&copied(&packet(
            address("10.88.0.2"),
            &answer("a.b", &many),
        )));
        assert_eq!(read.expect("an answer").addresses, many[..ADDRESSES_MAX]);
        for not_a_host in ["", "a b.example", "*.example", "10.77.0.2"] {
            let read = read_answer(&message("10.88.0.2", not_a_host, &servers));
            assert_eq!(read, None, "{not_a_host}");
        }
        // Of a queue, and one that is shorter than it says.
        let mut other = message("10.88.0.2", "a.example", &servers);
        other[5] = 3;
        assert_eq!(read_answer(&other), None);
        let mut cut = message("10.88.0.2", "a.example", &servers);
        cut.pop();
        assert_eq!(read_answer(&cut), None);
    }

    #[test]
    fn a_name_is_for_its_client_only() {
        let mut names = Names::default();
        let mut learn = |is_forwarded, client, name| {
            let message = message(client, name, &["10.77.0.2"]);
            names.learn(is_forwarded, &message, |name| name != "unwanted.example");
        };
        learn(true, "10.88.0.2", "one.example");
        learn(true, "10.88.0.2", "two.example");
        learn(true, "10.88.0.2", "unwanted.example");
        learn(true, "10.88.0.3", "other.example");
        learn(false, "127.0.0.1", "own.example");
        let of = |is_forwarded, client, server| {
            names.of(client_of(is_forwarded, address(client)), address(server))
        };
        let both = ["one.example", "two.example"];
        assert_eq!(of(true, "10.88.0.2", "10.77.0.2"), both);
        // A listener of all addresses has those of IPv4 as IPv6.
        assert_eq!(of(true, "::ffff:10.88.0.2", "::ffff:10.77.0.2"), both);
        assert_eq!(of(true, "10.88.0.3", "10.77.0.2"), ["other.example"]);
        assert_eq!(of(true, "10.88.0.2", "10.77.0.3"), [""; 0]);
        assert_eq!(of(true, "127.0.0.1", "10.77.0.2"), [""; 0]);
        // Programs of this machine, whatever addresses they use.
        assert_eq!(of(false, "10.77.0.1", "10.77.0.2"), ["own.example"]);
        assert_eq!(of(false, "10.88.0.2", "10.77.0.2"), ["own.example"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_forgotten_after_its_time_and_an_answer_begins_it_again() {
        let mut names = Names::default();
        let key = |server: &str| Key::new(None, address(server), "a.example".to_owned());
        names.add(key("10.0.0.1"));
        names.add(key("10.0.0.2"));
        tokio::time::advance(REMEMBERED / 2).await;
        names.add(key("10.0.0.2"));
        tokio::time::advance(REMEMBERED / 2).await;
        assert_eq!(names.of(None, address("10.0.0.1")), [""; 0]);
        assert_eq!(names.of(None, address("10.0.0.2")), ["a.example"]);
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_bounded_and_no_client_has_those_of_another_forgotten() {
        let mut names = Names::default();
        let server = |number: usize| IpAddr::from(Ipv4Addr::from(number as u32));
        // A machine with many addresses of a /64 is one source.
        let mut add = |source: usize, server: IpAddr, name: &str| {
            let client = format!("fd00:0:0:{source:x}::{:x}", names.0.len());
            let client = Some(if source == 0 {
                address("fd00::1")
            } else {
                address(&client)
            });
            names.add(Key::new(client, server, name.to_owned()));
        };
        for number in 0..=NAMES_OF_SERVER_MAX {
            tokio::time::advance(Duration::from_secs(1)).await;
            add(0, server(1), &format!("{number}.example"));
        }
        let sources = NAMES_MAX / NAMES_OF_SOURCE_MAX;
        for source in 1..sources {
            for number in 0..NAMES_OF_SOURCE_MAX + 10 {
                add(source, server(number + 2), "a.example");
            }
        }
        let of_server = |names: &Names| names.of(Some(address("fd00::1")), server(1));
        let expected: Vec<_> = (1..=NAMES_OF_SERVER_MAX)
            .map(|number| format!("{number}.example"))
            .collect();
        assert_eq!(of_server(&names), expected);
        let of_others = names.0.len() - NAMES_OF_SERVER_MAX;
        assert_eq!(of_others, (sources - 1) * NAMES_OF_SOURCE_MAX);
        // Beyond the bound of all, the oldest go, whoever has them.
        for source in sources..=sources + 1 {
            for number in 0..NAMES_OF_SOURCE_MAX {
                names.add(Key::new(
                    Some(address(&format!("fd00:0:0:{source:x}::1"))),
                    server(number),
                    "a.example".to_owned(),
                ));
            }
        }
        assert_eq!(names.0.len(), NAMES_MAX);
        assert_eq!(of_server(&names), [""; 0]);
    }

    proptest! {
        #[test]
        fn any_message_is_read_or_not(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            at in 0..300_usize,
        ) {
            let _ = read_answer(&bytes);
            let _ = of_packet(&bytes);
            let mut message = message("10.88.0.2", "db.example.org", &["10.77.0.2"]);
            let at = at.min(message.len());
            message.splice(at.., bytes);
            let _ = read_answer(&message);
        }
    }
}
