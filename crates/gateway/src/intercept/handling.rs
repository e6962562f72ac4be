//! How the near end handles the connections of a rule.
//!
//! The kernel does not pass on which rule matched. So connections that are handled differently come to different
//! ports: that of the listener, and those after it. Each port has a gate of its own, which only a near end that
//! listens there keeps open.

/// How a redirected connection is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handling {
    /// It goes through the link.
    Carry(Carriage),
    /// The near end's rules decide, once it knows the name of the server.
    ByName {
        /// Whether the rules are those for forwarded connections.
        is_forwarded: bool,
    },
}

/// How a connection goes through the link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Carriage {
    /// As it is: neither searched for repeats, nor cached.
    pub(crate) is_excluded: bool,
    /// How the server gets the client's address.
    pub(crate) client_address: ClientAddress,
    /// The near end connects to the server if the link cannot carry it.
    pub(crate) is_relayed_if_refused: bool,
}

/// How a server gets the address of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ClientAddress {
    /// It sees the address of the gateway that connects.
    #[default]
    Hidden,
    /// In a header of the PROXY protocol, version 2.
    ProxyV2,
    /// It sees the client's: the gateway that connects uses it.
    Keep,
}

impl Handling {
    /// That of most connections.
    pub(crate) const PLAIN: Handling = Handling::Carry(Carriage {
        is_excluded: false,
        client_address: ClientAddress::Hidden,
        is_relayed_if_refused: false,
    });

    /// How far after the listener's port its own port is. Near ends and loaded tables may be of different versions of
    /// a file, and of this program: numbers keep their meaning.
    pub(crate) fn port_offset(self) -> u16 {
        match self {
            Handling::Carry(Carriage {
                is_excluded,
                client_address,
                is_relayed_if_refused,
            }) => {
                u16::from(is_excluded)
                    + 2 * client_address as u16
                    + 6 * u16::from(is_relayed_if_refused)
            }
            Handling::ByName { is_forwarded } => 12 + u16::from(is_forwarded),
        }
    }
}
