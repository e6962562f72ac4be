//! An origin whose answers tests can compute, and a client for it.
//!
//! A connection begins with a line that says what to do:
//!
//! ```text
//! send SEED BYTES                 letters, at once
//! send SEED BYTES PIECE MILLIS    letters, a piece at a time with pauses in between
//! halves SEED BYTES               half of the letters; the rest when a byte comes
//! count                           how many bytes came until the client's end
//! hold                            nothing, for ever
//! ```

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread::sleep,
    time::Duration,
};

use super::{
    PATIENCE,
    content::letters,
    digest,
    server::{serve, serve_on},
};

/// A download that is under way until the test lets it end.
pub(crate) struct Download {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Download {
    /// Asks for content, and takes the first half of it.
    pub(crate) fn begin(address: SocketAddr) -> Download {
        let mut stream = ask(address, &format!("halves 7 {DOWNLOAD_BYTES}")).expect("a listener");
        let mut received = vec![0; DOWNLOAD_BYTES / 2];
        stream.read_exact(&mut received).expect("the first half");
        Download { stream, received }
    }

    /// Takes the rest, and holds all of it against what was sent.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        self.stream.write_all(b".").expect("a connection");
        let rest = self.stream.read_to_end(&mut self.received);
        rest.expect("the rest of the download, without a reset");
        assert_eq!(digest(&self.received), digest(&letters(7, DOWNLOAD_BYTES)));
    }
}

const DOWNLOAD_BYTES: usize = 100_000;

/// Starts an origin on any port of loopback, for as long as the test's process runs.
pub(crate) fn start() -> SocketAddr {
    serve(answer)
}

/// Starts an origin there.
pub(crate) fn start_on(address: SocketAddr) -> SocketAddr {
    serve_on(address, answer)
}

/// Connects, and gives a command.
pub(crate) fn ask(address: SocketAddr, command: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{command}\n").as_bytes())?;
    Ok(stream)
}

/// Asks for content and takes it whole.
pub(crate) fn fetch(address: SocketAddr, command: &str) -> io::Result<Vec<u8>> {
    let mut received = Vec::new();
    ask(address, command)?.read_to_end(&mut received)?;
    Ok(received)
}

/// Whether a connection to the origin is served.
pub(crate) fn answers(address: SocketAddr) -> bool {
    fetch(address, "send 1 100").is_ok_and(|received| received == letters(1, 100))
}

fn answer(mut client: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut command = String::new();
    reader.read_line(&mut command)?;
    let words: Vec<&str> = command.split_whitespace().collect();
    let number = |index: usize| words[index].parse().expect("a number in the command");
    match words.first() {
        Some(&"send") => {
            let content = letters(number(1), number(2) as usize);
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
            let content = letters(number(1), number(2) as usize);
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
