//! `docs/store-format.md` and the code say the same: its worked example is what a store writes,
//! and what a store reads.

use std::sync::Arc;

use refrain_store::{ChunkSource, DiskStore, OpeningKey, Realm, StoreConfig};

use crate::{
    common::{digest, read_all},
    memory_folder::MemoryFolder,
};

const PAGE: &str = include_str!("../../../../docs/store-format.md");

/// When the example's segment was begun, and the check that depends on it.
const CREATED: std::ops::Range<usize> = 16..28;

fn config() -> StoreConfig {
    StoreConfig::new(16 << 20)
}

/// The files of the page's example.
fn example() -> MemoryFolder {
    let folder = MemoryFolder::new();
    let (_, page) = PAGE
        .split_once("\n## Worked example\n")
        .expect("the section");
    let mut name = "";
    let mut bytes = Vec::new();
    for line in page.lines().chain(["end."]) {
        if line.starts_with("0000000") || line == "end." {
            if !name.is_empty() {
                folder.put(name, std::mem::take(&mut bytes));
            }
            name = line;
        } else if let Some((offset, rest)) = line.split_once(": ")
            && let Ok(offset) = usize::from_str_radix(offset, 16)
        {
            assert_eq!(offset, bytes.len(), "{name}");
            let (hex, _) = rest.split_once("  ").unwrap_or((rest, ""));
            let numbers = hex.split(' ').map(|byte| u8::from_str_radix(byte, 16));
            bytes.extend(numbers.map(|byte| byte.expect("hexadecimal")));
        }
    }
    let (_, format) = PAGE
        .split_once("\nrefrain chunk store\n")
        .expect("the file");
    let (format, _) = format.split_once("```").expect("its end");
    folder.put(
        "format",
        format!("refrain chunk store\n{format}").into_bytes(),
    );
    folder
}

fn written() -> MemoryFolder {
    let folder = MemoryFolder::new();
    let mut store = DiskStore::open_in(Arc::new(folder.clone()), config()).expect("it opens");
    let recipe = store.begin(Realm::named("example"), Some(OpeningKey(7)));
    for chunk in ["verse one", "refrain", "verse one"] {
        let appended = store.append(recipe, &digest(chunk.as_bytes()), chunk.as_bytes());
        appended.expect("appended");
    }
    store.end(recipe).expect("ended");
    store.close().expect("closed");
    folder
}

fn dump(name: &str, bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).enumerate().map(|(line, bytes)| {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:04x}: {}\n", line * 16, hex.join(" "))
    });
    format!("{name}\n{}", lines.collect::<String>())
}

#[test]
fn the_worked_example_is_what_is_written() {
    let (written, example) = (written(), example());
    let mut differing = String::new();
    for name in [
        "00000001.chunks",
        "00000001.index",
        "00000001.recipes",
        "format",
    ] {
        let mut found = written.content(name).expect("it was written");
        let page = example.content(name).unwrap_or_default();
        if name.ends_with("index") && page.len() > CREATED.end {
            let check = blake3::hash(&page[..24]);
            assert_eq!(page[24..28], check.as_bytes()[..4]);
            found[CREATED].copy_from_slice(&page[CREATED]);
        }
        if found != page {
            differing += &dump(name, &found);
        }
    }
    assert!(differing.is_empty(), "written is\n{differing}");
}

#[test]
fn the_worked_example_is_read() {
    let mut store = DiskStore::open_in(Arc::new(example()), config()).expect("it opens");
    let realm = Realm::named("example");
    let opening = store.openings(realm, OpeningKey(7))[0];
    let chunks: [&[u8]; 3] = [b"verse one", b"refrain", b"verse one"];
    assert_eq!(read_all(&mut store, opening), chunks);
    let stat = store.stat();
    assert_eq!(
        (stat.chunks, stat.damaged, stat.oldest_s),
        (2, 0, Some(1_795_345_738))
    );
}
