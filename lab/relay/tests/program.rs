//! The relay as a program: what it prints, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn relay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_refrain-relay"))
}

#[test]
fn it_prints_its_address_and_at_the_end_its_counts() {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = server.local_addr().unwrap().to_string();
    let mut program = relay()
        .args([
            "--to", &target, "--rate", "100Mbit", "--delay", "1ms", "--json",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();

    let mut client = TcpStream::connect(first["address"].as_str().unwrap()).unwrap();
    client.write_all(b"one, two").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let (mut at_server, _) = server.accept().unwrap();
    let mut heard = String::new();
    at_server.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "one, two");
    at_server.write_all(b"three").unwrap();
    drop(at_server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "three");

    assert!(
        Command::new("kill")
            .arg(program.id().to_string())
            .status()
            .unwrap()
            .success()
    );
    let last: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(
        (&last["accepted"], &last["up"]["delivered_bytes"]),
        (&1.into(), &8.into())
    );
    assert_eq!(last["down"]["delivered_bytes"], 5);
    assert!(program.wait().unwrap().success());
}

#[test]
fn what_it_cannot_do_it_says() {
    let run = |arguments: &[&str]| -> (i32, String) {
        let Output { status, stderr, .. } = relay().args(arguments).output().unwrap();
        (status.code().unwrap(), String::from_utf8(stderr).unwrap())
    };
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, code, complaint) in [
        (
            &["--to", "127.0.0.1:1", "--rate", "fast"][..],
            2,
            "\"fast\" is not a rate",
        ),
        (
            &["--to", "127.0.0.1:1", "--delay", "20"],
            2,
            "\"20\" is not a duration",
        ),
        (&[], 2, "--to"),
        (
            &["--to", "nowhere"],
            1,
            "\"nowhere\" is not an address with a port",
        ),
        (
            &["--to", &taken, "--listen", &taken],
            1,
            "cannot relay from",
        ),
    ] {
        let (actual_code, stderr) = run(arguments);
        assert_eq!(actual_code, code, "{arguments:?}: {stderr}");
        assert!(stderr.contains(complaint), "{arguments:?}: {stderr}");
    }
}
