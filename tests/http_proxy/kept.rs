//! Connections that carry one exchange after the other, on both sides of the proxy.

use std::{
    io::{Read, Write},
    net::Shutdown,
    time::{Duration, Instant},
};

use crate::{
    common::{
        http::{HandMadeClient, HandMadeOrigin, field},
        read, websocket,
    },
    get, naming, post, proxy,
};

#[test]
fn a_client_keeps_its_connection_and_its_flow() {
    let origin = naming("");
    let (_pair, proxy) = proxy();
    let mut client = HandMadeClient::say(proxy, "");
    for number in 0..3 {
        for request in [get(&origin), post(&origin)] {
            client.say_more(&request);
            let (head, body) = client.answer();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert_eq!(field(&head, "Connection"), None);
            let expected = 2 * number + usize::from(request.starts_with("POST"));
            assert_eq!(body, format!("c0r{expected}"));
        }
    }
    // Others have flows of their own: an origin may know a client by its connection.
    let mut other = HandMadeClient::say(proxy, &get(&origin));
    assert_eq!(other.answer().1, "c1r0");
    client.say_more(&get(&origin));
    assert_eq!(client.answer().1, "c0r6");
    // One that wants no more is told that it is so, at both sides.
    let last = get(&origin).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    client.say_more(&last);
    let (head, body) = client.answer();
    assert_eq!(field(&head, "Connection"), Some("close"));
    assert_eq!(body, "c0r7");
    assert_eq!(client.rest(), "");
    let heard = origin.heard(1).remove(0);
    assert_eq!(heard.matches("HTTP/1.1\r\n").count(), 8);
    assert_eq!(heard.matches("\r\nConnection: close\r\n").count(), 1);
    drop(other);
    origin.heard(2);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (first, second) = (naming("X: first\r\n"), naming("X: second\r\n"));
    let (_pair, proxy) = proxy();
    let chunked = post(&first).replace(
        "Content-Length: 4\r\n\r\nbody",
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    );
    let requests = [
        get(&first),
        post(&first),
        get(&second),
        get(&second),
        post(&first),
        get(&first),
    ];
    let expected = [
        ("first", "c0r0"),
        ("first", "c0r1"),
        ("second", "c0r0"),
        ("second", "c0r1"),
        ("first", "c1r0"),
        ("first", "c1r1"),
    ];
    let check = |client: &mut HandMadeClient| {
        for (name, body) in expected {
            let (head, answered) = client.answer();
            assert_eq!(field(&head, "X"), Some(name));
            assert_eq!(answered, body);
        }
    };
    let mut client = HandMadeClient::say(proxy, &requests.concat());
    check(&mut client);
    // Thousands of them, more than is read ahead.
    let many = get(&second).repeat(4000);
    let mut writer = client.into_stream();
    let reader = writer.try_clone().expect("a connection");
    let writing = std::thread::spawn(move || writer.write_all(many.as_bytes()));
    let mut client = HandMadeClient::over(reader);
    for number in 0..4000 {
        assert_eq!(client.answer().1, format!("c1r{number}"));
    }
    writing.join().expect("no panic").expect("a connection");
    // The end of a chunked body, and what follows it, in one piece. This origin does not know
    // chunks: it answers to the head, and takes the body for another request.
    let other = naming("");
    client.say_more(&(chunked.replace(&first.address.to_string(), &other.address.to_string())));
    client.say_more(&get(&second));
    assert_eq!(client.answer().1, "c0r0");
}

#[test]
fn a_client_that_half_closes_gets_its_answers() {
    let origin = HandMadeOrigin::answering("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
    let (_pair, proxy) = proxy();
    for count in [1, 3] {
        let mut client = HandMadeClient::say(proxy, &get(&origin).repeat(count));
        client.half_close();
        let answers = client.rest();
        assert_eq!(answers.matches("\r\n\r\nbody").count(), count, "{answers}");
    }
    // The origin hears that nothing else comes, and need not answer a client that has gone.
    let silent = HandMadeOrigin::conversing(|stream, said| {
        stream.read_to_string(said)?;
        stream.shutdown(Shutdown::Write)
    });
    let client = HandMadeClient::say(proxy, &get(&silent));
    drop(client);
    silent.heard(1);
}

#[test]
fn a_request_over_a_flow_that_has_ended_takes_a_new_one() {
    // It says nothing of it, and ends each connection after an answer.
    let origin = HandMadeOrigin::conversing(|stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody")?;
        stream.shutdown(Shutdown::Write)
    });
    let (_pair, proxy) = proxy();
    let mut client = HandMadeClient::say(proxy, &get(&origin));
    for index in 0..4 {
        assert_eq!(client.answer().1, "body");
        // The near end has noticed, and ended its side.
        let heard = origin.heard(index + 1).remove(index);
        assert!(!heard.contains("POST") || heard.ends_with("\r\n\r\nbody"));
        client.say_more(&post(&origin));
    }
}

/// An origin may end an idle connection while the next request is on its way.
#[test]
fn only_what_changes_nothing_is_sent_again_and_once() {
    let (_pair, proxy) = proxy();
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
    // Each connection answers one request only, the later ones none if `answers` are used up.
    let origin = |answers: usize| {
        HandMadeOrigin::keeping(move |connection, number, _| {
            (number == 0 && connection < answers).then(|| format!("{ok}c{connection}r{number}"))
        })
    };
    let retried = origin(2);
    let mut client = HandMadeClient::say(proxy, &get(&retried));
    assert_eq!(client.answer().1, "c0r0");
    client.say_more(&get(&retried));
    assert_eq!(client.answer().1, "c1r0");
    let heard = retried.heard(1).remove(0);
    assert_eq!(heard.matches("GET / ").count(), 2, "{heard}");
    drop(client);
    assert_eq!(retried.heard(2).remove(1).matches("GET / ").count(), 1);

    let in_vain = origin(1);
    let mut client = HandMadeClient::say(proxy, &get(&in_vain).repeat(2));
    assert_eq!(client.answer().1, "c0r0");
    let (head, body) = client.answer();
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(
        body.contains("closed the connection before it answered"),
        "{body}"
    );
    assert_eq!(client.rest(), "");
    let heard = in_vain.heard(2).concat();
    assert_eq!(heard.matches("GET / ").count(), 3, "{heard}");

    let posted = origin(2);
    let mut client = HandMadeClient::say(proxy, &(get(&posted) + &post(&posted)));
    assert_eq!(client.answer().1, "c0r0");
    let (head, _) = client.answer();
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert_eq!(client.rest(), "");
    let heard = posted.heard(1).concat();
    assert_eq!(heard.matches("POST / ").count(), 1, "{heard}");
}

#[test]
fn a_tunnel_may_follow_other_requests() {
    let server = websocket::start_echo();
    let origin = naming("");
    let (_pair, proxy) = proxy();
    let connect = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    let mut client = HandMadeClient::say(proxy, &(get(&origin).repeat(2) + &connect));
    assert_eq!(client.answer().1, "c0r0");
    assert_eq!(client.answer().1, "c0r1");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    websocket::talk(client.into_stream(), server);
    // The flow that carried the others has ended.
    origin.heard(1);
}

#[test]
fn an_upgrade_may_follow_other_requests_and_be_refused() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
         Upgrade: websocket\r\n\r\n";
    let origin = HandMadeOrigin::keeping(move |_, number, _| match number {
        2 => Some(switch.to_owned()),
        _ => Some("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno".to_owned()),
    });
    let (_pair, proxy) = proxy();
    let upgrade = get(&origin).replace(
        "\r\n\r\n",
        "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    let mut client = HandMadeClient::say(proxy, &(get(&origin) + &upgrade));
    assert_eq!(client.answer().1, "no");
    assert_eq!(client.answer().1, "no");
    client.say_more(&upgrade);
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    client.say_more("\x01\x02");
    drop(client);
    let heard = origin.heard(1).remove(0);
    assert!(heard.ends_with("\x01\x02"), "{heard}");
}

/// Neither end waits for clients that only keep their connections.
#[test]
fn kept_connections_end_when_a_gateway_stops() {
    let origin = naming("");
    let (mut pair, proxy) = proxy();
    let mut client = HandMadeClient::say(proxy, &get(&origin));
    assert_eq!(client.answer().1, "c0r0");
    pair.far.signal("TERM");
    assert_eq!(pair.far.wait_for_exit().code(), Some(0));
    assert!(
        !pair.far.log().contains("were still open"),
        "{}",
        pair.far.log()
    );
    client.say_more(&get(&origin));
    let (head, _) = client.answer();
    assert!(head.starts_with("HTTP/1.1 50"), "{head}");

    let (mut pair, proxy) = crate::proxy();
    let mut client = HandMadeClient::say(proxy, &get(&origin));
    assert_eq!(client.answer().1, "c1r0");
    pair.near.signal("TERM");
    assert_eq!(pair.near.wait_for_exit().code(), Some(0));
    assert!(
        !pair.near.log().contains("were still open"),
        "{}",
        pair.near.log()
    );
}

#[test]
fn idle_clients_are_let_go() {
    let origin = naming("");
    let (_pair, proxy) = proxy();
    let mut client = HandMadeClient::say(proxy, &get(&origin));
    assert_eq!(client.answer().1, "c0r0");
    let began = Instant::now();
    let mut stream = client.into_stream();
    let patience = Duration::from_secs(90);
    stream.set_read_timeout(Some(patience)).expect("a limit");
    let end = read(&mut stream, &mut [0]).expect("an end without a reset");
    assert_eq!(end, 0);
    assert!(began.elapsed() > Duration::from_secs(20));
    origin.heard(1);
}
