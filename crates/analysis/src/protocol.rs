//! The protocol of a connection, by its first bytes and its port.

use serde::Serialize;

/// A protocol that reports tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The web without TLS.
    Http,
    /// Anything inside TLS.
    Tls,
    /// SSH.
    Ssh,
    /// Files of Windows, also by its older name.
    Smb,
    /// Directories.
    Ldap,
    /// SMTP, IMAP and POP3.
    Mail,
    /// FTP's commands. Its data has ports of its own.
    Ftp,
    /// PostgreSQL, MySQL and SQL Server.
    Database,
    /// Remote procedures of Windows.
    Rpc,
    /// Names.
    Dns,
    /// All others.
    Other,
}

impl Protocol {
    /// All, in the order of reports.
    pub const ALL: [Protocol; 11] = [
        Protocol::Http,
        Protocol::Tls,
        Protocol::Ssh,
        Protocol::Smb,
        Protocol::Ldap,
        Protocol::Mail,
        Protocol::Ftp,
        Protocol::Database,
        Protocol::Rpc,
        Protocol::Dns,
        Protocol::Other,
    ];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Http => "HTTP",
            Protocol::Tls => "TLS",
            Protocol::Ssh => "SSH",
            Protocol::Smb => "SMB",
            Protocol::Ldap => "LDAP",
            Protocol::Mail => "mail",
            Protocol::Ftp => "FTP",
            Protocol::Database => "database",
            Protocol::Rpc => "RPC",
            Protocol::Dns => "DNS",
            Protocol::Other => "other",
        }
    }

    /// Whether only its ends can read it.
    #[must_use]
    pub fn is_encrypted(self) -> bool {
        matches!(self, Protocol::Tls | Protocol::Ssh)
    }

    /// Of a connection whose first bytes, of either end, are these. They count more than the port.
    #[must_use]
    pub fn of(first: &[u8], port: u16) -> Protocol {
        const METHODS: [&[u8]; 10] = [
            b"GET ",
            b"POST ",
            b"HEAD ",
            b"PUT ",
            b"OPTIONS ",
            b"DELETE ",
            b"CONNECT ",
            b"PATCH ",
            b"PROPFIND ",
            b"HTTP/1.",
        ];
        let begins = |text: &[u8]| first.starts_with(text);
        let at = |offset: usize, text: &[u8]| {
            first
                .get(offset..)
                .is_some_and(|rest| rest.starts_with(text))
        };
        if METHODS.iter().any(|method| begins(method)) {
            return Protocol::Http;
        }
        // A record of a handshake, and its first message is a hello.
        if begins(&[0x16, 3]) && first.get(5).is_none_or(|kind| [1, 2].contains(kind)) {
            return Protocol::Tls;
        }
        if begins(b"SSH-") {
            return Protocol::Ssh;
        }
        if at(4, b"\xffSMB") || at(4, b"\xfeSMB") || at(4, b"\xfdSMB") {
            return Protocol::Smb;
        }
        match port {
            80 | 3128 | 8000 | 8080 => Protocol::Http,
            443 | 465 | 636 | 853 | 990 | 993 | 995 | 3269 | 8443 => Protocol::Tls,
            22 => Protocol::Ssh,
            139 | 445 => Protocol::Smb,
            389 | 3268 => Protocol::Ldap,
            25 | 110 | 143 | 587 => Protocol::Mail,
            21 => Protocol::Ftp,
            1433 | 3306 | 5432 => Protocol::Database,
            135 => Protocol::Rpc,
            53 => Protocol::Dns,
            _ if begins(&[5, 0]) && first.get(2).is_some_and(|kind| *kind < 20) => Protocol::Rpc,
            _ => Protocol::Other,
        }
    }
}
