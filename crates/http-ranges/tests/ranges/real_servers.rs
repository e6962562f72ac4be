//! Servers that others wrote: skipped where they are not installed, unless
//! `REFRAIN_REQUIRE_PROGRAMS=1`.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use refrain_http_ranges::{Remote, RemoteError, RemoteOptions};

use crate::{
    assert_holds, fetched, options,
    programs::{are_installed, find},
    server::File,
};

fn program(name: &str) -> Command {
    Command::new(find(name).expect("its presence was tested"))
}

/// A server's process, which ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// nginx, serving `folder/www`; over https if there is a certificate.
fn nginx(folder: &Path) -> (Process, u16) {
    let port = free_port();
    let listen = match folder.join("tls.crt").exists() {
        true => format!("{port} ssl; ssl_certificate tls.crt; ssl_certificate_key tls.key"),
        false => port.to_string(),
    };
    let shown = folder.display();
    // One process, without a master: it needs no other user's rights, and dies when killed.
    let configuration = format!(
        "daemon off; master_process off; pid {shown}/pid; error_log {shown}/error.log;
        events {{}}
        http {{
            access_log off;
            client_body_temp_path {shown}/b; proxy_temp_path {shown}/p; fastcgi_temp_path {shown}/f;
            uwsgi_temp_path {shown}/u; scgi_temp_path {shown}/s;
            server {{ listen 127.0.0.1:{listen}; root {shown}/www; }}
        }}"
    );
    fs::write(folder.join("nginx.conf"), configuration).expect("a new file");
    let mut command = program("nginx");
    command
        .arg("-p")
        .arg(folder)
        .arg("-c")
        .arg(folder.join("nginx.conf"));
    command
        .arg("-e")
        .arg(folder.join("error.log"))
        .stdin(Stdio::null());
    let process = Process(command.spawn().expect("nginx starts"));
    for _ in 0..600 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return (process, port);
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("nginx does not listen");
}

fn served(folder: &Path) -> File {
    let file = File::new(3_000_000);
    fs::create_dir(folder.join("www")).expect("a new folder");
    fs::write(folder.join("www/file"), &file.bytes).expect("a new file");
    fs::write(folder.join("www/empty"), []).expect("a new file");
    file
}

fn assert_reads(remote: &Remote, file: &File) {
    assert_eq!(remote.len(), Some(file.len()));
    let ranges = [5..10, 900_000..2_000_000, 2_500_000..2_900_000];
    assert_holds(&fetched(remote, &ranges).unwrap(), &ranges, file);
    assert_eq!(
        remote.tail(256).unwrap(),
        file.part(&(2_999_744..3_000_000))
    );
    assert_eq!(remote.counters().retries, 0);
}

#[test]
fn python_has_no_ranges() {
    if !are_installed(&["python3"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = served(folder.path());
    let mut command = program("python3");
    command.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]);
    command
        .current_dir(folder.path().join("www"))
        .stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Process(command.spawn().expect("python3 starts"));
    let mut line = String::new();
    let stdout = process.0.stdout.take().expect("it is piped");
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("it says where it listens");
    let port = line
        .split("port ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let url = format!("http://127.0.0.1:{}/file", port.expect(&line));
    let remote = Remote::open(&url, options()).unwrap();
    assert_reads(&remote, &file);
    assert!(!remote.has_ranges());
    assert_eq!(remote.counters().requests, 1);
}

#[test]
fn nginx_has_ranges() {
    if !are_installed(&["nginx"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = served(folder.path());
    let (_process, port) = nginx(folder.path());
    let url = format!("http://127.0.0.1:{port}/file");
    let options = RemoteOptions {
        piece_bytes: 100_000,
        ..options()
    };
    let remote = Remote::open(&url, options.clone()).unwrap();
    assert_reads(&remote, &file);
    assert!(remote.has_ranges());
    // The first, which holds the first range, 11 and 4 pieces, and the tail.
    assert_eq!(remote.counters().requests, 1 + 11 + 4 + 1);
    // Another file, of the same length.
    let other = vec![7; file.bytes.len()];
    let path = folder.path().join("www/file");
    fs::write(&path, other).unwrap();
    let written = fs::File::options().append(true).open(&path).unwrap();
    written
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let error = remote.tail(256).unwrap_err();
    assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
    let empty = url.replace("/file", "/empty");
    assert_eq!(
        Remote::open(&empty, options.clone()).unwrap().len(),
        Some(0)
    );
    let error = Remote::open(&url.replace("/file", "/none"), options).unwrap_err();
    assert!(
        matches!(error, RemoteError::Status { status: 404, .. }),
        "{error}"
    );
}

#[test]
fn https_is_spoken_with_whom_a_certificate_is_trusted() {
    if !are_installed(&["nginx", "openssl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = served(folder.path());
    let made = program("openssl")
        .args("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost".split(' '))
        .args("-addext subjectAltName=DNS:localhost".split(' '))
        .args("-addext basicConstraints=critical,CA:FALSE".split(' '))
        .args("-keyout tls.key -out tls.crt".split(' '))
        .current_dir(folder.path())
        .output()
        .expect("openssl runs");
    assert!(made.status.success(), "{made:?}");
    let (_process, port) = nginx(folder.path());
    let trusting = |path: &str| RemoteOptions {
        roots: Some(folder.path().join(path)),
        ..options()
    };
    let url = format!("https://localhost:{port}/file");
    let remote = Remote::open(&url, trusting("tls.crt")).unwrap();
    assert_reads(&remote, &file);
    assert!(remote.has_ranges());
    // Another name, which the certificate is not for.
    let other = url.replace("localhost", "127.0.0.1");
    let error = Remote::open(&other, trusting("tls.crt")).unwrap_err();
    assert!(matches!(error, RemoteError::Connection { .. }), "{error}");
    let error = Remote::open(&url, trusting("nginx.conf")).unwrap_err();
    assert!(matches!(error, RemoteError::NoRoots { .. }), "{error}");
    let error = Remote::open(&url, trusting("none")).unwrap_err();
    assert!(matches!(error, RemoteError::Roots { .. }), "{error}");
    // Nobody whom the system trusts signed it.
    if let Err(error) = Remote::open(&url, options()) {
        let (refused, none) = (
            matches!(error, RemoteError::Connection { .. }),
            matches!(error, RemoteError::NoRoots { .. }),
        );
        assert!(refused || none, "{error}");
    } else {
        panic!("a certificate that nobody signed was believed");
    }
}
