//! More connections than there are places for: who asks for nothing gives way.

use std::{
    io::Write,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use refrain_czip::serve::{ServeOptions, Status};

use super::{
    client::Client,
    world::{World, letters},
};

/// So few places, and nobody ends for being slow.
fn world(connections_max: usize) -> World {
    let world = World::with(ServeOptions {
        connections_max,
        head_timeout: Duration::from_secs(3600),
        ..ServeOptions::default()
    });
    std::fs::write(world.path("plain"), b"0123456789").expect("a new file");
    world
}

fn ask(client: &mut Client) {
    client.ask("GET", "/plain", &[], b"");
    assert_eq!(client.answer(false).expect("an answer").body, b"0123456789");
}

/// Waits until it is so.
fn wait_until(world: &World, is_so: impl Fn(Status) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so(world.status()) {
        assert!(Instant::now() < end, "{:?}", world.status());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_has_asked_for_nothing_for_longest_gives_its_place_to_who_comes() {
    let world = world(3);
    let mut kept = world.client();
    ask(&mut kept);
    wait_until(&world, |status| status.connections_idle == 1);
    let mut begun = world.client();
    begun.send(b"GET /plain HTTP/1.1\r\nHost: he");
    wait_until(&world, |status| status.connections_idle == 2);
    let mut silent = world.client();
    wait_until(&world, |status| status.connections_idle == 3);
    let mut first = world.client();
    ask(&mut first);
    assert!(kept.head().is_none(), "it was idle for longest");
    wait_until(&world, |status| status.connections_idle == 3);
    // What it asks makes it the last one in the line.
    begun.send(b"re\r\n\r\n");
    assert_eq!(begun.answer(false).expect("an answer").body, b"0123456789");
    wait_until(&world, |status| status.connections_idle == 3);
    let mut second = world.client();
    ask(&mut second);
    assert!(silent.head().is_none(), "it never asked");
    ask(&mut begun);
    ask(&mut first);
    wait_until(&world, |status| status.connections_now == 3);
}

#[test]
fn who_is_being_answered_keeps_its_place_until_it_has_all() {
    let world = world(1);
    let content = letters(1, 24_000_000);
    std::fs::write(world.path("long"), &content).expect("a new file");
    let mut slow = world.client();
    slow.ask("GET", "/long", &[], b"");
    assert_eq!(slow.head().expect("an answer").status, 200);
    let mut other = world.client();
    other.ask("GET", "/plain", &[], b"");
    let mut received = Vec::new();
    while received.len() < content.len() {
        let piece = slow.read_some(32 << 10);
        assert!(!piece.is_empty(), "cut off at {}", received.len());
        received.extend_from_slice(&piece);
        thread::sleep(Duration::from_millis(1));
    }
    assert!(received == content);
    let answer = other.answer(false).expect("an answer");
    assert_eq!(answer.body, b"0123456789");
    assert!(slow.head().is_none(), "it gave way");
}

#[test]
fn heads_that_never_end_keep_nobody_out() {
    let world = world(20);
    let mut dripping: Vec<TcpStream> = Vec::new();
    for _ in 0..150 {
        let mut connection = TcpStream::connect(world.address).expect("it listens");
        connection.write_all(b"GET /plain HT").expect("it reads");
        dripping.push(connection);
    }
    for _ in 0..5 {
        ask(&mut world.client());
        for connection in &mut dripping {
            // Most of them have ended.
            let _ = connection.write_all(b"T");
        }
    }
    assert_eq!(world.status().requests, 5);
}
