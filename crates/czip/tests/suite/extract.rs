//! Archives of folders that are extracted.

mod damage;
mod parents;
mod round_trips;
mod targets;

use std::{
    fs,
    ops::ControlFlow,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use refrain_czip::{
    archive::{Archive, CacheBytes},
    create::{CreateOptions, Input, Output, create},
    extract::{ExtractError, ExtractOptions, ExtractProgress, Extracted, extract},
};

/// An archive of a folder.
fn archive_of(folder: &Path) -> Vec<u8> {
    archive_in_frames(folder, CreateOptions::default().frame_bytes)
}

/// The same, in frames of about so many plain bytes.
fn archive_in_frames(folder: &Path, frame_bytes: u32) -> Vec<u8> {
    let made = tempfile::tempdir().expect("a folder");
    let path = made.path().join("archive.czip");
    let options = CreateOptions {
        frame_bytes,
        threads: 1,
        ..CreateOptions::default()
    };
    create(
        vec![Input::Path(folder.to_owned())],
        Output::File(path.clone()),
        &options,
        &mut |_| ControlFlow::Continue(()),
    )
    .expect("an archive");
    fs::read(path).expect("it is there")
}

fn options(paths: &[&str]) -> ExtractOptions {
    ExtractOptions {
        paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect(),
        threads: 2,
        ..ExtractOptions::default()
    }
}

fn extracted(
    archive: &[u8],
    target: &Path,
    paths: &[&str],
    progress: &mut dyn FnMut(ExtractProgress) -> ControlFlow<()>,
) -> Result<Extracted, ExtractError> {
    let archive = Archive::open(archive.to_vec(), CacheBytes::default()).expect("an archive");
    extract(&archive, target, &options(paths), progress)
}

fn go_on(_: ExtractProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// What is at a path: all that an archive keeps of it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    path: PathBuf,
    /// A file's bytes, or where a link leads; none of folders.
    content: Option<Vec<u8>>,
    is_link: bool,
    mode: u32,
    mtime: (i64, i64),
    /// Other names of a file.
    links: u64,
}

/// All that is below `top`, in order.
fn seen(top: &Path) -> Vec<Seen> {
    let mut all = Vec::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for below in fs::read_dir(folder).expect("a folder") {
            let path = below.expect("readable").path();
            let metadata = fs::symlink_metadata(&path).expect("there");
            let is_link = metadata.is_symlink();
            let content = match (metadata.is_dir(), is_link) {
                (true, _) => None,
                (_, true) => {
                    let target = fs::read_link(&path).expect("a link");
                    Some(target.into_os_string().into_encoded_bytes())
                }
                (false, false) => Some(fs::read(&path).expect("a file")),
            };
            all.push(Seen {
                path: path.strip_prefix(top).expect("below it").to_owned(),
                content,
                is_link,
                mode: metadata.permissions().mode(),
                mtime: (metadata.mtime(), metadata.mtime_nsec()),
                links: if metadata.is_dir() {
                    1
                } else {
                    metadata.nlink()
                },
            });
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    all.sort_by(|one, other| one.path.cmp(&other.path));
    all
}
