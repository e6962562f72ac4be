//! Answers that are right and rare: interim ones in front, many fields, large heads.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use refrain_http_ranges::{Remote, RemoteError, RemoteOptions};

use crate::{options, server::File};

/// A server whose answers are written by `answer`, of the file's part that is asked for. It ends with the
/// test's process.
fn start(file: &File, answer: impl Fn(&str) -> String + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("it is bound");
    let file = file.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, file, answer) =
                (stream.expect("a connection"), file.clone(), answer.clone());
            thread::spawn(move || drop(serve(&stream, &file, &answer)));
        }
    });
    format!("http://{address}/file")
}

fn serve(
    mut stream: &TcpStream,
    file: &File,
    answer: &dyn Fn(&str) -> String,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    loop {
        let mut range = 0..file.bytes.len();
        loop {
            let Some(line) = lines.next() else {
                return Ok(());
            };
            let line = line?.to_lowercase();
            if let Some(asked) = line.strip_prefix("range: bytes=") {
                let (first, last) = asked.split_once('-').expect("a range");
                let last: usize = last.parse().expect("a number");
                range = first.parse().expect("a number")..(last + 1).min(file.bytes.len());
            }
            if line.is_empty() {
                break;
            }
        }
        let (first, last) = (range.start, range.end - 1);
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{last}/{}\r\n\
             Content-Length: {}\r\n",
            file.bytes.len(),
            range.len()
        );
        stream.write_all(answer(&head).as_bytes())?;
        stream.write_all(&file.bytes[range])?;
    }
}

fn read(url: &str, file: &File) -> Result<(), RemoteError> {
    read_with(url, file, options())
}

fn read_with(url: &str, file: &File, options: RemoteOptions) -> Result<(), RemoteError> {
    let remote = Remote::open(url, options)?;
    for start in [100_u64, 3_000] {
        let mut buffer = [0; 1_000];
        remote.read_at(start, &mut buffer)?;
        assert_eq!(&buffer[..], file.part(&(start..start + 1_000)));
    }
    Ok(())
}

#[test]
fn interim_answers_are_passed_over() {
    let file = File::new(5_000);
    let link = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";
    for interim in [
        "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
        "HTTP/1.1 102 Processing\r\n\r\n".to_owned(),
        link.to_owned(),
        "HTTP/1.1 199 Odd\r\nContent-Length: 7\r\n\r\n".to_owned(),
        format!("{link}{link}HTTP/1.1 100 Continue\r\n\r\n"),
    ] {
        let url = start(&file, move |head| format!("{interim}{head}\r\n"));
        read(&url, &file).expect("the answer behind it");
    }
}

/// As many fields of these bytes as `head` has room for, up to `bytes` with its end.
fn filled(head: &str, field: &str, bytes: usize) -> String {
    let count = (bytes - head.len() - 2) / field.len();
    format!("{head}{}\r\n", field.repeat(count))
}

#[test]
fn fields_of_any_number_pass_if_they_fit_the_limit() {
    let file = File::new(5_000);
    for count in [1, 99, 100, 101, 127, 128, 150, 1_000, 6_000] {
        let url = start(&file, move |head| {
            format!("{head}{}\r\n", "X: y\r\n".repeat(count))
        });
        read(&url, &file).unwrap_or_else(|error| panic!("{count}: {error}"));
    }
    // Up to the limit, of the shortest fields that there are and of long ones.
    for field in ["x:\n", "x:\r\n", "X-Field: some value of it\r\n"] {
        let url = start(&file, move |head| filled(head, field, 64 << 10));
        read(&url, &file).unwrap_or_else(|error| panic!("{field:?}: {error}"));
    }
    let url = start(&file, |head| {
        format!("{head}X-Long: {}\r\n\r\n", "y".repeat(60_000))
    });
    read(&url, &file).expect("one long field");
}

#[test]
fn beyond_it_the_limit_is_named_and_nothing_is_tried_again() {
    let file = File::new(5_000);
    for field in ["x:\n", "X-Field: some value of it\r\n"] {
        let url = start(&file, move |head| filled(head, field, 66_000));
        let error = read(&url, &file).expect_err("it is too large");
        assert!(matches!(error, RemoteError::Connection { .. }), "{error:?}");
        assert!(
            error.to_string().contains("too large (limit 64 KiB)"),
            "{error}"
        );
    }
    let url = start(&file, |head| {
        format!("{head}X-Long: {}\r\n\r\n", "y".repeat(66_000))
    });
    let error = read(&url, &file).expect_err("it is too large");
    assert!(
        error.to_string().contains("too large (limit 64 KiB)"),
        "{error}"
    );
}

#[test]
fn fewer_fields_can_be_asked_for() {
    let file = File::new(5_000);
    for fields_max in [2, 100, 1_000] {
        let options = RemoteOptions {
            fields_max,
            ..options()
        };
        // Two fields are of the range.
        for (count, passes) in [(fields_max - 2, true), (fields_max - 1, false)] {
            let url = start(&file, move |head| {
                format!("{head}{}\r\n", "X: y\r\n".repeat(count))
            });
            match read_with(&url, &file, options.clone()) {
                Ok(()) => assert!(passes, "{count} more of {fields_max}"),
                Err(error) => {
                    assert!(!passes, "{count} more of {fields_max}: {error}");
                    assert!(error.to_string().contains("too many fields"), "{error}");
                }
            }
        }
    }
}

#[test]
fn what_is_no_answer_is_called_that() {
    let file = File::new(5_000);
    for answer in ["SSH-2.0-odd\r\n", "HTTP/1.1 abc\r\n\r\n", "220 ready\r\n"] {
        let url = start(&file, move |_| answer.to_owned());
        let error = read(&url, &file).expect_err("it is no answer");
        assert!(error.to_string().contains("does not speak HTTP"), "{error}");
    }
}
