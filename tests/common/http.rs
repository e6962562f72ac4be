//! HTTP as clients and origins speak it: a whole page, or byte by byte by hand.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{PATIENCE, eventually, read, server::serve};

/// The status code and the body of a page.
pub(crate) fn get(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
) -> Result<(u16, String), ureq::Error> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(10)))
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .into();
    let mut request = agent.get(format!("http://{address}{path}"));
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut response = request.call()?;
    let body = response.body_mut().read_to_string()?;
    Ok((response.status().as_u16(), body))
}

/// A client that says what the test says, and reads what it is told to.
pub(crate) struct HandMadeClient {
    stream: TcpStream,
}

impl HandMadeClient {
    /// Connects, and says `text`.
    pub(crate) fn say(address: SocketAddr, text: &str) -> HandMadeClient {
        let mut client = HandMadeClient::over(TcpStream::connect(address).expect("it listens"));
        client.say_more(text);
        client
    }

    /// A client that has a connection.
    pub(crate) fn over(stream: TcpStream) -> HandMadeClient {
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        HandMadeClient { stream }
    }

    pub(crate) fn say_more(&mut self, text: &str) {
        self.stream
            .write_all(text.as_bytes())
            .expect("a connection");
    }

    /// The next head.
    pub(crate) fn head(&mut self) -> String {
        let head = read_head(&mut self.stream).expect("a connection");
        assert!(head.ends_with("\r\n\r\n"), "ended within a head: {head:?}");
        head
    }

    /// The next answer: its head, and what its length or its chunks say is its body. One that has
    /// neither is read up to the connection's end.
    pub(crate) fn answer(&mut self) -> (String, String) {
        let head = self.head();
        let field = |name: &str| field(&head, name);
        let body = if field("Transfer-Encoding").is_some() {
            let mut body = String::new();
            loop {
                let size = read_line(&mut self.stream).expect("a connection");
                let size = size.split(';').next().expect("a size").trim();
                let size = usize::from_str_radix(size, 16).expect("a size in hexadecimal digits");
                if size == 0 {
                    break;
                }
                body += &self.body(size);
                assert_eq!(self.body(2), "\r\n");
            }
            while read_line(&mut self.stream).expect("a trailer") != "\r\n" {}
            body
        } else if let Some(length) = field("Content-Length") {
            self.body(length.parse().expect("a length"))
        } else if head.starts_with("HTTP/1.1 204 ") || head.starts_with("HTTP/1.1 304 ") {
            String::new()
        } else {
            self.rest()
        };
        (head, body)
    }

    /// Whether anything comes within this time, the end included.
    pub(crate) fn comes_within(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).expect("a limit");
        let comes = self.stream.peek(&mut [0]).is_ok();
        self.stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a limit");
        comes
    }

    /// The client has nothing more to say.
    pub(crate) fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).expect("a connection");
    }

    /// The next `bytes` of a body.
    pub(crate) fn body(&mut self, bytes: usize) -> String {
        let mut body = vec![0; bytes];
        self.stream.read_exact(&mut body).expect("a connection");
        String::from_utf8(body).expect("text")
    }

    /// All up to the end.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = String::new();
        let read = self.stream.read_to_string(&mut rest);
        read.expect("text, and an end without a reset");
        rest
    }

    /// The connection, behind what was read of it.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

/// An origin that says what the test says, whatever it is asked, and never closes first.
pub(crate) struct HandMadeOrigin {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl HandMadeOrigin {
    /// Says `answer` once it has heard a head.
    pub(crate) fn answering(answer: impl Into<String>) -> HandMadeOrigin {
        let answer = answer.into();
        HandMadeOrigin::conversing(move |stream, _| stream.write_all(answer.as_bytes()))
    }

    /// Answers each request of each connection, both numbered from 0 on. Without an answer it ends
    /// its side of the connection, and listens on.
    pub(crate) fn keeping(
        answer: impl Fn(usize, usize, &str) -> Option<String> + Clone + Send + 'static,
    ) -> HandMadeOrigin {
        let connections = Arc::new(AtomicUsize::new(0));
        HandMadeOrigin::conversing(move |stream, said| {
            let connection = connections.fetch_add(1, Ordering::Relaxed);
            let mut request = said.clone();
            for number in 0.. {
                let length = field(&request, "Content-Length").unwrap_or("0");
                let mut body = vec![0; length.parse().expect("a length")];
                stream.read_exact(&mut body)?;
                said.push_str(&String::from_utf8_lossy(&body));
                match answer(connection, number, &request) {
                    Some(answer) => stream.write_all(answer.as_bytes())?,
                    None => return stream.shutdown(Shutdown::Write),
                }
                request = read_head(stream)?;
                said.push_str(&request);
                if request.is_empty() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Converses over each connection as it is told, once it has heard a head; then listens
    /// up to the end.
    pub(crate) fn conversing(
        converse: impl Fn(&mut TcpStream, &mut String) -> io::Result<()> + Clone + Send + 'static,
    ) -> HandMadeOrigin {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let address = serve({
            let heard = Arc::clone(&heard);
            move |mut stream| {
                let mut said = read_head(&mut stream)?;
                let result = converse(&mut stream, &mut said);
                // A reset ends it as well.
                let _ = stream.read_to_string(&mut said);
                heard.lock().expect("no panic").push(said);
                result
            }
        });
        HandMadeOrigin { address, heard }
    }

    /// All that it heard over its first `connections` connections, once they have ended.
    #[track_caller]
    pub(crate) fn heard(&self, connections: usize) -> Vec<String> {
        eventually(&format!("{connections} connections have ended"), || {
            let heard = self.heard.lock().expect("no panic");
            (heard.len() >= connections).then(|| heard.clone())
        })
    }
}

/// The value of a field that stands in `head` once.
pub(crate) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut values = head.lines().filter_map(|line| {
        let (field, value) = line.split_once(':')?;
        field.eq_ignore_ascii_case(name).then_some(value.trim())
    });
    let value = values.next();
    assert!(values.next().is_none(), "{name} twice in {head}");
    value
}

/// Up to an empty line, or the end.
pub(crate) fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        match read_line(stream)? {
            line if line.is_empty() => break,
            line => head += &line,
        }
    }
    Ok(head)
}

/// Up to a line's end, or the end.
fn read_line(stream: &mut TcpStream) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        if read(&mut *stream, &mut byte)? == 0 {
            break;
        }
        line.push(byte[0]);
    }
    String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into())
}
