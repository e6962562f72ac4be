//! Packages, fetched once by name and version with the machine's own clients.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};

/// How a folder of data is made.
pub(super) struct Recipe {
    folder: &'static str,
    script: &'static str,
}

/// Wheels, source distributions and trees of two versions.
pub(super) const PYTHON: Recipe = Recipe {
    folder: "python",
    script: include_str!("recipes/python.sh"),
};
/// verdaccio, and the packages that it serves.
pub(super) const NPM: Recipe = Recipe {
    folder: "npm",
    script: include_str!("recipes/npm.sh"),
};
/// A web site of two versions.
pub(super) const SITE: Recipe = Recipe {
    folder: "site",
    script: include_str!("recipes/site.sh"),
};
/// Packages for apt, made of trees.
pub(super) const DEBS: Recipe = Recipe {
    folder: "debs",
    script: include_str!("recipes/debs.sh"),
};
/// A package index of Debian, in part.
pub(super) const INDEX: Recipe = Recipe {
    folder: "index",
    script: include_str!("recipes/index.sh"),
};
/// This project's own repository.
pub(super) const REPOSITORY: Recipe = Recipe {
    folder: "repository",
    script: include_str!("recipes/repository.sh"),
};

impl Recipe {
    /// Makes the folder within `data`, unless this recipe has made it.
    pub(super) fn fetch(&self, data: &Path) -> anyhow::Result<()> {
        let folder = data.join(self.folder);
        let made_by = folder.join("made-by");
        if std::fs::read_to_string(&made_by).is_ok_and(|script| script == self.script) {
            return Ok(());
        }
        eprintln!("fetching {}", folder.display());
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir(&folder)?;
        let status = Command::new("bash")
            .args(["-c", self.script])
            .current_dir(&folder)
            .env("REPOSITORY", env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .status()
            .context("cannot run bash")?;
        ensure!(status.success(), "{}: the recipe failed", self.folder);
        Ok(std::fs::write(made_by, self.script)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_once_by_each_recipe() {
        let data = tempfile::tempdir().expect("a folder");
        let recipe = |script| Recipe {
            folder: "turns",
            script,
        };
        let turns = || std::fs::read(data.path().join("turns/turns")).map_or(0, |it| it.len());
        let script = "echo -n . >>turns; echo -n . >>../all";
        recipe(script).fetch(data.path()).expect("it is made");
        recipe(script).fetch(data.path()).expect("it is there");
        assert_eq!(turns(), 1);
        assert!(recipe("false").fetch(data.path()).is_err());
        recipe(script).fetch(data.path()).expect("it is made again");
        assert_eq!(turns(), 1);
        let all = std::fs::read(data.path().join("all")).expect("it was made");
        assert_eq!(all.len(), 2);
    }
}
