//! What the program says about its configuration: on a reload, about the environment, and when
//! it is only asked.

mod common;

use std::fs::{self, File};

use common::{
    addresses::{forward, free_address},
    command::{command, keygen, refrain, refrain_fails},
    eventually, origin,
    site::Site,
};
use refrain_codec::{
    chunk::hash::ChunkHasher,
    simd::{Backend, InstructionSet},
};
use refrain_store::{DiskStore, Realm, StoreConfig};

#[test]
fn sighup_names_what_only_a_restart_applies_and_reloads_the_rest() {
    let target = origin::start();
    let (listen, option) = forward(target);
    let site = Site::new();
    let config = |rest: &str| format!("peer_key = [\"{}\"]\n{rest}", site.near_key);
    let file = site.write(
        "far.toml",
        &config("allow = [\"127.0.0.1:1\"]\nlanes = 2\n"),
    );
    let far = site.far(&["--config", &file]);
    let near = site.near(site.far_listen, &["--forward", &option]);
    near.wait_until_up();

    // The default of a moment ago, said in so many words, is no change.
    let changed =
        format!("allow = [\"{target}\"]\nlanes = 3\nrate = \"90Mbit\"\neffort = \"auto\"\n");
    site.write("far.toml", &config(&changed));
    far.signal("HUP");
    let warning = far.wait_for_log(&["WARN", "restart"]);
    assert!(warning.ends_with(": rate, lanes"), "{warning}");
    eventually("the rule is reloaded all the same", || {
        origin::answers(listen).then_some(())
    });

    site.write("far.toml", &config("lanes = 2\n"));
    far.signal("HUP");
    eventually("a second reload", || {
        (far.log().matches("reloaded").count() == 2).then_some(())
    });
    site.write("far.toml", "lanes = \n");
    far.signal("HUP");
    far.wait_for_log(&["kept the old configuration"]);
    assert_eq!(
        far.log().matches("after a restart").count(),
        1,
        "nothing to restart for"
    );
}

#[test]
fn a_misspelt_variable_is_a_warning_that_names_the_nearest() {
    let site = Site::new();
    let key = site.path("near.key").display().to_string();
    let nobody = free_address().to_string();
    let check = [
        "check",
        "--peer",
        &nobody,
        "--key",
        &key,
        "--peer-key",
        &site.far_key,
    ];
    let run = command(&check)
        .env("REFRAIN_CONECT_TIMEOUT", "1s")
        .env("REFRAIN_LISTEN", "127.0.0.1:7000")
        .env("REFRAIN_PORT", "tcp://10.0.0.11:7000")
        .env("REFRAIN_LOG", "warn")
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&run.stderr);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert_eq!(
        lines.len(),
        3,
        "two warnings and why the check fails: {said}"
    );
    for (line, parts) in [
        (
            lines[0],
            [
                "WARN",
                "REFRAIN_CONECT_TIMEOUT",
                "\"REFRAIN_CONNECT_TIMEOUT\"",
            ],
        ),
        (lines[1], ["WARN", "REFRAIN_LISTEN", "the far end"]),
        (lines[2], ["error:", "cannot connect", &nobody]),
    ] {
        assert!(
            parts.iter().all(|part| line.contains(part)),
            "{parts:?}: {said}"
        );
    }
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let site = Site::new();
    // Held by a gateway that runs, as on a machine whose next configuration is tried.
    let far = site.far(&[]);
    let office = keygen(&site.path("office.key"));
    let peers = format!("bonn {}\n{office} office\n", site.near_key);
    let peers = site.write("peers", &peers);
    let config = site.write(
        "far.toml",
        &format!(
            "listen = \"{}\"\nadmin = \"{}\"\npeer_key = \"{peers}\"\n\
             allow = [\"10.20.0.0/16:80\"]\nforward = \"127.0.0.1:1=intranet:80@bonn\"\n\
             memory = \"1GiB\"\ncache_size = \"64MiB\"\n",
            site.far_listen, far.admin
        ),
    );
    let key = site.path("far.key").display().to_string();
    let tried = refrain(&["far", "--key", &key, "--config", &config, "--dry-run"]);
    let said = String::from_utf8_lossy(&tried.stdout);
    assert_eq!(tried.status.code(), Some(0), "{tried:?}");
    assert!(tried.stderr.is_empty(), "{tried:?}");
    for part in [
        "the configuration is valid",
        &site.far_listen.to_string(),
        &site.far_key,
        &format!("bonn, {}\n", site.near_label()),
        &format!("office, key:{}\n", &office[..12]),
        "127.0.0.1:1 to intranet:80 through bonn, which resolves the name, open to ",
        &format!("{}, without a token", far.admin),
        "10.20.0.0/16:80",
        "1.07 GB",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert!(
        !said.contains("cache_size"),
        "it is with the memory:\n{said}"
    );

    let key = site.path("near.key").display().to_string();
    let near = [
        "near",
        "--peer",
        "far.invalid:7000",
        "--key",
        &key,
        "--dry-run",
    ];
    let named = format!("hq={}", site.far_key);
    let options = ["--peer-key", &named, "--socks5", "127.0.0.1:1080"];
    let tried = refrain(&[near.as_slice(), &options].concat());
    let said = String::from_utf8_lossy(&tried.stdout);
    assert_eq!(tried.status.code(), Some(0), "{tried:?}");
    let peer = format!("hq at far.invalid:7000, key:{}\n", &site.far_key[..12]);
    assert!(
        said.contains(&peer) && said.contains("refrain check"),
        "{said}"
    );
    assert!(said.contains(&site.near_key), "its own key is to be copied");
    assert!(
        said.contains("none: the far end may not connect to targets at this end"),
        "{said}"
    );
}

#[test]
fn a_dry_run_looks_at_stores() {
    let site = Site::new();
    let key = site.path("near.key").display().to_string();
    let [store, file, other] = ["store", "file", "other"].map(|name| {
        let path = site.path(name);
        path.display().to_string()
    });
    site.write("file", "no folder");
    let near = |store: &str, more: &[&str]| {
        let flags = [
            "near",
            "--peer",
            "far.invalid:7000",
            "--key",
            &key,
            "--dry-run",
        ];
        let options = ["--peer-key", &site.far_key, "--socks5", "127.0.0.1:1080"];
        let mut store = vec!["--store", store];
        if !more.contains(&"--store-size") {
            store.extend(["--store-size", "1GB"]);
        }
        refrain(&[&flags, &options[..], &store, more].concat())
    };
    let tried = near(&store, &["--store-also", &other, "--mode", "receiver"]);
    let said = String::from_utf8_lossy(&tried.stdout);
    assert_eq!(tried.status.code(), Some(0), "{tried:?}");
    let also = format!("not available now: \"{other}\" does not exist");
    for part in [&store[..], &also, "receiver", "at most 1.00 GB"] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert!(
        !said.contains("store_size"),
        "it is with the store:\n{said}"
    );
    assert!(tried.stderr.is_empty(), "{tried:?}");
    for (mode, warnings) in [("auto", 0), ("sender", 1), ("off", 1)] {
        let tried = near(&store, &["--mode", mode]);
        let warned = String::from_utf8_lossy(&tried.stderr);
        let of_store = format!("with --mode {mode} the store is not used");
        assert_eq!(tried.status.code(), Some(0), "{tried:?}");
        assert_eq!(warned.matches(&of_store).count(), warnings, "{warned}");
    }
    assert!(!site.path("store").exists(), "nothing is made");

    let large = near(&store, &["--store-size", "1000000TB"]);
    let warned = String::from_utf8_lossy(&large.stderr);
    assert_eq!(large.status.code(), Some(0), "{large:?}");
    let figures = [
        "may use 1000000 TB, and uses 0 B",
        " free (set --store-size)",
    ];
    assert!(figures.iter().all(|part| warned.contains(part)), "{warned}");

    let open = DiskStore::open(&site.path("store"), StoreConfig::new(64 << 20));
    let tried = near(&store, &[]);
    let said = String::from_utf8_lossy(&tried.stdout);
    assert_eq!(tried.status.code(), Some(0), "{tried:?}");
    let owner = format!("process {} uses it", std::process::id());
    assert!(said.contains(&owner), "{said}");
    drop(open);

    let files = site.path("files");
    std::fs::create_dir(&files).expect("made");
    std::fs::write(files.join("one"), "content to keep").expect("written");
    let files = files.display().to_string();
    let add = [
        "store",
        "add",
        &files,
        "--realm",
        "a",
        "--chunk-size",
        "4KiB",
    ];
    assert!(
        refrain(&[&add[..], &["--store", &other]].concat())
            .status
            .success()
    );
    for (store, more, part) in [
        (&file, &[][..], "is not a directory"),
        (&other, &[], "--chunk-size 4KiB"),
        (&store, &["--store-also", &other], "--store-also"),
    ] {
        let tried = near(store, more);
        let error = String::from_utf8_lossy(&tried.stderr);
        assert_eq!(tried.status.code(), Some(1), "{tried:?}");
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

#[test]
fn a_dry_run_tells_what_would_be_in_vain() {
    let site = Site::new();
    let key = site.path("near.key").display().to_string();
    let near = |more: &[&str]| {
        let flags = ["near", "--dry-run", "--peer", "far.invalid:7000"];
        let options = ["--socks5", "127.0.0.1:1080", "--peer-key", &site.far_key];
        let tried = refrain(&[&flags, &options[..], &["--key", &key], more].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            tried.status.code(),
            text(&tried.stdout),
            text(&tried.stderr),
        )
    };
    let idle = "no --store nothing is predicted";
    for (mode, warnings) in [("receiver", 1), ("auto", 0), ("sender", 0), ("off", 0)] {
        let (code, said, warned) = near(&["--mode", mode]);
        assert_eq!(code, Some(0), "{warned}");
        assert_eq!(warned.matches(idle).count(), warnings, "{mode}: {warned}");
        let has_caches = ["auto", "sender"].contains(&mode);
        for line in ["\n  matching ", "with caches of"] {
            assert_eq!(said.contains(line), has_caches, "{mode}: {line} in\n{said}");
        }
        assert_eq!(
            said.contains("\n  effort "),
            mode != "off",
            "{mode}:\n{said}"
        );
    }

    let [store, other, link] =
        ["store", "other", "link"].map(|name| site.path(name).display().to_string());
    let file = site.write("file", "no folder");
    std::os::unix::fs::symlink(&store, &link).expect("made");
    let below = format!("{file}/store");
    let (code, said, error) = near(&["--store", &below, "--store-size", "64MiB"]);
    assert_eq!((code, said.as_str()), (Some(1), ""), "{error}");
    assert!(
        error.contains(&format!("--store: \"{file}\" is not a directory")),
        "{error}"
    );

    let own = ["--store", &store, "--store-size", "64MiB"];
    let with = |more: &[&str]| near(&[&own[..], more].concat());
    let itself = |name: &str| {
        let (code, _, error) = with(&["--store-also", &other, "--store-also", name]);
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains("is the store itself"), "{error}");
    };
    itself(&format!("{store}/"));
    let mut open = DiskStore::open(&site.path("store"), StoreConfig::new(64 << 20)).expect("open");
    itself(&link);
    open.name_realm("music").expect("the disk works");
    let recipe = open.begin(Realm::named("music"), None);
    let digest = ChunkHasher::default().digest(b"verse");
    open.append(recipe, &digest, b"verse").expect("appended");
    open.close().expect("closed");
    for (realm, warnings) in [("mucis", 1), ("music", 0)] {
        let (code, _, warned) = with(&["--realm", realm]);
        assert_eq!(code, Some(0), "{warned}");
        for part in ["no history of realm \"mucis\"", "only of: music"] {
            assert_eq!(warned.matches(part).count(), warnings, "{warned}");
        }
    }
    // Of a neighbour's history as well.
    let (_, _, warned) = near(&[
        "--store",
        &other,
        "--store-size",
        "64MiB",
        "--store-also",
        &store,
    ]);
    assert!(warned.contains("only of: music"), "{warned}");
}

#[test]
fn a_near_end_does_not_start_with_its_own_store_as_a_neighbour() {
    let site = Site::new();
    let key = site.path("near.key").display().to_string();
    let store = site.path("store").display().to_string();
    let near = ["near", "--peer", "127.0.0.1:1", "--socks5", "127.0.0.1:0"];
    let keys = ["--key", &key, "--peer-key", &site.far_key];
    let stores = ["--store", &store, "--store-also", &store];
    let (code, error) = refrain_fails(&[&near, &keys[..], &stores].concat());
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("is the store itself"), "{error}");
}

#[test]
fn a_dry_run_finds_what_would_keep_a_gateway_from_starting() {
    let site = Site::new();
    let key = site.path("far.key").display().to_string();
    let listen = site.far_listen.to_string();
    let own = ["far", "--key", &key, "--listen", &listen, "--dry-run"];
    let peer = site.near_key.as_str();
    let empty = site.write("empty", "# no key yet\n");
    let table = site.write("table", "1 2 300\n");
    let misspelt = site.write("misspelt.toml", "lanes = 2\nalow = []\n");
    let rule = site.write(
        "rule.toml",
        "allow = [\n  \"a:80\",\n  \"10.0.0.1/8:80\",\n]\n",
    );
    for (options, parts) in [
        (
            vec!["--peer-key", &empty],
            vec!["--peer-key", "no public key"],
        ),
        (vec!["--peer-key", "nowhere/peers"], vec!["nowhere/peers"]),
        (vec!["--config", "nowhere.toml"], vec!["nowhere.toml"]),
        (
            vec!["--config", &misspelt],
            vec!["misspelt.toml:2", "\"allow\""],
        ),
        (vec!["--config", &rule], vec!["rule.toml:3", "10.0.0.1/8"]),
        (vec!["--marker-table", &table], vec!["--marker-table"]),
        (
            vec!["--admin", "example.org:9001"],
            vec!["--admin", "localhost:1080", "*:1080"],
        ),
        (
            vec!["--admin", &listen],
            vec!["--admin", "--listen already listens at"],
        ),
    ] {
        let mut command = own.to_vec();
        if !options.contains(&"--peer-key") {
            command.extend(["--peer-key", peer]);
        }
        command.extend(&options);
        let (code, error) = refrain_fails(&command);
        assert_eq!(code, 2, "{options:?}: {error}");
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 2, "{options:?}: {error}");
        assert!(lines[0].starts_with("error: "), "{error}");
        assert_eq!(lines[1], "see 'refrain far --help'");
        assert!(
            parts.iter().all(|part| error.contains(part)),
            "{parts:?}: {error}"
        );
    }
}

#[test]
fn a_check_refuses_what_the_near_end_would_refuse() {
    let site = Site::new();
    let key = site.path("near.key").display().to_string();
    let own = ["--peer", "far.invalid:7000", "--key", &key];
    let own = [&own[..], &["--peer-key", &site.far_key]].concat();
    let lacking = InstructionSet::ALL
        .into_iter()
        .find(|&set| Backend::new(set).is_none());
    let lacking = lacking.expect("no machine has all").to_string();
    let taken = "127.0.0.1:1080";
    for wrong in [
        vec!["--simd", "mmx"],
        vec!["--simd", &lacking],
        vec!["--rate", "fast"],
        vec!["--rate", "0kbit"],
        vec!["--cache-size", "1kB"],
        vec!["--lanes", "17"],
        vec!["--admin", "0.0.0.0:9001"],
        vec!["--marker-table", "nowhere/table"],
        vec!["--http-proxy", taken],
    ] {
        let fails = |program: &[&str]| {
            let socks5 = ["--socks5", taken];
            let (code, error) = refrain_fails(&[program, &own, &socks5, &wrong].concat());
            // The next line names the program's help.
            let first = error.lines().next().unwrap_or_default();
            (code, first.to_owned())
        };
        let (code, error) = fails(&["check"]);
        assert_eq!((code, error), fails(&["near", "--dry-run"]), "{wrong:?}");
        assert_eq!(code, 2, "{wrong:?}");
    }

    // A check serves nobody, and so needs no listener.
    let (code, error) = refrain_fails(&[&["check"], &own[..]].concat());
    assert_eq!(code, 1, "{error}");

    let file = site.write("near.toml", "\nsimd = \"mmx\"\n");
    let (code, error) = refrain_fails(&[&["check", "--config", &file], &own[..]].concat());
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("near.toml:2: simd \"mmx\": expected `auto`"),
        "{error}"
    );
    let run = command(&[&["check"], &own[..]].concat())
        .env("REFRAIN_RATE", "fast")
        .output()
        .expect("the program runs");
    let error = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{error}");
    assert!(error.contains("REFRAIN_RATE \"fast\""), "{error}");
}

#[test]
fn a_dry_run_says_how_many_lanes_the_memory_has_room_for() {
    let site = Site::new();
    let key = site.path("far.key").display().to_string();
    let own = ["--dry-run", "--key", &key, "--peer-key", &site.near_key];
    let far = ["far", "--listen", "127.0.0.1:0"];
    let near = ["near", "--peer", "far.example", "--socks5", "1080"];
    let lanes = |end: &[&str], memory: &str| {
        let tried = refrain(&[end, &own[..], &["--memory", memory]].concat());
        let said = String::from_utf8_lossy(&tried.stdout).into_owned();
        let line = said.lines().find_map(|line| line.strip_prefix("  lanes "));
        line.expect("it says").trim().to_owned()
    };
    assert_eq!(lanes(&near, "8GiB"), "4, at most 16 per link");
    assert_eq!(lanes(&far, "8GiB"), "at most 16 per link");
    let fewer = "at most 1 per link: the memory has no space for more";
    assert_eq!(lanes(&near, "40MiB"), format!("1, {fewer}"));
    assert_eq!(lanes(&far, "40MiB"), fewer);
}

#[test]
fn a_dry_run_warns_of_peers_that_the_memory_has_no_room_for() {
    let site = Site::new();
    let key = site.path("far.key").display().to_string();
    let other = keygen(&site.path("other.key"));
    let peers = [site.near_key.as_str(), &other].join(",");
    let own = ["far", "--key", &key, "--listen", "127.0.0.1:0", "--dry-run"];
    let tried = refrain(&[&own[..], &["--peer-key", &peers, "--memory", "40MiB"]].concat());
    let warned = String::from_utf8_lossy(&tried.stderr);
    assert_eq!(tried.status.code(), Some(0), "{warned}");
    assert!(
        warned.contains("--memory") && warned.contains("only 1 of 2 peers"),
        "{warned}"
    );
}

#[test]
fn a_dry_run_ends_with_the_report_and_not_with_a_warning() {
    let site = Site::new();
    let key = site.path("far.key").display().to_string();
    let shown = site.path("shown");
    let file = File::create(&shown).expect("a file");
    let own = ["far", "--key", &key, "--peer-key", &site.near_key];
    let mut dry_run = command(&[&own[..], &["--rate", "1bit", "--dry-run"]].concat());
    let dry_run = dry_run
        .stdout(file.try_clone().expect("a file"))
        .stderr(file);
    assert!(dry_run.status().expect("it runs").success());
    let shown = fs::read_to_string(shown).expect("text");
    assert!(shown.contains("WARN"), "{shown}");
    assert_eq!(shown.lines().last(), Some("nothing was started"), "{shown}");
}
