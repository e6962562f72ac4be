//! What is left out of an archive by its path, as tar and rsync do it.
//!
//! A pattern is held against the end of a path from any `/` on, so that one without `/` is held against
//! names; `/` in front has it held against the whole path. `*` and `?` stop at `/`, and `**` does not. A
//! pattern that ends in `/` is of folders alone. With a folder goes all that is in it.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use thiserror::Error;

/// Patterns of paths.
#[derive(Clone, Debug, Default)]
pub struct Exclude {
    /// Of all kinds, and of folders.
    any: GlobSet,
    folders: GlobSet,
}

/// A pattern that is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid pattern {pattern:?}: {reason}")]
pub struct ExcludeError {
    pattern: String,
    reason: String,
}

impl Exclude {
    /// What any of `patterns` is of.
    ///
    /// # Errors
    /// If one is no pattern.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, ExcludeError> {
        let (mut any, mut folders) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let wrong = |reason: String| ExcludeError {
                pattern: pattern.to_owned(),
                reason,
            };
            let (set, path) = match pattern.strip_suffix('/') {
                Some(path) => (&mut folders, path),
                None => (&mut any, pattern),
            };
            let glob = match path.strip_prefix('/') {
                Some(whole) => whole.to_owned(),
                None => format!("**/{path}"),
            };
            if path.is_empty() {
                return Err(wrong("it matches nothing".to_owned()));
            }
            let glob = GlobBuilder::new(&glob).literal_separator(true).build();
            set.add(glob.map_err(|error| wrong(error.kind().to_string()))?);
        }
        let build = |set: GlobSetBuilder| {
            set.build().map_err(|error| ExcludeError {
                pattern: error.glob().unwrap_or_default().to_owned(),
                reason: error.kind().to_string(),
            })
        };
        Ok(Self {
            any: build(any)?,
            folders: build(folders)?,
        })
    }

    /// Whether what has this path in the archive is left out, if no folder above it is.
    #[must_use]
    pub fn is_of(&self, path: &[u8], is_folder: bool) -> bool {
        let path = OsStr::from_bytes(path);
        self.any.is_match(path) || is_folder && self.folders.is_match(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_held_against_names_or_the_ends_of_paths() {
        for (pattern, yes, no) in [
            (
                "*.o",
                &["d/x.o", "x.o", "d/.o"][..],
                &["d/x.oo", "d/x.o/y"][..],
            ),
            ("target", &["target", "d/target"], &["d/target2", "d/targe"]),
            ("a/b", &["a/b", "d/a/b"], &["da/b", "a/b/c", "a/x/b"]),
            ("/d/cache", &["d/cache"], &["x/d/cache", "d/x/cache"]),
            ("d/*/x", &["d/1/x"], &["d/1/2/x", "d/x"]),
            ("d/**/x", &["d/1/x", "d/1/2/x", "d/x"], &["e/x"]),
            ("[ab]?", &["d/a1", "b2"], &["c1", "a"]),
            ("{a,b}.c", &["a.c", "d/b.c"], &["c.c"]),
            ("*", &["d", "d/x"], &[]),
        ] {
            let exclude = Exclude::new([pattern]).expect(pattern);
            for path in yes {
                assert!(exclude.is_of(path.as_bytes(), false), "{pattern} {path}");
            }
            for path in no {
                assert!(!exclude.is_of(path.as_bytes(), true), "{pattern} {path}");
            }
        }
        let exclude = Exclude::new(["*.o", "build/"]).expect("patterns");
        assert!(exclude.is_of(b"d/build", true) && !exclude.is_of(b"d/build", false));
        assert!(exclude.is_of(b"d/\xff.o", false));
        assert!(!Exclude::default().is_of(b"d", true));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for wrong in ["", "/", "[a", "a{b"] {
            let error = Exclude::new([wrong]).expect_err(wrong);
            assert!(error.to_string().contains("invalid pattern"), "{error}");
        }
    }
}
