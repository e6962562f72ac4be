//! Answers of the origin with large heads, and interim ones.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread,
};

use super::world::World;

/// An origin that answers all requests with `answer`. It ends with the test's process.
fn origin(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.expect("a connection"), answer.clone());
            thread::spawn(move || {
                let lines = BufReader::new(stream.try_clone().expect("a handle")).lines();
                for line in lines.map_while(Result::ok) {
                    // The head of a request has ended.
                    if line.is_empty() && stream.write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

#[test]
fn fields_of_any_number_pass_and_beyond_the_limit_it_is_named() {
    for (count, passes) in [
        (1, true),
        (127, true),
        (150, true),
        (5_000, true),
        (40_000, false),
    ] {
        let fields = "X: y\r\n".repeat(count);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n{fields}\r\nhello");
        let url = origin(answer);
        let world = World::with(|options| options.origin = url);
        // Asked for so that no archive is looked for.
        let answer = world.get("/x?y", &[]);
        let said = String::from_utf8_lossy(&answer.body);
        match passes {
            true => assert_eq!((answer.status, &*said), (200, "hello"), "{count}"),
            false => {
                assert_eq!(answer.status, 502);
                assert!(said.contains("limit 64 KiB"), "{said}");
            }
        }
    }
}

#[test]
fn interim_answers_of_the_origin_are_passed_over() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let url = origin(format!("HTTP/1.1 100 Continue\r\n\r\n{hints}{answer}"));
    let world = World::with(|options| options.origin = url);
    assert_eq!(world.get("/x?y", &[]).body, b"hello");
}
