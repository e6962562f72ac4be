//! What a demo moves: embedded releases and pages, or the user's files.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};

use crate::stderr::cannot_open;

/// Successive releases of real packages and their pages; `demo/corpus/README.md` has their
/// sources and licences.
const CORPUS: &[u8] = include_bytes!("../../demo/corpus/objects.tar.zst");
const CORPUS_OBJECTS: &str = include_str!("../../demo/corpus/objects.tsv");

/// A tar member's header.
const HEADER_BYTES: usize = 512;

/// One thing to fetch.
#[derive(Clone)]
pub(crate) struct Object {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// The built-in content as it is packed: a tar.
pub(crate) fn archive() -> anyhow::Result<Vec<u8>> {
    zstd::decode_all(CORPUS).context("the built-in content is damaged")
}

/// The built-in content, in the order in which a client would fetch it.
pub(crate) fn embedded() -> anyhow::Result<Vec<Object>> {
    let archive = archive()?;
    let mut rest = &archive[..];
    let mut objects = Vec::new();
    for line in CORPUS_OBJECTS.lines().skip(1) {
        let mut fields = line.split('\t').skip(1);
        let (name, bytes) = fields
            .next()
            .zip(fields.next())
            .context("the list of the built-in content is invalid")?;
        let bytes: usize = bytes.parse()?;
        let member = HEADER_BYTES + bytes;
        ensure!(rest.len() >= member, "the built-in content is truncated");
        objects.push(Object {
            name: name.to_owned(),
            bytes: rest[HEADER_BYTES..member].to_vec(),
        });
        rest = &rest[(HEADER_BYTES + bytes.next_multiple_of(HEADER_BYTES)).min(rest.len())..];
    }
    Ok(objects)
}

/// The user's files, those in folders included.
pub(crate) fn from_files(paths: &[PathBuf]) -> anyhow::Result<Vec<Object>> {
    let mut files = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => files.extend(files_below(path)?),
            false => files.push(path.clone()),
        }
    }
    if files.is_empty() {
        let names = paths.iter().map(|path| format!("\"{}\"", path.display()));
        let names = names.collect::<Vec<_>>().join(", ");
        bail!("no files in {names}: give a directory with files");
    }
    read_within(&files, BYTES_MAX)
}

/// More than a demo shows anything with: the folder was most likely another one.
const FILES_MAX: usize = 10_000;

/// All objects are held in memory.
const BYTES_MAX: u64 = 2 << 30;

/// All files in a folder and its folders, in the order of their paths. Links are not followed, as
/// they may lead in circles.
fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let cannot_read = || format!("cannot read \"{}\"", folder.display());
        for entry in fs::read_dir(&folder).with_context(|| cannot_open(&folder))? {
            let entry = entry.with_context(cannot_read)?;
            let kind = entry.file_type().with_context(cannot_read)?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
        ensure!(
            files.len() <= FILES_MAX,
            "too many files (limit {FILES_MAX}): give a smaller directory"
        );
    }
    files.sort();
    Ok(files)
}

fn read_within(files: &[PathBuf], bytes_max: u64) -> anyhow::Result<Vec<Object>> {
    let mut bytes_left = bytes_max;
    let mut objects = Vec::new();
    for path in files {
        let mut bytes = Vec::new();
        // A byte more tells what is too long, even of what has no length, such as a pipe.
        File::open(path)
            .with_context(|| cannot_open(path))?
            .take(bytes_left + 1)
            .read_to_end(&mut bytes)
            .with_context(|| format!("cannot read \"{}\"", path.display()))?;
        bytes_left = bytes_left
            .checked_sub(bytes.len() as u64)
            .with_context(|| {
                let most = crate::table::bytes(bytes_max);
                format!("too much data (limit {most}): give fewer files or a smaller directory")
            })?;
        objects.push(Object {
            name: path.display().to_string(),
            bytes,
        });
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_content_is_what_its_list_says() {
        let objects = embedded().expect("intact");
        for (object, line) in objects.iter().zip(CORPUS_OBJECTS.lines().skip(1)) {
            let sum = line.rsplit('\t').next().expect("a checksum");
            let digest = ring::digest::digest(&ring::digest::SHA256, &object.bytes);
            let hex: String = digest
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(hex, sum, "{}", object.name);
        }
        assert_eq!(objects.len(), CORPUS_OBJECTS.lines().count() - 1);
    }

    #[test]
    fn of_a_folder_all_files_are_taken_in_order_of_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("b/below")).expect("a folder");
        for name in ["c", "b/below/x", "a"] {
            fs::write(path(name), name).expect("a file");
        }
        std::os::unix::fs::symlink(folder.path(), path("b/circle")).expect("a link");
        let folder_and_file = [folder.path().to_owned(), path("a")];
        let objects = from_files(&folder_and_file).expect("readable");
        let contents: Vec<_> = objects.iter().map(|object| &object.bytes[..]).collect();
        assert_eq!(contents, [&b"a"[..], b"b/below/x", b"c", b"a"]);
        assert_eq!(objects[1].name, path("b/below/x").display().to_string());
    }

    #[test]
    fn what_is_too_much_or_nothing_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = |result: anyhow::Result<Vec<Object>>| match result {
            Ok(objects) => panic!("{} objects", objects.len()),
            Err(error) => error.to_string(),
        };
        let path = folder.path().to_owned();
        let no_files = format!("no files in \"{}\"", path.display());
        assert!(error(from_files(std::slice::from_ref(&path))).contains(&no_files));
        let files = ["a", "b"].map(|name| path.join(name));
        for file in &files {
            fs::write(file, "12345").expect("a file");
        }
        assert_eq!(read_within(&files, 10).expect("they fit").len(), 2);
        assert!(error(read_within(&files, 9)).contains("limit 9 B"));
        for number in 0..FILES_MAX {
            File::create(path.join(number.to_string())).expect("a file");
        }
        assert!(error(from_files(&[path])).contains("limit 10000"));
    }
}
