//! Archives that are damaged, of which all else is wanted.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    ops::{ControlFlow, Range},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::Mutex,
};

use proptest::{collection::vec, prelude::*};
use refrain_czip::{
    archive::{Archive, CacheBytes},
    extract::{ExtractError, ExtractOptions, Extracted, extract},
    verify::{Damage, files_in_frames, find_damage},
};
use refrain_czip_format::Stream;

use super::archive_in_frames;

/// Bytes that do not repeat.
fn noise(seed: usize, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    let hasher = blake3::Hasher::new_derive_key(&format!("damage {seed}"));
    hasher.finalize_xof().fill(&mut noise);
    noise
}

/// A folder of files with these lengths; every third has another name, too.
fn make(top: &Path, lengths: &[usize]) {
    fs::create_dir_all(top.join("folder")).expect("made");
    for (number, &bytes) in lengths.iter().enumerate() {
        let path = top.join(format!("folder/{number}"));
        fs::write(&path, noise(number, bytes)).expect("written");
        if number % 3 == 0 {
            fs::hard_link(&path, top.join(format!("other {number}"))).expect("made");
        }
    }
}

/// Its archive, and where its frames are.
fn archived(top: &Path) -> (Vec<u8>, Range<usize>) {
    let stored = archive_in_frames(top, 40_000);
    let archive = Archive::open(stored.clone(), CacheBytes::default()).expect("an archive");
    let frames = archive.root().summary.stored_bytes as usize;
    let frames = stored.len() - frames..stored.len();
    (stored, frames)
}

/// Extracts what is sound of `paths`, or all, and says what is not.
fn extracted(
    stored: &[u8],
    target: &Path,
    paths: &[&Path],
    is_damage_left_out: bool,
) -> Result<(Extracted, Vec<PathBuf>), ExtractError> {
    let archive = Archive::open(stored.to_vec(), CacheBytes::default())?;
    let as_bytes = |path: &&Path| path.to_str().expect("text").as_bytes().to_vec();
    let options = ExtractOptions {
        paths: paths.iter().map(as_bytes).collect(),
        threads: 2,
        is_damage_left_out,
        ..ExtractOptions::default()
    };
    let mut damaged = Vec::new();
    let extracted = extract(&archive, target, &options, &mut |now| {
        assert!(now.plain_bytes <= now.plain_bytes_total);
        if let Some(now) = now.damaged {
            damaged.push(PathBuf::from(str::from_utf8(now.path).expect("text")));
        }
        ControlFlow::Continue(())
    })?;
    assert_eq!(extracted.damaged, damaged.len() as u64);
    Ok((extracted, damaged))
}

/// The contents of all files below `top`.
fn contents(top: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut contents = BTreeMap::new();
    for folder in [top.to_owned(), top.join("folder")] {
        for below in fs::read_dir(folder).expect("a folder") {
            let path = below.expect("readable").path();
            if path.is_file() {
                let name = path.strip_prefix(top).expect("below").to_owned();
                contents.insert(name, fs::read(path).expect("readable"));
            }
        }
    }
    contents
}

/// The files that damage hits, as who verifies is told them; none if it is not of the content alone.
fn files_hit(stored: &[u8]) -> Option<Vec<PathBuf>> {
    let archive = Archive::open(stored.to_vec(), CacheBytes::default()).expect("an archive");
    let found = Mutex::new(Vec::new());
    let on_damage = |damage: Damage| {
        found.lock().expect("no panic").push(damage.frame);
        Ok(())
    };
    let go_on = |_| ControlFlow::Continue(());
    let whole = find_damage(&archive, 2, &on_damage, &go_on).expect("readable");
    let found = found.into_inner().expect("no panic");
    let all = Stream::ALL.map(|stream| archive.root().stream(stream).frames.items());
    assert_eq!(
        whole.expect("all of it").frames + found.len() as u64,
        all.iter().sum::<u64>()
    );
    let of_content = |frame| match frame {
        Some((Stream::Content, number)) => Some(number),
        _ => None,
    };
    let numbers: BTreeSet<u64> = found.into_iter().map(of_content).collect::<Option<_>>()?;
    let mut files = Vec::new();
    let mut hit = |path: Vec<u8>| files.push(PathBuf::from(OsString::from_vec(path)));
    let looked = files_in_frames(&archive, &numbers, &mut hit, &mut |_| {
        ControlFlow::Continue(())
    });
    assert!(looked.expect("the table is sound"));
    Some(files)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_cannot_be_extracted_alone_is_left_out_and_nothing_else(
        lengths in vec(prop_oneof![Just(0), 1..3_000_usize, 3_000..200_000_usize, Just(3 << 20)], 1..12),
        flips in vec((any::<prop::sample::Index>(), 1..=255_u8), 0..6),
    ) {
        let top = tempfile::tempdir().expect("a folder");
        let source = top.path().join("tree");
        make(&source, &lengths);
        let (mut stored, frames) = archived(&source);
        for (at, flip) in &flips {
            stored[frames.start + at.index(frames.len())] ^= flip;
        }
        let target = top.path().join("target");
        let Ok((sum, damaged)) = extracted(&stored, &target, &[], true) else {
            // The list of files is damaged itself.
            prop_assert!(!target.exists());
            return Ok(());
        };
        if let Some(hit) = files_hit(&stored) {
            let is_file = |path: &&PathBuf| path.starts_with("tree/folder");
            let files: Vec<_> = damaged.iter().filter(is_file).cloned().collect();
            prop_assert_eq!(hit, files);
        }
        let expected = contents(&source);
        let found = contents(&target.join("tree"));
        prop_assert_eq!(sum.files + sum.links, found.len() as u64);
        prop_assert_eq!(sum.is_whole, damaged.is_empty());
        for (path, content) in &expected {
            let path_inside = Path::new("tree").join(path);
            let alone = extracted(&stored, &top.path().join("alone"), &[&path_inside], false);
            prop_assert_eq!(alone.is_err(), damaged.contains(&path_inside), "{}", path.display());
            let expected = alone.is_ok().then_some(content);
            prop_assert!(found.get(path) == expected, "{}", path.display());
        }
    }
}

#[test]
fn what_was_there_stays_if_what_replaces_it_is_damaged() {
    let top = tempfile::tempdir().expect("a folder");
    let source = top.path().join("tree");
    make(&source, &[300_000, 10, 300_000]);
    let (mut stored, frames) = archived(&source);
    stored[frames.start + 10_000] ^= 1;
    let target = top.path().join("target");
    make(&target.join("tree"), &[5, 5, 5]);
    let before = contents(&target.join("tree"));
    let all_or_nothing = extracted(&stored, &target, &[], false);
    assert!(matches!(all_or_nothing, Err(ExtractError::Read(error)) if error.is_damage()));
    assert_eq!(contents(&target.join("tree")), before);
    let (sum, damaged) = extracted(&stored, &target, &[], true).expect("the others");
    assert_eq!(
        damaged,
        [Path::new("tree/folder/0"), Path::new("tree/other 0")]
    );
    assert_eq!((sum.files, sum.links, sum.is_whole), (2, 0, false));
    let after = contents(&target.join("tree"));
    assert_eq!(after[Path::new("folder/0")], noise(0, 5));
    assert_eq!(after[Path::new("folder/2")], noise(2, 300_000));
    assert_eq!(after.len(), before.len());
}
