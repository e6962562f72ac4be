//! What sinks are given: all that was read, in order, in chunks with their digests.

use std::{
    fs,
    ops::ControlFlow,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use proptest::{collection::vec, prelude::*};
use refrain_bulk::{
    Bounds, BulkOptions, Chunks, Failed, Input, Item, Method, Sink, find_redundancy,
};
use refrain_codec::chunk::hash::ChunkHasher;

use super::{
    methods,
    methods::{content, options},
    noise,
};

/// Remembers all that it is given, and says after so much of it not to go on.
#[derive(Default)]
struct Memory {
    hasher: ChunkHasher,
    found: Vec<Given>,
    /// How often it is asked until it says so.
    patience: Option<usize>,
}

/// What a sink was given of an item.
#[derive(Debug, PartialEq)]
struct Given {
    path: PathBuf,
    is_folder: bool,
    bytes: Vec<u8>,
    chunks: Vec<usize>,
    /// Whether it ended, and if, whether something failed.
    ended: Option<bool>,
}

impl Memory {
    fn flow(&mut self) -> ControlFlow<()> {
        match &mut self.patience {
            Some(0) => panic!("it was said not to go on"),
            Some(patience) => {
                *patience -= 1;
                match patience {
                    0 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            }
            None => ControlFlow::Continue(()),
        }
    }
}

impl Sink for Memory {
    fn begin(&mut self, item: Item) -> ControlFlow<()> {
        self.found.push(Given {
            path: item.path.to_path_buf(),
            is_folder: item.metadata.is_some_and(|metadata| metadata.is_dir()),
            bytes: Vec::new(),
            chunks: Vec::new(),
            ended: None,
        });
        self.flow()
    }

    fn chunks(&mut self, chunks: &Chunks<'_>) -> ControlFlow<()> {
        let given = self.found.last_mut().expect("a file was begun");
        assert_eq!(given.ended, None);
        given.bytes.extend_from_slice(chunks.bytes());
        let mut all = Vec::new();
        for (digest, chunk) in chunks.iter() {
            assert_eq!(*digest, self.hasher.digest(chunk));
            all.extend_from_slice(chunk);
            given.chunks.push(chunk.len());
        }
        assert_eq!(all, chunks.bytes());
        assert!(!all.is_empty());
        self.flow()
    }

    fn end(&mut self, failed: Option<&Failed>) -> ControlFlow<()> {
        let given = self.found.last_mut().expect("a file was begun");
        assert_eq!(given.ended.replace(failed.is_some()), None);
        self.flow()
    }
}

fn given(inputs: Vec<Input>, options: &BulkOptions) -> Vec<Given> {
    let mut memory = Memory {
        hasher: options.hasher,
        ..Memory::default()
    };
    let outcome = find_redundancy(inputs, options, Some(&mut memory), &mut |_| {
        ControlFlow::Continue(())
    });
    assert!(!outcome.expect("this machine can do that").is_cut_short);
    memory.found
}

fn path(path: impl AsRef<Path>) -> Input {
    Input::Path(path.as_ref().to_owned(), Bounds::default())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_methods_give_all_that_is_there_in_the_same_chunks(
        files in vec(content(), 0..5),
        options in options(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (number, content) in files.iter().enumerate() {
            fs::write(folder.path().join(number.to_string()), content).unwrap();
        }
        let naive = BulkOptions { method: Method::Naive, ..options };
        let naive = given(vec![path(folder.path())], &naive);
        let contents = naive[1..].iter().map(|given| &given.bytes);
        prop_assert!(contents.eq(files.iter()));
        prop_assert!(naive[0].is_folder && naive[0].ended.is_none());
        prop_assert!(naive[1..].iter().all(|given| given.ended == Some(false)));
        for method in methods() {
            let options = BulkOptions { method, ..options };
            prop_assert_eq!(&given(vec![path(folder.path())], &options), &naive, "{}", method);
        }
    }
}

#[test]
fn folders_and_links_are_given_where_they_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("in/b/empty")).unwrap();
    fs::write(at("in/a"), "a").unwrap();
    fs::write(at("in/b/c"), "").unwrap();
    symlink("nowhere", at("in/d")).unwrap();
    for method in methods() {
        let options = BulkOptions {
            method,
            ..BulkOptions::default()
        };
        let found = given(
            vec![path(at("in")), path(at("in/a")), path(at("none"))],
            &options,
        );
        let found = found.iter().map(|given| {
            let path = given.path.strip_prefix(folder.path()).unwrap();
            let ended = given.ended.is_some();
            (path.to_str().unwrap(), given.is_folder, ended)
        });
        let expected = [
            ("in", true, false),
            ("in/a", false, true),
            ("in/b", true, false),
            ("in/b/c", false, true),
            ("in/b/empty", true, false),
            ("in/d", false, false),
            ("in/a", false, true),
        ];
        assert!(
            found.clone().eq(expected),
            "{:?}",
            found.collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_sink_that_says_not_to_go_on_is_given_no_more() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::write(folder.path().join(name), noise(1, 200_000)).unwrap();
    }
    for method in methods() {
        for patience in 1..8 {
            let options = BulkOptions {
                method,
                batch_bytes: 50_000,
                ..BulkOptions::default()
            };
            let mut memory = Memory {
                patience: Some(patience),
                ..Memory::default()
            };
            let outcome = find_redundancy(
                vec![path(folder.path())],
                &options,
                Some(&mut memory),
                &mut |_| ControlFlow::Continue(()),
            );
            assert!(outcome.expect("this machine can do that").is_cut_short);
        }
    }
}
