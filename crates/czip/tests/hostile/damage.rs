//! Vectors that were cut off, or of which one bit is another.

use std::{fs, ops::ControlFlow, path::PathBuf, sync::mpsc, thread};

use refrain_czip::verify::verify;

use crate::{
    memory::most_bytes,
    reading::{self, Read, open, read},
};

/// What reading a vector may take: its caches, a frame and a piece.
const MOST_BYTES: usize = 4 << 20;

/// Those that are read quickly, so that all of their bits can be.
fn vectors() -> Vec<(String, Vec<u8>)> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "testdata"].iter().collect();
    let mut vectors = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        // Encrypted ones are damaged beside what keeps them.
        let is_quick = name != "restarts" && !name.starts_with("encrypted");
        if path.extension().is_some_and(|end| end == "czip") && is_quick {
            vectors.push((name, fs::read(path).unwrap()));
        }
    }
    assert!(vectors.len() > 10);
    vectors
}

/// An error, or what the undamaged archive has.
fn assert_harmless(what: &str, damaged: &[u8], right: &Read) {
    let (found, most) = most_bytes(|| read(damaged.to_vec()));
    assert!(most < MOST_BYTES, "{what}: {most} bytes");
    if let Ok(found) = found {
        assert!(found == *right, "{what}: other content");
    }
}

#[test]
fn an_archive_that_is_cut_off_anywhere_is_refused() {
    for (name, bytes) in vectors() {
        for end in 0..bytes.len() {
            let cut = &bytes[..end];
            let (opened, most) = most_bytes(|| open(cut.to_vec()).map(|_| ()));
            assert!(opened.is_err(), "{name}, cut off at {end}");
            assert!(most < MOST_BYTES, "{name}, cut off at {end}: {most} bytes");
        }
        assert!(reading::everything(&bytes).is_ok(), "{name}");
        let longer = [&bytes[..], &[0]].concat();
        assert!(open(longer).is_err(), "{name}, with a byte more");
    }
}

#[test]
fn a_bit_of_another_value_is_found_or_does_not_matter() {
    let (to, from) = mpsc::channel();
    thread::scope(|scope| {
        for (name, bytes) in vectors() {
            let to = to.clone();
            scope.spawn(move || {
                let right = read(bytes.clone()).unwrap();
                let mut unseen = 0;
                for at in 0..bytes.len() {
                    for bit in 0..8 {
                        let mut damaged = bytes.clone();
                        damaged[at] ^= 1 << bit;
                        assert_harmless(&format!("{name}, bit {bit} of {at}"), &damaged, &right);
                        let go_on = |_| ControlFlow::Continue(());
                        let verified = open(damaged).and_then(|one| verify(&one, 1, &go_on));
                        unseen += usize::from(verified.is_ok());
                    }
                }
                to.send((name, unseen, 8 * bytes.len())).unwrap();
            });
        }
    });
    drop(to);
    // Only what is not pointed to may be another: what is left empty between table and frames.
    for (name, unseen, bits) in from {
        assert!(
            unseen * 10 < bits,
            "{name}: {unseen} of {bits} bits are not checked"
        );
    }
}
