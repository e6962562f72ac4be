//! The page's worked example, held against the code.

use std::collections::BTreeMap;

use refrain_czip::crypt::{
    ArchiveKey, FrameKey, GroupKeys, GroupSecret, Place, PrivateKey, open_frame,
};

use crate::encryption::hex;

const PAGE: &str = include_str!("../../../../../docs/czip-format.md");

fn bytes_from(first: u8) -> [u8; 32] {
    std::array::from_fn(|at| first + at as u8)
}

/// Lines `what = hexadecimal` of the example in the chapter Encryption.
fn lines_of_the_page() -> Vec<(String, String)> {
    let chapter = PAGE.split_once("## Encryption\n").expect("a chapter").1;
    let example = chapter
        .split_once("### Worked example\n")
        .expect("an example")
        .1;
    let block = example.split("```").nth(1).expect("a block");
    let lines = block
        .trim_start_matches("text")
        .lines()
        .filter(|line| !line.trim().is_empty());
    let mut all: Vec<(String, String)> = Vec::new();
    for line in lines {
        match line.split_once('=') {
            Some((what, value)) => all.push((what.trim().to_owned(), value.trim().to_owned())),
            // Long values go on in the next line.
            None => all
                .last_mut()
                .expect("a line before")
                .1
                .push_str(line.trim()),
        }
    }
    all
}

#[test]
fn the_worked_example_is_what_the_code_makes() {
    let archive = ArchiveKey::from_bytes(bytes_from(0));
    let secret = GroupSecret::parse(hex(&bytes_from(32)).as_bytes()).unwrap();
    let chunk = b"refrain";
    let frame = [&[0][..], chunk].concat();
    let key_part = bytes_from(64);
    let mut header = [0; 256];
    header[..152].copy_from_slice(&std::array::from_fn::<u8, 152, _>(|at| at as u8));

    let mut made = vec![
        ("archive key", hex(archive.as_bytes())),
        ("group secret", hex(&bytes_from(32))),
        ("chunk", hex(chunk)),
        ("frame, method 0", hex(&frame)),
    ];
    for (keys, name, key, stored, padded_key, padded) in [
        (
            GroupKeys::new(None),
            "name, no group secret",
            "frame key, no group secret",
            "stored, no group secret",
            "frame key, no group secret, padded",
            "stored, no group secret, padded",
        ),
        (
            GroupKeys::new(Some(&secret)),
            "name, group secret",
            "frame key, group secret",
            "stored, group secret",
            "frame key, group secret, padded",
            "stored, group secret, padded",
        ),
    ] {
        let sealed = keys.seal_frame(frame.clone(), false);
        made.push((name, hex(&keys.name(chunk))));
        made.push((key, hex(&sealed.key.0)));
        made.push((stored, hex(&sealed.stored)));
        let sealed = keys.seal_frame(frame.clone(), true);
        made.push((padded_key, hex(&sealed.key.0)));
        made.push((padded, hex(&sealed.stored)));
    }
    let private = PrivateKey::new(&archive);
    let part = private.seal_part(
        Place::Keys {
            stream: 2,
            row: 258,
        },
        key_part.to_vec(),
    );
    made.push(("key part", hex(&key_part)));
    made.push(("sealed, stream 2, row 258", hex(&part)));
    made.push(("header", hex(&header[..152])));
    made.push(("root", hex(b"root")));
    made.push(("private root", hex(b"private root")));
    made.push((
        "private root, sealed",
        hex(&private.seal_private_root(&header, b"root", b"private root".to_vec())),
    ));

    let made: Vec<_> = made
        .into_iter()
        .map(|(what, value)| (what.to_owned(), value))
        .collect();
    let page = lines_of_the_page();
    let print: String = made
        .iter()
        .map(|(what, value)| format!("{what} = {value}\n"))
        .collect();
    assert!(page == made, "the code makes:\n{print}");
}

#[test]
fn the_stored_frames_of_the_page_open() {
    let page: BTreeMap<_, _> = lines_of_the_page().into_iter().collect();
    let bytes = |what: &str| -> Vec<u8> {
        let digits = &page[what];
        (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect()
    };
    for group in ["no group secret", "group secret"] {
        for (padding, padded) in [("", false), (", padded", true)] {
            let key = FrameKey(
                bytes(&format!("frame key, {group}{padding}"))
                    .try_into()
                    .unwrap(),
            );
            let stored = bytes(&format!("stored, {group}{padding}"));
            assert_eq!(
                open_frame(None, &key, stored, padded),
                Ok(bytes("frame, method 0"))
            );
        }
    }
}
