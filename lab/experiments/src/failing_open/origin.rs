//! The service: it answers, streams and reads, and remembers how uploads ended.
//!
//! A connection begins with a command of four bytes and its number. Streams carry bytes that follow from the number and
//! the offset, so a byte at a wrong place, or of another stream, is noticed.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread::{self, sleep},
    time::Duration,
};

use super::clients::{ANSWER_BYTES, Outcome, end_of};

/// The port to which only the far end connects, from the addresses of clients.
pub(super) const CARRIED_PORT: u16 = 8081;

/// Streams at once, and reads a stream.
pub(super) const BOTH: [u8; 4] = *b"both";
/// Streams slowly once the client has ended its side.
pub(super) const LAST: [u8; 4] = *b"last";

/// What a stream sends at a time, and the pause after it.
const PIECE_BYTES: usize = 32 << 10;
const SLOW_PIECE_BYTES: usize = 1 << 10;
const PAUSE: Duration = Duration::from_millis(10);

/// How an upload ended, as the origin saw it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UploadEnd {
    /// As if the client had sent all.
    Clean,
    Error,
    WrongBytes,
}

#[derive(Default)]
pub(super) struct Origin {
    uploads: Mutex<HashMap<u64, UploadEnd>>,
}

impl Origin {
    /// Serves as long as the process lives.
    pub(super) fn serve(listeners: impl IntoIterator<Item = TcpListener>) -> Arc<Origin> {
        let origin = Arc::<Origin>::default();
        for listener in listeners {
            let serving = Arc::clone(&origin);
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let origin = Arc::clone(&serving);
                    // A client that leaves early reports its own error.
                    thread::spawn(move || origin.answer(stream).ok());
                }
            });
        }
        origin
    }

    /// How the upload of this number ended, if it did.
    pub(super) fn upload(&self, number: u64) -> Option<UploadEnd> {
        self.uploads.lock().expect("no panic").get(&number).copied()
    }

    fn answer(&self, mut client: TcpStream) -> io::Result<()> {
        let mut command = [0; 4];
        let mut number = [0; 8];
        client.read_exact(&mut command)?;
        client.read_exact(&mut number)?;
        let number = u64::from_le_bytes(number);
        match command {
            BOTH => {
                let sink = client.try_clone()?;
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let end = self.read_upload(sink, number);
                        self.uploads.lock().expect("no panic").insert(number, end);
                    });
                    stream(client, number, PIECE_BYTES)
                })
            }
            LAST => {
                while client.read(&mut command)? > 0 {}
                stream(client, number, SLOW_PIECE_BYTES)
            }
            _ => loop {
                let own = client.local_addr()?;
                let seen = match own.port() {
                    // As where both are on one machine, and the far end has the origin's address.
                    CARRIED_PORT => own.ip(),
                    _ => client.peer_addr()?.ip(),
                };
                client.write_all(format!("{:<ANSWER_BYTES$}", seen.to_string()).as_bytes())?;
                client.read_exact(&mut command)?;
            },
        }
    }

    fn read_upload(&self, mut client: TcpStream, number: u64) -> UploadEnd {
        let mut content = Content::of(!number);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match client.read(&mut piece) {
                Ok(0) if end_of(&client) == Outcome::Reset => return UploadEnd::Error,
                Ok(0) => return UploadEnd::Clean,
                Ok(read) if content.is_next(&piece[..read]) => {}
                Ok(_) => return UploadEnd::WrongBytes,
                Err(_) => return UploadEnd::Error,
            }
        }
    }
}

/// Sends without an end.
fn stream(mut client: TcpStream, number: u64, piece_bytes: usize) -> io::Result<()> {
    let mut content = Content::of(number);
    let mut piece = vec![0; piece_bytes];
    loop {
        content.fill(&mut piece);
        client.write_all(&piece)?;
        content.skip(piece_bytes);
        sleep(PAUSE);
    }
}

/// The bytes of a stream from an offset on.
pub(super) struct Content {
    number: u64,
    offset: u64,
}

impl Content {
    pub(super) fn of(number: u64) -> Content {
        Content { number, offset: 0 }
    }

    /// The next bytes, which stay the next ones.
    pub(super) fn fill(&self, piece: &mut [u8]) {
        let mut word = [0; 8];
        for (index, byte) in piece.iter_mut().enumerate() {
            let at = self.offset + index as u64;
            if index == 0 || at.is_multiple_of(8) {
                word = mix(self.number ^ mix(at / 8)).to_le_bytes();
            }
            *byte = word[(at % 8) as usize];
        }
    }

    pub(super) fn skip(&mut self, bytes: usize) {
        self.offset += bytes as u64;
    }

    /// Whether these are the next bytes, which are then skipped.
    pub(super) fn is_next(&mut self, bytes: &[u8]) -> bool {
        let mut expected = vec![0; bytes.len()];
        self.fill(&mut expected);
        self.skip(bytes.len());
        expected == bytes
    }
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_same_in_any_pieces_and_differs_by_number() {
        let mut whole = [0; 100];
        Content::of(1).fill(&mut whole);
        let mut content = Content::of(1);
        assert!(whole.chunks(7).all(|piece| content.is_next(piece)));
        assert!(!Content::of(2).is_next(&whole));
        assert!(!Content::of(1).is_next(&whole[1..]));
    }
}
