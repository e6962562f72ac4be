//! Listening TCP sockets, as `/proc/net/tcp` has them, and the processes that have them open.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use crate::kernel_file::text_of;

/// The state of a listening socket.
const LISTEN: &str = "0A";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listening {
    pub address: SocketAddr,
    /// The number of its owner.
    pub user: u32,
    inode: u64,
}

/// A process that has a socket open.
pub(super) struct Process {
    pub number: u32,
    pub name: String,
}

impl Process {
    /// Whether it is a gateway, by the name of its program.
    pub(super) fn is_refrain(&self) -> bool {
        self.name == "refrain"
    }
}

pub(super) fn listening() -> Vec<Listening> {
    let files = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts = files.into_iter().filter_map(text_of);
    texts.flat_map(|text| parse(&text)).collect()
}

fn parse(text: &str) -> Vec<Listening> {
    let sockets = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let address = address(words.next()?)?;
        let is_listening = words.nth(1)? == LISTEN;
        let user = words.nth(3)?.parse().ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        is_listening.then_some(Listening {
            address,
            user,
            inode,
        })
    });
    sockets.collect()
}

/// An address of 8 or 32 hexadecimal digits, by words in the order of this machine, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = ip.get(8 * at..8 * at + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes = <[u8; 16]>::try_from(words.concat()).ok()?;
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

impl Listening {
    /// Whether nothing else can listen at `address` meanwhile.
    pub(super) fn holds(&self, address: SocketAddr) -> bool {
        let (own, other) = (
            self.address.ip().to_canonical(),
            address.ip().to_canonical(),
        );
        let covers =
            |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
        let is_same = own == other || covers(own, other) || covers(other, own);
        self.address.port() == address.port() && is_same
    }

    /// The process that has it open, if this user may see that: an expected one, or any other.
    pub(super) fn process(&self, expected: &[u32]) -> Option<Process> {
        let all = fs::read_dir("/proc").ok()?.flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let number = expected
            .iter()
            .copied()
            .chain(all)
            .find(|number| self.is_of(*number))?;
        let name = text_of(format!("/proc/{number}/comm")).unwrap_or_default();
        let name = name.trim().to_owned();
        Some(Process { number, name })
    }

    fn is_of(&self, process: u32) -> bool {
        let socket = format!("socket:[{}]", self.inode);
        let files = fs::read_dir(format!("/proc/{process}/fd"));
        let mut links = files.into_iter().flatten().flatten();
        links.any(|link| fs::read_link(link.path()).is_ok_and(|to| to == Path::new(&socket)))
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, process};

    use super::*;

    #[test]
    fn own_listeners_are_found_with_their_process() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else {
                println!("skipped: {any}");
                continue;
            };
            let address = listener.local_addr().expect("its address");
            let all = listening();
            let found = all.iter().find(|one| one.address == address);
            let found = found.expect("it listens");
            let of = found.process(&[]).expect("an own process");
            assert_eq!(of.number, process::id());
            assert_eq!(found.user, rustix::process::getuid().as_raw());
        }
    }

    #[test]
    fn garbage_is_no_socket() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 91 1";
        assert_eq!(parse(line).len(), 1);
        for end in 0..line.len() - 2 {
            assert!(parse(&line[..end]).len() <= 1);
        }
        for text in [
            "",
            "\n\n",
            "0: é:é é 0A",
            "0: 0100007F:1F90 x 01 a b c 1 0 2",
            "a b c d e f g h i j k",
        ] {
            assert_eq!(parse(text), [], "{text}");
        }
    }

    #[test]
    fn addresses_that_overlap_hold_each_other() {
        for (own, other, expected) in [
            ("0.0.0.0:80", "10.0.0.1:80", true),
            ("[::]:80", "10.0.0.1:80", true),
            ("10.0.0.1:80", "[::]:80", true),
            ("0.0.0.0:80", "[fd00::1]:80", false),
            ("10.0.0.1:80", "10.0.0.2:80", false),
            ("10.0.0.1:80", "10.0.0.1:81", false),
        ] {
            let own = Listening {
                address: own.parse().expect("an address"),
                user: 0,
                inode: 0,
            };
            let other = other.parse().expect("an address");
            assert_eq!(own.holds(other), expected, "{own:?} {other}");
        }
    }
}
