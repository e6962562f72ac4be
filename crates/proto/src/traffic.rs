//! What a flow carries, as far as it matters for the way it is sent.
//!
//! A flow is judged block by block. Encryption often begins later than the flow: after STARTTLS and
//! its like (SMTP, IMAP, POP3, FTP, LDAP, XMPP), after PostgreSQL's SSLRequest, behind a proxy's
//! CONNECT. In all of these the client waits for an answer before its first TLS record, so the record
//! begins a write, and with it a block. Protocols that do otherwise have a test of their own:
//!
//! - a MySQL client sends its SSLRequest and the first TLS record at once;
//! - PostgreSQL's GSSAPI encryption and SMB 3 have no TLS records.
//!
//! What is encrypted in other ways is full entropy.

use refrain_codec::entropy::is_full_entropy;

/// How a flow's blocks are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficClass {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// Matched and compressed.
    Ordinary,
    /// Media, archives, layers: they repeat whole, so they are matched sparsely, skip
    /// zstd, and enter the cache, within a share of it.
    FullEntropy,
    /// Sent as it is, and never in the cache.
    Excluded(Exclusion),
}

/// Why a flow is excluded from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// A rule names it.
    Rule,
    /// It speaks TLS, from its first byte or later.
    Tls,
    /// It speaks SSH.
    Ssh,
    /// SMB 3 encrypts it.
    Smb,
    /// PostgreSQL encrypts it by GSSAPI.
    Gssapi,
}

/// First bytes of a TLS record that carries a handshake: type 22, version 3.x.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// Most bytes in a TLS record (RFC 8446, section 5.1).
const TLS_RECORD_BYTES_MAX: u16 = 1 << 14;

/// And in one that is encrypted, of any version.
const TLS_CIPHERTEXT_BYTES_MAX: u16 = TLS_RECORD_BYTES_MAX + 2048;

/// Types of TLS records.
const TLS_TYPES: core::ops::RangeInclusive<u8> = 20..=23;

/// Types of the handshake messages that begin a connection: ClientHello, ServerHello.
const TLS_HELLOS: [u8; 2] = [1, 2];

/// First bytes of an SSH identification (RFC 4253, section 4.2).
const SSH_IDENTIFICATION: &[u8] = b"SSH-";

/// The identifications in use: of version 2, and of a server that also speaks version 1.
const SSH_VERSIONS: [&[u8]; 2] = [b"SSH-2.0-", b"SSH-1.99-"];

/// A MySQL client's SSLRequest: its length and sequence number. Its capabilities, the longest
/// packet, a character set and 19 zeros follow, and four bytes that MariaDB uses.
const MYSQL_SSL_REQUEST: [u8; 4] = [32, 0, 0, 1];
const MYSQL_SSL_REQUEST_BYTES: usize = 36;
const MYSQL_CLIENT_SSL: u32 = 0x800;

/// A PostgreSQL client's GSSENCRequest, a message by itself, and the server's consent.
const POSTGRES_GSS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30];
const POSTGRES_GSS_CONSENT: u8 = b'G';

/// SMB 3's transform header, behind a length that begins with 0 (MS-SMB2, sections 2.1 and 2.2.41).
const SMB_TRANSFORM: [u8; 4] = [0xfd, b'S', b'M', b'B'];

impl TrafficClass {
    /// All that bytes are counted by.
    pub const COUNTED: [Self; 7] = [
        Self::Ordinary,
        Self::FullEntropy,
        Self::Excluded(Exclusion::Rule),
        Self::Excluded(Exclusion::Tls),
        Self::Excluded(Exclusion::Ssh),
        Self::Excluded(Exclusion::Smb),
        Self::Excluded(Exclusion::Gssapi),
    ];

    /// The class after `block`, the flow's next bytes.
    #[must_use]
    pub fn after(self, block: &[u8]) -> Self {
        if let Some(why) = self.exclusion_at(block) {
            return Self::Excluded(why);
        }
        match is_full_entropy(block) {
            Some(true) if is_tls_records(block) => Self::Excluded(Exclusion::Tls),
            Some(true) => Self::FullEntropy,
            Some(false) => Self::Ordinary,
            None if self == Self::Unknown => Self::Ordinary,
            None => self,
        }
    }

    /// Why the flow is excluded with `block`, its next bytes, if it is.
    pub(crate) fn exclusion_at(self, block: &[u8]) -> Option<Exclusion> {
        match self {
            Self::Excluded(why) => Some(why),
            Self::Unknown => begins_encrypted(block).or_else(|| turns_encrypted(block)),
            Self::Ordinary | Self::FullEntropy => turns_encrypted(block),
        }
    }
}

/// Whether a PostgreSQL client that says `block` first asks for encryption by GSSAPI.
pub(crate) fn asks_for_gssapi(block: &[u8]) -> bool {
    block == POSTGRES_GSS_REQUEST
}

/// Whether a PostgreSQL server that was asked for it and says `block` first encrypts by GSSAPI.
pub(crate) fn consents_to_gssapi(block: &[u8]) -> bool {
    block.first() == Some(&POSTGRES_GSS_CONSENT)
}

/// By what a flow that begins with `block` is encrypted.
fn begins_encrypted(block: &[u8]) -> Option<Exclusion> {
    if block.starts_with(&TLS_HANDSHAKE) && block.get(2).is_none_or(|&minor| minor <= 4) {
        return Some(Exclusion::Tls);
    }
    let is_ssh = block.starts_with(SSH_IDENTIFICATION);
    is_ssh.then_some(Exclusion::Ssh)
}

/// By what a flow is encrypted from `block` on. Any content may come here, so it takes more than a
/// flow's first bytes do.
fn turns_encrypted(block: &[u8]) -> Option<Exclusion> {
    if is_tls_hello(block) || is_mysql_ssl_request(block) {
        return Some(Exclusion::Tls);
    }
    if SSH_VERSIONS
        .iter()
        .any(|version| block.starts_with(version))
    {
        return Some(Exclusion::Ssh);
    }
    let is_smb = block.first() == Some(&0) && block.get(4..8) == Some(&SMB_TRANSFORM);
    is_smb.then_some(Exclusion::Smb)
}

/// Whether a TLS record with a whole hello, or the first part of one, begins `block`.
fn is_tls_hello(block: &[u8]) -> bool {
    let Some(&[kind, major, minor, high, low, hello, ..]) = block.first_chunk::<11>() else {
        return false;
    };
    let record_bytes = u16::from_be_bytes([high, low]);
    let message_bytes = u32::from_be_bytes([0, block[6], block[7], block[8]]);
    let is_handshake = [kind, major] == TLS_HANDSHAKE && minor <= 4;
    // A hello has a version, 32 random bytes and more. Nothing follows it in its record but, after
    // a ServerHello, further messages.
    let fits = match hello {
        1 => message_bytes + 4 >= u32::from(record_bytes),
        _ => true,
    };
    is_handshake
        && (4..=TLS_RECORD_BYTES_MAX).contains(&record_bytes)
        && TLS_HELLOS.contains(&hello)
        && message_bytes >= 38
        && fits
        && block[9] == 3
        && block[10] <= 4
}

/// Whether TLS records, one behind the other, make up `block`, which is of full entropy. So a
/// connection is found out whose hello began no block.
fn is_tls_records(mut block: &[u8]) -> bool {
    while let Some(&[kind, major, minor, high, low]) = block.first_chunk::<5>() {
        let record_bytes = u16::from_be_bytes([high, low]);
        let is_record = TLS_TYPES.contains(&kind)
            && major == TLS_HANDSHAKE[1]
            && minor <= 4
            && (1..=TLS_CIPHERTEXT_BYTES_MAX).contains(&record_bytes);
        if !is_record {
            return false;
        }
        block = block.get(5 + usize::from(record_bytes)..).unwrap_or(&[]);
    }
    true
}

fn is_mysql_ssl_request(block: &[u8]) -> bool {
    let Some(request) = block.get(..MYSQL_SSL_REQUEST_BYTES) else {
        return false;
    };
    let (header, body) = request.split_at(MYSQL_SSL_REQUEST.len());
    let capabilities = u32::from_le_bytes([body[0], body[1], body[2], body[3]]);
    header == MYSQL_SSL_REQUEST
        && capabilities & MYSQL_CLIENT_SSL != 0
        && body[9..28].iter().all(|&byte| byte == 0)
        && block
            .get(MYSQL_SSL_REQUEST_BYTES..)
            .is_none_or(|rest| rest.is_empty() || begins_encrypted(rest) == Some(Exclusion::Tls))
}

#[cfg(test)]
mod tests;
