//! Bits that flip on the way between the ends: each costs a lane, and is reported as what it is.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    thread,
};

use crate::{
    assert_serves,
    common::{
        addresses::{forward, free_address},
        content::letters,
        digest, origin,
        site::Site,
    },
};

/// A relay that flips a bit of what passes, when it is told to.
struct Flipper {
    address: SocketAddr,
    /// Bytes that may still pass to the near end until one is flipped; negative: none is.
    to_near: Arc<AtomicI64>,
    to_far: Arc<AtomicI64>,
}

impl Flipper {
    fn to(far: SocketAddr) -> Flipper {
        let address = free_address();
        let listener = TcpListener::bind(address).expect("a free address");
        let [to_near, to_far] = [(); 2].map(|()| Arc::new(AtomicI64::new(i64::MIN)));
        let (down, up) = (Arc::clone(&to_near), Arc::clone(&to_far));
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.expect("a connection");
                let Ok(far) = TcpStream::connect(far) else {
                    continue;
                };
                for (from, to, flip) in [(&near, &far, &up), (&far, &near, &down)] {
                    let from = from.try_clone().expect("a socket");
                    let to = to.try_clone().expect("a socket");
                    let flip = Arc::clone(flip);
                    thread::spawn(move || pass(from, to, &flip));
                }
            }
        });
        Flipper {
            address,
            to_near,
            to_far,
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, flip: &AtomicI64) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).unwrap_or(0);
        if read == 0 {
            return to.shutdown(Shutdown::Write);
        }
        let before = flip.load(Ordering::SeqCst);
        let passes = 0 <= before && before < read as i64;
        if passes && flip.swap(i64::MIN, Ordering::SeqCst) >= 0 {
            buffer[before as usize] ^= 0x10;
        } else if before >= read as i64 {
            flip.fetch_sub(read as i64, Ordering::SeqCst);
        }
        to.write_all(&buffer[..read])?;
    }
}

#[test]
fn a_flipped_bit_is_reported_as_damage_and_no_byte_is_wrong() {
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let far = site.far(&[]);
    let flipper = Flipper::to(site.far_listen);
    let near = site.near(flipper.address, &["--forward", &option]);
    near.wait_for_lanes(4);
    for (round, flip) in [&flipper.to_near, &flipper.to_far, &flipper.to_near]
        .iter()
        .enumerate()
    {
        flip.store(1000 * round as i64 + 37, Ordering::SeqCst);
        let content = letters(9, 200_000);
        // The flow ends short, by a reset, or whole; never with another byte.
        let mut received = Vec::new();
        if let Ok(mut stream) = origin::ask(listen, "send 9 200000") {
            let mut upload = stream.try_clone().expect("a socket");
            // Letters at random, which pack badly: enough to reach the bit.
            let _ = upload.write_all(&letters(3, 20_000));
            let _ = upload.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut received);
        }
        assert!(content.starts_with(&received), "{}", digest(&received));
        assert_serves(listen);
    }
    let parts = [
        "damaged on the way between the two ends",
        "so far on this link",
    ];
    near.wait_for_log(&parts);
    far.wait_for_log(&parts);
    let log = near.log() + &far.log();
    assert!(!log.contains("no refrain gateway"), "{log}");
}
