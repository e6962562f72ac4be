//! How the process that becomes the program hands out its sockets, and learns that they are served.
//!
//! The first message is `k` with the descriptors of the sockets, or an error in words. The answer is one byte.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    net,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::Child,
};

use anyhow::{Context, bail};
use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, poll},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, listen, recvmsg, sendmsg,
    },
    process::{Pid, PidfdFlags, pidfd_open},
};
use tokio::net::{TcpListener, UdpSocket};

/// The message that comes with sockets.
const SOCKETS: u8 = b'k';

/// The longest error.
const ERROR_BYTES_MAX: usize = 4096;

/// A listener, and a socket for names of each family.
const SOCKETS_MAX: usize = 3;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// The program's sockets.
pub(super) struct Sockets {
    pub listener: net::TcpListener,
    pub for_names: Vec<net::UdpSocket>,
}

impl Sockets {
    /// The listener that its connections are redirected to, and the sockets for its queries for names. Within a runtime.
    pub(super) fn into_async(self) -> io::Result<(TcpListener, Vec<UdpSocket>)> {
        self.listener.set_nonblocking(true)?;
        let for_names = self.for_names.into_iter().map(|socket| {
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        });
        Ok((
            TcpListener::from_std(self.listener)?,
            for_names.collect::<io::Result<_>>()?,
        ))
    }
}

/// Where the process that becomes the program reports.
pub(super) struct Control {
    folder: tempfile::TempDir,
    listener: UnixListener,
}

/// Has that process go on.
pub(super) struct Go(UnixStream);

impl Go {
    pub(super) fn send(mut self) -> io::Result<()> {
        self.0.write_all(&[SOCKETS])
    }
}

impl Control {
    /// In a folder that only this user can open.
    pub(super) fn listen() -> anyhow::Result<Control> {
        let folder = tempfile::tempdir()
            .context("cannot make a temporary directory (TMPDIR chooses another place for it)")?;
        let listener = UnixListener::bind(folder.path().join("control"));
        let listener = listener.with_context(|| {
            format!(
                "cannot make a socket in \"{}\" (TMPDIR chooses another directory)",
                folder.path().display()
            )
        })?;
        Ok(Control { folder, listener })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    /// What `program` reports.
    pub(super) fn receive(self, program: &Child) -> anyhow::Result<(Sockets, Go)> {
        let ended = "the process that was to become the program has ended";
        let Some(pid) = Pid::from_raw(program.id() as i32) else {
            bail!(ended);
        };
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let mut either = [
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(&process, PollFlags::IN),
        ];
        loop {
            match poll(&mut either, None) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if either[0].revents().is_empty() {
            bail!(ended);
        }
        let (mut stream, _) = self.listener.accept()?;
        let mut message = vec![0; ERROR_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut descriptors = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut message)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&stream, &mut parts, &mut descriptors, flags)?.bytes;
        message.truncate(received);
        if message != [SOCKETS] {
            stream.read_to_end(&mut message)?;
            bail!(match message.is_empty() {
                true => ended.to_owned(),
                false => String::from_utf8_lossy(&message).into_owned(),
            });
        }
        let mut sockets = descriptors.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<OwnedFd>>(),
            _ => Vec::new(),
        });
        let listener = net::TcpListener::from(sockets.next().context(ended)?);
        listen(&listener, BACKLOG)?;
        let for_names = sockets.map(net::UdpSocket::from).collect();
        let sockets = Sockets {
            listener,
            for_names,
        };
        Ok((sockets, Go(stream)))
    }
}

/// Reports the sockets of this process, which may put files next to `control` for the moment, or why it has none.
/// Waits until they are served.
pub(super) fn report(
    control: &Path,
    sockets: impl FnOnce(&Path) -> anyhow::Result<Sockets>,
) -> io::Result<()> {
    let mut stream = UnixStream::connect(control)?;
    let folder = control.parent().unwrap_or(control);
    match sockets(folder) {
        Ok(sockets) => {
            let mut descriptors = vec![sockets.listener.as_fd()];
            descriptors.extend(sockets.for_names.iter().map(AsFd::as_fd));
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
            let message = [IoSlice::new(&[SOCKETS])];
            sendmsg(&stream, &message, &mut ancillary, SendFlags::empty())?;
        }
        Err(error) => {
            let mut text = format!("{error:#}");
            text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
            stream.write_all(text.as_bytes())?;
            return Err(io::ErrorKind::Other.into());
        }
    }
    stream.read_exact(&mut [0])
}
