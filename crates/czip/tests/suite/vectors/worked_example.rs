//! The archive that the specification shows byte by byte is a vector.

use std::fs;

use crate::vectors::kept;

/// Where a line's bytes are, behind their offset, and how long they are at most.
const BYTES_AT: usize = 5;
const BYTES_WIDTH: usize = 3 * 16 - 1;

/// The bytes of the specification's blocks: of an archive, and of its private root.
fn shown() -> [Vec<u8>; 2] {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/czip-format.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, chapter) = page.split_once("## A whole archive").unwrap();
    let blocks: Vec<&str> = chapter.split("```").collect();
    [blocks[1], blocks[3]].map(|block| {
        let mut bytes = Vec::new();
        for line in block.lines().skip(1) {
            let at = line[..BYTES_AT].trim();
            if !at.is_empty() {
                assert_eq!(at.parse(), Ok(bytes.len()), "{line}");
            }
            let end = line.len().min(BYTES_AT + BYTES_WIDTH);
            for byte in line[BYTES_AT..end].split_whitespace() {
                bytes.push(u8::from_str_radix(byte, 16).expect(line));
            }
        }
        bytes
    })
}

#[test]
fn the_archive_on_the_page_is_a_vector() {
    let vector = fs::read(kept::testdata("example.czip")).unwrap();
    let [archive, private_root] = shown();
    assert_eq!(archive, vector);
    let unpacked = zstd::bulk::decompress(&vector[356..497], private_root.len());
    assert_eq!(unpacked.unwrap(), private_root);
}
