//! What is transferred: versions of something, one after the other.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use anyhow::Context;

use crate::corpus;

/// Bytes of mail that are transferred first, and of those that come next.
const MAIL_FIRST_BYTES: usize = 8 << 20;
const MAIL_NEXT_BYTES: usize = 4 << 20;

/// Revisions of a page that are transferred first, and those that come next.
const PAGES_FIRST: usize = 20;
const PAGES_NEXT: usize = 10;

/// A series of objects.
pub(super) struct Content {
    /// For `--contents`, and the folder of its files.
    pub name: &'static str,
    pub title: &'static str,
    pub objects: Vec<Object>,
    /// How many of them are transferred first, and again. The others come next.
    pub first: usize,
}

/// One version, as both ends' programs may have it.
pub(super) struct Object {
    pub bytes: Vec<u8>,
    /// From the folder of all files.
    pub path: String,
    /// The file.
    pub file: PathBuf,
}

impl Content {
    /// The objects of the first transfer, of the second one and of the next versions.
    pub(super) fn phases(&self) -> [std::ops::Range<usize>; 3] {
        [0..self.first, 0..self.first, self.first..self.objects.len()]
    }

    /// Bytes of such a transfer.
    pub(super) fn bytes(&self, phase: usize) -> u64 {
        let objects = &self.objects[self.phases()[phase].clone()];
        objects.iter().map(|object| object.bytes.len() as u64).sum()
    }
}

/// The names of all contents.
pub(super) const NAMES: [&str; 3] = ["linux", "pages", "mail"];

/// Reads one from the folder of test data, and writes its objects as files below `folder`.
pub(super) fn load(name: &'static str, data: &Path, folder: &Path) -> anyhow::Result<Content> {
    let (title, objects, first) = match name {
        "linux" => (
            "Linux 2.0.1, then 2.0.2 and 2.0.3, as tars",
            corpus::linux_releases(data, 3)?.objects,
            1,
        ),
        "pages" => {
            let archive = data.join("pages/github-tos.tar.zst");
            (
                "20 revisions of a page, then 10 more, each by a connection of its own",
                corpus::members(&archive, PAGES_FIRST + PAGES_NEXT)?,
                PAGES_FIRST,
            )
        }
        _ => {
            let mails = corpus::unpacked(&data.join("mail/spamassassin-ham.mbox.zst"))?;
            let (first, rest) = mails.split_at(MAIL_FIRST_BYTES);
            (
                "8 MiB of mail, then 4 MiB of other mail",
                vec![first.to_vec(), rest[..MAIL_NEXT_BYTES].to_vec()],
                1,
            )
        }
    };
    fs::create_dir_all(folder.join(name))?;
    let mut stored = Vec::new();
    for (number, bytes) in objects.into_iter().enumerate() {
        let path = format!("{name}/{number}");
        let file = folder.join(&path);
        let written = fs::File::create(&file).and_then(|mut file| {
            file.write_all(&bytes)?;
            // rsync compares size and seconds, and versions may be of one size.
            file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000 + number as u64))
        });
        written.with_context(|| file.display().to_string())?;
        stored.push(Object { bytes, path, file });
    }
    Ok(Content {
        name,
        title,
        objects: stored,
        first,
    })
}
