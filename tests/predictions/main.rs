//! Predictions between two gateways: history that outlives both, far ends that keep nothing, realms, and
//! stores of others.
#![allow(missing_docs, reason = "a test's own")]

#[path = "../common/mod.rs"]
mod common;

mod store;

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use refrain_gateway::status::Direction;

use common::{
    addresses::{forward, free_address},
    command::{keygen, refrain},
    content::noise,
    eventually,
    gateway::Gateway,
    origin::{self, Download},
    read,
    server::serve,
    site::Site,
};

const FILE_BYTES: usize = 8_000_000;

/// A far end that keeps nothing, on a link slower than a disk: predictions cannot overtake what
/// a loopback carries at once.
const RECEIVER: [&str; 4] = ["--mode", "receiver", "--rate", "50Mbit"];

/// Answers any byte with `file`.
fn origin_of(file: &[u8]) -> SocketAddr {
    let file: Arc<[u8]> = file.into();
    serve(move |mut stream| {
        stream.read_exact(&mut [0])?;
        stream.write_all(&file)
    })
}

fn fetch(address: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"?")?;
    let mut file = Vec::new();
    stream.read_to_end(&mut file)?;
    Ok(file)
}

/// Bytes that the link has carried, without those that were sent before their offer came: how many
/// these are depends on how busy the machine is.
fn spent(near: &Gateway) -> f64 {
    let overtaken = near.peer().received.predictions.overtaken_bytes;
    near.link_bytes() as f64 - overtaken as f64
}

/// Fetches `file` through `near`, and gives what that cost, as a share of it.
#[track_caller]
fn cost(near: &Gateway, listen: SocketAddr, file: &[u8]) -> f64 {
    let before = spent(near);
    assert!(
        fetch(listen).expect("an answer") == file,
        "it arrives equal"
    );
    (spent(near) - before) / file.len() as f64
}

/// Fetches `file` until it comes whole, over a link that is made meanwhile, and gives all that this
/// link has carried, as a share of it: a fetch that nobody measures would teach it anew.
#[track_caller]
fn first_cost_of_a_new_link(near: &Gateway, listen: SocketAddr, file: &[u8]) -> f64 {
    // A connection that came before the far end's hello would have its first bytes without offers.
    eventually("the link comes back", || {
        let is_up = near.peer().up;
        let got = is_up.then(|| fetch(listen).ok()).flatten();
        got.filter(|got| got == file)
    });
    spent(near) / file.len() as f64
}

#[track_caller]
fn assert_whole(cost: f64) {
    assert!(
        cost >= 1.0,
        "nothing was known, and noise cannot shrink: {cost}"
    );
}

#[track_caller]
fn assert_predicted(cost: f64) {
    assert!(cost < 0.1, "it was known: {cost}");
}

/// A near end's options: a way in to `origin`, and a store.
fn options<'a>(listen: &'a str, store: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--forward", listen, "--store", store], more].concat()
}

fn folder(site: &Site, name: &str) -> String {
    site.path(name).display().to_string()
}

#[test]
fn history_outlives_the_near_end_and_the_far_end() {
    let file = noise(1, FILE_BYTES);
    let (listen, option) = forward(origin_of(&file));
    let site = Site::new();
    let store = folder(&site, "store");
    for predict in ["window", "aligned"] {
        let store = format!("{store}-{predict}");
        let mut far = site.far(&RECEIVER);
        let mut near = site.near(
            site.far_listen,
            &options(&option, &store, &["--predict", predict]),
        );
        near.wait_until_up();
        assert_whole(cost(&near, listen, &file));
        assert_eq!(
            near.peer().received.cache_bytes,
            0,
            "no state at the sender"
        );

        near.signal("TERM");
        assert!(near.wait_for_exit().success());
        near.restart();
        near.wait_until_up();
        far.kill();
        far.restart();
        near.wait_until_up();
        let cost = cost(&near, listen, &file);
        assert!(cost < 0.3, "{predict}: {cost}");
        assert!(near.peer().received.predictions.confirmed > 0);
        near.kill();
        far.kill();
    }
}

#[test]
fn a_far_end_that_is_killed_in_the_middle_costs_a_reset_and_no_history() {
    let file = noise(2, 2 * FILE_BYTES);
    let (listen, option) = forward(origin_of(&file));
    let site = Site::new();
    let mut far = site.far(&RECEIVER);
    let store = folder(&site, "store");
    let near = site.near(site.far_listen, &options(&option, &store, &[]));
    near.wait_until_up();
    assert_whole(cost(&near, listen, &file));

    let mut stream = TcpStream::connect(listen).expect("the near end listens");
    stream.write_all(b"?").expect("sent");
    let mut begun = vec![0; 1 << 20];
    stream.read_exact(&mut begun).expect("it begins");
    far.kill();
    far.restart();
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    let came = begun.len() + rest.len();
    assert!(ended.is_err(), "a reset, or it would look whole");
    assert!(
        came < file.len() && file.starts_with(&begun) && file[begun.len()..].starts_with(&rest)
    );

    assert_predicted(first_cost_of_a_new_link(&near, listen, &file));
}

/// Passes connections on to several addresses, in turn.
fn balance(to: Vec<SocketAddr>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for (turn, incoming) in listener.incoming().enumerate() {
            let Ok(client) = incoming else { return };
            let Ok(server) = TcpStream::connect(to[turn % to.len()]) else {
                continue;
            };
            let pairs = [
                (client.try_clone(), server.try_clone()),
                (Ok(server), Ok(client)),
            ];
            for (from, to) in pairs {
                let (mut from, mut to) = (from.expect("open"), to.expect("open"));
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    address
}

#[test]
fn any_of_several_far_ends_behind_one_address_serves_a_near_end() {
    let file = noise(3, FILE_BYTES);
    let (listen, option) = forward(origin_of(&file));
    let mut site = Site::new();
    let mut fars: Vec<(SocketAddr, Gateway)> = Vec::new();
    for _ in 0..2 {
        site.far_listen = free_address();
        fars.push((site.far_listen, site.far(&RECEIVER)));
    }
    let balancer = balance(fars.iter().map(|&(address, _)| address).collect());
    let store = folder(&site, "store");
    let near = site.near(balancer, &options(&option, &store, &[]));
    near.wait_until_up();
    assert_whole(cost(&near, listen, &file));
    assert_predicted(cost(&near, listen, &file));

    for _ in 0..2 {
        // Half of its dials end at the other far end.
        near.wait_for_lanes(4);
        let serves = |(_, far): &(_, Gateway)| far.status().peers.iter().any(|peer| peer.up);
        let serving = fars.iter().position(serves).expect("one of them serves");
        let (_, far) = &mut fars[serving];
        far.kill();
        assert_predicted(first_cost_of_a_new_link(&near, listen, &file));
        far.restart();
    }
    near.wait_for_lanes(4);
}

#[test]
fn history_answers_in_its_own_realm_alone() {
    let file = noise(4, FILE_BYTES);
    let (listen, option) = forward(origin_of(&file));
    let site = Site::new();
    let _far = site.far(&RECEIVER);
    let store = folder(&site, "store");
    let in_realm = |realm: &str| {
        let more = ["--realm", realm];
        let mut near = site.near(site.far_listen, &options(&option, &store, &more));
        near.wait_until_up();
        let cost = cost(&near, listen, &file);
        near.signal("TERM");
        near.wait_for_exit();
        cost
    };
    assert_whole(in_realm("a"));
    assert_whole(in_realm("b"));
    assert_predicted(in_realm("a"));
}

#[test]
fn what_a_neighbour_received_is_predicted_from_its_store() {
    let file = noise(5, FILE_BYTES);
    let origin = origin_of(&file);
    let site = Site::new();
    let neighbour_key = keygen(&site.path("neighbour.key"));
    let keys = site.write("keys", &format!("{}\n{neighbour_key}\n", site.near_key));
    let _far = site.far(&[&RECEIVER[..], &["--peer-key", &keys]].concat());

    let (listen, option) = forward(origin);
    let store = folder(&site, "neighbours-store");
    let options_of_neighbour = options(&option, &store, &[]);
    let neighbour = site.near_with_key("neighbour.key", site.far_listen, &options_of_neighbour);
    neighbour.wait_until_up();
    assert_whole(cost(&neighbour, listen, &file));

    let (listen, option) = forward(origin);
    let own = folder(&site, "store");
    let near = site.near(
        site.far_listen,
        &options(&option, &own, &["--store-also", &store]),
    );
    near.wait_until_up();
    // The neighbour writes on; what it has written is seen within seconds.
    let predicted = eventually("the neighbour's history is read", || {
        Some(cost(&near, listen, &file)).filter(|&cost| cost < 0.1)
    });
    assert_predicted(predicted);
}

#[test]
fn neighbours_may_name_each_other_before_there_is_any_store() {
    let file = noise(7, FILE_BYTES);
    let origin = origin_of(&file);
    let site = Site::new();
    let neighbour_key = keygen(&site.path("neighbour.key"));
    let keys = site.write("keys", &format!("{}\n{neighbour_key}\n", site.near_key));
    let _far = site.far(&[&RECEIVER[..], &["--peer-key", &keys]].concat());
    let ((one, option_of_one), (two, option_of_two)) = (forward(origin), forward(origin));
    let [store_of_one, store_of_two] = ["one", "two"].map(|name| folder(&site, name));

    let options_of_one = options(
        &option_of_one,
        &store_of_one,
        &["--store-also", &store_of_two],
    );
    let first = site.near_with_key("neighbour.key", site.far_listen, &options_of_one);
    first.wait_until_up();
    let options_of_two = options(
        &option_of_two,
        &store_of_two,
        &["--store-also", &store_of_one],
    );
    let mut second = site.near(site.far_listen, &options_of_two);
    second.wait_until_up();
    assert_whole(cost(&second, two, &file));
    // All of it is on disk then.
    second.signal("TERM");
    assert!(second.wait_for_exit().success());
    // The first saw no store when it began. One fetch alone: it learns as well.
    thread::sleep(Duration::from_secs(5));
    assert_predicted(cost(&first, one, &file));
}

#[test]
fn files_that_are_here_already_are_history_until_they_change() {
    let file = noise(6, FILE_BYTES);
    let (listen, option) = forward(origin_of(&file));
    let site = Site::new();
    let _far = site.far(&RECEIVER);
    let (files, store) = (site.path("files"), folder(&site, "store"));
    std::fs::create_dir(&files).expect("a folder");
    let here = files.join("noise");
    std::fs::write(&here, &file).expect("written");
    let add = |folder: &Path| {
        let folder = folder.display().to_string();
        let added = refrain(&[
            "store", "add", &folder, "--realm", "service", "--store", &store,
        ]);
        assert!(added.status.success(), "{added:?}");
    };
    add(&files);
    let more = ["--realm", "service"];
    let near = site.near(site.far_listen, &options(&option, &store, &more));
    near.wait_until_up();
    let first = cost(&near, listen, &file);
    assert!(first < 0.2, "its first chunk has to come: {first}");

    let mut changed = file.clone();
    changed[..FILE_BYTES / 2].fill(7);
    std::fs::write(&here, &changed).expect("written");
    let second = cost(&near, listen, &file);
    assert!(second > 0.3, "half of the file is gone: {second}");
}

#[test]
fn the_next_version_of_a_file_is_predicted_before_its_first_byte() {
    const BYTES: usize = 60_000;
    let versions = [2, 3].map(|version| [noise(version, 100), noise(1, BYTES)].concat());
    let [first, next] = versions.clone();
    let origin = serve(move |mut stream| {
        let mut request = [0; 1024];
        let came = read(&mut stream, &mut request)?;
        // Offers come meanwhile. All of the answer would otherwise be on its way before them.
        thread::sleep(Duration::from_millis(300));
        let is_first = request[..came].starts_with(b"GET /app-5.4.9.js ");
        stream.write_all(if is_first { &first } else { &next })
    });
    let (listen, option) = forward(origin);
    let site = Site::new();
    let store = folder(&site, "store");
    let _far = site.far(&RECEIVER);
    let mut near = site.near(site.far_listen, &options(&option, &store, &[]));
    near.wait_until_up();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(listen).expect("a listener");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        answer
    };
    assert!(get("/app-5.4.9.js") == versions[0]);
    // The store outlives the near end, and so do its openings.
    near.signal("TERM");
    assert!(near.wait_for_exit().success());
    near.restart();
    near.wait_until_up();
    let mut numbers = 10..;
    // One that comes before the store is open has no offers.
    eventually("a version that is predicted", || {
        let number = numbers.next().expect("a number");
        assert!(get(&format!("/app-5.4.{number}.js")) == versions[1]);
        let predicted = near.peer().received.predictions.confirmed_bytes;
        (predicted as usize > BYTES / 2).then_some(())
    });
}

#[test]
fn both_ends_say_which_of_them_drives_a_flow() {
    let (listen, option) = forward(origin::start());
    for (mode, by, why) in [
        ("auto", "sender", "nothing known has come yet"),
        ("receiver", "nobody", "nothing known has come yet"),
        ("sender", "sender", "the other end heeds no predictions"),
    ] {
        let site = Site::new();
        let far = site.far(&["--mode", mode]);
        let store = folder(&site, "store");
        let near = site.near(site.far_listen, &options(&option, &store, &[]));
        near.wait_until_up();
        let download = Download::begin(listen);
        let received = near.status().flows.swap_remove(0).receive_driver;
        assert_eq!((&*received.by, &*received.reason), (by, why), "{mode}");
        let sent = far.status().flows.swap_remove(0).send_driver;
        assert_eq!(sent.by, by, "{mode}");
        let warned = near
            .log()
            .contains("does not use predictions: the store learns");
        assert_eq!(warned, mode == "sender");
        download.finish();
    }
}

#[test]
fn both_ends_count_alike_what_was_predicted() {
    let file = noise(12, FILE_BYTES);
    let changed = [&file[..FILE_BYTES / 2], &noise(13, 3 * FILE_BYTES / 2)].concat();
    let answers = [file.clone(), changed.clone()];
    // A flow stays open until its client ends it.
    let (listen, option) = forward(serve(move |mut stream| {
        let mut which = [0];
        stream.read_exact(&mut which)?;
        stream.write_all(&answers[usize::from(which[0])])?;
        io::copy(&mut stream, &mut io::sink()).map(drop)
    }));
    let site = Site::new();
    let far = site.far(&RECEIVER);
    let store = folder(&site, "store");
    let near = site.near(site.far_listen, &options(&option, &store, &[]));
    near.wait_until_up();
    assert_eq!(
        (&*near.status().mode, &*far.status().mode),
        ("auto", "receiver")
    );
    let ask = |which, expected: &[u8]| {
        let mut stream = TcpStream::connect(listen).expect("the near end listens");
        stream.write_all(&[which]).expect("sent");
        let mut came = vec![0; expected.len()];
        stream.read_exact(&mut came).expect("it comes");
        assert!(came == expected, "it arrives equal");
        stream
    };
    let wait_for_its_end = |stream| {
        drop(stream);
        eventually("the flow ends", || {
            let ends = [&near, &far];
            ends.iter()
                .all(|end| end.status().flows.is_empty())
                .then_some(())
        });
    };
    wait_for_its_end(ask(0, &file));
    assert_eq!(near.peer().received.predictions.offers, 0);

    let stream = ask(1, &changed);
    let of_flow = |end: &Gateway| end.status().flows.swap_remove(0);
    let (received, sent) = eventually("offers of what has changed are given up", || {
        let (sent, received) = (of_flow(&far), of_flow(&near));
        (received.received.predictions.wasted_bytes > 0).then_some((received, sent))
    });
    for driver in [&received.receive_driver, &sent.send_driver] {
        assert_eq!(
            (&*driver.by, &*driver.reason),
            ("receiver", "predictions are right")
        );
    }
    assert_counted_alike(&received.received, &sent.sent);
    wait_for_its_end(stream);
    let received = near.peer().received;
    assert_counted_alike(&received, &far.peer().sent);
    let of_all = received.predictions;
    assert_eq!(
        of_all.offered_bytes,
        of_all.confirmed_bytes + of_all.overtaken_bytes + of_all.wasted_bytes,
        "each offer came to something: {of_all:?}"
    );
}

/// Holds what the near end counted against what the far end did, where half a file was known.
#[track_caller]
fn assert_counted_alike(received: &Direction, sent: &Direction) {
    let (near, far) = (&received.predictions, &sent.predictions);
    let confirmed_bytes = far.confirmed_bytes;
    let bytes = FILE_BYTES as u64 / 4..=FILE_BYTES as u64 / 2;
    assert!(bytes.contains(&confirmed_bytes), "{far:?}");
    assert_eq!(
        (near.confirmed, near.confirmed_bytes),
        (far.confirmed, confirmed_bytes)
    );
    assert_eq!(far.hashed_true_bytes, confirmed_bytes);
    assert_eq!(received.prediction_saved_bytes, confirmed_bytes);
    assert_eq!(sent.prediction_saved_bytes, confirmed_bytes);
    assert!(far.confirmed > 0 && far.offers >= far.confirmed, "{far:?}");
    assert!(
        far.offers <= near.offers && far.offered_bytes <= near.offered_bytes,
        "{near:?} {far:?}"
    );
    let known_bytes = near.confirmed_bytes + near.overtaken_bytes + near.wasted_bytes;
    assert!(
        near.wasted_bytes > 0 && near.offered_bytes >= known_bytes,
        "{near:?}"
    );
}
