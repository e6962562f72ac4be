//! A program without the system's C library, as Go makes them: nothing that is loaded before its start could change its
//! connections.

use std::{
    fs, io,
    net::{Shutdown, TcpStream},
    process::Command,
    sync::Mutex,
};

use crate::{
    common::{content::letters, digest, programs::find, server::serve_on, world::ok},
    place::{Needs, Place, Program},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Large(&["go"]),
    test,
};

/// Sends its input to a server, and prints the answer.
const SOURCE: &str = r#"package main

import (
	"io"
	"net"
	"os"
)

func main() {
	connection, err := net.Dial("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	go func() {
		if _, err := io.Copy(connection, os.Stdin); err != nil {
			panic(err)
		}
		connection.(*net.TCPConn).CloseWrite()
	}()
	if _, err := io.Copy(os.Stdout, connection); err != nil {
		panic(err)
	}
}
"#;

fn test(place: &Place) {
    let client = build(place);
    let sent = letters(1, 2_000_000);
    let input = place.write("input", &sent);
    for host in place.hosts() {
        place.at_origin(|| serve_on(host.at(7), echo));
        let mut command = place.program(&client, &[&host.at(7).to_string()]);
        command.stdin(fs::File::open(&input).expect("our own file"));
        assert_eq!(digest(&place.output(&mut command)), digest(&sent));
    }
}

fn echo(client: TcpStream) -> io::Result<()> {
    io::copy(&mut &client, &mut &client)?;
    client.shutdown(Shutdown::Write)
}

/// Builds it, with a cache that later runs use again.
fn build(place: &Place) -> String {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/go");
    let program = place.path("client").display().to_string();
    let source = place.write("client.go", SOURCE);
    ok(Command::new(find("go").expect("its presence was tested"))
        .args(["build", "-o", &program, &source])
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "")
        .env("GOCACHE", cache)
        .env("GOPATH", cache));
    program
}
