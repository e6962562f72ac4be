//! Predictions between two gateways: a store that outlives its near end, far ends that keep
//! nothing, realms, and stores of others.
#![allow(missing_docs, reason = "a test's own")]

mod common;

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use refrain_codec::chunk::hash::ChunkHasher;
use refrain_gateway::status::Direction;
use refrain_store::{ChunkStore, DiskStore, Realm, StoreConfig};

use common::{
    addresses::{forward, free_address},
    command::{keygen, refrain},
    content::noise,
    eventually,
    gateway::Gateway,
    http,
    origin::{self, Download},
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

/// Fetches `file` through `near`, and gives what that cost, as a share of it.
#[track_caller]
fn cost(near: &Gateway, listen: SocketAddr, file: &[u8]) -> f64 {
    let before = near.link_bytes();
    assert!(
        fetch(listen).expect("an answer") == file,
        "it arrives equal"
    );
    (near.link_bytes() - before) as f64 / file.len() as f64
}

/// Fetches `file` until it comes whole, over a link that is made meanwhile, and gives all that this
/// link has carried, as a share of it: a fetch that nobody measures would teach it anew.
#[track_caller]
fn first_cost_of_a_new_link(near: &Gateway, listen: SocketAddr, file: &[u8]) -> f64 {
    eventually("the link comes back", || {
        fetch(listen).ok().filter(|got| got == file)
    });
    near.link_bytes() as f64 / file.len() as f64
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
            .contains("heeds no predictions: the store learns");
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

#[test]
fn a_near_end_says_what_history_its_realm_has() {
    let file = noise(8, 2_000_000);
    let (listen, option) = forward(origin_of(&file));
    let site = Site::new();
    let _far = site.far(&RECEIVER);
    let store = folder(&site, "store");
    let start = |realm: &str| {
        let more = ["--realm", realm, "--store-size", "100GB"];
        site.near(site.far_listen, &options(&option, &store, &more))
    };
    let mut near = start("music");
    near.wait_for_log(&["INFO", "history of realm music: 0 chunks"]);
    near.wait_until_up();
    fetch(listen).expect("an answer");
    near.signal("TERM");
    near.wait_for_exit();
    assert!(!near.log().contains("no history of realm"), "a new store");

    let near = start("mucis");
    near.wait_for_log(&["WARN", "no history of realm mucis yet, but of: music"]);
    assert_eq!(near.status().store.expect("a store").realm_chunks, 0);
    drop(near);
    let near = start("music");
    let chunks = near.status().store.expect("a store").realm_chunks;
    assert!(chunks > 100, "{chunks}");
    near.wait_for_log(&["INFO", &format!("history of realm music: {chunks} chunks")]);

    let shown = refrain(&["store", "stat", "--store", &store]);
    let text = String::from_utf8_lossy(&shown.stdout);
    let lines = ["realm             music: ", " chunks"];
    assert!(lines.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn a_store_that_goes_away_is_told_with_its_time_and_comes_back() {
    let file = noise(9, 500_000);
    let (listen, option) = forward(origin_of(&file));
    let site = Site::new();
    let _far = site.far(&RECEIVER);
    let (store, other) = (folder(&site, "store"), folder(&site, "other"));
    let more = ["--store-also", &other];
    let near = site.near(site.far_listen, &options(&option, &store, &more));
    near.wait_until_up();
    let of_status = || near.status().store.expect("a store");
    let also = of_status().also.swap_remove(0);
    assert!(!also.is_there && also.trouble.is_some(), "{also:?}");
    assert_eq!((also.path.as_str(), also.chunks), (other.as_str(), 0));
    assert!(of_status().last_error.is_none(), "the own store is well");

    let elsewhere = site.path("elsewhere");
    std::fs::rename(&store, &elsewhere).expect("moved");
    let told = eventually("the status says so", || {
        Some(of_status()).filter(|it| it.last_error.is_some())
    });
    let (error, age_s) = (told.last_error.expect("it is"), told.last_error_s);
    assert!(error.contains("removed or replaced"), "{error}");
    assert!(age_s.is_some_and(|age_s| age_s < 60.0), "{age_s:?}");
    let shown = refrain(&["status", "--admin", &near.admin.to_string()]);
    let text = String::from_utf8_lossy(&shown.stdout);
    for part in ["removed or replaced", "s ago)", "not there yet"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }

    std::fs::rename(&elsewhere, &store).expect("moved");
    fetch(listen).expect("an answer");
    eventually("it is forgotten once the store was written", || {
        of_status().last_error.is_none().then_some(())
    });
    near.wait_for_log(&["INFO", "can be written again"]);
    // A neighbour's store that is there has its chunks.
    let added = refrain(&[
        "store",
        "add",
        "tests/common",
        "--realm",
        "a",
        "--store",
        &other,
    ]);
    assert!(added.status.success(), "{added:?}");
    let also = eventually("it is found", || {
        Some(of_status().also.swap_remove(0)).filter(|also| also.is_there)
    });
    assert!(also.trouble.is_none(), "{also:?}");
}

#[test]
fn damage_on_the_disk_costs_its_own_bytes_and_is_told() {
    let file = noise(11, FILE_BYTES);
    let (listen, option) = forward(origin_of(&file));
    let site = Site::new();
    let _far = site.far(&RECEIVER);
    let store = folder(&site, "store");
    let mut near = site.near(site.far_listen, &options(&option, &store, &[]));
    near.wait_until_up();
    assert_whole(cost(&near, listen, &file));
    near.signal("TERM");
    assert!(near.wait_for_exit().success());
    let segment = Path::new(&store).join("00000001.chunks");
    let mut bytes = std::fs::read(&segment).expect("a segment");
    assert_eq!(bytes.len(), FILE_BYTES, "chunks and nothing else");
    for at in (FILE_BYTES / 2..FILE_BYTES).step_by(FILE_BYTES / 20) {
        bytes[at] ^= 1;
    }
    std::fs::write(&segment, bytes).expect("damaged");

    near.restart();
    near.wait_until_up();
    assert_predicted(cost(&near, listen, &file));
    let damaged_chunks = eventually("it is told", || {
        let store = near.status().store.expect("a store");
        Some(store.damaged_chunks).filter(|&chunks| chunks > 0)
    });
    assert!(damaged_chunks <= 10, "{damaged_chunks}");
    let shown = refrain(&["status", "--admin", &near.admin.to_string()]);
    let text = String::from_utf8_lossy(&shown.stdout);
    let line = format!("{damaged_chunks} chunks were found damaged");
    assert!(text.contains(&line), "{text}");
    near.wait_for_log(&["WARN", "found damaged", "refrain store verify"]);
}

#[test]
fn a_store_that_does_not_open_stops_no_traffic_and_is_tried_again() {
    let file = noise(10, FILE_BYTES);
    let (listen, option) = forward(origin_of(&file));
    let site = Site::new();
    let _far = site.far(&RECEIVER);
    let in_the_way = site.write("disk", "no folder");
    let store = format!("{in_the_way}/store");
    let near = site.near(site.far_listen, &options(&option, &store, &[]));
    near.wait_until_up();
    near.wait_for_log(&["ERROR", "the store: not open", &in_the_way, "tried again"]);
    assert_whole(cost(&near, listen, &file));
    let of_status = || near.status().store.expect("a store");
    let told = of_status();
    let error = told.last_error.expect("it is told");
    assert!(error.contains("traffic goes on"), "{error}");
    assert_eq!((told.chunks, told.disk_bytes), (0, 0));
    let metrics = || {
        let (_, page) = http::get(near.admin, "/metrics", None).expect("the page");
        ["open", "failing"].map(|name| {
            let series = format!("refrain_store_{name} ");
            let mut lines = page.lines().filter_map(|line| line.strip_prefix(&series));
            lines.next().map(str::to_owned)
        })
    };
    assert_eq!(metrics().map(|it| it.expect("it is there")), ["0", "1"]);

    std::fs::remove_file(&in_the_way).expect("removed");
    eventually("it is open", || {
        of_status().last_error.is_none().then_some(())
    });
    near.wait_for_log(&["INFO", "the store: it is open now"]);
    eventually("the metrics have it", || {
        (metrics().map(Option::unwrap_or_default) == ["1", "0"]).then_some(())
    });
    assert_whole(cost(&near, listen, &file));
    assert_predicted(cost(&near, listen, &file));
}

#[test]
fn what_is_excluded_never_reaches_the_store() {
    const CANARY: &[u8] = b"a canary that nobody may keep, 8d1f2b";
    let file = CANARY.repeat(100_000);
    let origin = origin_of(&file);
    let (listen, option) = forward(origin);
    let site = Site::new();
    let _far = site.far(&[]);
    let store = folder(&site, "store");
    let rule = origin.to_string();
    let mut near = site.near(
        site.far_listen,
        &options(&option, &store, &["--exclude", &rule]),
    );
    near.wait_until_up();
    for _ in 0..2 {
        assert!(fetch(listen).expect("an answer") == file);
    }
    near.signal("TERM");
    near.wait_for_exit();
    for entry in std::fs::read_dir(&store).expect("a store") {
        let bytes = std::fs::read(entry.expect("a file").path()).expect("readable");
        let found = bytes.windows(CANARY.len()).any(|window| window == CANARY);
        assert!(!found, "the canary is on disk");
    }
}

#[test]
fn a_near_end_says_what_a_lower_bound_costs_before_and_after() {
    let (_, option) = forward(origin::start());
    let site = Site::new();
    let store = folder(&site, "store");
    let large = StoreConfig::new(1 << 30);
    let mut full = DiskStore::open(Path::new(&store), large).expect("it opens");
    let recipe = full.begin(Realm::named("service"), None);
    for number in 0..1500_u32 {
        let chunk = number.to_le_bytes().repeat(2048);
        let digest = ChunkHasher::default().digest(&chunk);
        full.append(recipe, &digest, &chunk).expect("appended");
    }
    full.close().expect("closed");
    let far = "far.invalid:7000";
    let key = site.path("near.key").display().to_string();
    let near = ["near", "--dry-run", "--peer", far, "--key", &key];
    let near = [&near[..], &["--peer-key", &site.far_key]].concat();
    let loss =
        "the store takes 12.3 MB, and its bound is now 16.8 MB: the oldest history goes, 12.3 MB";
    for (size, warnings) in [("1GiB", 0), ("2GiB", 0), ("512MiB", 0), ("16MiB", 1)] {
        let options = options(&option, &store, &["--store-size", size]);
        let tried = refrain(&[&near[..], &options].concat());
        let warned = String::from_utf8_lossy(&tried.stderr);
        assert_eq!(warned.matches(loss).count(), warnings, "{size}: {tried:?}");
    }
    let more = ["--store-size", "16MiB"];
    let near = site.near(site.far_listen, &options(&option, &store, &more));
    near.wait_for_log(&["WARN", loss]);
    let gone = "12.3 MB of the oldest history went, 1500 chunks, to keep within 16.8 MB";
    near.wait_for_log(&["INFO", gone]);
    let log = near.log();
    assert!(log.find(loss) < log.find(gone), "{log}");
}

#[test]
fn a_neighbour_with_nothing_but_added_files_is_warned_of_once() {
    let (_, option) = forward(origin::start());
    let site = Site::new();
    let [store, other] = ["store", "other"].map(|name| folder(&site, name));
    let add = ["store", "add", "tests/common", "--realm", "a"];
    assert!(
        refrain(&[&add[..], &["--store", &other]].concat())
            .status
            .success()
    );
    let warning = format!("--store-also {other}: it holds only added files");
    let more = ["--store-also", &other, "--store-size", "64MiB"];
    let mut near = site.near(site.far_listen, &options(&option, &store, &more));
    near.wait_for_log(&["WARN", &warning]);
    near.signal("TERM");
    near.wait_for_exit();
    assert_eq!(near.log().matches(&warning).count(), 1);

    // It has received something as well.
    let mut mixed =
        DiskStore::open(Path::new(&other), StoreConfig::new(1 << 30)).expect("it opens");
    let recipe = mixed.begin(Realm::named("a"), None);
    let digest = ChunkHasher::default().digest(b"verse");
    mixed.append(recipe, &digest, b"verse").expect("appended");
    mixed.close().expect("closed");
    near.restart();
    assert_eq!(near.log().matches("realms: history of realm").count(), 2);
    assert_eq!(near.log().matches(&warning).count(), 1);
}
