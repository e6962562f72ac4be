//! What a connection does while there is no link: it waits where one may come, and hears at once
//! where none will.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use refrain_relay::LinkConfig;

use crate::{
    cable::Cable,
    common::{
        PATIENCE,
        addresses::{forward, free_address},
        eventually, http, origin,
        site::Site,
    },
    is_refused,
};

/// A link as over a satellite: 300 ms each way.
fn far_away() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(300),
        ..LinkConfig::default()
    }
}

#[test]
fn the_first_connection_over_a_long_path_waits_for_the_link() {
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let cable = Cable::to(site.far_listen, far_away());
    let mut far = site.far(&[]);
    let mut near = site.near(cable.relay.address(), &["--forward", &option]);
    assert!(origin::answers(listen), "the near end has just started");
    far.kill();
    eventually("the near end knows that the far end is gone", || {
        is_refused(listen).then_some(())
    });
    near.kill();
    far.restart();
    near.restart();
    assert!(origin::answers(listen), "both ends have just started");
}

/// TCP (which the cable delays as well), TLS, and the request, which goes along with the hello.
#[test]
fn the_first_connection_takes_three_round_trips() {
    const ONE_WAY: Duration = Duration::from_secs(1);
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let cable = Cable::to(
        site.far_listen,
        LinkConfig {
            delay: ONE_WAY,
            ..LinkConfig::default()
        },
    );
    let _far = site.far(&[]);
    let began = Instant::now();
    let _near = site.near(cable.relay.address(), &["--forward", &option]);
    assert!(origin::answers(listen));
    // Programs that take a whole round trip to start would count as one.
    let round_trips = began.elapsed().as_secs_f64() / (2 * ONE_WAY).as_secs_f64();
    assert_eq!(round_trips as u32, 3, "{round_trips:.2}");
}

#[test]
fn a_connection_at_the_far_end_waits_for_a_near_end_that_starts() {
    let target = origin::start();
    let (listen, option) = forward(target);
    let site = Site::new();
    let cable = Cable::to(site.far_listen, far_away());
    let _far = site.far(&["--forward", &option, "--dead-after", "20s"]);
    let waiting = std::thread::spawn(move || origin::answers(listen));
    let _near = site.near(cable.relay.address(), &["--allow", &target.to_string()]);
    assert!(waiting.join().expect("no panic"));
}

#[test]
fn connections_are_refused_at_once_where_nobody_listens() {
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let near = site.near(
        free_address(),
        &["--forward", &option, "--connect-timeout", "25s"],
    );
    near.wait_for_log(&["cannot connect to", "refused"]);
    let began = Instant::now();
    assert!(is_refused(listen));
    // Far less than the time that a link has to come up.
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// The near end rests for seconds between its attempts by then, and dials at once for somebody.
#[test]
fn a_connection_finds_a_far_end_that_has_just_come_back() {
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let mut far = site.far(&[]);
    let near = site.near(site.far_listen, &["--forward", &option]);
    near.wait_until_up();
    for _ in 0..3 {
        far.kill();
        std::thread::sleep(Duration::from_secs(4));
        assert!(is_refused(listen), "there is no far end");
        far.restart();
        assert!(origin::answers(listen), "the far end is back");
    }
}

#[test]
fn a_link_that_never_comes_up_is_waited_for_no_longer_than_its_time_out() {
    // Takes connections, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let peer = silent.local_addr().expect("its address");
    let _near = site.near(peer, &["--forward", &option, "--connect-timeout", "2s"]);
    let began = Instant::now();
    assert!(is_refused(listen));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1500), "it waits: {took:?}");
}

#[test]
fn a_far_end_that_was_there_and_says_nothing_now_is_waited_for_as_long_as_a_silent_one() {
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let mut far = site.far(&[]);
    let times = ["--connect-timeout", "60s", "--dead-after", "1500ms"];
    let near = site.near(
        site.far_listen,
        &[&["--forward", &option][..], &times].concat(),
    );
    near.wait_until_up();
    far.kill();
    // Takes connections, and says nothing.
    let _silent = eventually("a free port", || TcpListener::bind(site.far_listen).ok());
    let began = Instant::now();
    assert!(is_refused(listen));
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn readyz_is_about_the_link_and_healthz_about_the_gateway() {
    let site = Site::new();
    let near = site.near(site.far_listen, &["--socks5", &free_address().to_string()]);
    let page = |admin, path| http::get(admin, path, None).expect("an answer").0;
    assert_eq!(
        (page(near.admin, "/healthz"), page(near.admin, "/readyz")),
        (200, 503)
    );
    let mut far = site.far(&[]);
    for gateway in [&near, &far] {
        eventually("the link is up", || {
            (page(gateway.admin, "/readyz") == 200).then_some(())
        });
    }
    far.kill();
    eventually("the link is down", || {
        (page(near.admin, "/readyz") == 503).then_some(())
    });
    assert_eq!(page(near.admin, "/healthz"), 200);
}

#[test]
fn refusals_are_counted_in_the_log_and_do_not_fill_it() {
    const REFUSED: usize = 300;
    let closed = free_address();
    let (listen, option) = forward(closed);
    let site = Site::new();
    let far = site.far(&[]);
    let near = site.near(site.far_listen, &["--forward", &option]);
    near.wait_until_up();
    for _ in 0..REFUSED {
        assert!(is_refused(listen));
    }
    for (gateway, text) in [
        (&near, "refused a forwarded connection"),
        (&far, "refused a connection for the peer"),
    ] {
        gateway.wait_for_log(&[text, &closed.to_string(), "more like it"]);
        let lines = gateway.log().matches(text).count();
        assert!(lines < REFUSED / 10, "{lines} lines");
    }
}

/// A target that takes a connection and resets it, while the link is up.
#[test]
fn a_reset_by_the_target_is_not_a_link_that_is_down() {
    let resetting = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let target = resetting.local_addr().expect("its address");
    std::thread::spawn(move || {
        for client in resetting.incoming().flatten() {
            let _ = socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO));
        }
    });
    let proxy = free_address();
    let site = Site::new();
    let _far = site.far(&[]);
    let near = site.near(site.far_listen, &["--http-proxy", &proxy.to_string()]);
    near.wait_until_up();
    for _ in 0..50 {
        let answer = get(proxy, target);
        assert!(!answer.contains("link"), "{answer}");
    }
    assert!(
        !near.log().contains("link to the far end is down"),
        "{}",
        near.log()
    );
}

fn get(proxy: SocketAddr, target: SocketAddr) -> String {
    let mut stream = TcpStream::connect(proxy).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request = format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a connection");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}
