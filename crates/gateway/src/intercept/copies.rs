//! Copies of packets that the firewall makes for this process: a group of netfilter's log, by netlink (nfnetlink_log). It
//! needs CAP_NET_ADMIN.
//!
//! The packets themselves take their way. While no process has the group, and when it is slow, the kernel makes no
//! copies.

use std::io::{self, Read};

use socket2::SockRef;
use tokio::{io::Interest, net::UnixDatagram};

use super::netfilter::{self, ENOBUFS};

/// Numbers of linux/netfilter/nfnetlink.h and linux/netfilter/nfnetlink_log.h.
const NFNL_SUBSYS_ULOG: u16 = 4 << 8;
pub(super) const NFULNL_MSG_PACKET: u16 = NFNL_SUBSYS_ULOG;
const NFULNL_MSG_CONFIG: u16 = NFNL_SUBSYS_ULOG | 1;
const NFULNL_CFG_CMD_BIND: u8 = 1;
const NFULNL_COPY_PACKET: u8 = 2;
const NFULA_CFG_CMD: u16 = 1;
const NFULA_CFG_MODE: u16 = 2;
const NFULA_CFG_QTHRESH: u16 = 5;
pub(super) const NFULA_PAYLOAD: u16 = 9;

/// So much of a packet is copied: resolvers rarely let answers be longer.
const COPIED_BYTES: u32 = 4096;

/// With the attributes before the packet.
const MESSAGE_BYTES_MAX: usize = 8192;

/// Messages that are read at a time, so that others get their turn.
const AT_A_TIME_MAX: usize = 1024;

/// A group that this process has.
#[derive(Debug)]
pub(crate) struct Copies(UnixDatagram);

impl Copies {
    /// Takes the group with this number.
    pub(crate) fn bind(group: u16) -> io::Result<Copies> {
        let [a, b, c, d] = COPIED_BYTES.to_be_bytes();
        let attributes: [(u16, &[u8]); 3] = [
            (NFULA_CFG_CMD, &[NFULNL_CFG_CMD_BIND]),
            (NFULA_CFG_MODE, &[a, b, c, d, NFULNL_COPY_PACKET, 0]),
            // Otherwise, the kernel collects copies for a second.
            (NFULA_CFG_QTHRESH, &1_u32.to_be_bytes()),
        ];
        let socket = netfilter::open()?;
        // The first copies may come before the answer. To lose them is to have begun a moment later.
        let ignore = |_: &[u8]| Ok(());
        netfilter::configure(&socket, NFULNL_MSG_CONFIG, group, &attributes, ignore)?;
        Ok(Copies(netfilter::into_async(socket)?))
    }

    /// Waits for messages with copies.
    pub(crate) async fn wait(&self) -> io::Result<()> {
        self.0.readable().await
    }

    /// Has `each` read the messages that were waited for.
    pub(crate) fn read_awaited(&self, each: impl FnMut(&[u8])) -> io::Result<()> {
        let read = self.0.try_io(Interest::READABLE, || self.read_all(each));
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            read => read,
        }
    }

    /// Has `each` read the messages that are there, whether or not tokio knows of them yet. Errors come again when they
    /// are waited for.
    pub(crate) fn read(&self, each: impl FnMut(&[u8])) {
        let _ = self.read_all(each);
    }

    /// Ends with [`io::ErrorKind::WouldBlock`] if no further message is there.
    fn read_all(&self, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let socket = SockRef::from(&self.0);
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        for _ in 0..AT_A_TIME_MAX {
            match (&*socket).read(&mut buffer) {
                Ok(length) => each(&buffer[..length]),
                // The socket's buffer was full: copies are lost.
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
