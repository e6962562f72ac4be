//! What the kernel knows of a lane's connection: the gateway's one place with unsafe code.
//!
//! Linux alone says it; elsewhere, and for streams that are no TCP, there is no answer.

use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd},
};

/// A TCP connection as its kernel sees it (`struct tcp_info` of `linux/tcp.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    /// The most bytes of a segment that is sent.
    pub(crate) segment_bytes: u32,
    /// Segments that the peer has not acknowledged.
    pub(crate) unacknowledged: u32,
    /// Segments that were sent again.
    pub(crate) retransmitted: u32,
    /// Segments that the peer got twice, as it reported: none before Linux 4.19.
    pub(crate) duplicates: u32,
    /// The round trip of late, in microseconds.
    pub(crate) round_trip_us: u32,
    /// By how much round trips differ of late, in microseconds.
    pub(crate) round_trip_deviation_us: u32,
    /// The shortest of the last minutes.
    pub(crate) round_trip_min_us: u32,
    /// Bytes that the peer acknowledged so far.
    pub(crate) acked_bytes: u64,
    /// Bytes a second that the peer acknowledged of late, of the most that were seen for a round trip.
    pub(crate) delivery_rate: u64,
    /// Whether that is less than the path takes, since there was nothing more to send.
    pub(crate) is_app_limited: bool,
}

/// The congestion control of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// BBR where the kernel allows it, else the system's own.
    Auto,
    /// The one with this name.
    Named(String),
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => {
                f.write_str("bbr if the kernel allows it, otherwise the system's default")
            }
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// Why a congestion control cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CongestionError {
    /// The kernel has none with this name.
    #[error(
        "the kernel does not have it (/proc/sys/net/ipv4/tcp_allowed_congestion_control lists the allowed ones)"
    )]
    Unknown,
    /// The kernel has it only for administrators.
    #[error(
        "the kernel refuses it: {source} (/proc/sys/net/ipv4/tcp_allowed_congestion_control lists the allowed ones)"
    )]
    Refused {
        /// As the system says it.
        source: io::Error,
    },
}

impl Congestion {
    /// Reads an option's value. The kernel must allow it now.
    ///
    /// # Errors
    /// It does not.
    pub fn of(text: &str) -> Result<Self, CongestionError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let named = Self::Named(text.to_owned());
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        match socket.and_then(|socket| named.set(&socket)) {
            Ok(()) => Ok(named),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CongestionError::Unknown),
            Err(source) => Err(CongestionError::Refused { source }),
        }
    }

    /// Whether the connection's own slows down where segments are lost by chance.
    pub(crate) fn minds_loss(socket: &impl AsFd) -> bool {
        let socket = socket2::SockRef::from(socket);
        !matches!(congestion(&socket), Ok(name) if name.starts_with(b"bbr"))
    }

    /// Makes it the connection's.
    pub(crate) fn set(&self, socket: &impl AsFd) -> io::Result<()> {
        let socket = socket2::SockRef::from(socket);
        match self {
            Self::Auto => {
                let _ = set_congestion(&socket, "bbr");
                Ok(())
            }
            Self::Named(name) => set_congestion(&socket, name),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "freebsd"))]
fn set_congestion(socket: &socket2::Socket, name: &str) -> io::Result<()> {
    socket.set_tcp_congestion(name.as_bytes())
}

#[cfg(any(target_os = "linux", target_os = "freebsd"))]
fn congestion(socket: &socket2::Socket) -> io::Result<Vec<u8>> {
    socket.tcp_congestion()
}

#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
fn congestion(_socket: &socket2::Socket) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
fn set_congestion(_socket: &socket2::Socket, _name: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Bytes that the connection has not sent for the first time.
#[cfg(target_os = "linux")]
pub(crate) fn unsent_bytes(socket: &impl AsFd) -> Option<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open while it is borrowed, and SIOCOUTQNSD writes one int.
    let result = unsafe {
        libc::ioctl(
            socket.as_fd().as_raw_fd(),
            // musl's ioctl takes another type.
            libc::SIOCOUTQNSD as _,
            &raw mut bytes,
        )
    };
    (result == 0).then(|| u32::try_from(bytes).ok()).flatten()
}

/// The connection's state.
#[cfg(target_os = "linux")]
pub(crate) fn tcp_info(socket: &impl AsFd) -> Option<TcpInfo> {
    let mut bytes = [0_u8; 256];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes at most `len` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    (result == 0).then(|| TcpInfo::read(&bytes[..len as usize]))?
}

/// Has the connection count as readable only once so many bytes came, or its end. It may be gone already.
#[cfg(target_os = "linux")]
pub(crate) fn wait_for(socket: &impl AsFd, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_option(socket, libc::SO_RCVLOWAT, bytes);
}

/// Sets an option of the socket, whose value is a number. It may be gone already.
#[cfg(target_os = "linux")]
fn set_option<N: Copy>(socket: &impl AsFd, option: libc::c_int, value: N) {
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads no more than the number's bytes.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
}

/// Writes what ends a buffer of the kernel's: what is written later goes into another one.
#[cfg(target_os = "linux")]
pub(crate) fn write_apart(socket: &impl AsFd, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
    let flags = libc::MSG_EOR | libc::MSG_NOSIGNAL;
    socket2::SockRef::from(socket).send_vectored_with_flags(slices, flags)
}

/// Bounds the bytes that the connection takes and has not sent. It may be gone already.
#[cfg(target_os = "linux")]
pub(crate) fn bound_unsent(socket: &impl AsFd, bytes: u32) {
    let _ = socket2::SockRef::from(socket).set_tcp_notsent_lowat(bytes);
}

/// Bounds the bytes a second that the connection sends; `u64::MAX` is no bound. It may be gone already.
#[cfg(target_os = "linux")]
pub(crate) fn bound_rate(socket: &impl AsFd, bytes_per_second: u64) {
    // As long as the kernel's own, where all bits set is no bound.
    let bytes_per_second = libc::c_ulong::try_from(bytes_per_second).unwrap_or(libc::c_ulong::MAX);
    set_option(socket, libc::SO_MAX_PACING_RATE, bytes_per_second);
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn bound_rate(_socket: &impl AsFd, _bytes_per_second: u64) {}

#[cfg(not(target_os = "linux"))]
pub(crate) fn bound_unsent(_socket: &impl AsFd, _bytes: u32) {}

#[cfg(not(target_os = "linux"))]
pub(crate) fn wait_for(_socket: &impl AsFd, _bytes: usize) {}

#[cfg(not(target_os = "linux"))]
pub(crate) fn unsent_bytes(_socket: &impl AsFd) -> Option<u32> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn tcp_info(_socket: &impl AsFd) -> Option<TcpInfo> {
    None
}

impl TcpInfo {
    /// `None` for a kernel that is too old to say all of it (before 4.9). Fields are only ever added at the end.
    fn read(info: &[u8]) -> Option<Self> {
        let word = |at: usize| info[at..].first_chunk().copied().map(u32::from_ne_bytes);
        let long = |at: usize| {
            let bytes = info.get(at..)?.first_chunk().copied();
            bytes.map(u64::from_ne_bytes)
        };
        let delivery_rate = long(160)?;
        Some(Self {
            segment_bytes: word(16)?,
            unacknowledged: word(24)?,
            retransmitted: word(100)?,
            duplicates: info.get(216..).and_then(|_| word(216)).unwrap_or(0),
            round_trip_us: word(68)?,
            round_trip_deviation_us: word(72)?,
            round_trip_min_us: word(148)?,
            acked_bytes: long(120)?,
            delivery_rate,
            // A bit field behind two of four bits, which compilers place from the end that comes first.
            is_app_limited: match cfg!(target_endian = "little") {
                true => info[7] & 1 != 0,
                false => info[7] & 0x80 != 0,
            },
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn a_peer_that_does_not_read_leaves_bytes_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut near =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (far, _) = listener.accept().expect("it connects");
        assert_eq!(unsent_bytes(&near), Some(0));
        near.set_nonblocking(true).expect("a socket");
        let mut written = 0;
        while let Ok(more) = near.write(&[0; 1 << 20]) {
            written += more;
        }
        let unsent = unsent_bytes(&near).expect("Linux says it");
        assert!(
            unsent > 0 && unsent as usize <= written,
            "{unsent} of {written}"
        );
        bound_rate(&near, 125_000);
        assert_eq!(max_pacing_rate(&near), 125_000);
        bound_rate(&near, u64::MAX);
        assert_eq!(max_pacing_rate(&near), u64::MAX);
        let info = tcp_info(&near).expect("Linux says it");
        assert_eq!(info.retransmitted, 0);
        assert!(info.delivery_rate > 0, "{info:?}");
        drop(far);
    }

    fn max_pacing_rate(socket: &impl AsFd) -> u64 {
        let mut rate = 0_u64;
        let mut len = size_of_val(&rate) as libc::socklen_t;
        // SAFETY: the descriptor is open while it is borrowed, and the kernel writes at most `len` bytes.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE,
                (&raw mut rate).cast(),
                &raw mut len,
            )
        };
        assert_eq!(result, 0);
        rate
    }

    #[test]
    fn a_congestion_control_is_set_by_its_name() {
        let socket = || {
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
                .expect("a socket")
        };
        let reno = Congestion::of("reno").expect("each kernel has it");
        let with_reno = socket();
        reno.set(&with_reno).expect("it is allowed");
        assert!(
            with_reno
                .tcp_congestion()
                .expect("its name")
                .starts_with(b"reno")
        );
        let with_auto = socket();
        Congestion::Auto.set(&with_auto).expect("there is one");
        let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
        if allowed.is_ok_and(|allowed| allowed.split_whitespace().any(|name| name == "bbr")) {
            let name = with_auto.tcp_congestion().expect("its name");
            assert!(name.starts_with(b"bbr"), "{name:?}");
        }
        for name in ["", "no-such-one", "a-name-that-is-longer-than-any"] {
            let error = Congestion::of(name).expect_err("there is none").to_string();
            assert!(error.contains("tcp_allowed_congestion_control"), "{error}");
        }
    }

    #[test]
    fn a_descriptor_that_is_no_connection_has_no_answer() {
        let file = std::fs::File::open("/proc/self/status").expect("a file");
        assert_eq!((unsent_bytes(&file), tcp_info(&file)), (None, None));
    }

    #[test]
    fn an_answer_of_an_older_kernel_is_none() {
        for len in 0..168 {
            assert_eq!(TcpInfo::read(&vec![0; len]), None, "{len} bytes");
        }
        assert!(TcpInfo::read(&[0; 168]).is_some());
    }
}
