//! A paced stream, such as that of a video: a frame each 20 ms, and no frame waits for later ones.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    thread::sleep,
    time::Duration,
};

use crate::{
    common::{content::noise, read, server::serve_on},
    place::{Needs, Place, Program},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Usual(&[]),
    test,
};

const FRAMES: u64 = 50;
/// After so many, the server waits until the client has them all.
const GROUP: u64 = 10;

fn test(place: &Place) {
    for host in place.hosts() {
        place.at_origin(|| serve_on(host.at(554), send));
        place.connected(host.at(554), |mut stream| {
            for number in 0..FRAMES {
                let expected = frame(number);
                let mut received = vec![0; expected.len()];
                stream.read_exact(&mut received).expect("a whole frame");
                assert!(received == expected, "frame {number} is another one");
                if is_last_of_group(number) {
                    stream.write_all(b".").expect("the server waits");
                }
            }
            assert_eq!(read(&mut stream, &mut [0]).expect("an end"), 0);
        });
    }
}

fn send(mut client: TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    for number in 0..FRAMES {
        client.write_all(&frame(number))?;
        match is_last_of_group(number) {
            true => client.read_exact(&mut [0])?,
            false => sleep(Duration::from_millis(20)),
        }
    }
    client.shutdown(Shutdown::Write)
}

/// The first of each group is larger.
fn frame(number: u64) -> Vec<u8> {
    let bytes = match number % GROUP {
        0 => 40_000,
        other => 1_000 + 300 * other as usize,
    };
    noise(number, bytes)
}

fn is_last_of_group(number: u64) -> bool {
    number % GROUP == GROUP - 1
}
