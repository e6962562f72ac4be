//! Rules that the near end decides, with real programs: by the name of the server, and those about how connections go
//! through the link.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread::{self, sleep},
    time::Duration,
};

use rustix::process::Signal;
use socket2::SockRef;

use crate::{
    common::{
        command::refrain,
        eventually,
        programs::{are_installed, find, run_ok},
    },
    doctor::doctor,
    failing::signal,
    world::{BEHIND, ORIGIN, Outcome, SERVICE, SITE, USER, World, ask, keeper::on, within},
};

/// What a client of these sees.
const CARRIED: &str = SERVICE;
const DIRECT: &str = SITE;

/// nginx next to the far end. It answers with the client's address: as it sees it over HTTP at port 8081 and over HTTPS
/// at port 8443, and as the header of the PROXY protocol says at port 8082.
struct Nginx(Child);

impl Nginx {
    fn start(world: &World) -> Nginx {
        let folder = world.path("nginx");
        fs::create_dir(&folder).expect("a new directory");
        let request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout tls.key -out tls.crt \
             -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE";
        let arguments: Vec<&str> = request.split_whitespace().collect();
        run_ok("openssl", folder.as_ref(), &arguments);
        let config = format!(
            "daemon off; master_process off; pid {folder}/pid; error_log {folder}/log;
             events {{}}
             http {{
                 access_log off;
                 server {{ listen {SERVICE}:8081; return 200 $remote_addr; }}
                 server {{ listen {SERVICE}:8082 proxy_protocol; return 200 $proxy_protocol_addr; }}
                 server {{
                     listen {SERVICE}:8443 ssl;
                     listen 127.0.0.1:8443 ssl;
                     ssl_certificate {folder}/tls.crt;
                     ssl_certificate_key {folder}/tls.key;
                     return 200 $remote_addr;
                 }}
             }}"
        );
        fs::write(world.path("nginx.conf"), config).expect("a new file");
        let nginx = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", world.service))
            .arg(find("nginx").expect("its presence was tested"))
            .args([
                "-c",
                &world.path("nginx.conf"),
                "-e",
                &world.path("nginx.log"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let nginx = Nginx(nginx.expect("it starts"));
        eventually("nginx answers", || {
            within(&world.service, || TcpStream::connect((SERVICE, 8443))).ok()
        });
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body that curl fetches in this namespace, or none. The name is that of the service.
fn fetch(namespace: &str, scheme: &str, name: &str, port: u16) -> Option<String> {
    let output = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{namespace}"))
        .args(["curl", "-sk", "--max-time", "5", "--noproxy", "*"])
        .args(["--resolve", &format!("{name}:{port}:{SERVICE}")])
        .arg(format!("{scheme}://{name}:{port}/"))
        .output()
        .expect("it runs");
    let body = String::from_utf8(output.stdout).expect("a text");
    output.status.success().then_some(body)
}

/// The issuer of the certificate that a client in this namespace gets of the service, if it names this server.
fn issuer(namespace: &str, name: &str) -> String {
    let connect = format!("{SERVICE}:8443");
    let shown = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{namespace}"))
        .args([
            "openssl",
            "s_client",
            "-connect",
            &connect,
            "-servername",
            name,
        ])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let issuer = shown.lines().find_map(|line| line.strip_prefix("issuer="));
    issuer.unwrap_or_default().to_owned()
}

#[test]
fn a_listed_name_is_opened_and_others_pass() {
    if !are_installed(&["nginx", "curl", "openssl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca").display().to_string();
    let made = refrain(&["ca", "init", &ca, "--permit", "localhost"]);
    assert!(made.status.success());
    let own = Command::new("chown")
        .args(["-R", USER])
        .arg(folder.path())
        .status();
    assert!(own.expect("it runs").success());
    let Some(mut world) = World::with(&format!(
        "transparent = \"15001\"
         intercept = [\"port=8080-8099,8443\"]
         ca = \"{ca}\"
         open = [\"localhost:8443\"]\n"
    )) else {
        return;
    };
    let _nginx = Nginx::start(&world);
    let trusts = format!("origin_ca = \"{}\"\n", world.path("nginx/tls.crt"));
    world.change_far(&trusts);
    world.intercept();
    world.wait_for(Outcome::Carried);
    assert!(issuer(&world.site, "localhost").contains("refrain"));
    assert!(!issuer(&world.site, "other.example").contains("refrain"));
    // The far end resolves a listed name itself, to the address of its own machine.
    let connect = format!("localhost:8443:{SERVICE}:8443");
    let fetched = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{}", world.site))
        .args([
            "curl",
            "-sS",
            "--max-time",
            "5",
            "--noproxy",
            "*",
            "--connect-to",
            &connect,
        ])
        .args([
            "--cacert",
            &format!("{ca}/root.pem"),
            "https://localhost:8443/",
        ])
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&fetched.stderr);
    assert_eq!(
        String::from_utf8_lossy(&fetched.stdout),
        "127.0.0.1",
        "{error}"
    );
}

#[test]
fn names_of_servers_decide_in_the_order_of_the_rules() {
    if !are_installed(&["nginx", "curl", "openssl"]) {
        return;
    }
    let Some(world) = World::with(
        "transparent = \"15001\"
         intercept = [
             \"port=8080-8099,8443 name=direct.example action=direct\",
             \"port=8080-8099,8443 name=refused.example action=reject\",
             \"port=8080-8099,8443\",
         ]\n",
    ) else {
        return;
    };
    let _nginx = Nginx::start(&world);
    world.intercept();
    world.wait_for(Outcome::Carried);
    for (scheme, port) in [("http", 8081), ("https", 8443)] {
        for (name, seen) in [
            ("direct.example", Some(DIRECT)),
            ("other.example", Some(CARRIED)),
            ("refused.example", None),
            (SERVICE, Some(CARRIED)),
        ] {
            let found = fetch(&world.site, scheme, name, port);
            assert_eq!(found.as_deref(), seen, "{scheme} {name}");
        }
    }
    // A server that speaks first is waited for.
    let listener = within(&world.service, || TcpListener::bind((SERVICE, 8090))).expect("a port");
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.write_all(b"220 ready");
        }
    });
    let mut client = within(&world.site, || TcpStream::connect((SERVICE, 8090))).expect("it is up");
    let mut greeting = String::new();
    client.read_to_string(&mut greeting).expect("a greeting");
    assert_eq!(greeting, "220 ready");
    // The rules of the file are read again.
    let shown = world.refrain_ok(&["intercept", "show"]);
    assert!(
        shown.contains("name=refused.example action=reject"),
        "{shown}"
    );
    world.refrain_ok(&["bypass", "on"]);
    world.wait_for(Outcome::Direct);
    let found = fetch(&world.site, "https", "other.example", 8443);
    assert_eq!(found.as_deref(), Some(DIRECT));
}

#[test]
fn servers_get_the_address_of_the_client_in_a_header() {
    if !are_installed(&["nginx", "curl", "openssl"]) {
        return;
    }
    let Some(world) = World::router_with(
        "in=lan port=8082 client_address=proxy_v2\", \"in=lan port=8443 action=pass",
    ) else {
        return;
    };
    let _nginx = Nginx::start(&world);
    world.intercept();
    let [address, _] = BEHIND;
    // Direct connections have no header, and nginx refuses them.
    eventually("a connection with a header", || {
        (fetch(&world.behind, "http", "any.example", 8082).as_deref() == Some(address))
            .then_some(())
    });
    assert_eq!(
        fetch(&world.behind, "https", "any.example", 8443).as_deref(),
        Some(CARRIED)
    );
}

#[test]
fn connections_that_the_far_end_refuses_go_direct_with_all_their_bytes() {
    for (rule, seen) in [
        ("port=8080-8099 on_refusal=direct", Outcome::Direct),
        ("port=8080-8099", Outcome::Reset),
    ] {
        let lines = format!("transparent = \"15001\"\nintercept = [\"{rule}\"]\n");
        let Some(world) = World::with(&lines) else {
            return;
        };
        world.intercept();
        world.wait_for(Outcome::Carried);
        let far = world.path("far.toml");
        let options = fs::read_to_string(&far).expect("a file");
        let allowed = options.replace("*:*", "10.77.0.2:8081");
        fs::write(&far, allowed).expect("a file");
        signal(&world.far, Signal::HUP);
        eventually("the reload", || {
            let log = fs::read_to_string(world.path("far.log")).expect("a log");
            log.contains("reloaded").then_some(())
        });
        // The first one too, and those that the near end remembers.
        for _ in 0..3 {
            assert_eq!(world.connect(), seen, "{rule}");
        }
        let log = fs::read_to_string(world.path("near.log")).expect("a log");
        assert!(log.contains("does not allow this target"), "{log}");
    }
}

#[test]
fn connections_of_pass_are_carried_as_they_are() {
    let Some(world) = World::with(
        "transparent = \"15001\"\nintercept = [\"port=8080 uid=0 action=pass\", \"port=8081\"]\n",
    ) else {
        return;
    };
    let mut open = world.open();
    assert_eq!(ask(&mut open, SITE), Outcome::Carried);
    let near = world.near.as_ref().expect("it runs").id();
    let admin = world.path(&format!("refrain/near-{near}.sock"));
    let status = world.refrain_ok(&["status", "--json", "--admin", &admin]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let flows = status["flows"].as_array().expect("flows").iter();
    let mut of_origin = flows.filter(|flow| flow["target"] == ORIGIN);
    let class = of_origin.next().and_then(|flow| flow["class"].as_str());
    assert_eq!(class, Some("excluded"));
    // The near end knows no name that only the command line has, and has no listener for headers.
    let config = world.path("near.toml");
    for (rule, code) in [
        ("name=a.example", 2),
        ("port=8080 name=a.example", 2),
        ("client_address=proxy_v2", 2),
        ("uid=5 action=pass", 0),
    ] {
        let output = world.refrain(&on(&config, &["--rule", rule, "--dry-run"]));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{rule}: {error}");
    }
}

#[test]
fn relayed_connections_end_as_flows_do() {
    let Some(mut world) = World::with(
        "transparent = \"15001\"
         idle_timeout = \"2s\"
         intercept = [
             \"port=8080 name=direct.example action=direct\",
             \"port=8080\",
         ]\n",
    ) else {
        return;
    };
    world.intercept();
    world.wait_for(Outcome::Carried);
    let open = || {
        let mut stream = within(&world.site, || TcpStream::connect(ORIGIN)).expect("it is up");
        write!(stream, "GET / HTTP/1.1\r\nHost: direct.example\r\n\r\n").expect("it is up");
        stream
    };
    let first = |stream: &mut TcpStream| {
        let mut seen = [0; 40];
        stream
            .read_exact(&mut seen)
            .map(|()| String::from_utf8_lossy(&seen).trim().to_owned())
    };
    // The whole answer, and then the end of an origin that reads to the end of its client.
    let mut half = open();
    assert_eq!(first(&mut half).expect("an answer"), SITE);
    half.shutdown(Shutdown::Write).expect("it is up");
    half.read_to_end(&mut Vec::new())
        .expect("an end, and no reset");
    // Silence.
    let mut silent = open();
    assert_eq!(first(&mut silent).expect("an answer"), SITE);
    let mut rest = Vec::new();
    assert!(silent.read_to_end(&mut rest).is_err(), "{rest:?}");
    // A drain.
    let mut open = open();
    assert_eq!(first(&mut open).expect("an answer"), SITE);
    signal(&world.near, Signal::TERM);
    sleep(Duration::from_millis(1500));
    open.write_all(b"who?").expect("it is still open");
    let mut near = world.near.take().expect("it runs");
    assert!(near.try_wait().expect("a child").is_none());
    drop(open);
    assert!(near.wait().expect("it ends").success());
}

/// Begins a connection that a rule passes to its server directly.
fn begin(world: &World, server: &str) -> TcpStream {
    let mut stream = within(&world.site, || TcpStream::connect(server)).expect("it is up");
    write!(stream, "POST / HTTP/1.1\r\nHost: direct.example\r\n\r\n").expect("it is up");
    stream
}

#[test]
fn relayed_connections_bring_last_words_and_end_with_their_clients() {
    // Less than the first window, so that the kernel of the server keeps none back.
    const ANSWER: [u8; 8_000] = [b'a'; 8_000];
    let Some(world) = World::with(
        "transparent = \"15001\"
         intercept = [
             \"port=8080-8082 name=direct.example action=direct\",
             \"port=8080-8082\",
         ]\n",
    ) else {
        return;
    };
    let listen =
        |server: &str| within(&world.service, || TcpListener::bind(server)).expect("a port");
    let (refusing, deaf) = (listen("10.77.0.2:8081"), listen("10.77.0.2:8082"));
    thread::spawn(move || {
        for mut client in refusing.incoming().flatten() {
            // Of a request that it does not read to its end.
            let _ = client.read(&mut [0; 20]);
            let _ = client.write_all(&ANSWER);
        }
    });
    thread::spawn(move || deaf.incoming().flatten().collect::<Vec<_>>());
    world.intercept();
    world.wait_for(Outcome::Carried);
    let upload = || {
        let mut client = begin(&world, "10.77.0.2:8081");
        let mut uploading = client.try_clone().expect("a handle");
        let upload = thread::spawn(move || while uploading.write_all(&[0; 4096]).is_ok() {});
        let mut answer = [0; ANSWER.len()];
        client.read_exact(&mut answer).expect("the whole answer");
        upload.join().expect("no panic");
    };
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(upload);
        }
    });

    let near = world.near.as_ref().expect("it runs").id();
    let descriptors = || {
        fs::read_dir(format!("/proc/{near}/fd"))
            .expect("it runs")
            .count()
    };
    eventually("the end of those", || {
        let before = descriptors();
        sleep(Duration::from_millis(1200));
        (descriptors() == before).then_some(())
    });
    let before = descriptors();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let mut client = begin(&world, "10.77.0.2:8082");
            client
                .set_write_timeout(Some(Duration::from_millis(500)))
                .expect("a limit");
            while client.write_all(&[0; 65_536]).is_ok() {}
            client
        })
        .collect();
    assert!(descriptors() >= before + 3);
    for client in waiting {
        SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .expect("a socket");
    }
    eventually("the end of connections whose clients died", || {
        (descriptors() <= before).then_some(())
    });
}

#[test]
fn a_rule_whose_listener_is_missing_has_its_connections_go_direct() {
    let Some(world) = World::with("transparent = \"15001\"\nintercept = [\"port=8080-8099\"]\n")
    else {
        return;
    };
    world.intercept();
    world.wait_for(Outcome::Carried);
    let near = world.path("near.toml");
    let options = fs::read_to_string(&near).expect("a file");
    let changed = options.replace(
        "[\"port=8080-8099\"]",
        "[\"port=8080 action=pass\", \"port=8080-8099\"]",
    );
    fs::write(&near, changed).expect("a file");
    signal(&world.near, Signal::HUP);
    world.intercept();
    let shown = || world.refrain_ok(&["intercept", "show"]);
    eventually("an open gate", || {
        shown().contains("gate open").then_some(())
    });
    for _ in 0..10 {
        assert_eq!(world.connect(), Outcome::Direct);
    }
    assert!(
        shown().contains("direct until the near end is restarted"),
        "{}",
        shown()
    );
    doctor(&world).expect(
        "problem",
        "gate",
        &["closed for rule 1", "restart the near end"],
    );
    let log = fs::read_to_string(world.path("near.log")).expect("a log");
    assert!(
        log.contains("intercepted only after a restart: port=8080 action=pass"),
        "{log}"
    );
}
