//! The data sets: by recipe, since none may be part of the project.
//!
//! A set that is not there is made, by package name with the machine's own clients. Versions drift,
//! so that figures are held against the peers' in the same run, not against those of another day.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

/// What archives are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum DataSet {
    Django,
    RootFileSystems,
    DvdAndCds,
    GithubPage,
    BrevoPage,
}

struct Recipe {
    folder: &'static str,
    script: &'static str,
}

const DJANGO: Recipe = Recipe {
    folder: "d1",
    script: include_str!("recipes/django.sh"),
};
const ROOT_FILE_SYSTEMS: Recipe = Recipe {
    folder: "d2",
    script: include_str!("recipes/root-file-systems.sh"),
};
const DVD_AND_CDS: Recipe = Recipe {
    folder: "d3",
    script: include_str!("recipes/dvd-and-cds.sh"),
};
const PAGES: Recipe = Recipe {
    folder: "d4",
    script: include_str!("recipes/pages.sh"),
};

impl DataSet {
    pub(super) const ALL: [Self; 5] = [
        Self::Django,
        Self::RootFileSystems,
        Self::DvdAndCds,
        Self::GithubPage,
        Self::BrevoPage,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Django => "D1: Django 4.2 to 4.2.11, 12 tars",
            Self::RootFileSystems => "D2: Debian root file systems, 3 tars",
            Self::DvdAndCds => "D3: a DVD and 3 CDs of .debs, 4 tars",
            Self::GithubPage => "D4: a page's 200 revisions (GitHub), a tar",
            Self::BrevoPage => "D4: a page's 200 revisions (Brevo), a tar",
        }
    }

    /// For columns.
    pub(super) fn short_name(self) -> &'static str {
        match self {
            Self::Django => "D1",
            Self::RootFileSystems => "D2",
            Self::DvdAndCds => "D3",
            Self::GithubPage => "D4, GitHub",
            Self::BrevoPage => "D4, Brevo",
        }
    }

    fn recipe(self) -> Recipe {
        match self {
            Self::Django => DJANGO,
            Self::RootFileSystems => ROOT_FILE_SYSTEMS,
            Self::DvdAndCds => DVD_AND_CDS,
            Self::GithubPage | Self::BrevoPage => PAGES,
        }
    }

    fn file_names(self) -> Vec<String> {
        let named = |names: &[&str]| names.iter().map(|name| format!("{name}.tar")).collect();
        match self {
            Self::Django => (0..12).map(|number| format!("d{number:02}.tar")).collect(),
            Self::RootFileSystems => named(&["base", "apache", "both"]),
            Self::DvdAndCds => named(&["dvd", "cd1", "cd2", "cd3"]),
            Self::GithubPage => named(&["github-tos-200"]),
            Self::BrevoPage => named(&["brevo-privacy-200"]),
        }
    }
}

/// The folder that holds them.
pub(super) struct Data {
    /// An absolute path: programs run elsewhere.
    folder: PathBuf,
    /// Stored data and lists of packages.
    shared: PathBuf,
}

impl Data {
    /// In `folder`, which is made; from what is in `shared`.
    pub(super) fn new(folder: &Path, shared: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        Ok(Self {
            folder: folder.canonicalize()?,
            shared: std::path::absolute(shared)?,
        })
    }

    /// Where temporary files have room.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where stored data is.
    pub(super) fn shared(&self) -> &Path {
        &self.shared
    }

    /// The set's files, made where they are missing.
    pub(super) fn files(&self, set: DataSet) -> anyhow::Result<Vec<PathBuf>> {
        let recipe = set.recipe();
        let folder = self.folder.join(recipe.folder);
        let names = set.file_names().into_iter();
        let files: Vec<PathBuf> = names.map(|name| folder.join(name)).collect();
        if !files.iter().all(|file| file.is_file()) {
            eprintln!("creating {}", set.name());
            std::fs::create_dir_all(&folder)?;
            let status = Command::new("bash")
                .args(["-c", recipe.script])
                .current_dir(&folder)
                .env("REFRAIN_DATA", &self.shared)
                .stdin(Stdio::null())
                .stdout(std::io::stderr())
                .status()
                .context("cannot run bash")?;
            ensure!(status.success(), "{}: the recipe failed", set.name());
        }
        Ok(files)
    }

    /// One file of a set.
    pub(super) fn file(&self, set: DataSet, name: &str) -> anyhow::Result<PathBuf> {
        let files = self.files(set)?;
        let mut named = files.into_iter().filter(|file| file.ends_with(name));
        named.next().with_context(|| format!("{name}: not found"))
    }
}

/// The bytes of files, or of all that is below folders.
pub(super) fn bytes_of(path: &Path) -> anyhow::Result<u64> {
    let metadata = path.symlink_metadata()?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let below = std::fs::read_dir(path)?;
    below.map(|entry| bytes_of(&entry?.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_is_there_is_not_made_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let sets = folder.path().join("d1");
        std::fs::create_dir(&sets).expect("a folder");
        for name in DataSet::Django.file_names() {
            std::fs::write(sets.join(name), "tar").expect("room");
        }
        let data = Data::new(folder.path(), folder.path()).expect("a folder");
        let files = data.files(DataSet::Django).expect("they are there");
        assert_eq!(files.len(), 12);
        let last = data.file(DataSet::Django, "d11.tar").expect("it is there");
        assert_eq!(last, files[11]);
        assert!(data.file(DataSet::Django, "d12.tar").is_err());
        assert_eq!(bytes_of(folder.path()).expect("files"), 36);
    }

    #[test]
    fn a_recipe_that_fails_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        // There are no pages in it.
        let data = Data::new(folder.path(), folder.path()).expect("a folder");
        assert!(data.files(DataSet::GithubPage).is_err());
    }
}
