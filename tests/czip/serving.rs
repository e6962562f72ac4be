//! `refrain czip serve`.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    World,
    common::{addresses::free_address, command::command, eventually},
    noise,
};

/// A server, which does not outlive its test.
pub(crate) struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server of a folder, what it logs from its first request on, and its URL.
pub(crate) fn serve(
    world: &World,
    folder: &str,
    arguments: &[&str],
) -> (Serving, impl Iterator<Item = Value> + use<>, String) {
    let mut serving = Serving(
        command(&["czip", "serve", folder, "--listen", "127.0.0.1:0"])
            .args(["--cache-size", "8M", "--json-log"])
            .args(arguments)
            .current_dir(world.path("."))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs"),
    );
    let log = serving.0.stderr.take().expect("it is piped");
    let mut log = BufReader::new(log).lines().map(|line| {
        let line = line.expect("UTF-8");
        serde_json::from_str::<Value>(&line).expect("an object a line")
    });
    let first = log.next().expect("it says where it listens");
    let address = first["address"].as_str().expect("an address");
    assert_eq!(first["directory"], folder);
    let url = format!("http://{address}");
    (serving, log, url)
}

#[test]
fn it_serves_logs_json_and_stops_when_told_to() {
    let world = World::new();
    let content = b"refrain ".repeat(50_000);
    world.write("a", &content);
    world.run(&["create", "a", "-o", "a.czip"]);
    std::fs::remove_file(world.path("a")).expect("it is there");
    let (mut serving, mut log, url) = serve(&world, ".", &[]);
    let url = format!("{url}/a");
    let mut answer = ureq::get(&url).call().expect("an answer");
    let body = answer.body_mut().read_to_vec().expect("a body");
    assert!(body == content);
    let request = log.next().expect("a line a request");
    assert_eq!(request["path"], "/a");
    assert_eq!(request["status"], 200);
    let process = serving.0.id().to_string();
    let told = Command::new("kill").args(["-TERM", &process]).status();
    assert!(told.expect("kill runs").success());
    assert!(serving.0.wait().expect("it ends").success());
}

#[test]
fn damage_of_a_served_archive_is_found_by_its_url() {
    let world = World::new();
    let content = noise(1, 300_000);
    world.write("file", &content);
    world.run(&["create", "file", "-o", "file.czip", "--compress", "none"]);
    std::fs::remove_file(world.path("file")).expect("it is there");
    let (_serving, _log, url) = serve(&world, ".", &[]);
    // From now on the server has the intact part in memory.
    let mut answer = ureq::get(format!("{url}/file")).call().expect("an answer");
    let body = answer.body_mut().read_to_vec().expect("a body");
    assert!(body == content);
    let url = format!("{url}/file.czip");
    assert!(world.run(&["verify", &url]).starts_with(b"OK"));
    let mut archive = std::fs::read(world.path("file.czip")).expect("made");
    let middle = archive.len() / 2;
    archive[middle] ^= 1;
    world.write("file.czip", &archive);
    let [by_url, of_file] = [&*url, "file.czip"].map(|archive| {
        let verified = world.run_with(&["verify", archive, "--json"], b"");
        assert_eq!(verified.status.code(), Some(1));
        serde_json::from_slice::<Value>(&verified.stdout).expect("JSON")
    });
    assert_eq!(by_url["damaged_parts"], 1);
    assert_eq!(by_url, of_file);
}

#[test]
fn an_answer_that_is_cut_off_at_the_end_is_logged_as_such() {
    for (drain, signals) in [("100ms", 1), ("1h", 2)] {
        let world = World::new();
        let file = std::fs::File::create(world.path("file")).expect("a new file");
        file.set_len(1 << 30).expect("it has holes");
        let (mut serving, mut log, url) = serve(&world, ".", &["--drain-timeout", drain]);
        let address = url.strip_prefix("http://").expect("an address");
        let mut slow = TcpStream::connect(address).expect("it listens");
        slow.write_all(b"GET /file HTTP/1.1\r\nHost: here\r\n\r\n")
            .expect("it is read");
        slow.read_exact(&mut [0; 1000]).expect("it has begun");
        let process = serving.0.id().to_string();
        for number in 0..signals {
            let told = Command::new("kill").args(["-TERM", &process]).status();
            assert!(told.expect("kill runs").success());
            let line = log.next().expect("it says so");
            let message = line["message"].as_str().expect("a message");
            let expected = match number {
                0 => format!("have {drain} to finish"),
                _ => "ending at once".to_owned(),
            };
            assert!(message.contains(&expected), "{message}");
        }
        let request = log.next().expect("a line a request");
        assert_eq!(
            (&request["path"], &request["is_cut_off"]),
            (&"/file".into(), &true.into())
        );
        assert_eq!(log.next().expect("the end is told")["cut_off"], 1);
        assert!(serving.0.wait().expect("it ends").success());
    }
}

#[test]
fn how_much_is_logged_is_asked_for_as_of_a_gateway() {
    let world = World::new();
    let serve = ["czip", "serve", ".", "--listen"];
    for (options, variable, is_told) in [
        (&[][..], None, true),
        (&["--log", "error"][..], None, false),
        (&[], Some("error"), false),
        (&["--log", "info"], Some("error"), true),
    ] {
        let address = free_address().to_string();
        let mut serving = Serving(
            command(&serve)
                .arg(&address)
                .args(options)
                .envs(variable.map(|level| ("REFRAIN_LOG", level)))
                .current_dir(world.path("."))
                .stderr(Stdio::piped())
                .spawn()
                .expect("the program runs"),
        );
        eventually("it serves", || TcpStream::connect(&address).ok());
        let process = serving.0.id().to_string();
        let told = Command::new("kill").args(["-TERM", &process]).status();
        assert!(told.expect("kill runs").success());
        let log = std::io::read_to_string(serving.0.stderr.take().expect("it is piped"));
        let log = log.expect("UTF-8");
        assert_eq!(log.contains("INFO"), is_told, "{options:?}: {log}");
        assert_eq!(log.is_empty(), !is_told, "{options:?}: {log}");
    }
    let (code, error) = world.fails(&["serve", ".", "--listen", "127.0.0.1:0", "--log", "loud"]);
    let levels = "error, warn, info, debug, trace";
    assert!(code == Some(2) && error.contains(levels), "{error}");
    assert!(error.contains("'loud' for '--log <LEVEL>'\n"), "{error}");
    // One that the command line does not have is the variable's.
    let listening = [&serve[..], &["127.0.0.1:0"]].concat();
    for arguments in [&listening[..], &["run", "true"]] {
        let output = command(arguments)
            .env("REFRAIN_LOG", "loud")
            .current_dir(world.path("."))
            .output()
            .expect("the program runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        let first = "error: invalid value 'loud' for REFRAIN_LOG\n";
        assert!(
            error.starts_with(first) && error.contains(levels),
            "{error}"
        );
    }
}

#[test]
fn sizes_are_what_the_help_says() {
    let world = World::new();
    let (_serving, _log, url) = serve(&world, ".", &[]);
    let status = ureq::get(format!("{url}/.czip/status")).call();
    let status = status.expect("an answer").body_mut().read_to_vec();
    let status: Value = serde_json::from_slice(&status.expect("a body")).expect("JSON");
    assert_eq!(status["cache_bytes_max"], 8_000_000, "8M");
    for (subcommand, defaults) in [
        ("serve", &["512MiB"][..]),
        ("proxy", &["256MiB", "10GiB"]),
        ("get", &["10GiB"]),
    ] {
        let help = String::from_utf8(world.run(&[subcommand, "--help"])).expect("text");
        for size in defaults {
            let default = format!("[default: {size}]");
            assert!(help.contains(&default), "{subcommand}: {help}");
        }
        assert!(help.contains("is 2^"), "{subcommand}: {help}");
    }
}

#[test]
fn it_allows_itself_the_open_files_that_its_connections_need() {
    let world = World::new();
    let mut serving = Serving(
        Command::new("sh")
            // What a shell allows is a few hundred, as a rule, and more if asked.
            .args(["-c", "ulimit -Sn 40; exec \"$0\" \"$@\""])
            .arg(env!("CARGO_BIN_EXE_refrain"))
            .args(["czip", "serve", ".", "--listen", "127.0.0.1:0"])
            .args(["--json-log", "--connections", "100"])
            .current_dir(world.path("."))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs"),
    );
    let log = serving.0.stderr.take().expect("it is piped");
    let first = BufReader::new(log).lines().next();
    let first = first.expect("it says where it listens").expect("UTF-8");
    let first: Value = serde_json::from_str(&first).expect("an object a line");
    let address = first["address"].as_str().expect("an address").to_owned();
    let connect = |_| TcpStream::connect(&address).expect("it listens");
    let connections: Vec<TcpStream> = (0..90).map(connect).collect();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let url = format!("http://{address}/.czip/status");
        let mut answer = ureq::get(&url).call().expect("an answer");
        let status = answer.body_mut().read_to_vec().expect("a body");
        let status: Value = serde_json::from_slice(&status).expect("JSON");
        if status["connections_now"].as_u64() > Some(connections.len() as u64) {
            break;
        }
        assert!(Instant::now() < end, "{status}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn values_that_make_no_sense_are_refused_by_their_names() {
    let world = World::new();
    world.write("garbage.pem", b"no certificate");
    let get = ["get", "http://127.0.0.1:9/x", "-o", "x", "--cache", "c"];
    let serve = ["serve", ".", "--listen", "127.0.0.1:0"];
    let proxy = "proxy --listen 127.0.0.1:0 --cache c --origin http://127.0.0.1:9";
    let proxy: Vec<&str> = proxy.split(' ').collect();
    for (subcommand, code, option, value) in [
        (&serve[..], 2, "--cache-size", "0"),
        (&serve, 2, "--connections", "0"),
        (&serve, 2, "--connections", "99999999"),
        (&serve, 2, "--drain-timeout", "400d"),
        (&proxy, 2, "--timeout", "0s"),
        (&proxy, 2, "--timeout", "99999999d"),
        (&proxy, 2, "--recheck", "99999999d"),
        (&proxy, 2, "--memory", "0"),
        (&proxy, 2, "--cache-size", "0"),
        (&proxy, 1, "--origin-ca", "garbage.pem"),
        (&proxy, 1, "--origin-ca", "none.pem"),
        (&get, 2, "--threads", "0"),
        (&get, 2, "--connections", "0"),
        (&get, 2, "--requests", "0"),
        (&get, 2, "--cache-size", "0"),
        (&get, 2, "--cache-size", "5"),
        (&["verify", "none"], 2, "--threads", "0"),
    ] {
        let (found, said) = world.fails(&[subcommand, &[option, value]].concat());
        assert_eq!(found, Some(code), "{option} {value}: {said}");
        let named = if code == 2 { option } else { value };
        assert!(said.contains(named), "{option} {value}: {said}");
    }
}

#[test]
fn what_cannot_be_served_is_said() {
    let world = World::new();
    for (arguments, code, part) in [
        (["serve", "none", "--listen", "127.0.0.1:0"], 1, "none"),
        (["serve", ".", "--listen", "256.0.0.1:0"], 2, "[::1]:1080"),
        (["serve", ".", "--listen", "192.0.2.1:1"], 1, "192.0.2.1:1"),
    ] {
        let output = world.run_with(&arguments, b"");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_port_by_itself_is_one_of_loopback() {
    let world = World::new();
    for (listen, host) in [("0", "127.0.0.1:"), (":0", "127.0.0.1:"), ("*:0", "")] {
        let mut serving = Serving(
            command(&["czip", "serve", ".", "--listen", listen, "--json-log"])
                .current_dir(world.path("."))
                .stderr(Stdio::piped())
                .spawn()
                .expect("the program runs"),
        );
        let mut log = BufReader::new(serving.0.stderr.take().expect("it is piped"));
        let mut first = String::new();
        log.read_line(&mut first).expect("UTF-8");
        let first: Value = serde_json::from_str(&first).expect("an object");
        let address = first["address"].as_str().expect("an address");
        assert!(address.starts_with(host), "{listen}: {address}");
        let address: SocketAddr = address.parse().expect("an address");
        // Those of all addresses are of IPv4 too.
        assert_eq!(address.ip().is_unspecified(), host.is_empty());
        TcpStream::connect(("127.0.0.1", address.port())).expect("it listens");
    }
}
