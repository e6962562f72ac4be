//! A client of HTTP/1.1 that hides nothing.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// A header, if it is there.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| &value[..])
    }
}

/// A connection.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let connection = TcpStream::connect(address).expect("the server listens");
        connection
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a timeout");
        Self {
            reader: BufReader::new(connection),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let sent = self.reader.get_mut().write_all(bytes);
        sent.expect("the server reads");
    }

    /// Sends a request.
    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: here\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        self.send(&[head.as_bytes(), b"\r\n", body].concat());
    }

    /// The head of an answer, if there is one.
    pub(crate) fn head(&mut self) -> Option<Answer> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Some(Answer {
            status,
            headers,
            body: Vec::new(),
        })
    }

    /// An answer with its body; `None` if the connection ends before it does.
    pub(crate) fn answer(&mut self, is_head: bool) -> Option<Answer> {
        let mut answer = self.head()?;
        if is_head || answer.status == 304 {
            return Some(answer);
        }
        if let Some(bytes) = answer.header("content-length") {
            let bytes = bytes.parse().ok()?;
            (&mut self.reader)
                .take(bytes)
                .read_to_end(&mut answer.body)
                .ok()?;
            return (answer.body.len() as u64 == bytes).then_some(answer);
        }
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).ok()?;
            let bytes = u64::from_str_radix(line.trim_end(), 16).ok()?;
            let piece = &mut (&mut self.reader).take(bytes);
            let read = piece.read_to_end(&mut answer.body).ok()?;
            self.reader.read_line(&mut line).ok()?;
            if read as u64 != bytes {
                return None;
            }
            if bytes == 0 {
                return Some(answer);
            }
        }
    }

    /// Reads at most so many bytes, as a slow client does.
    pub(crate) fn read_some(&mut self, bytes: usize) -> Vec<u8> {
        let mut piece = vec![0; bytes];
        let read = self.reader.read(&mut piece).expect("the server sends");
        piece.truncate(read);
        piece
    }

    /// The same; none where the connection ends, or breaks.
    pub(crate) fn try_read(&mut self, bytes: usize) -> Vec<u8> {
        let mut piece = vec![0; bytes];
        let read = self.reader.read(&mut piece).unwrap_or(0);
        piece.truncate(read);
        piece
    }
}
