//! What becomes of a near end's store, and what users are told of it.

use std::path::Path;

use refrain_codec::chunk::hash::ChunkHasher;
use refrain_store::{DiskStore, Realm, StoreConfig};

use super::{
    FILE_BYTES, RECEIVER, assert_predicted, assert_whole,
    common::{
        addresses::forward, command::refrain, content::noise, eventually, http, origin, site::Site,
    },
    cost, fetch, folder, options, origin_of,
};

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
    near.wait_for_log(&["INFO", "history of realm \"music\": 0 chunks"]);
    near.wait_until_up();
    fetch(listen).expect("an answer");
    near.signal("TERM");
    near.wait_for_exit();
    assert!(!near.log().contains("no history of realm"), "a new store");

    let near = start("mucis");
    near.wait_for_log(&["WARN", "no history of realm \"mucis\"", "only of: music"]);
    assert_eq!(near.status().store.expect("a store").realm_chunks, 0);
    drop(near);
    let near = start("music");
    let chunks = near.status().store.expect("a store").realm_chunks;
    assert!(chunks > 100, "{chunks}");
    near.wait_for_log(&[
        "INFO",
        &format!("history of realm \"music\": {chunks} chunks"),
    ]);

    let shown = refrain(&["store", "stat", "--store", &store]);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("\nrealm  music: "), "{text}");
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
    for part in ["removed or replaced", "s ago)", "not available yet"] {
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
    let line = format!("{damaged_chunks} damaged chunks were found");
    assert!(text.contains(&line), "{text}");
    near.wait_for_log(&["WARN", "found damaged", "refrain store verify"]);
}

#[test]
fn a_store_that_does_not_open_stops_no_traffic_and_is_tried_again() {
    let file = noise(10, FILE_BYTES);
    let (listen, option) = forward(origin_of(&file));
    let site = Site::new();
    let _far = site.far(&RECEIVER);
    let store = folder(&site, "store");
    std::fs::create_dir(&store).expect("made");
    let damaged = format!("{store}/format");
    std::fs::write(&damaged, "rubbish").expect("written");
    let near = site.near(site.far_listen, &options(&option, &store, &[]));
    near.wait_until_up();
    let retrying = "tried again within 60 s";
    near.wait_for_log(&["ERROR", "cannot open the store", &damaged, retrying]);
    assert!(!near.log().contains("history of realm"), "none is open");
    assert_whole(cost(&near, listen, &file));
    let of_status = || near.status().store.expect("a store");
    let told = of_status();
    let error = told.last_error.expect("it is told");
    assert!(error.contains("traffic continues"), "{error}");
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

    std::fs::remove_file(&damaged).expect("removed");
    eventually("it is open", || {
        of_status().last_error.is_none().then_some(())
    });
    near.wait_for_log(&["INFO", "the store is open now"]);
    near.wait_for_log(&["INFO", "history of realm"]);
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
    let loss = "limit is now 16.8 MB: the oldest history";
    for (size, warnings) in [("1GiB", 0), ("2GiB", 0), ("512MiB", 0), ("16MiB", 1)] {
        let options = options(&option, &store, &["--store-size", size]);
        let tried = refrain(&[&near[..], &options].concat());
        let warned = String::from_utf8_lossy(&tried.stderr);
        assert_eq!(warned.matches(loss).count(), warnings, "{size}: {tried:?}");
    }
    let more = ["--store-size", "16MiB"];
    let near = site.near(site.far_listen, &options(&option, &store, &more));
    near.wait_for_log(&["WARN", "uses 12.3 MB", loss, "deleted, 12.3 MB"]);
    let gone = "12.3 MB of the oldest history";
    near.wait_for_log(&["INFO", gone, "1500 chunks", "within 16.8 MB"]);
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
    assert_eq!(near.log().matches("INFO history of realm").count(), 2);
    assert_eq!(near.log().matches(&warning).count(), 1);
}
