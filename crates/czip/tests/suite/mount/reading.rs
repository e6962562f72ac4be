//! What is mounted is what was archived, to whoever reads it in whatever way.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Cursor},
    os::unix::fs::MetadataExt,
    path::Path,
    process::Command,
    thread,
};

use refrain_czip::create::Input;

use crate::mount::mounting::{Mount, archive_of, noise, open, read, sample};

/// Holds a folder, as it is mounted, against the one that was archived; gives how many entries it has.
fn compare(original: &Path, mounted: &Path) -> usize {
    let names = |folder: &Path| -> BTreeSet<_> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    let all = names(original);
    assert_eq!(names(mounted), all, "{}", mounted.display());
    let mut count = all.len();
    for name in all {
        let (one, other) = (original.join(&name), mounted.join(&name));
        let is = fs::symlink_metadata(&one).unwrap();
        let shown = fs::symlink_metadata(&other).unwrap();
        let path = other.display();
        assert_eq!(shown.file_type(), is.file_type(), "{path}");
        assert_eq!(
            (shown.mtime(), shown.mtime_nsec()),
            (is.mtime(), is.mtime_nsec()),
            "{path}"
        );
        assert_eq!(shown.nlink(), is.nlink(), "{path}");
        let me = fs::metadata("/proc/self").unwrap();
        assert_eq!((shown.uid(), shown.gid()), (me.uid(), me.gid()), "{path}");
        if is.is_symlink() {
            assert_eq!(fs::read_link(&other).unwrap(), fs::read_link(&one).unwrap());
            continue;
        }
        assert_eq!(shown.mode(), is.mode(), "{path}");
        if is.is_dir() {
            count += compare(&one, &other);
        } else {
            assert_eq!(shown.len(), is.len(), "{path}");
            assert!(
                fs::read(&other).unwrap() == fs::read(&one).unwrap(),
                "{path}"
            );
        }
    }
    count
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it is on any Linux");
    let [said, failed] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{command:?}: {said}{failed}");
    said.into_owned()
}

#[test]
fn names_modes_times_links_and_bytes_are_those_that_were_archived() {
    let original = sample();
    let tree = original.path().join("tree");
    let (_archive, path) = archive_of(vec![Input::Path(tree.clone())]);
    let Some(mount) = Mount::new(open(&path)) else {
        return;
    };
    assert!(compare(&tree, &mount.path("tree")) > 700);
    let inode = |path: &str| fs::metadata(mount.path(path)).unwrap().ino();
    assert_eq!(inode("tree/program"), inode("tree/a/the same program"));
    assert_ne!(inode("tree/program"), inode("tree/noise"));
    let missing = fs::metadata(mount.path("tree/missing")).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    assert!(mount.failures.lock().unwrap().is_empty());
}

#[test]
fn ordinary_programs_find_compare_and_copy_it() {
    let original = sample();
    let tree = original.path().join("tree");
    let (_archive, path) = archive_of(vec![Input::Path(tree.clone())]);
    let Some(mount) = Mount::new(open(&path)) else {
        return;
    };
    let shown = mount.path("tree");
    run(Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([&tree, &shown]));
    let found = |folder: &Path| -> BTreeSet<String> {
        let found = run(Command::new("find").arg(".").current_dir(folder));
        found.lines().map(str::to_owned).collect()
    };
    assert_eq!(found(&shown), found(&tree));
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    run(Command::new("cp").arg("-a").args([&shown, &copy]));
    assert!(compare(&shown, &copy) > 700);
    run(Command::new("chmod").args(["-R", "u+w"]).arg(copies.path()));
    let free = run(Command::new("stat")
        .args(["-f", "-c", "%b %f %a"])
        .arg(&shown));
    let numbers: Vec<u64> = free
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    assert!(numbers[0] > 1000 && numbers[1..] == [0, 0], "{free}");
}

#[test]
fn eight_threads_read_any_range_of_any_file() {
    let original = sample();
    let tree = original.path().join("tree");
    let (_archive, path) = archive_of(vec![Input::Path(tree.clone())]);
    let Some(mount) = Mount::new(open(&path)) else {
        return;
    };
    let files = ["a/repetitive", "a/archive.tar", "noise", "other noise"];
    let contents = files.map(|file| fs::read(tree.join(file)).unwrap());
    thread::scope(|threads| {
        for seed in 0..8 {
            let (mount, contents) = (&mount, &contents);
            threads.spawn(move || {
                let opened = files.map(|file| File::open(mount.path("tree").join(file)).unwrap());
                let mut chance = fastrand::Rng::with_seed(seed);
                for _ in 0..300 {
                    let which = chance.usize(..files.len());
                    let content = &contents[which];
                    let start = chance.usize(..content.len());
                    let end = content.len().min(start + chance.usize(..200_000));
                    let read = read(&opened[which], start as u64, end - start).unwrap();
                    assert!(
                        read == content[start..end],
                        "{seed}: {which} {start}..{end}"
                    );
                }
            });
        }
    });
    let file = File::open(mount.path("tree/noise")).unwrap();
    let beyond = read(&file, 3_000_000 - 5, 6).unwrap_err();
    assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn nothing_is_written() {
    let original = sample();
    let (_archive, path) = archive_of(vec![Input::Path(original.path().join("tree"))]);
    let Some(mount) = Mount::new(open(&path)) else {
        return;
    };
    let is_read_only = |outcome: io::Result<()>| {
        let kind = outcome.unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::ReadOnlyFilesystem);
    };
    is_read_only(fs::write(mount.path("tree/new"), "x"));
    is_read_only(fs::remove_file(mount.path("tree/noise")));
    is_read_only(fs::create_dir(mount.path("tree/folder")));
    is_read_only(fs::rename(
        mount.path("tree/noise"),
        mount.path("tree/more"),
    ));
    let append = OpenOptions::new()
        .append(true)
        .open(mount.path("tree/small"));
    is_read_only(append.map(drop));
}

#[test]
fn a_stream_is_a_file_called_content() {
    let content = noise(9, 1_000_000);
    let stream = Input::Stream(Box::new(Cursor::new(content.clone())));
    let (_archive, path) = archive_of(vec![stream]);
    let Some(mount) = Mount::new(open(&path)) else {
        return;
    };
    assert!(fs::read(mount.path("content")).unwrap() == content);
    assert_eq!(fs::read_dir(mount.at.path()).unwrap().count(), 1);
}
