//! `refrain run`: programs without proxy settings, whose connections go through the link all the same.

mod common;

use std::{
    fs::{self, Permissions},
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::unix::{
        fs::PermissionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
};

use common::{
    PATIENCE,
    addresses::free_address,
    command::{command, program_in},
    eventually,
    programs::are_installed,
    read,
    server::serve_on,
    site::Pair,
    terminal::{on_terminal, terminal},
};
use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};
use tempfile::TempDir;

/// A user without rights.
const NOBODY: &str = "65534";

/// The programs that `refrain run` itself needs.
const NEEDED: [&str; 5] = ["ip", "nft", "curl", "python3", "setpriv"];

/// An address of this machine that is not loopback; without one, the test is to return.
fn own_address(unspecified: IpAddr, somewhere: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((unspecified, 0)).ok()?;
    socket.connect((somewhere, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn own_ipv4() -> Option<IpAddr> {
    let somewhere = Ipv4Addr::new(192, 0, 2, 1).into();
    let found = own_address(Ipv4Addr::UNSPECIFIED.into(), somewhere);
    if found.is_none() {
        println!("skipped: this machine has no IPv4 address but loopback");
    }
    found
}

/// A pair whose near end serves SOCKS5, and an HTTP origin at an address that is not loopback.
struct World {
    pair: Pair,
    socks5: SocketAddr,
    origin: SocketAddr,
}

/// What the origin answers.
const PAGE: &str = "a page of the origin\n";

/// What `refrain run` prints before its program starts.
const NOTE: &str = "refrain: only TCP to other machines uses the link: loopback stays inside, and UDP is refused except DNS\n";

impl World {
    /// None where the tests cannot run.
    fn new() -> Option<World> {
        if !are_installed(&NEEDED) {
            return None;
        }
        Some(World::at(own_ipv4()?))
    }

    fn at(address: IpAddr) -> World {
        let origin = SocketAddr::new(address, free_address().port());
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{PAGE}",
            PAGE.len()
        );
        serve_on(origin, move |mut client| {
            let mut head = Vec::new();
            let mut piece = [0; 1024];
            while !head.ends_with(b"\r\n\r\n") {
                match read(&mut client, &mut piece)? {
                    0 => return Ok(()),
                    bytes => head.extend_from_slice(&piece[..bytes]),
                }
            }
            client.write_all(answer.as_bytes())
        });
        let socks5 = free_address();
        let listen = socks5.to_string();
        let pair = Pair::start(&["--allow", "*:*"], &["--socks5", &listen]);
        World {
            pair,
            socks5,
            origin,
        }
    }

    /// `refrain run` with these options and words, in the folder of the site.
    fn run(&self, options: &[&str], program: &[&str]) -> Command {
        let words = [&["run"], options, &["--"], program].concat();
        let mut command = command(&words);
        let folder = self.pair.near.folder();
        command
            .current_dir(folder)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("XDG_RUNTIME_DIR", folder);
        command
    }

    /// The same with the near end's proxy.
    fn through_proxy(&self, program: &[&str]) -> Command {
        self.run(&["--socks5", &self.socks5.to_string()], program)
    }

    fn url(&self) -> String {
        format!("http://{}/", self.origin)
    }
}

fn output(mut command: Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, signal).expect("it runs");
}

/// A folder that other users can read.
fn readable_folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("our own");
    folder
}

#[test]
fn each_way_leads_a_program_to_its_origin() {
    let Some(world) = World::new() else { return };
    let config = format!(
        "key = \"near.key\"\npeer_key = \"{}\"\npeer = \"{}\"\nsocks5 = \"{}\"\n",
        world.pair.site.far_key, world.pair.site.far_listen, world.socks5
    );
    world.pair.site.write("near.toml", &config);
    let (url, socks5) = (world.url(), world.socks5.to_string());
    let uri = format!("socks5h://{socks5}");
    for options in [
        vec![],
        vec!["--socks5", &socks5],
        vec!["--socks5", &uri],
        vec!["--config", "near.toml"],
        vec!["-q"],
    ] {
        let fetched = output(world.run(&options, &["curl", "-sS", &url]));
        let note = if options == ["-q"] { "" } else { NOTE };
        assert_eq!(
            fetched,
            (Some(0), PAGE.to_owned(), note.to_owned()),
            "{options:?}"
        );
    }
    // A program in there that is run so again needs nothing.
    let refrain = env!("CARGO_BIN_EXE_refrain");
    let nested = output(world.through_proxy(&[refrain, "run", "curl", "-sS", &url]));
    assert_eq!(nested, (Some(0), PAGE.to_owned(), NOTE.to_owned()));
    assert!(world.pair.near.status().total.sent.app_bytes > 0);
}

#[test]
fn users_without_rights_have_it_too() {
    let Some(world) = World::new() else { return };
    if !geteuid().is_root() {
        println!("skipped: the other tests run as a user already");
        return;
    }
    let url = world.url();
    let folder = readable_folder();
    let refrain = program_in(folder.path()).display().to_string();
    let socks5 = world.socks5.to_string();
    let mut user = Command::new("setpriv");
    user.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    user.args([&*refrain, "run", "--socks5", &socks5, "sh", "-c"]);
    user.args([
        "id -u; grep CapEff /proc/self/status; curl -sS \"$0\"",
        &url,
    ]);
    let (code, shown, errors) = output(user);
    let expected = format!("{NOBODY}\nCapEff:\t0000000000000000\n{PAGE}");
    assert_eq!((code, shown), (Some(0), expected), "{errors}");
}

#[test]
fn ipv6_is_carried_as_ipv4_is() {
    if !are_installed(&NEEDED) {
        return;
    }
    let somewhere = "2001:db8::1".parse().expect("an address");
    let Some(own) = own_address(Ipv6Addr::UNSPECIFIED.into(), somewhere) else {
        println!("skipped: this machine has no IPv6 address but loopback");
        return;
    };
    let world = World::at(own);
    let fetched = output(world.through_proxy(&["curl", "-sS", &world.url()]));
    assert_eq!(fetched, (Some(0), PAGE.to_owned(), NOTE.to_owned()));
}

#[test]
fn the_far_end_gets_names_and_refusals_are_resets() {
    let Some(world) = World::new() else { return };
    let url = "http://no-such-host.invalid:81/";
    let (code, _, log) = output(world.through_proxy(&["curl", "-sS", url]));
    assert!(matches!(code, Some(7 | 35 | 56)), "{code:?}: {log}");
    assert!(
        log.contains(
            "refused a connection to no-such-host.invalid:81: the far end could not resolve"
        ),
        "{log}"
    );
    world
        .pair
        .near
        .wait_for_log(&["no-such-host.invalid:81", "could not resolve"]);
    let closed = SocketAddr::new(world.origin.ip(), free_address().port());
    let (code, _, log) =
        output(world.through_proxy(&["curl", "-sS", &format!("http://{closed}/")]));
    assert!(matches!(code, Some(7 | 35 | 56)), "{code:?}: {log}");
    assert!(
        log.contains(&format!(
            "refused a connection to {closed}: the target refused"
        )),
        "{log}"
    );
}

#[test]
fn datagrams_but_queries_are_refused_and_reach_nobody() {
    let Some(world) = World::new() else { return };
    let outside = UdpSocket::bind((world.origin.ip(), 0)).expect("a socket");
    let address = outside.local_addr().expect("an address");
    let program = "import socket, sys
target = (sys.argv[1], int(sys.argv[2]))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', target[1]))
s.connect(target)
s.settimeout(5)
try:
    s.send(b'x')
    s.recv(1)
except (ConnectionRefusedError, PermissionError):
    sys.exit(42)";
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let sent = output(world.through_proxy(&["python3", "-c", program, &ip, &port]));
    assert_eq!(sent.0, Some(42), "{}", sent.2);
    outside.set_nonblocking(true).expect("a socket");
    assert!(outside.recv(&mut [0]).is_err());
}

#[test]
fn exit_codes_streams_and_arguments_are_those_of_the_program() {
    let Some(world) = World::new() else { return };
    let code = |program: &[&str]| output(world.through_proxy(program)).0;
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -KILL $$"]), Some(128 + 9));
    assert_eq!(code(&["./no-such-program"]), Some(127));
    assert_eq!(code(&["/"]), Some(126));
    let (code, _, error) = output(world.run(&["--config", "no-such-file"], &["true"]));
    assert_eq!(code, Some(125));
    assert!(error.contains("no-such-file"), "{error}");

    let mut child = world
        .through_proxy(&[
            "sh",
            "-c",
            "cat; printf '%s|' \"$@\" >&2",
            "sh",
            "a b",
            "--",
            "-q",
            "",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"\0in\n").expect("it reads");
    drop(stdin);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.stdout, b"\0in\n");
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(printed, format!("{NOTE}a b|--|-q||"));
}

#[test]
fn signals_reach_the_program() {
    let Some(world) = World::new() else { return };
    for (number, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
    ] {
        let script = format!(
            "trap 'echo {name} >caught; exit 9' {name}; echo >ready; while :; do sleep 0.05; done"
        );
        let folder = world.pair.near.folder().to_owned();
        // Not in the foreground of a terminal, which sends its own.
        let mut child = world
            .through_proxy(&["sh", "-c", &script])
            .process_group(0)
            .spawn()
            .expect("it starts");
        eventually("the program runs", || {
            folder.join("ready").exists().then_some(())
        });
        signal(&child, number);
        assert_eq!(child.wait().expect("it ends").code(), Some(9), "{name}");
        let caught = fs::read_to_string(folder.join("caught")).expect("a file");
        assert_eq!(caught.trim(), name);
        fs::remove_file(folder.join("ready")).expect("a file");
    }
}

#[test]
fn a_terminal_interrupts_the_program_only_once() {
    let Some(world) = World::new() else { return };
    if !are_installed(&["setsid"]) {
        return;
    }
    let (mut keyboard, terminal) = terminal();
    let script = "import signal, sys, time
count = 0
def caught(number, frame):
    global count
    count += 1
signal.signal(signal.SIGINT, caught)
open('at-work', 'w').close()
while not count: time.sleep(0.05)
time.sleep(1)
sys.exit(20 + count)";
    let run = world.through_proxy(&["python3", "-c", script]);
    let mut child = on_terminal(&terminal, &[], &run)
        .spawn()
        .expect("it starts");
    let at_work = world.pair.near.folder().join("at-work");
    eventually("the program runs", || at_work.exists().then_some(()));
    keyboard.write_all(&[3]).expect("a terminal");
    assert_eq!(child.wait().expect("it ends").code(), Some(21));
}

#[test]
fn a_terminal_stops_the_program_and_a_shell_continues_it() {
    let Some(world) = World::new() else { return };
    if !are_installed(&["setsid"]) {
        return;
    }
    let (mut keyboard, terminal) = terminal();
    let script =
        "echo >at-work; while ! [ -e go ]; do sleep 0.05; done; curl -sS \"$0\" >fetched; exit 7";
    let run = world.through_proxy(&["sh", "-c", script, &world.url()]);
    // 148: SIGTSTP. The watchdog, which would act by then, is stopped too.
    let shell = "set -m; \"$@\"; echo $? >stopped; sleep 3; touch go; fg; echo $? >ended";
    let mut child = on_terminal(&terminal, &["bash", "-c", shell, "bash"], &run);
    let mut child = child.spawn().expect("it starts");
    let folder = world.pair.near.folder();
    eventually("the program runs", || {
        folder.join("at-work").exists().then_some(())
    });
    keyboard.write_all(&[26]).expect("a terminal");
    child.wait().expect("it ends");
    let text = |name| fs::read_to_string(folder.join(name)).expect("a file");
    assert_eq!((&*text("stopped"), &*text("ended")), ("148\n", "7\n"));
    assert_eq!(text("fetched"), PAGE);
}

#[test]
fn children_that_outlive_the_program_keep_the_network() {
    let Some(world) = World::new() else { return };
    let script = "(sleep 0.5; curl -sS \"$0\" >fetched) & exit 3";
    let (code, ..) = output(world.through_proxy(&["sh", "-c", script, &world.url()]));
    assert_eq!(code, Some(3));
    let fetched = fs::read_to_string(world.pair.near.folder().join("fetched"));
    assert_eq!(fetched.expect("a file"), PAGE);
}

#[test]
fn without_its_gateway_the_program_is_refused_at_once() {
    let Some(world) = World::new() else { return };
    let script = "echo >ready; while [ ! -e go ]; do sleep 0.05; done; \
                  curl -sS --max-time 20 \"$0\"; echo $? >code";
    let mut child = world
        .through_proxy(&["sh", "-c", script, &world.url()])
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let folder = world.pair.near.folder().to_owned();
    eventually("the program runs", || {
        folder.join("ready").exists().then_some(())
    });
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    fs::write(folder.join("go"), "").expect("a file");
    let code = eventually("curl ends", || {
        let code = fs::read_to_string(folder.join("code")).ok()?;
        code.trim().parse::<i32>().ok()
    });
    assert_eq!(code, 7, "curl could not connect");
}

#[test]
fn where_it_is_stopped_its_connections_are_reset() {
    let Some(world) = World::new() else { return };
    let server = SocketAddr::new(world.origin.ip(), free_address().port());
    serve_on(server, |mut client| {
        client.write_all(b"x")?;
        client.read_exact(&mut [0])
    });
    let script = "import signal, socket, sys\n\
                  signal.signal(signal.SIGINT, signal.SIG_IGN)\n\
                  server = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n\
                  server.recv(1)\n\
                  open('connected', 'w').close()\n\
                  try:\n server.recv(1)\n\
                  except ConnectionResetError:\n open('reset', 'w').close()";
    let (address, port) = (server.ip().to_string(), server.port().to_string());
    let mut command = world.through_proxy(&["python3", "-c", script, &address, &port]);
    let mut run = command.process_group(0).spawn().expect("it starts");
    let folder = world.pair.near.folder();
    let appears = |name| eventually(name, || folder.join(name).exists().then_some(()));
    appears("connected");
    // As a terminal's Ctrl-C, which the program ignores. The watchdog must.
    let group = Pid::from_raw(run.id() as i32).expect("a process");
    kill_process_group(group, Signal::INT).expect("it runs");
    signal(&run, Signal::STOP);
    appears("reset");
    let status = run.wait().expect("it ends");
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
}

#[test]
fn where_it_is_killed_servers_see_a_reset_and_not_an_end() {
    let Some(world) = World::new() else { return };
    let server = SocketAddr::new(world.origin.ip(), free_address().port());
    let (seen, reads) = mpsc::channel();
    serve_on(server, move |mut client| {
        loop {
            let read = read(&mut client, &mut [0]).map_err(|error| error.kind());
            let is_over = !matches!(read, Ok(1));
            seen.send(read).expect("the test waits");
            if is_over {
                return Ok(());
            }
        }
    });
    let upload = "import socket, sys\n\
                  upload = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n\
                  upload.sendall(b'x')\n\
                  upload.recv(1)";
    let (address, port) = (server.ip().to_string(), server.port().to_string());
    let mut command = world.through_proxy(&["python3", "-c", upload, &address, &port]);
    let mut run = command.stderr(Stdio::null()).spawn().expect("it starts");
    assert_eq!(reads.recv_timeout(PATIENCE), Ok(Ok(1)));
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    let end = reads.recv_timeout(PATIENCE);
    assert_eq!(end, Ok(Err(ErrorKind::ConnectionReset)));
}

#[test]
fn where_namespaces_are_off_the_error_offers_a_proxy() {
    let Some(world) = World::new() else { return };
    if !geteuid().is_root() || !are_installed(&["unshare"]) {
        return;
    }
    // The limits of a user namespace hold for all below it.
    let script = "echo 0 >/proc/sys/user/max_user_namespaces; echo 0 >/proc/sys/user/max_net_namespaces; exec \"$@\"";
    let run = world.through_proxy(&["true"]);
    let mut limited = Command::new("unshare");
    limited.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]);
    limited.arg(run.get_program()).args(run.get_args());
    let (code, _, error) = output(limited);
    assert_eq!(code, Some(125), "{error}");
    assert!(error.contains("network namespace"), "{error}");
    assert!(error.contains("ALL_PROXY=socks5h://"), "{error}");
}

#[test]
fn where_apparmor_keeps_users_from_namespaces_the_error_offers_a_proxy() {
    let restricted = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
    if fs::read_to_string(restricted).is_ok_and(|value| value.trim() == "1") {
        let Some(world) = World::new() else { return };
        let folder = readable_folder();
        let program = program_in(folder.path());
        let run = world.through_proxy(&["true"]);
        let mut limited = Command::new("setpriv");
        limited.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        limited.arg(program).args(run.get_args());
        let (code, _, error) = output(limited);
        assert_eq!(code, Some(125), "{error}");
        assert!(error.contains("ALL_PROXY=socks5h://"), "{error}");
    } else {
        println!("skipped: AppArmor does not keep users of this machine from namespaces");
    }
}

#[test]
fn nothing_is_left_behind() {
    let Some(world) = World::new() else { return };
    let temporary = world.pair.near.folder().join("tmp");
    fs::create_dir(&temporary).expect("a folder");
    fs::set_permissions(&temporary, Permissions::from_mode(0o700)).expect("our own");
    let mut run = world.through_proxy(&["true"]);
    run.env("TMPDIR", &temporary);
    assert_eq!(output(run).0, Some(0));
    assert_eq!(fs::read_dir(&temporary).expect("a folder").count(), 0);
}

#[test]
fn the_last_bytes_of_short_programs_arrive() {
    const CONNECTIONS: usize = 100;
    let Some(world) = World::new() else { return };
    let config = format!(
        "key = \"near.key\"\npeer_key = \"{}\"\npeer = \"{}\"\n",
        world.pair.site.far_key, world.pair.site.far_listen
    );
    world.pair.site.write("near.toml", &config);
    let (arrived, counter) = mpsc::channel();
    let sink = serve_on(
        SocketAddr::new(world.origin.ip(), free_address().port()),
        move |mut client| {
            let mut received = Vec::new();
            client.read_to_end(&mut received)?;
            arrived.send(received == b"last bytes").expect("a test");
            Ok(())
        },
    );
    let program = "import socket, sys
for _ in range(int(sys.argv[3])):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    s.sendall(b'last bytes')
    s.close()";
    let (ip, port) = (sink.ip().to_string(), sink.port().to_string());
    let count = CONNECTIONS.to_string();
    let program = ["python3", "-c", program, &ip, &port, &count];
    for run in [
        world.through_proxy(&program),
        world.run(&["--config", "near.toml"], &program),
    ] {
        let (code, _, error) = output(run);
        assert_eq!((code, error.as_str()), (Some(0), NOTE));
        for number in 0..CONNECTIONS {
            let whole = counter.recv_timeout(PATIENCE);
            assert_eq!(whole, Ok(true), "connection {number}");
        }
    }
}

#[test]
fn a_signal_ends_the_wait_for_last_bytes() {
    let Some(world) = World::new() else { return };
    let held = serve_on(
        SocketAddr::new(world.origin.ip(), free_address().port()),
        |_client| -> std::io::Result<()> {
            loop {
                thread::park();
            }
        },
    );
    let program = "import signal, socket, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
socket.create_connection((sys.argv[1], int(sys.argv[2])))
open('connected', 'w').close()
sys.exit(6)";
    let (ip, port) = (held.ip().to_string(), held.port().to_string());
    let mut child = world
        .through_proxy(&["python3", "-c", program, &ip, &port])
        .process_group(0)
        .spawn()
        .expect("it starts");
    let connected = world.pair.near.folder().join("connected");
    eventually("a connection", || connected.exists().then_some(()));
    let code = eventually("the end of the wait", || {
        signal(&child, Signal::INT);
        child.try_wait().expect("a child's status")
    });
    assert_eq!(code.code(), Some(6));
}

#[test]
fn names_are_not_completed_with_the_domain_of_this_machine() {
    let Some(world) = World::new() else { return };
    if !geteuid().is_root() || !are_installed(&["unshare"]) {
        return;
    }
    let run = world.through_proxy(&["curl", "-sS", "http://no-such-host:81/"]);
    let mut elsewhere = Command::new("unshare");
    let script = "hostname host.corp.example 2>/dev/null || echo host.corp.example >/proc/sys/kernel/hostname; exec \"$@\"";
    elsewhere.args(["--uts", "sh", "-c", script, "sh"]);
    elsewhere.arg(run.get_program()).args(run.get_args());
    let (_, _, log) = output(elsewhere);
    assert!(
        log.contains("refused a connection to no-such-host:81"),
        "{log}"
    );
}

#[test]
fn without_a_near_end_of_its_user_the_error_asks_for_a_proxy() {
    let Some(world) = World::new() else { return };
    if !geteuid().is_root() {
        return;
    }
    // This user runs none, and those of others are out of reach.
    let folder = readable_folder();
    let program = program_in(folder.path()).display().to_string();
    let mut user = Command::new("setpriv");
    user.args([
        "--reuid",
        NOBODY,
        "--regid",
        NOBODY,
        "--clear-groups",
        &program,
    ]);
    user.args(["run", "true"])
        .env("XDG_RUNTIME_DIR", "/nowhere");
    let (code, _, error) = output(user);
    assert_eq!(code, Some(125), "{error}");
    assert!(error.contains("--socks5"), "{error}");
    drop(world);
}

#[test]
fn an_unusable_proxy_is_reported_before_the_program_starts() {
    let Some(world) = World::new() else { return };
    let closed = free_address().to_string();
    let (code, _, error) = output(world.run(&["--socks5", &closed], &["touch", "started"]));
    assert_eq!(code, Some(125), "{error}");
    assert!(
        error.contains(&format!("cannot reach the proxy {closed}")),
        "{error}"
    );
    assert!(!world.pair.near.folder().join("started").exists());
    let words = ["run", "--no-such-option", "touch", "started"];
    let ended = command(&words).output().expect("it runs");
    assert_eq!(ended.status.code(), Some(2));
}
