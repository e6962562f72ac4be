//! A process that owns a store and is killed, again and again: what it said was synced is there.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use refrain_store::{ChunkSource, DiskStore, StoreError};

use crate::common::{SPAWNING, chunk, chunks, config, digest, has, read_after, realm};

const FOLDER: &str = "REFRAIN_TEST_STORE";
const FIRST: &str = "REFRAIN_TEST_FIRST";

/// Not a test by itself: what the killed process does. It stores chunks, a flow of consecutive
/// numbers, and says how far it has synced.
#[test]
fn child() {
    let (Some(folder), Ok(first)) = (std::env::var_os(FOLDER), std::env::var(FIRST)) else {
        return;
    };
    let first: u32 = first.parse().expect("a number");
    let mut store = DiskStore::open(Path::new(&folder), config(8)).expect("it opens");
    let recipe = store.begin(realm(0), None);
    for number in first.. {
        let bytes = chunk(number);
        store
            .append(recipe, &digest(&bytes), &bytes)
            .expect("appended");
        if number % 13 == 0 {
            store.sync().expect("synced");
            println!("synced {number}");
            std::io::stdout().flush().expect("the parent reads");
        }
    }
}

fn start(folder: &Path, first: u32) -> Child {
    let _spawning = SPAWNING.write().expect("nobody panics");
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "kill::child", "--nocapture"])
        .env(FOLDER, folder)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts")
}

#[test]
fn a_killed_owner_loses_nothing_that_was_synced() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = 0;
    for round in 0..25_u32 {
        let mut child = start(folder.path(), first);
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        // After a while, in the middle of whatever it does.
        let mut synced = None;
        for _ in 0..1 + round * 7 % 31 {
            loop {
                let line = lines.next().expect("it runs").expect("it is text");
                if let Some((_, number)) = line.rsplit_once("synced ") {
                    synced = number.parse::<u32>().ok();
                    break;
                }
            }
        }
        child.kill().expect("killed");
        child.wait().expect("gone");
        let synced = synced.expect("at least one line");
        let mut store = DiskStore::open(folder.path(), config(8)).expect("it opens");
        // The bound may have cost older ones.
        let since = first.max(synced.saturating_sub(200));
        for number in since..=synced {
            assert!(
                has(&store, realm(0), number),
                "round {round}: {number} is lost"
            );
        }
        let followed = read_after(&mut store, realm(0), since);
        let expected = chunks(since + 1..=synced);
        assert_eq!(&followed[..expected.len()], &expected[..], "round {round}");
        let stat = store.stat();
        assert_eq!(stat.damaged, 0);
        assert!(stat.disk.total() <= stat.disk_bytes_max);
        first = synced + 1000;
    }
}

#[test]
fn a_second_owner_is_told_who_the_first_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = start(folder.path(), 0);
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let is_open = lines
        .map_while(Result::ok)
        .any(|line| line.contains("synced"));
    assert!(is_open);
    let error = DiskStore::open(folder.path(), config(8)).err();
    child.kill().expect("killed");
    child.wait().expect("gone");
    let Some(StoreError::InUse { owner, .. }) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*owner, Some(child.id()));
    assert!(
        DiskStore::open(folder.path(), config(8)).is_ok(),
        "a dead one owns nothing"
    );
}
