//! What is said on a lane before it is one: hellos, and why there will be none.
//!
//! A far end that takes no lane says the reason in place of its hello, so that the user of the
//! near end reads it where the lanes are missing.

use std::{io, time::Duration};

use refrain_proto::{
    frame::Frame,
    hello::{Hello, HelloError},
    limits::{HELLO_BYTES_MAX, REASON_BYTES_MAX},
    planted::Bug,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{random::random_instance, wire::ByteStream};

/// How long the last words on a connection may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The peer's hello, and what came behind it.
pub(crate) async fn read_hello(stream: &mut impl ByteStream) -> io::Result<(Hello, Vec<u8>)> {
    let mut received = Vec::new();
    loop {
        let whole = match Hello::read(&received) {
            Err(HelloError::Malformed) if Bug::EndlessHello.is_planted() => None,
            read => read.map_err(io::Error::other)?,
        };
        if let Some((hello, read)) = whole {
            received.drain(..read);
            return Ok((hello, received));
        }
        let mut piece = [0; HELLO_BYTES_MAX];
        match stream.read(&mut piece).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => received.extend_from_slice(&piece[..read]),
        }
    }
}

/// Answers a hello with one of no link. The instance is new: a near end that knew another sees
/// that its link is gone.
pub(crate) async fn answer_and_close(stream: &mut impl ByteStream, to: Option<&Hello>) {
    let mut hello = Vec::new();
    Hello::of_lane(
        random_instance(),
        to.map(|hello| hello.instance),
        to.map_or(0, |hello| hello.lane),
    )
    .write(&mut hello);
    say_and_close(stream, &hello).await;
}

/// Says why there is no lane.
pub(crate) async fn refuse_and_close(stream: &mut impl ByteStream, reason: &str) {
    let mut abort = Vec::new();
    let end = reason.floor_char_boundary(REASON_BYTES_MAX);
    Frame::Abort {
        text: &reason[..end],
    }
    .write(&mut abort);
    say_and_close(stream, &abort).await;
}

/// The reason, if `received` is a far end's refusal and no hello.
pub(crate) fn refusal(received: &[u8]) -> Option<String> {
    match Frame::read(received) {
        // A peer's text goes to logs and terminals.
        Ok(Some((Frame::Abort { text }, _))) => Some(text.replace(char::is_control, "?")),
        _ => None,
    }
}

async fn say_and_close(stream: &mut impl ByteStream, words: &[u8]) {
    let saying = async {
        stream.write_all(words).await?;
        stream.shutdown().await?;
        // Flows may have followed the peer's hello. A close with unread bytes would be a reset, which may overtake the
        // words.
        let mut unused = [0; HELLO_BYTES_MAX];
        while stream.read(&mut unused).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(LAST_WORDS, saying).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_abort_is_a_refusal_and_its_text_is_made_harmless() {
        let said = |frame: Frame<'_>| {
            let mut bytes = Vec::new();
            frame.write(&mut bytes);
            bytes
        };
        let abort = said(Frame::Abort {
            text: "no room\x1b[2J",
        });
        assert_eq!(refusal(&abort).as_deref(), Some("no room?[2J"));
        assert_eq!(refusal(&abort[..abort.len() - 1]), None);
        assert_eq!(refusal(&said(Frame::Drain)), None);
        assert_eq!(refusal(b"HTTP/1.1 400 Bad Request\r\n"), None);
        assert_eq!(refusal(b""), None);
    }
}
