//! What is said on a lane before it is one: hellos, refusals, and the answers to a check.
//!
//! A far end that takes no lane says the reason in place of its hello, so that the user of the
//! near end reads it where the lanes are missing. A lane that only checks the pair has no link behind it.

use std::{io, time::Duration};

use refrain_proto::{
    frame::Frame,
    hello::{Hello, HelloError},
    limits::{HELLO_BYTES_MAX, PADDING_BYTES_MAX, REASON_BYTES_MAX},
    planted::Bug,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{pace::Pace, random::random_instance, wire::ByteStream};

/// How long a far end answers one check. With the usual time-outs, none takes longer.
const ANSWERED_FOR: Duration = Duration::from_secs(60);

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

/// Answers a check's hello and its pings, until it closes. `received` came behind the hello.
pub(crate) async fn answer_check(
    stream: &mut impl ByteStream,
    hello: &Hello,
    received: Vec<u8>,
    pace: Option<&Pace>,
) -> io::Result<()> {
    let answering = answer_pings(stream, hello, received, pace);
    let answered = timeout(ANSWERED_FOR, answering).await;
    answered.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
}

async fn answer_pings(
    stream: &mut impl ByteStream,
    hello: &Hello,
    mut received: Vec<u8>,
    pace: Option<&Pace>,
) -> io::Result<()> {
    let mut out = Vec::new();
    Hello::of_lane(random_instance(), Some(hello.instance), hello.lane).write(&mut out);
    loop {
        // One answer at a time: it may be much longer than its ping.
        if let Some(pace) = pace {
            pace.wait(out.len()).await;
        }
        stream.write_all(&out).await?;
        stream.flush().await?;
        out.clear();
        loop {
            match Frame::read(&received).map_err(io::Error::other)? {
                Some((
                    Frame::Ping {
                        nonce,
                        answer_bytes,
                        ..
                    },
                    read,
                )) => {
                    let padding = &[0; PADDING_BYTES_MAX][..answer_bytes];
                    Frame::Pong { nonce, padding }.write(&mut out);
                    received.drain(..read);
                    break;
                }
                Some(_) => return Err(io::Error::other("a check sends only pings")),
                None => {
                    received.reserve(PADDING_BYTES_MAX);
                    if stream.read_buf(&mut received).await? == 0 {
                        return Ok(());
                    }
                }
            }
        }
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
