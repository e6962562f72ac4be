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

const HEADER_BYTES: usize = 5;

/// A relay that flips a bit of the content of a TLS record, when it is told to. In a record's header the
/// same bit says how long the record is: the other end waits for bytes that never come, and the lane
/// is reported as silent.
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
        let [to_near, to_far] = [(); 2].map(|()| Arc::new(AtomicI64::new(-1)));
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
    let mut record = vec![0; HEADER_BYTES];
    loop {
        record.resize(HEADER_BYTES, 0);
        if from.read_exact(&mut record).is_err() {
            return to.shutdown(Shutdown::Write);
        }
        let content = u16::from_be_bytes([record[3], record[4]]);
        record.resize(HEADER_BYTES + usize::from(content), 0);
        from.read_exact(&mut record[HEADER_BYTES..])?;
        let passing = record.len() as i64;
        let before = flip.fetch_sub(passing, Ordering::SeqCst);
        if (0..passing).contains(&before) {
            let at = (before as usize).max(HEADER_BYTES);
            record[at] ^= 0x10;
        }
        to.write_all(&record)?;
    }
}

#[test]
fn a_flipped_bit_is_reported_as_damage_and_no_byte_is_wrong() {
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let far = site.far(&[]);
    let flipper = Flipper::to(site.far_listen);
    let near = site.near(flipper.address, &["--forward", &option]);
    for (round, flip) in [&flipper.to_near, &flipper.to_far, &flipper.to_near]
        .iter()
        .enumerate()
    {
        // A handshake is another test.
        near.wait_for_lanes(4);
        flip.store(1000 * round as i64 + 37, Ordering::SeqCst);
        // Letters at random, new in each round, pack badly: enough to reach the bit.
        let seed = 9 + round as u64;
        let content = letters(seed, 200_000);
        // The flow ends short, by a reset, or whole; never with another byte.
        let mut received = Vec::new();
        if let Ok(mut stream) = origin::ask(listen, &format!("send {seed} 200000")) {
            let mut upload = stream.try_clone().expect("a socket");
            let _ = upload.write_all(&letters(100 + seed, 20_000));
            let _ = upload.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut received);
        }
        assert!(content.starts_with(&received), "{}", digest(&received));
        assert_serves(listen);
        let (receiver, sender) = match round {
            1 => (&far, &near),
            _ => (&near, &far),
        };
        let so_far = format!("({} so far on this link)", round + 1);
        receiver.wait_for_log(&["bytes from the peer were damaged between", &so_far]);
        sender.wait_for_log(&["bytes to the peer were damaged between", &so_far]);
    }
}

/// The second record of the far end's is the first that is encrypted.
#[test]
fn a_bit_that_flips_in_a_handshake_is_damage_and_no_other_program() {
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let far = site.far(&[]);
    let flipper = Flipper::to(site.far_listen);
    flipper.to_near.store(300, Ordering::SeqCst);
    let near = site.near(flipper.address, &["--forward", &option]);
    let parts = ["bytes were damaged between", "in the TLS handshake"];
    near.wait_for_log(&parts);
    far.wait_for_log(&parts);
    assert_serves(listen);
    let log = near.log() + &far.log();
    assert!(!log.contains("not a refrain gateway"), "{log}");
}
