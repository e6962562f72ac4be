//! An origin whose answers tests can compute, and a client for it.
//!
//! A connection begins with a line that says what to do:
//!
//! ```text
//! send SEED BYTES                 content, at once
//! send SEED BYTES PIECE MILLIS    content, a piece at a time with pauses in between
//! halves SEED BYTES               half of the content; the rest when a byte comes
//! count                           how many bytes came until the client's end
//! hold                            nothing, for ever
//! ```

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread::{self, sleep},
    time::Duration,
};

use super::{PATIENCE, digest};

/// A download that is under way until the test lets it end.
pub struct Download {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Download {
    /// Asks for content, and takes the first half of it.
    pub fn begin(address: SocketAddr) -> Download {
        let mut stream = ask(address, &format!("halves 7 {DOWNLOAD_BYTES}")).expect("a listener");
        let mut received = vec![0; DOWNLOAD_BYTES / 2];
        stream.read_exact(&mut received).expect("the first half");
        Download { stream, received }
    }

    /// Takes the rest, and holds all of it against what was sent.
    #[track_caller]
    pub fn finish(mut self) {
        self.stream.write_all(b".").expect("a connection");
        let rest = self.stream.read_to_end(&mut self.received);
        rest.expect("the rest of the download, without a reset");
        assert_eq!(digest(&self.received), digest(&content(7, DOWNLOAD_BYTES)));
    }
}

const DOWNLOAD_BYTES: usize = 100_000;

/// Starts an origin on any port of loopback, for as long as the test's process runs.
pub fn start() -> SocketAddr {
    start_on("127.0.0.1:0".parse().expect("an address"))
}

/// Starts an origin there.
pub fn start_on(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(address).expect("an address to listen on");
    let address = listener.local_addr().expect("a bound listener's address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Clients that leave early are part of the tests.
            thread::spawn(move || serve(client));
        }
    });
    address
}

/// Text of made-up words, so that it looks like most traffic: the same for the same seed.
pub fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        let letters = 2 + random.next() % 9;
        text.extend((0..letters).map(|_| b'a' + (random.next() % 26) as u8));
        text.push(b' ');
    }
    text.truncate(bytes);
    text
}

/// Random bytes, which nothing compresses: the same for the same seed.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes).map(|_| random.next() as u8).collect()
}

/// Connects, and gives a command.
pub fn ask(address: SocketAddr, command: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{command}\n").as_bytes())?;
    Ok(stream)
}

/// Asks for content and takes it whole.
pub fn fetch(address: SocketAddr, command: &str) -> io::Result<Vec<u8>> {
    let mut received = Vec::new();
    ask(address, command)?.read_to_end(&mut received)?;
    Ok(received)
}

/// Whether a connection to the origin is served.
pub fn answers(address: SocketAddr) -> bool {
    fetch(address, "send 1 100").is_ok_and(|received| received == content(1, 100))
}

fn serve(mut client: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut command = String::new();
    reader.read_line(&mut command)?;
    let words: Vec<&str> = command.split_whitespace().collect();
    let number = |index: usize| words[index].parse().expect("a number in the command");
    match words.first() {
        Some(&"send") => {
            let content = content(number(1), number(2) as usize);
            if words.len() == 3 {
                client.write_all(&content)?;
            } else {
                for piece in content.chunks(number(3) as usize) {
                    client.write_all(piece)?;
                    sleep(Duration::from_millis(number(4)));
                }
            }
            client.shutdown(Shutdown::Write)?;
            io::copy(&mut reader, &mut io::sink())?;
            Ok(())
        }
        Some(&"halves") => {
            let content = content(number(1), number(2) as usize);
            let (first, second) = content.split_at(content.len() / 2);
            client.write_all(first)?;
            reader.read_exact(&mut [0])?;
            client.write_all(second)?;
            client.shutdown(Shutdown::Write)
        }
        Some(&"count") => {
            let count = io::copy(&mut reader, &mut io::sink())?;
            client.write_all(count.to_string().as_bytes())
        }
        _ => {
            io::copy(&mut reader, &mut io::sink())?;
            Ok(())
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
