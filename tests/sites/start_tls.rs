//! Databases and mail, in whose protocols TLS begins after plain messages: openssl and PostgreSQL's own programs.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{
    PATIENCE,
    addresses::free_address,
    certificate::certificate,
    digest, eventually,
    programs::{are_installed, are_large_ones_installed, find, run},
    site::Pair,
    world::ok,
};
use crate::{
    http2::peers::{runtime, soon, tls},
    served,
};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// What a server says and hears before TLS, after its greeting: the last is its answer, and TLS.
struct Protocol {
    scheme: &'static str,
    greeting: &'static [u8],
    messages: &'static [(&'static [u8], &'static [u8])],
}

/// As other programs speak them.
const PROTOCOLS: [Protocol; 4] = [
    Protocol {
        scheme: "smtp",
        greeting: b"220-mail.example.org ESMTP\r\n220 ready\r\n",
        messages: &[
            (b"EHLO refrain\r\n", b"250-mail.example.org\r\n250-SIZE 1000\r\n250 STARTTLS\r\n"),
            (b"STARTTLS\r\n", b"220 go ahead\r\n"),
        ],
    },
    Protocol {
        scheme: "imap",
        greeting: b"* OK [CAPABILITY IMAP4rev1 STARTTLS] ready\r\n",
        messages: &[(b"r STARTTLS\r\n", b"* CAPABILITY IMAP4rev1\r\nr OK go ahead\r\n")],
    },
    Protocol {
        scheme: "ldap",
        greeting: b"",
        messages: &[(
            b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037",
            b"\x30\x84\0\0\0\x24\x02\x01\x01\x78\x84\0\0\0\x1b\x0a\x01\0\x04\0\x04\0\x8a\x121.3.6.1.4.1.1466.2",
        )],
    },
    Protocol {
        scheme: "postgres",
        greeting: b"",
        messages: &[(b"\0\0\0\x08\x04\xd2\x16\x2f", b"S")],
    },
];

/// Starts a server that sends back the lines that it gets inside TLS. `early` follows its last answer before TLS.
fn serve(protocol: &'static Protocol, folder: &Path, early: &'static [u8]) -> SocketAddr {
    let certificate = CertificateDer::from_pem_file(folder.join("tls.crt")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(folder.join("tls.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate with its key");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = listener.local_addr().expect("a bound socket's address");
    thread::spawn(move || {
        for mut tcp in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            thread::spawn(move || -> std::io::Result<()> {
                tcp.write_all(protocol.greeting)?;
                for (nth, (message, answer)) in protocol.messages.iter().enumerate() {
                    let mut came = vec![0; message.len()];
                    tcp.read_exact(&mut came)?;
                    assert_eq!(&came, message, "{}", protocol.scheme);
                    let is_last = nth + 1 == protocol.messages.len();
                    let rest = if is_last { early } else { b"" };
                    tcp.write_all(&[answer, rest].concat())?;
                }
                let session = ServerConnection::new(config).map_err(std::io::Error::other)?;
                let mut lines = BufReader::new(StreamOwned::new(session, tcp));
                loop {
                    let mut line = String::new();
                    if lines.read_line(&mut line)? == 0 {
                        return Ok(());
                    }
                    lines
                        .get_mut()
                        .write_all(format!("echo {line}").as_bytes())?;
                }
            });
        }
    });
    address
}

/// What openssl gets of a server after it began TLS in this protocol and said a line.
fn openssl(scheme: &str, server: SocketAddr, folder: &Path) -> String {
    let server = server.to_string();
    let command = [
        "s_client",
        "-starttls",
        scheme,
        "-connect",
        &server,
        "-servername",
        "localhost",
        "-CAfile",
        "tls.crt",
        "-verify_return_error",
        "-quiet",
        "-no_ign_eof",
    ];
    let mut client = Command::new(find("openssl").expect("its presence was tested"))
        .args(command)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl starts");
    let mut input = client.stdin.take().expect("a pipe");
    let _ = input.write_all(b"hello\n");
    let output = BufReader::new(client.stdout.take().expect("a pipe"));
    let line = output
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with("echo "));
    let _ = client.kill();
    let _ = client.wait();
    line.unwrap_or_default()
}

#[test]
fn clients_begin_tls_with_the_near_end_and_the_far_end_with_the_server() {
    if !are_installed(&["openssl"]) {
        return;
    }
    for protocol in &PROTOCOLS {
        let (folder, scheme) = (certificate(), protocol.scheme);
        let server = serve(protocol, folder.path(), b"");
        let (pair, near) = served(scheme, folder.path(), server.port());
        assert_eq!(
            openssl(scheme, near, folder.path()),
            "echo hello",
            "{scheme}"
        );
        let site = format!("{scheme}://localhost:{}", server.port());
        assert_eq!(pair.near.status().listeners[0].sites, [site]);
        // Bytes between the request for TLS and TLS.
        let mut client = TcpStream::connect(near).expect("a listener");
        client.set_read_timeout(Some(PATIENCE)).expect("a time");
        let last = protocol.messages.last().expect("a message").0;
        client
            .write_all(&[last, b"early"].concat())
            .expect("a connection");
        let _ = client.read_to_end(&mut Vec::new());
        pair.near
            .wait_for_log(&["it sent bytes between its request for TLS"]);
    }
}

#[test]
fn bytes_of_a_server_before_tls_are_an_error_with_the_reason() {
    if !are_installed(&["openssl"]) {
        return;
    }
    for protocol in &PROTOCOLS {
        let (folder, scheme) = (certificate(), protocol.scheme);
        let server = serve(protocol, folder.path(), b"* BYE\r\n");
        let (pair, near) = served(scheme, folder.path(), server.port());
        assert_eq!(openssl(scheme, near, folder.path()), "", "{scheme}");
        pair.near.wait_for_log(&["it sent bytes before TLS"]);
    }
}

#[test]
fn a_server_without_tls_and_one_of_another_protocol_are_named_to_the_client() {
    if !are_large_ones_installed(&["openssl", "psql"]) {
        return;
    }
    let folder = certificate();
    let no_tls = crate::common::server::serve(|mut client: TcpStream| {
        client.read_exact(&mut [0; 8])?;
        client.write_all(b"N")?;
        client.read_to_end(&mut Vec::new())
    });
    let (_pair, near) = served("postgres", folder.path(), no_tls.port());
    let url = format!("postgresql://localhost:{}/x?sslmode=require", near.port());
    let output = run("psql", folder.path(), &[&url]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("it does not accept TLS"), "{error}");
    // A client that does not want TLS, of a service that has a certificate.
    let url = format!("postgresql://localhost:{}/x?sslmode=disable", near.port());
    let output = run("psql", folder.path(), &[&url]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("this server needs TLS (sslmode=require)"),
        "{error}"
    );
}

/// PostgreSQL with TLS and passwords (SCRAM).
struct Postgres {
    server: Child,
    address: SocketAddr,
}

impl Postgres {
    fn start(folder: &Path) -> Postgres {
        // It refuses to run as root.
        let anybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder, anybody).expect("our own folder");
        let database = folder.join("database").display().to_string();
        ok(Command::new("install").args(["-d", "-o", "postgres", "-m", "700", &database]));
        let as_postgres = |program: &str| {
            let mut command = Command::new("setpriv");
            let user = [
                "--reuid",
                "postgres",
                "--regid",
                "postgres",
                "--clear-groups",
            ];
            command
                .args(user)
                .arg(find(program).expect("its presence was tested"));
            command.args(["-D", &database]).current_dir(folder);
            command
        };
        let password = folder.join("password");
        fs::write(&password, "secret").expect("a new file");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).expect("our own file");
        ok(as_postgres("initdb")
            .args([
                "--no-sync",
                "--auth",
                "scram-sha-256",
                "--encoding",
                "UTF8",
                "--pwfile",
            ])
            .arg(&password));
        for name in ["tls.crt", "tls.key"] {
            let (from, to) = (folder.join(name), format!("{database}/{name}"));
            ok(Command::new("install")
                .args(["-o", "postgres", "-m", "600"])
                .arg(from)
                .arg(to));
        }
        let rules = "hostssl all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(folder.join("database/pg_hba.conf"), rules).expect("root may");
        let address = free_address();
        let options = [
            &format!("port={}", address.port()),
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "autovacuum=off",
            "ssl=on",
            "ssl_cert_file=tls.crt",
            "ssl_key_file=tls.key",
        ];
        let server = as_postgres("postgres")
            .args(options.into_iter().flat_map(|option| ["-c", option]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("PostgreSQL starts");
        let postgres = Postgres { server, address };
        eventually("PostgreSQL listens", || TcpStream::connect(address).ok());
        postgres
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let pid = self.server.id().to_string();
        let _ = Command::new("kill").args(["-INT", &pid]).status();
        let _ = self.server.wait();
    }
}

#[test]
fn postgres_is_served_with_passwords_bound_to_its_own_certificate() {
    if !are_large_ones_installed(&["initdb", "postgres", "psql", "setpriv", "openssl"]) {
        return;
    }
    let (folder, other) = (certificate(), certificate());
    let postgres = Postgres::start(folder.path());
    let port = postgres.address.port();
    let query = |port: u16, options: &str, query: &str| {
        let url = format!("postgresql://postgres:secret@localhost:{port}/postgres?{options}");
        eventually("PostgreSQL has started", || {
            let output = run(
                "psql",
                folder.path(),
                &["-X", "-q", "-A", "-t", "-c", query, &url],
            );
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            (!error.contains("starting up")).then_some((output.stdout, error))
        })
    };
    let lines = "SELECT id, md5(id::text) FROM generate_series(1, 20000) id";
    let direct = query(port, "sslmode=require", lines).0;
    assert!(direct.len() > 500_000);

    let (pair, near) = served("postgres", folder.path(), port);
    let verified = "sslmode=verify-full&sslrootcert=tls.crt";
    for binding in ["prefer", "require", "disable"] {
        let options = format!("{verified}&channel_binding={binding}");
        let (lines, error) = query(near.port(), &options, lines);
        assert_eq!(digest(&lines), digest(&direct), "{binding}: {error}");
    }
    let before = pair.far.link_bytes();
    assert_eq!(
        digest(&query(near.port(), verified, lines).0),
        digest(&direct)
    );
    let again = pair.far.link_bytes() - before;
    assert!(again < 60_000, "{again} bytes for the second transfer");

    // TLS from the first byte, as of libpq 17.
    let runtime = runtime();
    let answer = runtime.block_on(async {
        let mut tls = tls(near, folder.path(), &["postgresql"]).await;
        let parameters = b"user\0postgres\0\0";
        let length = (8 + parameters.len() as u32).to_be_bytes();
        let startup = [&length[..], &[0, 3, 0, 0], parameters].concat();
        tls.write_all(&startup).await.expect("a connection");
        let mut answer = [0; 9];
        soon("an answer", tls.read_exact(&mut answer))
            .await
            .expect("an answer");
        answer
    });
    // It asks for a password by SASL.
    assert_eq!((answer[0], answer[8]), (b'R', 10));

    // libpq asks for the end of a query on a further connection, without TLS.
    let url = format!(
        "postgresql://postgres:secret@localhost:{}/postgres?{verified}",
        near.port()
    );
    let mut slow = Command::new(find("psql").expect("its presence was tested"));
    slow.args(["-X", "-c", "SELECT pg_sleep(60)", &url])
        .current_dir(folder.path());
    let slow = slow
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
    eventually("the slow query", || {
        (query(port, "sslmode=require", active).0 == b"1\n").then_some(())
    });
    ok(Command::new("kill").args(["-INT", &slow.id().to_string()]));
    let slow = slow.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&slow.stderr).into_owned();
    assert!(
        error.contains("canceling statement due to user request"),
        "{error}"
    );

    drop(pair);

    // Another certificate: the client notices that it is not the database's.
    let near = free_address();
    let [certificate, key] =
        ["tls.crt", "tls.key"].map(|name| other.path().join(name).display().to_string());
    let trust = folder.path().join("tls.crt").display().to_string();
    let site = format!("postgres://{near}=postgres://localhost:{port}");
    let options = [
        "--service",
        &site,
        "--cert",
        &certificate,
        "--cert-key",
        &key,
    ];
    let _pair = Pair::start(&["--origin-ca", &trust], &options);
    let one = |binding| {
        let options = format!("sslmode=require&channel_binding={binding}");
        query(near.port(), &options, "SELECT 1")
    };
    let (_, error) = one("require");
    assert!(error.contains("channel binding"), "{error}");
    let (one, error) = one("disable");
    assert_eq!(one, b"1\n", "{error}");
}
