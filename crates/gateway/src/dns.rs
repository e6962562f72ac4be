//! Messages of DNS (RFC 1035, section 4), as far as they are read here: the header, the question, and the addresses of an
//! answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const HEADER_BYTES: usize = 12;

/// Bits of the header's second field.
pub(crate) const RESPONSE: u16 = 1 << 15;
pub(crate) const OPCODE: u16 = 0xf << 11;
const RCODE: u16 = 0xf;

/// Types and classes.
pub(crate) const A: u16 = 1;
pub(crate) const AAAA: u16 = 28;
pub(crate) const INTERNET: u16 = 1;

const LABEL_BYTES_MAX: usize = 63;
const NAME_BYTES_MAX: usize = 255;

/// The header, without the numbers of further records.
pub(crate) struct Header {
    pub(crate) id: [u8; 2],
    pub(crate) flags: u16,
    pub(crate) questions: u16,
    answers: u16,
}

/// A question.
pub(crate) struct Question<'a> {
    /// As it came, to be repeated.
    pub(crate) bytes: &'a [u8],
    /// Without the root's dot, so that of the root is empty.
    pub(crate) name: String,
    pub(crate) kind: u16,
    pub(crate) class: u16,
}

impl Header {
    /// Reads the header of a message.
    pub(crate) fn read(message: &[u8]) -> Option<Header> {
        let header: &[u8; HEADER_BYTES] = message.first_chunk()?;
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        Some(Header {
            id: [header[0], header[1]],
            flags: field(2),
            questions: field(4),
            answers: field(6),
        })
    }
}

impl Question<'_> {
    /// Reads the question that `bytes` begin with. Its name has no pointers: nothing is before it.
    pub(crate) fn read(bytes: &[u8]) -> Option<Question<'_>> {
        let (mut labels, mut at) = (Vec::new(), 0);
        loop {
            let length = usize::from(*bytes.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            if length > LABEL_BYTES_MAX || at + length >= NAME_BYTES_MAX {
                return None;
            }
            let label = bytes.get(at..at + length)?;
            // Other bytes than those of names are refused as such later.
            labels.push(String::from_utf8_lossy(label));
            at += length;
        }
        let rest: &[u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        let [kind, class] = [[rest[0], rest[1]], [rest[2], rest[3]]].map(u16::from_be_bytes);
        Some(Question {
            bytes: &bytes[..at + 4],
            name: labels.join("."),
            kind,
            class,
        })
    }
}

/// The name that an answer without an error is about, as it was asked for, and its addresses: also those of the names
/// that it is an alias of. Of an answer that was cut, those before the cut.
pub(crate) fn addresses(message: &[u8]) -> Option<(String, Vec<IpAddr>)> {
    let header = Header::read(message)?;
    if header.flags & (RESPONSE | OPCODE | RCODE) != RESPONSE || header.questions != 1 {
        return None;
    }
    let question = Question::read(&message[HEADER_BYTES..])?;
    if question.class != INTERNET {
        return None;
    }
    let mut rest = &message[HEADER_BYTES + question.bytes.len()..];
    let records = (0..header.answers).map_while(|_| {
        let record;
        (record, rest) = read_record(rest)?;
        Some(record)
    });
    Some((question.name, records.flatten().collect()))
}

/// The address of the record that `bytes` begin with, if it is one of an address, and the bytes after the record.
fn read_record(bytes: &[u8]) -> Option<(Option<IpAddr>, &[u8])> {
    let (head, rest) = after_name(bytes)?.split_first_chunk::<10>()?;
    let field = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let (data, rest) = rest.split_at_checked(field(8).into())?;
    let address = match (field(0), field(2)) {
        (A, INTERNET) => <[u8; 4]>::try_from(data)
            .ok()
            .map(|octets| Ipv4Addr::from(octets).into()),
        (AAAA, INTERNET) => <[u8; 16]>::try_from(data)
            .ok()
            .map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    };
    Some((address, rest))
}

/// The bytes after the name that `bytes` begin with. The name is not read, so pointers are not followed.
fn after_name(mut bytes: &[u8]) -> Option<&[u8]> {
    const POINTER: u8 = 0xc0;
    loop {
        let (&length, rest) = bytes.split_first()?;
        bytes = match length {
            0 => return Some(rest),
            POINTER.. => return rest.get(1..),
            _ if usize::from(length) <= LABEL_BYTES_MAX => rest.get(length.into()..)?,
            _ => return None,
        };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    const CNAME: u16 = 5;
    const POINTER_TO_QUESTION: [u8; 2] = [0xc0, HEADER_BYTES as u8];

    pub(crate) fn name(text: &str) -> Vec<u8> {
        let labels = text.split('.').filter(|label| !label.is_empty());
        let mut name: Vec<u8> = labels
            .flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat())
            .collect();
        name.push(0);
        name
    }

    fn record(name: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
        let mut record = name.to_vec();
        for field in [kind, INTERNET, 0, 60, data.len() as u16] {
            record.extend(field.to_be_bytes());
        }
        record.extend(data);
        record
    }

    fn message(flags: u16, asked: &str, records: &[Vec<u8>]) -> Vec<u8> {
        let mut message = vec![0x12, 0x34];
        for field in [flags, 1, records.len() as u16, 0, 0] {
            message.extend(field.to_be_bytes());
        }
        message.extend(name(asked));
        message.extend([A, INTERNET].map(u16::to_be_bytes).concat());
        message.extend(records.concat());
        message
    }

    /// The answer of a server: these addresses, of a name that the asked one is an alias of.
    pub(crate) fn answer(asked: &str, addresses: &[IpAddr]) -> Vec<u8> {
        let alias = name("alias.example.net");
        let mut records = vec![record(&POINTER_TO_QUESTION, CNAME, &alias)];
        records.extend(addresses.iter().map(|address| match address {
            IpAddr::V4(address) => record(&alias, A, &address.octets()),
            IpAddr::V6(address) => record(&POINTER_TO_QUESTION, AAAA, &address.octets()),
        }));
        message(0x8180, asked, &records)
    }

    fn some() -> Vec<IpAddr> {
        let all = ["10.77.0.2", "fd77::2", "10.77.0.3"];
        all.map(|address| address.parse().expect("an address"))
            .to_vec()
    }

    #[test]
    fn all_addresses_of_an_answer_are_those_of_the_question() {
        let read = addresses(&answer("DB.Example.org", &some()));
        assert_eq!(read, Some(("DB.Example.org".to_owned(), some())));
        // Of one that was cut, those before the cut.
        let whole = answer("db.example.org", &some());
        let begin = HEADER_BYTES + name("db.example.org").len() + 4;
        let mut lengths = Vec::new();
        for length in 0..whole.len() {
            match addresses(&whole[..length]) {
                Some((_, read)) => {
                    assert!(length >= begin && some().starts_with(&read));
                    lengths.push(read.len());
                }
                None => assert!(length < begin, "{length}"),
            }
        }
        assert!(lengths.is_sorted());
        assert_eq!(lengths.last(), Some(&2));
        // So says the header too, with the bit that more would have come.
        let cut = message(0x8380, "a.b", &[record(&[0], A, &[10, 0, 0, 1])]);
        assert_eq!(addresses(&cut).map(|(_, read)| read.len()), Some(1));
    }

    #[test]
    fn other_messages_say_nothing() {
        let records = [record(&POINTER_TO_QUESTION, A, &[10, 0, 0, 1])];
        for (flags, is_read) in [
            (0x8180, true),
            (0x8400, true),
            // A query, another kind of query, and errors.
            (0x0100, false),
            (0xa800, false),
            (0x8183, false),
            (0x8182, false),
        ] {
            let read = addresses(&message(flags, "a.b", &records));
            assert_eq!(read.is_some(), is_read, "{flags:x}");
        }
        let mut two = message(0x8180, "a.b", &records);
        two[5] = 2;
        assert_eq!(addresses(&two), None);
        let mut chaos = message(0x8180, "a.b", &records);
        chaos[HEADER_BYTES + name("a.b").len() + 3] = 3;
        assert_eq!(addresses(&chaos), None);
        // A question's name that points to itself.
        let mut pointing = message(0x8180, "a.b", &records);
        pointing[HEADER_BYTES..HEADER_BYTES + 2].copy_from_slice(&POINTER_TO_QUESTION);
        assert_eq!(addresses(&pointing), None);
    }

    #[test]
    fn records_that_are_not_addresses_are_passed_over_and_bad_ones_end_the_answer() {
        let good = record(&POINTER_TO_QUESTION, A, &[10, 0, 0, 1]);
        let read = |records: &[Vec<u8>]| {
            let read = addresses(&message(0x8180, "a.b", records)).expect("a question");
            read.1.len()
        };
        for odd in [
            record(&POINTER_TO_QUESTION, A, &[10, 0, 0]),
            record(&POINTER_TO_QUESTION, AAAA, &[10, 0, 0, 1]),
            record(&name("x.y"), CNAME, &name("z")),
            record(&[], 16, &[0xff; 300]),
        ] {
            // The last one has no name, so its type is read as one.
            let is_bad = odd.len() > 300;
            let count = if is_bad { 0 } else { 1 };
            assert_eq!(read(&[odd, good.clone()]), count);
        }
        // Names that point to themselves, to what comes later, and beyond the end.
        for pointer in [[0xc0, 29], [0xc0, 0xff], [0xff, 0xff]] {
            assert_eq!(read(&[record(&pointer, A, &[10, 0, 0, 1])]), 1);
        }
        assert_eq!(read(&[record(&[0x40, 1], A, &[10, 0, 0, 1])]), 0);
        // More records than there are.
        let mut many = message(0x8180, "a.b", &[good]);
        many[6..8].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(addresses(&many).map(|(_, read)| read.len()), Some(1));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = addresses(&bytes);
        }

        #[test]
        fn answers_that_were_changed_have_no_other_bytes(
            at in 0_usize..120,
            byte: u8,
            length in 0_usize..200,
        ) {
            let mut changed = answer("db.example.org", &some());
            let last = changed.len() - 1;
            changed[at.min(last)] = byte;
            changed.truncate(length);
            for address in addresses(&changed).into_iter().flat_map(|(_, read)| read) {
                let octets = match address {
                    IpAddr::V4(address) => address.octets().to_vec(),
                    IpAddr::V6(address) => address.octets().to_vec(),
                };
                prop_assert!(changed.windows(octets.len()).any(|bytes| bytes == octets));
            }
        }
    }
}
