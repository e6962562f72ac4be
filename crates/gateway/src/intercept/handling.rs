//! How the near end handles the connections of a rule.
//!
//! The kernel does not pass on which rule matched. So connections that are handled differently come to different
//! ports: that of the listener, and those after it. Each port has a gate of its own, which only a near end that
//! listens there keeps open.

use super::rule::InterceptRule;

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
    pub is_excluded: bool,
    /// After a header that tells the server the client's address.
    pub has_header: bool,
}

impl Handling {
    /// That of most connections.
    pub(crate) const PLAIN: Handling = Handling::Carry(Carriage {
        is_excluded: false,
        has_header: false,
    });

    /// How far after the listener's port its own port is. Near ends and loaded tables may be of different versions of
    /// a file, and of this program: numbers keep their meaning.
    pub(crate) fn port_offset(self) -> u16 {
        match self {
            Handling::Carry(Carriage {
                is_excluded,
                has_header,
            }) => u16::from(is_excluded) + 2 * u16::from(has_header),
            Handling::ByName { is_forwarded } => 4 + u16::from(is_forwarded),
        }
    }

    /// Those that these rules need, each once, in the order of their ports; the plain one always.
    pub(crate) fn of_rules(rules: &[InterceptRule]) -> Vec<Handling> {
        let mut all: Vec<_> = rules.iter().filter_map(InterceptRule::handling).collect();
        all.push(Handling::PLAIN);
        all.sort_by_key(|handling| handling.port_offset());
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<InterceptRule> {
        let rules = texts.iter().map(|text| text.parse().expect("a rule"));
        rules.collect()
    }

    #[test]
    fn each_handling_has_a_port_of_its_own() {
        let all = [
            "port=80",
            "port=80 action=pass",
            "port=80 proxy_protocol=v2",
            "port=80 action=pass proxy_protocol=v2",
            "name=example.org",
            "name=example.org in=lan0",
        ];
        let offsets = |rules: &[InterceptRule]| {
            let all = Handling::of_rules(rules).into_iter();
            all.map(Handling::port_offset).collect::<Vec<_>>()
        };
        assert_eq!(offsets(&rules(&all)), [0, 1, 2, 3, 4, 5]);
        for (offset, rule) in all.into_iter().enumerate().skip(1) {
            assert_eq!(offsets(&rules(&[rule])), [0, offset as u16], "{rule}");
        }
        assert_eq!(offsets(&rules(&["action=direct", "action=reject"])), [0]);
    }
}
