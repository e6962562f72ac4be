//! The service at the far end of the link.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use socket2::SockRef;

use crate::{
    over_link,
    seeded::{REQUEST_BYTES, Seeded},
};

/// What a connection may hold that its kernel has not sent.
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// What a client asks for, on a connection of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// A seeded object.
    Seeded(Seeded),
    /// One of the origin's objects.
    Object(usize),
    /// One of its files, as `zstd -3` makes it, with the file before it as a reference if there is one.
    Patch(usize),
    /// All bytes that the client sends.
    Echo,
    /// A seeded object, after which the connection stays open until the client closes it.
    AndStay(Seeded),
}

/// What the origin has.
#[derive(Default)]
pub(super) struct Content {
    pub objects: Vec<Vec<u8>>,
    /// The same as files, for `zstd`.
    pub files: Vec<PathBuf>,
    /// Bytes of all patches that were sent.
    pub patch_bytes: AtomicU64,
}

impl Request {
    pub(super) fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        let numbered = |kind: u8, number: usize| {
            let mut request = [0; REQUEST_BYTES];
            request[0] = kind;
            request[8..16].copy_from_slice(&(number as u64).to_le_bytes());
            request
        };
        match self {
            Self::Seeded(seeded) => seeded.request(),
            Self::Object(index) => numbered(3, index),
            Self::Patch(index) => numbered(4, index),
            Self::Echo => numbered(5, 0),
            Self::AndStay(seeded) => {
                let mut request = seeded.request();
                request[1] = 1;
                request
            }
        }
    }

    fn of_bytes(mut request: [u8; REQUEST_BYTES]) -> Option<Self> {
        let number = u64::from_le_bytes(*request[8..].first_chunk()?) as usize;
        let stays = std::mem::take(&mut request[1]) == 1;
        match request[0] {
            3 => Some(Self::Object(number)),
            4 => Some(Self::Patch(number)),
            5 => Some(Self::Echo),
            _ => Seeded::of_request(request).map(match stays {
                true => Self::AndStay,
                false => Self::Seeded,
            }),
        }
    }
}

impl Content {
    pub(super) fn of(objects: Vec<Vec<u8>>) -> Self {
        Self {
            objects,
            ..Self::default()
        }
    }

    /// An origin that serves it.
    pub(super) fn served(self: &Arc<Self>) -> over_link::Origin {
        let content = Arc::clone(self);
        Arc::new(move |stream| content.answer(stream))
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        // A thousand origins on this machine would use up the memory that its kernel has for TCP.
        SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        let mut request = [0; REQUEST_BYTES];
        stream.read_exact(&mut request)?;
        match Request::of_bytes(request).ok_or(io::ErrorKind::InvalidData)? {
            Request::Seeded(seeded) => seeded.write_to(stream),
            Request::Object(index) => stream.write_all(&self.objects[index]),
            Request::Patch(index) => self.send_patch(stream, index),
            Request::Echo => io::copy(&mut stream.try_clone()?, &mut stream).map(drop),
            Request::AndStay(seeded) => {
                seeded.write_to(&stream)?;
                stream.read(&mut [0]).map(drop)
            }
        }
    }

    fn send_patch(&self, mut stream: TcpStream, index: usize) -> io::Result<()> {
        let mut command = zstd(&["-3"], self.files[..index].last());
        let mut zstd = command
            .arg(&self.files[index])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut patch = zstd.stdout.take().expect("it is piped");
        let bytes = io::copy(&mut patch, &mut stream)?;
        self.patch_bytes.fetch_add(bytes, Ordering::Relaxed);
        zstd.wait().map(drop)
    }

    /// The command that gives a patched object from what comes on its standard input.
    pub(super) fn unpatch(&self, index: usize, patch: impl Into<Stdio>) -> Command {
        let mut command = zstd(&["-d"], self.files[..index].last());
        command.stdin(patch).stdout(Stdio::piped());
        command
    }
}

/// `zstd`, with a file as reference, whose whole length is within its window.
fn zstd(arguments: &[&str], reference: Option<&PathBuf>) -> Command {
    let mut command = Command::new("zstd");
    command.args(arguments).args(["--stdout", "--quiet"]);
    if let Some(reference) = reference {
        let mut option = std::ffi::OsString::from("--patch-from=");
        option.push(reference);
        command.arg("--long=27").arg(option);
    }
    command
}

/// Writes objects to files of a folder.
pub(super) fn write_files(
    objects: &[Vec<u8>],
    folder: &tempfile::TempDir,
) -> io::Result<Vec<PathBuf>> {
    let write = |(index, object): (usize, &Vec<u8>)| {
        let path = folder.path().join(index.to_string());
        File::create(&path)?.write_all(object)?;
        Ok(path)
    };
    objects.iter().enumerate().map(write).collect()
}
