//! Servers that say what cannot be.

use refrain_http_ranges::{Remote, RemoteError};

use crate::{
    fetched, options,
    server::{Ending, File, Reply, Request, Server},
};

/// What a read of bytes 1000 to 1999 of 5000 ends with, where `lie` makes the answer.
fn read_through(lie: fn(&File, &Request, Reply) -> Reply) -> RemoteError {
    let file = File::new(5_000);
    let server = Server::start(move |request| match request.number {
        0 => file.reply(request),
        _ => lie(&file, request, file.reply(request)),
    });
    let remote = Remote::open(&server.url(), options()).unwrap();
    let error = remote.read_at(1_000, &mut [0; 1_000]).unwrap_err();
    assert_eq!(
        server.requests().len(),
        2,
        "a lie is not asked for again: {error}"
    );
    let fetching = fetched(&remote, &[1_000..2_000]).unwrap_err();
    assert_eq!(error.to_string(), fetching.to_string());
    error
}

fn assert_says(error: &RemoteError, text: &str) {
    assert!(matches!(error, RemoteError::Lie { .. }), "{error}");
    let shown = error.to_string();
    assert!(shown.contains("bytes=1000-1999"), "{shown}");
    assert!(shown.contains(text), "{shown}");
}

#[test]
fn another_range_than_was_asked_for_is_named() {
    for said in [
        "bytes 1001-2000/5000",
        "bytes 0-999/5000",
        "bytes 1000-1998/5000",
    ] {
        let file = File::new(5_000);
        let server = Server::start(move |request| match request.number {
            0 => file.reply(request),
            _ => file.reply(request).with("Content-Range", said),
        });
        let remote = Remote::open(&server.url(), options()).unwrap();
        assert_says(&remote.read_at(1_000, &mut [0; 1_000]).unwrap_err(), said);
    }
}

#[test]
fn a_range_that_is_none_is_named() {
    let error = read_through(|_, _, reply| reply.with("Content-Range", "bytes 1000-1999/1500"));
    assert_says(&error, "bytes 1000-1999/1500");
    let error = read_through(|_, _, reply| reply.with("Content-Range", "1000-1999"));
    assert_says(&error, "\"1000-1999\"");
    let error = read_through(|_, _, reply| {
        let reply = reply.without("Content-Range");
        reply.with("Content-Type", "multipart/byteranges; boundary=x")
    });
    assert_says(&error, "multipart/byteranges");
}

#[test]
fn too_many_bytes_are_noticed_however_they_come() {
    let error = read_through(|file, _, reply| {
        let said = reply.headers.clone();
        let mut longer = Reply::new(206, file.part(&(1_000..2_001)));
        longer.headers.extend(
            said.into_iter()
                .filter(|(name, _)| name != "Content-Length"),
        );
        longer
    });
    assert_says(&error, "Content-Length of 1001");
    let error = read_through(|_, _, mut reply| {
        reply.body.push(0);
        reply.chunked()
    });
    assert_says(&error, "more than 1000 bytes");
    let error = read_through(|_, _, mut reply| {
        reply.body.push(0);
        reply.without("Content-Length").ending(Ending::Close)
    });
    assert_says(&error, "more than 1000 bytes");
}

#[test]
fn too_few_bytes_are_noticed_however_they_come() {
    let error = read_through(|_, _, mut reply| {
        reply.body.pop();
        reply.with("Content-Length", 999)
    });
    assert_says(&error, "Content-Length of 999");
    // This may be an accident: it is asked again, for the rest.
    let file = File::new(5_000);
    let server = Server::start(move |request| {
        let mut reply = file.reply(request);
        if request.number > 0 {
            reply.body.truncate(100);
        }
        reply.chunked()
    });
    let remote = Remote::open(&server.url(), options()).unwrap();
    let error = remote.read_at(1_000, &mut [0; 1_000]).unwrap_err();
    assert!(
        matches!(error, RemoteError::GaveUp { attempts: 6, .. }),
        "{error}"
    );
    for part in ["ended at byte 1600", "400 bytes are missing"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(
        server.requests()[2].header("range"),
        Some("bytes=1100-1999")
    );
}

#[test]
fn an_encoding_that_nobody_asked_for_is_refused() {
    let error = read_through(|_, _, reply| reply.with("Content-Encoding", "gzip"));
    assert!(
        error.to_string().contains("encoded with \"gzip\""),
        "{error}"
    );
    // Said of an error's page, it is the error that counts.
    let error = read_through(|_, _, _| Reply::new(404, "").with("Content-Encoding", "gzip"));
    assert!(
        matches!(error, RemoteError::Status { status: 404, .. }),
        "{error}"
    );
    let file = File::new(100);
    let server =
        Server::start(move |request| file.reply(request).with("Content-Encoding", "identity"));
    Remote::open(&server.url(), options()).unwrap();
    assert_eq!(
        server.requests()[0].header("accept-encoding"),
        Some("identity")
    );
}

#[test]
fn a_first_answer_must_be_of_the_first_bytes() {
    for said in [
        "bytes 1-16/5000",
        "bytes 0-14/5000",
        "bytes 0-16/5000",
        "bytes 0-14/*",
    ] {
        let file = File::new(5_000);
        let server = Server::start(move |request| file.reply(request).with("Content-Range", said));
        let error = Remote::open(&server.url(), options()).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn lengths_near_the_largest_number_are_only_numbers() {
    let total = u64::MAX;
    let file = File::new(16);
    let server = Server::start(move |request| {
        let said = format!("bytes 0-15/{total}");
        file.reply(request).with("Content-Range", said)
    });
    let remote = Remote::open(&server.url(), options()).unwrap();
    assert_eq!(remote.len(), Some(total));
    assert!(remote.tail(100).is_err());
    assert!(fetched(&remote, &[total - 9..total, 20..30]).is_err());
    assert!(fetched(&remote, &[0..total]).is_err());
}

#[test]
fn what_is_no_http_is_an_error() {
    use std::{io::Write, net::TcpListener, thread};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(&[b'x'; 100_000]);
    });
    let error = Remote::open(&url, options()).unwrap_err();
    assert!(error.to_string().contains(&url), "{error}");
    drop(error);
    server.join().unwrap();
}
