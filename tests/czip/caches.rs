//! Chunks of archives that are kept on disk for the next download: `--cache`.

use std::{fs, sync::atomic::Ordering::SeqCst};

use super::{
    World,
    gets::{Server, archive},
    names, noise,
};

#[test]
fn errors_name_an_address_once_and_say_what_a_cache_must_be() {
    let world = World::new();
    // Nobody listens there.
    let url = "http://127.0.0.1:9/x.czip";
    let hint = "(is the web server running there?)";
    for command in [
        &["get", url, "-o", "out"][..],
        &["cat", url],
        &["cat", "http://127.0.0.1:9"],
    ] {
        let (_, error) = world.fails(command);
        assert_eq!(error.matches("http://").count(), 1, "{error}");
        assert_eq!(error.matches("Connection refused").count(), 1, "{error}");
        assert_eq!(error.matches(hint).count(), 1, "{error}");
    }
    let server = Server::start(archive(&world, b"content"), u64::MAX);
    let has_all = |error: &str, parts: &[&str]| {
        parts.iter().all(|part| error.contains(part)) && !error.contains("http://")
    };
    let of_cache = ["--cache: ", " \"content\": ", "not a directory"];
    for command in ["get", "extract"] {
        let command = [command, &server.url(), "-o", "out", "--cache", "content"];
        let (_, error) = world.fails(&command);
        assert!(has_all(&error, &of_cache), "{error}");
    }
    let origin = server.url();
    let (_, error) = world.fails(&["get", &origin, "-o", "nowhere/out"]);
    let of_output = ["cannot write \"nowhere/out\": ", "directory does not exist"];
    assert!(has_all(&error, &of_output), "{error}");
    let proxy = ["proxy", "--origin", &origin, "--cache", "content"];
    let (_, error) = world.fails(&[&proxy[..], &["--listen", "127.0.0.1:0"]].concat());
    assert!(has_all(&error, &of_cache), "{error}");
}

#[test]
fn damage_in_a_cache_is_told_and_one_is_no_plural() {
    let world = World::new();
    let server = Server::start(archive(&world, b"one chunk"), u64::MAX);
    let get = ["get", &server.url(), "-o", "out", "--cache", "cache"];
    let fetched = |json: bool| match json {
        true => world.json(&get).to_string(),
        false => {
            let said = world.run(&[&get[..], &["--verbose"]].concat());
            String::from_utf8(said).expect("text")
        }
    };
    let said = fetched(false);
    assert!(said.starts_with("downloaded "), "{said}");
    assert!(said.contains(" in 1 request, "), "{said}");
    assert!(
        !said.contains("damaged") && !said.contains("1 chunks"),
        "{said}"
    );
    for json in [false, true] {
        for name in names(&world.path("cache")) {
            if name.ends_with(".chunks") {
                let path = world.path("cache").join(name);
                let zeros = vec![0; fs::metadata(&path).expect("there").len() as usize];
                fs::write(path, zeros).expect("written");
            }
        }
        let said = fetched(json);
        assert!(said.contains("damaged"), "{said}");
        assert!(!json || !said.contains("\"cache_damaged\":0"), "{said}");
    }
}

#[test]
fn an_extraction_keeps_chunks_for_the_next_one_and_for_downloads() {
    for profile in ["small", "shared"] {
        let world = World::new();
        let (one, other) = (noise(1, 2 << 20), noise(2, 1 << 20));
        world.write("tree/one", &one);
        world.write("tree/other", &other);
        world.run(&["create", "tree", "-o", "archive", "--profile", profile]);
        let archive = fs::read(world.path("archive")).expect("an archive");
        let server = Server::start(archive.clone(), u64::MAX);
        let requests = || {
            let asked = server.asked.lock().expect("no panic");
            let hosts = asked
                .iter()
                .filter(|line| line.to_lowercase().starts_with("host:"));
            hosts.count()
        };
        let extract = |to: &str, more: &[&str]| {
            let (sent, asked) = (server.sent.load(SeqCst), requests());
            let url = server.url();
            let extract = ["extract", &url, "-o", to, "--cache", "cache"];
            world.run(&[&extract[..], more].concat());
            (server.sent.load(SeqCst) - sent, requests() - asked)
        };
        let (sent, _) = extract("first", &[]);
        assert!(sent > 3 << 20, "{profile}: {sent}");
        let (sent, asked) = extract("second", &[]);
        // A block with the header, and those with the root, the catalog and the table.
        assert!(
            sent <= 3 * (256 << 10) && asked <= 3,
            "{profile}: {sent} by {asked}"
        );
        for to in ["first", "second"] {
            assert!(fs::read(world.path(to).join("tree/one")).expect("there") == one);
            assert!(fs::read(world.path(to).join("tree/other")).expect("there") == other);
        }
        let url = server.url();
        let get = ["get", &url, "-o", "out", "--joined", "--cache", "cache"];
        let report = world.json(&get);
        assert_eq!(report["from_server"]["chunks"], 0, "{profile}: {report}");
        // Another way round, and to standard output.
        let cat = ["extract", &url, "tree/one", "-o", "-", "--cache", "cache"];
        let sent = server.sent.load(SeqCst);
        assert!(world.run(&cat) == one);
        assert!(server.sent.load(SeqCst) - sent <= 3 * (256 << 10));
    }
}

#[test]
fn a_cache_of_another_format_is_reported_and_left_alone() {
    let world = World::new();
    let content = noise(1, 1 << 20);
    let archive = archive(&world, &content);
    let server = Server::start(archive, u64::MAX);
    let url = server.url();
    world.run(&["get", &url, "-o", "out", "--cache", "cache"]);
    world.write("cache/format-0", b"");
    let before = names(&world.path("cache"));
    for arguments in [
        &["get", &url, "-o", "again"][..],
        &["extract", &url, "-o", "tree"],
    ] {
        let sent = server.sent.load(SeqCst);
        let output = world.run_with(&[arguments, &["--cache", "cache"]].concat(), b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("format \"0\""), "{said}");
        assert!(server.sent.load(SeqCst) - sent >= 1 << 20);
    }
    assert_eq!(fs::read(world.path("again")).expect("there"), content);
    assert_eq!(names(&world.path("cache")), before);
}

#[test]
fn a_cache_is_for_archives_on_servers_and_is_a_folder() {
    let world = World::new();
    let archive = archive(&world, b"content");
    world.write("a.czip", &archive);
    let (code, error) = world.fails(&["extract", "a.czip", "-o", "out", "--cache", "cache"]);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("--cache") && error.contains("web servers"),
        "{error}"
    );
    let server = Server::start(archive, u64::MAX);
    let cache = ["extract", &server.url(), "-o", "out", "--cache", "a.czip"];
    let (code, error) = world.fails(&cache);
    assert_eq!(code, Some(1));
    assert!(error.contains("not a directory"), "{error}");
    assert!(!world.path("cache").exists() && !world.path("out").exists());
}
