//! `refrain czip get`, from a web server that knows ranges and nothing else.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{
        fs::{MetadataExt, symlink},
        net::UnixListener,
        process::ExitStatusExt,
    },
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use super::{World, deaths::SmallDisk, names, noise, serving::serve};
use crate::common::{command::command, eventually};

/// Serves one file: so many bytes of it, and then nothing more is sent until there may be more.
pub(super) struct Server {
    address: SocketAddr,
    pub(super) sent: Arc<AtomicU64>,
    allowed: Arc<AtomicU64>,
    /// Lines of requests' headers.
    pub(super) asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// It ends with the test's process.
    pub(super) fn start(file: Vec<u8>, allowed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let server = Self {
            address: listener.local_addr().expect("it is bound"),
            sent: Arc::default(),
            allowed: Arc::new(AtomicU64::new(allowed)),
            asked: Arc::default(),
        };
        let (sent, allowed) = (Arc::clone(&server.sent), Arc::clone(&server.allowed));
        let asked = Arc::clone(&server.asked);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let connection = connection.expect("a connection");
                let (file, sent) = (file.clone(), Arc::clone(&sent));
                let (allowed, asked) = (Arc::clone(&allowed), Arc::clone(&asked));
                // The client may go away at any time.
                thread::spawn(move || drop(answer(&connection, &file, &sent, &allowed, &asked)));
            }
        });
        server
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/file", self.address)
    }
}

fn answer(
    mut connection: &TcpStream,
    file: &[u8],
    sent: &AtomicU64,
    allowed: &AtomicU64,
    asked: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(connection).lines();
    while let Some(Ok(_)) = lines.next() {
        let mut range = 0..file.len();
        while let Some(Ok(line)) = lines.next() {
            if let Some(asked) = line.to_lowercase().strip_prefix("range: bytes=") {
                let (first, last) = asked.split_once('-').expect("a range");
                let last: usize = last.parse().expect("a number");
                range = first.parse().expect("a number")..file.len().min(last + 1);
            }
            if line.is_empty() {
                break;
            }
            asked.lock().expect("no panic").push(line);
        }
        let (first, last, of) = (range.start, range.end - 1, file.len());
        let length = range.len();
        write!(
            connection,
            "HTTP/1.1 206 Part\r\nETag: \"1\"\r\nContent-Range: bytes {first}-{last}/{of}\r\n\
             Content-Length: {length}\r\n\r\n"
        )?;
        for block in file[range].chunks(4 << 10) {
            while sent.load(SeqCst) >= allowed.load(SeqCst) {
                thread::park_timeout(std::time::Duration::from_millis(2));
            }
            connection.write_all(block)?;
            sent.fetch_add(block.len() as u64, SeqCst);
        }
    }
    Ok(())
}

/// An archive of noise, which compresses to itself.
pub(super) fn archive(world: &World, content: &[u8]) -> Vec<u8> {
    world.write("content", content);
    world.run(&["create", "content", "-o", "archive", "--profile", "shared"]);
    let archive = fs::read(world.path("archive")).expect("an archive");
    fs::remove_file(world.path("archive")).expect("it is there");
    archive
}

#[test]
fn what_is_here_is_not_fetched_and_the_report_says_so() {
    let world = World::new();
    let old = noise(1, 3 << 20);
    let new = [&old[..2 << 20], &noise(2, 1 << 18)].concat();
    let archive = archive(&world, &new);
    world.write("seed", &old);
    let server = Server::start(archive.clone(), u64::MAX);
    let get = ["get", &server.url(), "-o", "out"];
    let report = world.json(&[&get[..], &["--seed", "seed", "--cache", "cache"]].concat());
    assert_eq!(fs::read(world.path("out")).expect("there"), new);
    assert_eq!(report["output_bytes"], new.len());
    assert_eq!(report["fetched"]["bytes"], server.sent.load(SeqCst));
    assert!(server.sent.load(SeqCst) < 1 << 20, "{report}");
    assert!(
        report["from_seeds"]["bytes"].as_u64() > Some(3 << 19),
        "{report}"
    );
    // What came is in the cache.
    let again = world.json(&[&get[..], &["--seed", "seed", "--cache", "cache"]].concat());
    assert_eq!(again["from_server"]["chunks"], 0);
    world.run(&[&get[..], &["--archive"]].concat());
    assert_eq!(fs::read(world.path("out")).expect("there"), archive);
    assert_eq!(names(world.0.path()), ["cache", "content", "out", "seed"]);
}

#[test]
fn a_get_that_a_signal_ended_goes_on_with_what_came() {
    for (signal, code) in [("KILL", None), ("INT", Some(130))] {
        let world = World::new();
        let content = noise(1, 4 << 20);
        let archive = archive(&world, &content);
        let server = Server::start(archive.clone(), 3 << 20);
        let mut get = command(&["czip", "get", &server.url(), "-o", "out"])
            .current_dir(world.0.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        eventually("what the server may send has come", || {
            let taken = ["archive", "chunks"].map(|name| {
                let part = fs::metadata(world.path("out.part").join(name));
                part.map_or(0, |part| part.blocks() * 512)
            });
            (taken.iter().sum::<u64>() > 11 << 18).then_some(())
        });
        let kill = format!("kill -{signal} {}", get.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.expect("a shell is there").success());
        let ended = get.wait().expect("it ends");
        assert_eq!(ended.code(), code);
        assert_eq!(ended.signal(), code.is_none().then_some(9));
        assert_eq!(names(world.0.path()), ["content", "out.part"]);
        let before = server.sent.load(SeqCst);
        server.allowed.store(u64::MAX, SeqCst);
        let report = world.json(&["get", &server.url(), "-o", "out"]);
        assert_eq!(fs::read(world.path("out")).expect("there"), content);
        assert_eq!(names(world.0.path()), ["content", "out"]);
        let after = report["fetched"]["bytes"].as_u64().expect("a number");
        // What was under way is lost, and the header is asked for again.
        let lost = 1 << 20;
        assert!(before + after < archive.len() as u64 + lost, "{report}");
    }
}

#[test]
fn headers_go_along_with_all_requests_and_secrets_come_from_files() {
    let world = World::new();
    let server = Server::start(archive(&world, b"content"), u64::MAX);
    world.write(
        "headers",
        b"# for the server\nAuthorization: Bearer secret\n\n",
    );
    let headers = ["--header", "@headers", "--header", "X-Key: a:b"];
    for arguments in [
        &["get", &server.url(), "-o", "out"][..],
        &["cat", &server.url()],
        &["list", &server.url()],
        &["stat", &server.url()],
        &["verify", &server.url()],
        &["extract", &server.url(), "-o", "folder"],
    ] {
        world.run(&[arguments, &headers].concat());
        let asked = std::mem::take(&mut *server.asked.lock().expect("no panic"));
        let count = |wanted: &str| {
            let lines = asked.iter().map(|line| line.to_lowercase());
            lines.filter(|line| line == wanted).count()
        };
        let requests = asked
            .iter()
            .filter(|line| line.to_lowercase().starts_with("host:"));
        let requests = requests.count();
        assert!(requests > 0);
        assert_eq!(count("authorization: bearer secret"), requests, "{asked:?}");
        assert_eq!(count("x-key: a:b"), requests, "{asked:?}");
    }
    world.write("bad", b"no header, and secret\n");
    let (_, error) = world.fails(&["cat", &server.url(), "--header", "@bad"]);
    assert!(
        error.contains("bad") && !error.contains("secret"),
        "{error}"
    );
    let (_, error) = world.fails(&["cat", &server.url(), "--header", "@missing"]);
    assert!(error.contains("missing"), "{error}");
}

#[test]
fn what_is_no_archive_is_refused_with_advice() {
    let world = World::new();
    let server = Server::start(b"<html>".to_vec(), u64::MAX);
    let (code, error) = world.fails(&["get", &server.url(), "-o", "out"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("is not a CZIP archive"), "{error}");
    assert!(names(world.0.path()).is_empty());
}

#[test]
fn chunks_come_by_name_and_the_report_says_from_where() {
    let world = World::new();
    let content = noise(1, 1 << 20);
    world.write("content", &content);
    for profile in ["shared", "small"] {
        let name = format!("served/{profile}.czip");
        world.write(&name, b"");
        world.run(&["create", "content", "-o", &name, "--profile", profile]);
    }
    let (_serving, _log, url) = serve(&world, "served", &[]);
    let archive = format!("{url}/shared.czip");
    let get = ["get", &archive, "-o", "out", "--edge", &url, "--edge", &url];
    let report = world.json(&get);
    assert_eq!(fs::read(world.path("out")).expect("there"), content);
    assert_eq!(report["from_server"]["chunks"], 0, "{report}");
    let [edge] = &report["edges"].as_array().expect("a list")[..] else {
        panic!("{report}");
    };
    assert_eq!(edge["url"], format!("{url}/"));
    assert_eq!(edge["chunks"], report["by_name"]["chunks"]);
    assert!(edge["bytes"].as_u64() > Some(1 << 20), "{report}");
    assert!(edge["left"].is_null());
    // It would be a seed.
    fs::remove_file(world.path("out")).expect("there");
    let archive = format!("{url}/small.czip");
    let get = ["get", &archive, "-o", "out", "--edge", &url];
    let output = world.run_with(&get, b"");
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.contains("profile small"), "{said}");
    let gone = "http://127.0.0.1:9/";
    let output = world.run_with(
        &[
            "get",
            &archive.replace("small", "shared"),
            "-o",
            "out",
            "--edge",
            gone,
        ],
        b"",
    );
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        said.contains(&format!("edge \"{gone}\" is no longer used")),
        "{said}"
    );
}

/// What a get must leave as it is: nothing is asked of the server, which sends nothing.
#[track_caller]
fn refuses(world: &World, output: &str, advice: &str) {
    for more in [&[][..], &["--archive"]] {
        let server = Server::start(Vec::new(), 0);
        let get = ["get", &server.url(), "-o", output];
        let (_, error) = world.fails(&[&get[..], more].concat());
        assert!(error.contains(advice), "{error}");
        assert!(server.asked.lock().expect("no panic").is_empty());
    }
}

#[test]
fn what_is_no_file_is_not_replaced_by_one() {
    let world = World::new();
    let made = Command::new("mkfifo").arg(world.path("pipe")).status();
    assert!(made.expect("mkfifo is there").success());
    symlink("pipe", world.path("link")).expect("made");
    // A link to a device: root would lose the device itself.
    symlink("/dev/null", world.path("null")).expect("made");
    let _socket = UnixListener::bind(world.path("socket")).expect("made");
    for output in ["pipe", "link", "socket", "null"] {
        refuses(&world, output, "is not a regular file");
        refuses(&world, output, "`refrain czip cat URL`");
    }
    refuses(&world, "-", "`refrain czip cat URL`");
    symlink("gone", world.path("dangling")).expect("made");
    refuses(&world, "dangling", "link to \"gone\", which does not exist");
    refuses(&world, ".", "it is a directory");
    let left = ["dangling", "link", "null", "pipe", "socket"];
    assert_eq!(names(world.0.path()), left);
}

#[test]
fn a_link_stays_and_the_file_that_it_leads_to_is_replaced() {
    let world = World::new();
    let archive = archive(&world, b"content");
    let server = Server::start(archive.clone(), u64::MAX);
    world.write("folder/file", b"old");
    symlink("folder/file", world.path("link")).expect("made");
    let get = ["get", &server.url(), "-o", "link"];
    for (more, expected) in [(&[][..], &b"content"[..]), (&["--archive"], &archive[..])] {
        world.run(&[&get[..], more].concat());
        assert_eq!(
            fs::read(world.path("folder/file")).expect("there"),
            expected
        );
        assert_eq!(names(world.0.path()), ["content", "folder", "link"]);
        assert_eq!(names(&world.path("folder")), ["file"]);
        let link = fs::symlink_metadata(world.path("link")).expect("there");
        assert!(link.is_symlink());
    }
    assert_eq!(world.run(&["cat", &server.url()]), b"content");
    let extract = ["extract", &server.url(), "content", "-o", "-"];
    assert_eq!(world.run(&extract), b"content");
}

#[test]
fn an_archive_of_several_files_is_not_made_one_file_unasked() {
    let world = World::new();
    world.write("d/a", b"one");
    world.write("d/b", b"two");
    world.run(&["create", "d", "-o", "d.czip"]);
    let server = Server::start(fs::read(world.path("d.czip")).expect("there"), u64::MAX);
    let get = ["get", &server.url(), "-o", "out"];
    let (code, error) = world.fails(&get);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("holds 3 files, directories") && error.contains("extract URL -o DIR"),
        "{error}"
    );
    assert_eq!(names(world.0.path()), ["d", "d.czip"]);
    let report = world.json(&[&get[..], &["--joined"]].concat());
    assert_eq!(report["entries"], 3);
    assert_eq!(fs::read(world.path("out")).expect("there"), b"onetwo");
    let report = world.json(&[&get[..], &["--archive"]].concat());
    assert_eq!(report["entries"], 3);
    world.run(&["extract", "out", "-o", "tree"]);
    assert_eq!(names(&world.path("tree/d")), ["a", "b"]);
}

#[test]
fn a_server_that_stops_sending_is_asked_again_and_each_time_that_is_said() {
    let world = World::new();
    let archive = archive(&world, &noise(1, 1 << 20));
    let server = Server::start(archive, 64 << 10);
    let get = ["get", &server.url(), "-o", "out", "--connections", "1"];
    let (code, error) = world.fails(&[&get[..], &["--timeout", "200ms"]].concat());
    assert_eq!(code, Some(1));
    let lines = error.lines().filter(|line| !line.contains("out.part"));
    let lines: Vec<_> = lines.collect();
    let [retries @ .., end] = &lines[..] else {
        panic!("{error}");
    };
    assert!(retries.len() >= 5, "{error}");
    for retry in retries {
        assert!(
            retry.contains(&server.url()) && retry.contains(" of 6 in "),
            "{retry}"
        );
    }
    assert!(end.contains("6 attempts"), "{end}");
    let (code, error) = world.fails(&[&get[..], &["--timeout", "0s"]].concat());
    assert!(code == Some(2) && error.contains("--timeout"), "{error}");
}

#[test]
fn a_full_disk_is_named_and_the_same_command_goes_on() {
    let world = World::new();
    let Some(_disk) = SmallDisk::mount(world.path("disk")) else {
        return;
    };
    let large = Server::start(archive(&world, &noise(2, 4 << 20)), u64::MAX);
    let (_, error) = world.fails(&["get", &large.url(), "-o", "disk/out"]);
    assert!(
        error.starts_with("error: cannot write \"disk/out.part/")
            && error.contains("No space left"),
        "{error}"
    );
    // What to do comes after the cause.
    let (_, advice) = error.split_once('\n').expect("a second line");
    assert!(advice.contains("run the same command again"), "{error}");
    assert!(advice.ends_with("rm -r disk/out.part\n"), "{error}");
}

#[test]
fn what_a_get_leaves_is_reported_with_what_resumes_and_removes_it() {
    let world = World::new();
    let content = noise(1, 4 << 20);
    let archive = archive(&world, &content);
    for (output, word) in [("out", "out.part"), ("a b", "'a b.part'")] {
        let server = Server::start(archive.clone(), 2 << 20);
        let get = ["get", &server.url(), "-o", output, "--timeout", "200ms"];
        let (code, error) = world.fails(&get);
        assert_eq!(code, Some(1));
        let lines: Vec<_> = error
            .lines()
            .filter(|line| line.contains(".part"))
            .collect();
        let [line] = lines[..] else {
            panic!("{error}");
        };
        assert!(line.contains(&format!("{output}.part keeps ")), "{line}");
        assert!(line.contains("B on disk)"), "{line}");
        assert!(line.contains("without Range requests"), "{line}");
        assert!(line.contains("run the same command again"), "{line}");
        assert!(line.ends_with(&format!("rm -r {word}")), "{line}");
        // What it says removes it.
        let (_, command) = line.split_once("To remove it: ").expect("a command");
        let mut shell = Command::new("sh");
        let removed = shell
            .args(["-c", command])
            .current_dir(world.0.path())
            .status();
        assert!(removed.expect("a shell is there").success());
        assert!(!world.path(&format!("{output}.part")).exists());
    }
    // Where nothing came nothing is left, and nothing reported.
    let (_, error) = world.fails(&["get", "http://127.0.0.1:9/", "-o", "out"]);
    assert!(!error.contains(".part"), "{error}");
}

#[test]
fn a_get_with_another_address_is_not_advised_to_run_again() {
    let world = World::new();
    let server = Server::start(archive(&world, &noise(1, 4 << 20)), 2 << 20);
    let (_, error) = world.fails(&["get", &server.url(), "-o", "out", "--timeout", "200ms"]);
    assert!(error.contains("run the same command again"), "{error}");
    let (_serving, _log, url) = serve(&world, ".", &[]);
    for (path, reason) in [("none", "status 404"), ("content", "is not a CZIP archive")] {
        let (code, error) = world.fails(&["get", &format!("{url}/{path}"), "-o", "out"]);
        assert_eq!(code, Some(1));
        assert!(error.contains(reason), "{error}");
        assert!(error.contains("out.part keeps "), "{error}");
        assert!(!error.contains("same command"), "{error}");
        assert!(error.ends_with("rm -r out.part\n"), "{error}");
    }
}

#[test]
fn a_server_that_refuses_may_need_credentials() {
    let world = World::new();
    for (status, is_advised) in [(401, true), (403, true), (404, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/x", listener.local_addr().expect("it is bound"));
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.expect("a connection");
                let lines = BufReader::new(connection.try_clone().expect("a handle")).lines();
                let _ = lines.map_while(Result::ok).find(String::is_empty);
                let head = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
                let _ = connection.write_all(head.as_bytes());
            }
        });
        for command in [&["get", &url, "-o", "out"][..], &["list", &url]] {
            let (_, error) = world.fails(command);
            assert!(error.contains(&format!("status {status}")), "{error}");
            assert_eq!(error.matches(&url).count(), 1, "{error}");
            assert_eq!(error.contains("--header @FILE"), is_advised, "{error}");
        }
    }
}

#[test]
fn a_get_of_a_damaged_archive_is_not_to_be_resumed() {
    let world = World::new();
    let mut archive = archive(&world, &noise(1, 1 << 20));
    let middle = archive.len() / 2;
    archive[middle] ^= 1;
    let server = Server::start(archive, u64::MAX);
    let (code, error) = world.fails(&["get", &server.url(), "-o", "out"]);
    assert_eq!(code, Some(1));
    let begin = format!("error: cannot read \"{}\": frame ", server.url());
    assert!(error.starts_with(&begin), "{error}");
    assert!(error.contains("must upload it again"), "{error}");
    assert!(error.ends_with("rm -r out.part)\n"), "{error}");
    assert!(!error.contains("same command"), "{error}");
}

#[test]
fn a_seed_that_does_not_exist_is_named() {
    let world = World::new();
    let server = Server::start(archive(&world, b"content"), u64::MAX);
    let get = ["get", &server.url(), "-o", "out", "--seed", "nosuch"];
    let output = world.run_with(&get, b"");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(error.contains("seed \"nosuch\" does not exist"), "{error}");
}

#[test]
fn an_interrupted_get_reports_what_it_leaves() {
    let world = World::new();
    let server = Server::start(archive(&world, &noise(1, 4 << 20)), 2 << 20);
    let get = command(&["czip", "get", &server.url(), "-o", "out"])
        .current_dir(world.0.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    eventually("what the server may send was sent", || {
        (server.sent.load(SeqCst) >= 2 << 20).then_some(())
    });
    let kill = format!("kill -INT {}", get.id());
    let sent = Command::new("sh").args(["-c", &kill]).status();
    assert!(sent.expect("a shell is there").success());
    // The server sends nothing more: who waits for it is ended all the same.
    let ended = get.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(130));
    let error = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(error.matches("rm -r out.part").count(), 1, "{error}");
}

#[test]
fn a_server_without_ranges_is_reported_where_seeds_should_have_saved_something() {
    let world = World::new();
    let content = noise(1, 1 << 20);
    let archive = archive(&world, &content);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/x", listener.local_addr().expect("it is bound"));
    let whole = archive.clone();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.expect("a connection");
            let lines = BufReader::new(connection.try_clone().expect("a handle")).lines();
            for line in lines.map_while(Result::ok) {
                if line.is_empty() {
                    break;
                }
            }
            let length = whole.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let _ = connection.write_all(head.as_bytes());
            let _ = connection.write_all(&whole);
        }
    });
    let told = |more: &[&str]| {
        let output = world.run_with(&[&["get", &url, "-o", "out"], more].concat(), b"");
        assert!(output.status.success());
        let error = String::from_utf8(output.stderr).expect("text");
        error.matches("does not support Range requests").count()
    };
    assert_eq!(told(&["--seed", "content"]), 1);
    assert_eq!(told(&["--cache", "cache"]), 1);
    // Who expects nothing to be saved is not told that nothing was.
    assert_eq!(told(&[]), 0);
    assert_eq!(world.json(&["get", &url, "-o", "out"])["ranges"], false);
    // Who cannot read it there is told how to have it here.
    let (_, error) = world.fails(&["list", &url]);
    assert!(error.contains("czip get --archive URL"), "{error}");
    let server = Server::start(archive, u64::MAX);
    assert_eq!(
        world.json(&["get", &server.url(), "-o", "out"])["ranges"],
        true
    );
}

#[test]
fn numbers_that_would_do_nothing_or_too_much_are_refused() {
    let world = World::new();
    for (option, value) in [
        ("--requests", "0"),
        ("--connections", "0"),
        ("--connections", "65"),
        ("--timeout", "0ms"),
    ] {
        let (code, error) =
            world.fails(&["get", "http://127.0.0.1:9/", "-o", "out", option, value]);
        assert_eq!(code, Some(2), "{option}");
        assert!(error.contains(option) && error.contains(value), "{error}");
    }
}
