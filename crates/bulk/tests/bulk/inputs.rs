//! What is odd about files and folders: clear errors, and the rest goes on.

use std::{
    cell::Cell,
    fs::{self, File},
    io::{self, Read, Write},
    ops::ControlFlow,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use refrain_bulk::{
    Bounds, BulkOptions, Failed, Input, Method, Outcome, Progress, Redundancy, Skips,
    find_redundancy,
};

use super::methods;

fn options(method: Method) -> BulkOptions {
    BulkOptions {
        method,
        batch_bytes: 10_000,
        ..BulkOptions::default()
    }
}

/// What was found, and which paths failed how.
fn find(inputs: Vec<Input>, method: Method) -> (Redundancy, Vec<(PathBuf, String)>) {
    let mut failures = Vec::new();
    let outcome = find_redundancy(inputs, &options(method), None, &mut |now: Progress<'_>| {
        if let Some((path, failed)) = now.failure {
            failures.push((path.to_owned(), format!("{failed:?}")));
        }
        ControlFlow::Continue(())
    });
    (
        outcome.expect("this machine can do that").redundancy,
        failures,
    )
}

fn path(path: impl AsRef<Path>) -> Input {
    Input::Path(path.as_ref().to_owned(), Bounds::default())
}

#[test]
fn folders_are_walked_in_order_and_links_in_them_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("in/b")).unwrap();
    fs::write(at("in/a"), vec![1; 5000]).unwrap();
    fs::write(at("in/b/c"), vec![1; 5000]).unwrap();
    fs::write(at("in/d"), b"").unwrap();
    fs::write(at("in/e"), [7]).unwrap();
    fs::write(at("outside"), vec![2; 5000]).unwrap();
    symlink(at("outside"), at("in/link")).unwrap();
    symlink(at("in"), at("link to in")).unwrap();
    for method in methods() {
        for given in ["in", "link to in"] {
            let (found, failures) = find(vec![path(at(given))], method);
            assert_eq!((found.files, found.bytes), (4, 10_001), "{method}");
            assert_eq!(found.redundant_bytes, 5000);
            assert_eq!(failures, []);
        }
        // One that is given is followed.
        let (found, _) = find(vec![path(at("in/link"))], method);
        assert_eq!(found.bytes, 5000);
    }
}

#[test]
fn what_is_to_be_left_alone_is_not_read_and_with_a_folder_all_that_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("in/left/below")).unwrap();
    for (name, bytes) in [
        ("in/a", 5000),
        ("in/left/b", 1),
        ("in/left/below/c", 1),
        ("in/d", 7),
    ] {
        fs::write(at(name), vec![1; bytes]).unwrap();
    }
    symlink(at("in/left"), at("in/link")).unwrap();
    let bounded = |input: &str, left: &[&str]| {
        let left: Vec<PathBuf> = left.iter().map(|name| at(name)).collect();
        let skips: Skips = Arc::new(move |path, metadata| {
            let is_left = left.iter().any(|left| left == path);
            assert!(!is_left || metadata.is_dir() == path.ends_with("left"));
            is_left
        });
        let bounds = Bounds {
            skips: Some(skips),
            ..Bounds::default()
        };
        Input::Path(at(input), bounds)
    };
    for (input, left, files, bytes) in [
        ("in", &[][..], 4, 5009),
        ("in", &["in/left"], 2, 5007),
        ("in", &["in/left/below/c", "in/a"], 2, 8),
        ("in/left", &["in/left"], 0, 0),
        // What is there is asked of the folder that is given, not of the link.
        ("in/link", &["in/left"], 2, 2),
        ("in/d", &["in/d"], 0, 0),
        ("none", &["none"], 0, 0),
    ] {
        let input = || bounded(input, left);
        assert_eq!(input().expected_bytes(&mut || true), Some(bytes));
        for method in methods() {
            let (found, failures) = find(vec![input()], method);
            assert_eq!((found.files, found.bytes), (files, bytes), "{left:?}");
            assert_eq!(
                failures.len(),
                usize::from(left == ["none"]),
                "{failures:?}"
            );
        }
    }
    assert!(bounded("in", &[]).expected_bytes(&mut || false) < Some(5009));
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("in")).unwrap();
    fs::write(at("in/a"), vec![1; 5000]).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("in/socket")).unwrap();
    for method in methods() {
        // Of the process' own memory, the first page is never there.
        let inputs = vec![path(at("none")), path("/proc/self/mem"), path(at("in"))];
        let (found, failures) = find(inputs, method);
        assert_eq!((found.bytes, found.failures), (5000, 2), "{method}");
        assert_eq!(found.special_files, 1);
        let [(none, not_found), (memory, unread), (socket, special)] = &failures[..] else {
            panic!("{failures:?}");
        };
        assert_eq!(*none, at("none"));
        assert!(not_found.contains("NotFound"), "{not_found}");
        assert_eq!(*memory, Path::new("/proc/self/mem"));
        assert!(unread.starts_with("Unread"), "{unread}");
        assert_eq!((socket, &special[..]), (&at("in/socket"), "Special"));
    }
}

#[test]
fn a_file_in_proc_has_content_though_it_says_that_it_has_none() {
    for method in methods() {
        let (found, failures) = find(vec![path("/proc/self/cmdline")], method);
        let content = fs::read("/proc/self/cmdline").unwrap();
        assert_eq!(found.bytes, content.len() as u64);
        assert_eq!(failures, []);
    }
}

#[test]
fn a_file_that_shrinks_is_told_and_counts_as_far_as_it_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for method in methods() {
        fs::write(at("a"), vec![1; 4_000_000]).unwrap();
        fs::write(at("b"), vec![1; 5000]).unwrap();
        let is_cut = Cell::new(false);
        let mut failures = Vec::new();
        let inputs = vec![path(at("a")), path(at("b"))];
        let outcome = find_redundancy(inputs, &options(method), None, &mut |now: Progress<'_>| {
            if now.bytes > 0 && !is_cut.replace(true) {
                let file = File::options().write(true).open(at("a")).unwrap();
                file.set_len(1_000_000).unwrap();
            }
            if let Some((path, failed)) = now.failure {
                assert!(matches!(failed, Failed::Shrunk), "{failed:?}");
                failures.push(path.to_owned());
            }
            ControlFlow::Continue(())
        });
        let outcome = outcome.expect("this machine can do that");
        assert_eq!(failures, [at("a")], "{method}");
        let Redundancy { bytes, files, .. } = outcome.redundancy;
        assert_eq!((files, outcome.redundancy.failures), (2, 1));
        assert_eq!(bytes, 1_005_000);
    }
}

#[test]
fn a_file_that_somebody_writes_to_is_told_and_counts_as_long_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for method in methods() {
        fs::write(at("a"), vec![1; 4_000_000]).unwrap();
        fs::write(at("b"), vec![1; 5000]).unwrap();
        let is_longer = Cell::new(false);
        let mut failures = Vec::new();
        let inputs = vec![path(at("a")), path(at("b"))];
        let outcome = find_redundancy(inputs, &options(method), None, &mut |now: Progress<'_>| {
            if now.bytes > 0 && !is_longer.replace(true) {
                let mut file = File::options().append(true).open(at("a")).unwrap();
                file.write_all(b"one more").unwrap();
            }
            if let Some((path, failed)) = now.failure {
                assert!(matches!(failed, Failed::Changed), "{failed:?}");
                failures.push(path.to_owned());
            }
            ControlFlow::Continue(())
        });
        let found = outcome.expect("this machine can do that").redundancy;
        assert_eq!(failures, [at("a")], "{method}");
        assert_eq!((found.files, found.changed_files), (2, 1));
        assert_eq!((found.bytes, found.failures), (4_005_000, 0));
    }
}

/// Fails after some bytes.
struct Fails(usize);

impl Read for Fails {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("the cable was cut"));
        }
        let count = buffer.len().min(self.0).min(777);
        buffer[..count].fill(3);
        self.0 -= count;
        Ok(count)
    }
}

#[test]
fn a_stream_that_fails_counts_as_far_as_it_came() {
    for method in methods() {
        for bytes in [0, 1, 9_999, 10_000, 10_001, 50_000] {
            let stream = Input::Stream("cable".into(), Box::new(Fails(bytes)));
            let after = Input::Stream("after".into(), Box::new(io::repeat(4).take(100)));
            let (found, failures) = find(vec![stream, after], method);
            assert_eq!(found.bytes, bytes as u64 + 100, "{method}");
            assert_eq!((found.files, found.failures), (2, 1));
            assert!(failures[0].1.contains("the cable was cut"), "{failures:?}");
        }
    }
}

#[test]
fn who_says_not_to_go_on_is_told_no_more() {
    for method in methods() {
        let endless = Input::Stream("endless".into(), Box::new(io::repeat(7)));
        let told = Cell::new(0);
        let outcome = find_redundancy(vec![endless], &options(method), None, &mut |_| {
            told.set(told.get() + 1);
            match told.get() {
                5 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        let outcome: Outcome = outcome.expect("this machine can do that");
        assert!(outcome.is_cut_short);
        assert_eq!(told.get(), 5, "{method}");
    }
}

#[test]
fn nothing_at_all_is_no_redundancy() {
    for method in methods() {
        let nothing = Input::Stream("nothing".into(), Box::new(io::empty()));
        for (inputs, files) in [(vec![], 0), (vec![nothing], 1)] {
            let (found, failures) = find(inputs, method);
            assert_eq!((found.files, found.bytes), (files, 0));
            assert_eq!((found.share(), &failures[..]), (0.0, &[][..]));
        }
    }
}
