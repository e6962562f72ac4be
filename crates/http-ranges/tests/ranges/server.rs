//! A web server that does what a test tells it to.
//!
//! A request enters the test's script, a [`Reply`] leaves it, and goes out as it is: right or wrong,
//! whole, cut off or stalled. Connections are kept. What was asked is kept for the test to look at.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use refrain_http_ranges::{ProxyChoice, RemoteOptions};

/// Options of a client that waits for nothing, and keeps no first bytes that would hide requests.
pub(crate) fn options() -> RemoteOptions {
    RemoteOptions {
        first_bytes: 16,
        gap_bytes: 100,
        pause_min: Duration::from_micros(10),
        pause_max: Duration::from_micros(100),
        seed: Some(1),
        proxy: ProxyChoice::Direct,
        ..RemoteOptions::default()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// From 0, in the order in which they came.
    pub number: usize,
    pub connection: usize,
    pub method: String,
    pub path: String,
    /// By names in small letters.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The bytes that are asked for of a file with `len`.
    pub(crate) fn range(&self, len: u64) -> Option<Range<u64>> {
        let (first, last) = self
            .header("range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        if first.is_empty() {
            let bytes: u64 = last.parse().ok()?;
            return Some(len.saturating_sub(bytes)..len);
        }
        let last: u64 = last.parse().ok()?;
        Some(first.parse().ok()?..len.min(last + 1))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ending {
    /// The connection waits for the next request.
    Keep,
    /// It is closed.
    Close,
    /// It is closed after so many bytes of the body.
    Cut(usize),
    /// Nothing more comes after so many bytes of the body.
    Stall(usize),
    /// A byte comes at a time, with a pause before each.
    Drip(Duration),
    /// The body is sent over and over again.
    Endless,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self {
            status,
            headers: vec![("Content-Length".to_owned(), body.len().to_string())],
            body,
            ending: Ending::Keep,
        }
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self
    }

    pub(crate) fn with(self, name: &str, value: impl ToString) -> Self {
        let mut reply = self.without(name);
        reply.headers.push((name.to_owned(), value.to_string()));
        reply
    }

    pub(crate) fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// The same body in chunks, so that its length is not said.
    pub(crate) fn chunked(self) -> Self {
        let mut reply = self
            .without("Content-Length")
            .with("Transfer-Encoding", "chunked");
        let mut body = Vec::new();
        for chunk in reply.body.chunks(1000) {
            body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n\r\n");
        reply.body = body;
        reply
    }
}

/// A file as a server should serve it.
#[derive(Clone)]
pub(crate) struct File {
    pub bytes: Vec<u8>,
    pub etag: &'static str,
}

impl File {
    pub(crate) fn new(len: usize) -> Self {
        Self {
            bytes: bytes(len),
            etag: "\"first\"",
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn part(&self, range: &Range<u64>) -> &[u8] {
        &self.bytes[range.start as usize..range.end as usize]
    }

    pub(crate) fn reply(&self, request: &Request) -> Reply {
        let is_same = request
            .header("if-range")
            .is_none_or(|version| version == self.etag);
        match request.range(self.len()).filter(|_| is_same) {
            Some(range) if range.is_empty() => {
                Reply::new(416, "").with("Content-Range", format!("bytes */{}", self.len()))
            }
            Some(range) => {
                let named = format!("bytes {}-{}/{}", range.start, range.end - 1, self.len());
                let reply = Reply::new(206, self.part(&range)).with("Content-Range", named);
                reply.with("ETag", self.etag)
            }
            None => self.whole(),
        }
    }

    /// All of it, whatever was asked for.
    pub(crate) fn whole(&self) -> Reply {
        Reply::new(200, self.bytes.clone()).with("ETag", self.etag)
    }
}

/// Bytes of which any few say where they are.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub(crate) struct Server {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

struct Shared {
    script: Box<Script>,
    requests: Mutex<Vec<Request>>,
    connections: Mutex<Vec<TcpStream>>,
    sent_bytes: AtomicU64,
    is_stopped: AtomicBool,
}

impl Server {
    pub(crate) fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            script: Box::new(script),
            requests: Mutex::default(),
            connections: Mutex::default(),
            sent_bytes: AtomicU64::default(),
            is_stopped: AtomicBool::default(),
        });
        let accepting = {
            let shared = shared.clone();
            thread::spawn(move || accept(&listener, &shared))
        };
        Self {
            address,
            shared,
            accepting: Some(accepting),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/file", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Bytes of bodies that the system took from us.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, SeqCst);
        // It waits for a connection.
        let _ = TcpStream::connect(self.address);
        let accepting = self.accepting.take().expect("dropped once");
        let outcome = accepting.join();
        assert!(
            outcome.is_ok() || thread::panicking(),
            "the server panicked"
        );
    }
}

fn accept(listener: &TcpListener, shared: &Shared) {
    thread::scope(|threads| {
        for (number, stream) in listener.incoming().enumerate() {
            if shared.is_stopped.load(SeqCst) {
                break;
            }
            let stream = stream.expect("a connection");
            let kept = stream.try_clone().expect("a second handle");
            shared.connections.lock().unwrap().push(kept);
            threads.spawn(move || {
                // The client may go away at any time.
                let _ = serve(&stream, number, shared);
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
        for connection in shared.connections.lock().unwrap().iter() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    });
}

fn serve(stream: &TcpStream, connection: usize, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let mut lines = head.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (method, path) = (word(), word());
        let headers: HashMap<String, String> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length = headers.get("content-length");
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
        reader.read_exact(&mut body)?;
        let request = {
            let mut requests = shared.requests.lock().unwrap();
            let number = requests.len();
            requests.push(Request {
                number,
                connection,
                method,
                path,
                headers,
                body,
            });
            requests.last().expect("it was pushed").clone()
        };
        let reply = (shared.script)(&request);
        send(stream, shared, &request, &reply)?;
        if reply.ending != Ending::Keep {
            return Ok(());
        }
    }
}

fn send(
    mut stream: &TcpStream,
    shared: &Shared,
    request: &Request,
    reply: &Reply,
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    if reply.ending == Ending::Close {
        head += "Connection: close\r\n";
    }
    head += "\r\n";
    stream.write_all(head.as_bytes())?;
    if request.method == "HEAD" {
        return Ok(());
    }
    match reply.ending {
        Ending::Drip(pause) => {
            for byte in &reply.body {
                thread::sleep(pause);
                stream.write_all(&[*byte])?;
            }
            return Ok(());
        }
        Ending::Endless => loop {
            stream.write_all(&reply.body)?;
            shared.sent_bytes.fetch_add(reply.body.len() as u64, SeqCst);
        },
        _ => {}
    }
    let sent = match reply.ending {
        Ending::Cut(bytes) | Ending::Stall(bytes) => &reply.body[..bytes.min(reply.body.len())],
        _ => &reply.body[..],
    };
    for block in sent.chunks(16 << 10) {
        stream.write_all(block)?;
        shared.sent_bytes.fetch_add(block.len() as u64, SeqCst);
    }
    if matches!(reply.ending, Ending::Stall(_)) {
        // Until the client goes, or the test.
        let _ = BufReader::new(stream).lines().count();
    }
    Ok(())
}
