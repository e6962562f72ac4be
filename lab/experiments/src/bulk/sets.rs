//! What is read: files that are there, or made for as long as they are measured with.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::ensure;

use super::media;
use crate::corpus::members;

const SERIES: &str = "linux-2.0.1-2.0.40.tar.zst";
const RELEASES: usize = 40;

/// All that is measured with, each on its own.
pub(super) struct Sets {
    /// The first is what threads are measured with.
    pub sets: Vec<Set>,
    /// What they are, in words.
    pub words: String,
    folder: Option<PathBuf>,
}

pub(super) struct Set {
    pub name: String,
    content: Content,
}

impl Set {
    /// Whether it is one of several that are alike: what is found in them has a mean.
    pub(super) fn is_part(&self) -> bool {
        matches!(self.content, Content::Media(_))
    }
}

enum Content {
    There(Vec<PathBuf>),
    /// Requests for media: they are made when they are wanted, since all would take much room.
    Media(Vec<String>),
}

impl Sets {
    /// What a user names, all of it together.
    pub(super) fn of(inputs: &[PathBuf]) -> anyhow::Result<Self> {
        for input in inputs {
            ensure!(input.exists(), "\"{}\" not found", input.display());
        }
        let named = inputs.iter().map(|input| input.display().to_string());
        Ok(Self {
            sets: vec![Set {
                name: "these files".to_owned(),
                content: Content::There(inputs.to_vec()),
            }],
            words: format!(
                "- *these files*: {}.\n",
                named.collect::<Vec<_>>().join(", ")
            ),
            folder: None,
        })
    }

    /// The Linux series, and parts of the YouTube trace.
    pub(super) fn by_default(
        data: &Path,
        folder: &Path,
        parts: usize,
        part_bytes: u64,
    ) -> anyhow::Result<Self> {
        let requests = media::requests(data)?;
        let videos: HashSet<_> = requests.iter().collect();
        let series = Set {
            name: "releases".to_owned(),
            content: Content::There(releases(data, folder)?),
        };
        let parts = media::parts(&requests, parts, part_bytes);
        let count = parts.len();
        let media = (1..).zip(parts).map(|(number, ids)| Set {
            name: format!("media {number}"),
            content: Content::Media(ids.to_vec()),
        });
        Ok(Self {
            sets: [series].into_iter().chain(media).collect(),
            words: format!(
                "- *releases*: the forty tars of Linux 2.0.1 to 2.0.40, 1.0 GB, one after the other.\n\
                 - *media 1* to *media {count}*: {count} parts of a day of YouTube requests at a campus, {:.1} GB \
                 each. The\n  requests are the UMass trace, as in the paper. It has no videos, so each id is a file of \
                 noise:\n  1 to 60 MB with a median of 9 MB, and always the same. A file that is requested again is \
                 read\n  again. {:.0} % of all {} requests are repeats, far fewer within a part.\n\n\
                 `lab/data get linux requests` gets the tars and the trace.\n",
                part_bytes as f64 / 1e9,
                100.0 - 100.0 * videos.len() as f64 / requests.len() as f64,
                requests.len(),
            ),
            folder: Some(folder.to_owned()),
        })
    }

    /// Calls `measure` with each set's files, in the page cache.
    pub(super) fn each<T>(
        &self,
        mut measure: impl FnMut(&Set, &[PathBuf]) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<T>> {
        let sets = self.sets.iter();
        sets.map(|set| self.with(set, |files| measure(set, files)))
            .collect()
    }

    /// Calls `measure` with the first set's files, in the page cache.
    pub(super) fn first<T>(
        &self,
        measure: impl FnOnce(&[PathBuf]) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.with(&self.sets[0], measure)
    }

    /// Some sets that stand for all: the first two.
    pub(super) fn some(&self) -> Self {
        let sets = self.sets.iter().take(2).map(|set| Set {
            name: set.name.clone(),
            content: match &set.content {
                Content::There(files) => Content::There(files.clone()),
                Content::Media(ids) => Content::Media(ids.clone()),
            },
        });
        Self {
            sets: sets.collect(),
            words: String::new(),
            folder: self.folder.clone(),
        }
    }

    fn with<T>(
        &self,
        set: &Set,
        measure: impl FnOnce(&[PathBuf]) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        match (&set.content, &self.folder) {
            (Content::Media(ids), Some(folder)) => {
                let folder = folder.join("media");
                let files = media::make(ids, &folder)?;
                let measured = measure(&files);
                fs::remove_dir_all(folder)?;
                measured
            }
            (Content::There(files), _) => measure(files),
            (Content::Media(_), None) => unreachable!("media have a folder"),
        }
    }
}

/// The tars of the series, unpacked.
fn releases(data: &Path, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = folder.join("releases");
    fs::create_dir_all(&folder)?;
    let files: Vec<PathBuf> = (0..RELEASES)
        .map(|number| folder.join(format!("{number:02}.tar")))
        .collect();
    if !files.iter().all(|file| file.is_file()) {
        let tars = members(&data.join(SERIES), RELEASES)?;
        ensure!(tars.len() == RELEASES, "the series has too few releases");
        for (file, tar) in files.iter().zip(tars) {
            fs::write(file, tar)?;
        }
    }
    Ok(files)
}
