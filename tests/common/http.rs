//! HTTP as clients and origins speak it: a whole page, or byte by byte by hand.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{PATIENCE, eventually, server::serve};

/// The status code and the body of a page.
pub fn get(
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
pub struct HandMadeClient {
    stream: TcpStream,
}

impl HandMadeClient {
    /// Connects, and says `text`.
    pub fn say(address: SocketAddr, text: &str) -> HandMadeClient {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let mut client = HandMadeClient { stream };
        client.say_more(text);
        client
    }

    pub fn say_more(&mut self, text: &str) {
        self.stream
            .write_all(text.as_bytes())
            .expect("a connection");
    }

    /// The next head.
    pub fn head(&mut self) -> String {
        let head = read_head(&mut self.stream).expect("a connection");
        assert!(head.ends_with("\r\n\r\n"), "ended within a head: {head:?}");
        head
    }

    /// The next `bytes` of a body.
    pub fn body(&mut self, bytes: usize) -> String {
        let mut body = vec![0; bytes];
        self.stream.read_exact(&mut body).expect("a connection");
        String::from_utf8(body).expect("text")
    }

    /// All up to the end.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        let read = self.stream.read_to_string(&mut rest);
        read.expect("text, and an end without a reset");
        rest
    }

    /// The connection, behind what was read of it.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}

/// An origin that says what the test says, whatever it is asked, and never closes first.
pub struct HandMadeOrigin {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl HandMadeOrigin {
    /// Says `answer` once it has heard a head.
    pub fn answering(answer: impl Into<String>) -> HandMadeOrigin {
        let answer = answer.into();
        HandMadeOrigin::conversing(move |stream, _| stream.write_all(answer.as_bytes()))
    }

    /// Converses over each connection as it is told, once it has heard a head; then listens
    /// up to the end.
    pub fn conversing(
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
    pub fn heard(&self, connections: usize) -> Vec<String> {
        eventually(&format!("{connections} connections have ended"), || {
            let heard = self.heard.lock().expect("no panic");
            (heard.len() >= connections).then(|| heard.clone())
        })
    }
}

/// Up to an empty line, or the end.
fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0 {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData.into())
}
