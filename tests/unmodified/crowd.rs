//! As many idle connections as a link has at most.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    process::Command,
    sync::{Mutex, PoisonError},
};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::{
    common::{PATIENCE, programs::find, read},
    place::{Needs, Place, Program},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Usual(&["python3"]),
    test,
};

const CONNECTIONS: usize = 10_000;
/// So many are opened and closed at once, fewer than wait in a listener's queue.
const GROUP: usize = 500;

/// Sends all back. In a process of its own, since each has a limit on its files.
const SERVER: &str = "import asyncio, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
class Echo(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write(data)
async def serve():
    server = await asyncio.get_running_loop().create_server(Echo, sys.argv[1:], 7, backlog=4096)
    await server.serve_forever()
asyncio.run(serve())";

fn test(place: &Place) {
    let mut limits = getrlimit(Resource::Nofile);
    limits.current = limits.maximum;
    setrlimit(Resource::Nofile, limits).expect("the soft limit may be raised");
    // Of each process: that of all ways' clients, too.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let files = limits.maximum.map_or(usize::MAX, |files| files as usize);
    // A gateway leaves a quarter of its files to lanes and to connections without a request. `refrain run` has two for
    // each connection, and few others.
    let most = match place.is_inside_run() {
        true => (files - GROUP) / 2,
        false => files / 2,
    };
    let connections = CONNECTIONS.min(most / GROUP * GROUP);
    if connections < CONNECTIONS {
        println!("only {connections} connections: the hard limit on open files is {files}");
    }

    let mut server = Command::new(find("python3").expect("its presence was tested"));
    let addresses = place.hosts().map(|host| host.address.to_string());
    let _server = place.serve(server.args(["-c", SERVER]).args(addresses));
    place.wait_for_port(7);
    let hosts = place.hosts();
    place.inside(|| {
        let mut crowd: Vec<TcpStream> = Vec::new();
        while crowd.len() < connections {
            let connect = |number: usize| TcpStream::connect(hosts[number % hosts.len()].at(7));
            let group = (0..GROUP).map(|number| connect(number).expect("a connection"));
            let group: Vec<_> = group.collect();
            assert_echoes(&group);
            crowd.extend(group);
        }
        assert_echoes(&crowd);
        assert_eq!(place.flows(), connections as u64);
        for group in crowd.chunks(GROUP) {
            for member in group {
                member.shutdown(Shutdown::Write).expect("it is open");
            }
            for mut member in group {
                assert_eq!(read(&mut member, &mut [0]).expect("an end"), 0);
            }
        }
    });
}

/// Has a byte of each sent back, of all at once.
fn assert_echoes(crowd: &[TcpStream]) {
    for (number, mut member) in crowd.iter().enumerate() {
        member.write_all(&[number as u8]).expect("it is open");
    }
    for (number, mut member) in crowd.iter().enumerate() {
        member.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let mut echo = [0];
        member.read_exact(&mut echo).expect("it is open");
        assert_eq!(echo[0], number as u8, "connection {number}");
    }
}
