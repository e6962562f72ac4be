//! LDAP: the extended operation StartTLS (RFC 4511, section 4.14).

use super::{Dialogue, StartTls, Step};

pub(super) const PROTOCOL: StartTls = StartTls {
    scheme: "ldap",
    port: 389,
    as_server: || Box::new(Server),
    as_client: || Box::new(Client),
    refusal: |_| Vec::new(),
    alpn: &[],
};

const OID: &[u8] = b"1.3.6.1.4.1.1466.20037";

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const ENUMERATED: u8 = 0x0a;
const OCTETS: u8 = 0x04;
const EXTENDED_REQUEST: u8 = 0x77;
const EXTENDED_RESPONSE: u8 = 0x78;
/// Of an extended request.
const REQUEST_NAME: u8 = 0x80;

const PROTOCOL_ERROR: u8 = 2;
const CONFIDENTIALITY_REQUIRED: u8 = 13;

/// An element of BER with a definite length.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    /// What follows it.
    rest: &'a [u8],
}

/// Why bytes have no element.
enum NoElement {
    More,
    Malformed,
}

fn element(bytes: &[u8]) -> Result<Element<'_>, NoElement> {
    let (&[tag, first], mut rest) = bytes.split_first_chunk().ok_or(NoElement::More)?;
    let mut length = usize::from(first & 0x7f);
    if first & 0x80 != 0 {
        let count = length;
        if !(1..=4).contains(&count) {
            return Err(NoElement::Malformed);
        }
        let (digits, behind) = rest.split_at_checked(count).ok_or(NoElement::More)?;
        length = digits
            .iter()
            .fold(0, |length, &digit| length << 8 | usize::from(digit));
        rest = behind;
    }
    let (content, rest) = rest.split_at_checked(length).ok_or(NoElement::More)?;
    Ok(Element { tag, content, rest })
}

/// Writes an element whose content is short.
fn short(tag: u8, content: &[u8]) -> Vec<u8> {
    [&[tag, content.len() as u8], content].concat()
}

/// A message: its number, as it is written, and its operation.
fn message(received: &[u8]) -> Result<(&[u8], Element<'_>, usize), NoElement> {
    let whole = element(received)?;
    let inside = |bytes| element(bytes).map_err(|_| NoElement::Malformed);
    let number = inside(whole.content)?;
    let operation = inside(number.rest)?;
    if whole.tag != SEQUENCE || number.tag != INTEGER || number.content.len() > 4 {
        return Err(NoElement::Malformed);
    }
    Ok((number.content, operation, received.len() - whole.rest.len()))
}

fn response(number: &[u8], code: u8) -> Vec<u8> {
    let result = [
        short(ENUMERATED, &[code]),
        short(OCTETS, &[]),
        short(OCTETS, &[]),
    ];
    let operation = short(EXTENDED_RESPONSE, &result.concat());
    short(SEQUENCE, &[short(INTEGER, number), operation].concat())
}

struct Server;

impl Dialogue for Server {
    fn next(&mut self, received: &mut Vec<u8>) -> Step {
        let (number, operation, bytes) = match message(received) {
            Ok(message) => message,
            Err(NoElement::More) => return Step::More,
            Err(NoElement::Malformed) => {
                return Step::Refuse(Vec::new(), "it does not speak LDAP".into());
            }
        };
        let name = element(operation.content);
        let is_start = operation.tag == EXTENDED_REQUEST
            && name.is_ok_and(|name| name.tag == REQUEST_NAME && name.content == OID);
        let number = number.to_vec();
        received.drain(..bytes);
        match is_start {
            true => Step::Begin(response(&number, 0)),
            false => Step::Refuse(
                response(&number, CONFIDENTIALITY_REQUIRED),
                "it began without TLS".into(),
            ),
        }
    }
}

struct Client;

impl Dialogue for Client {
    fn greeting(&self) -> Vec<u8> {
        let operation = short(EXTENDED_REQUEST, &short(REQUEST_NAME, OID));
        short(SEQUENCE, &[short(INTEGER, &[1]), operation].concat())
    }

    fn next(&mut self, received: &mut Vec<u8>) -> Step {
        let (operation, bytes) = match message(received) {
            Ok((_, operation, bytes)) => (operation, bytes),
            Err(NoElement::More) => return Step::More,
            Err(NoElement::Malformed) => {
                return Step::Refuse(Vec::new(), "it does not speak LDAP at this port".into());
            }
        };
        let code = match (operation.tag, element(operation.content)) {
            (EXTENDED_RESPONSE, Ok(code)) if code.tag == ENUMERATED => {
                code.content.first().copied()
            }
            _ => None,
        };
        match code {
            Some(0) => {
                received.drain(..bytes);
                Step::Begin(Vec::new())
            }
            code => {
                let reason = format!(
                    "it refused StartTLS (code {})",
                    code.unwrap_or(PROTOCOL_ERROR)
                );
                Step::Refuse(Vec::new(), reason.into())
            }
        }
    }
}
