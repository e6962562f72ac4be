//! Ways to store files: refrain's, and its peers'. Each is a few lines of bash.
//!
//! In the folder in which they run, all that is in `out` afterwards is what was stored. Their arguments
//! are the files. `$REFRAIN` is the program.

use std::path::Path;

/// A way to store files.
pub(super) struct Way {
    pub name: String,
    pub is_ours: bool,
    /// What must be installed.
    pub programs: Vec<&'static str>,
    pub script: String,
    /// Whether a few bytes from the middle can be read without most of what is before them.
    pub reads_ranges: bool,
    /// Whether its time is of interest, so that it is run as often as others.
    pub is_timed: bool,
}

/// The default, which targets are held against.
pub(super) const SMALL: &str = "small";
/// What they are held against.
pub(super) const SOLID: &str = "zstd -3 --long=31, solid";
pub(super) const CASYNC: &str = "casync";
/// Others that the plot shows.
pub(super) const BORG_SMALL_CHUNKS: &str = "borg, zstd,3, chunks of 8 KiB";
pub(super) const RESTIC: &str = "restic";

/// Refrain's: its name and options.
const OURS: [(&str, &str); 2] = [(SMALL, ""), ("shared", "--profile shared")];

/// Others': name, program, script, whether they read ranges, whether their time is of interest.
const PEERS: [(&str, &str, &str, bool, bool); 9] = [
    (
        SOLID,
        "zstd",
        r#"cat "$@" | zstd -3 --long=31 -q -c >out/all.zst"#,
        false,
        true,
    ),
    (
        "zstd -3, a file at a time",
        "zstd",
        r#"for file; do zstd -3 -q -c "$file" >"out/${file##*/}.zst"; done"#,
        false,
        true,
    ),
    (
        CASYNC,
        "casync",
        r#"for file; do casync make --store=out/store.castr "out/${file##*/}.caibx" "$file"; done"#,
        true,
        true,
    ),
    (
        "borg, zstd,3",
        "borg",
        r#"borg init -e none out/repo; borg create --compression zstd,3 out/repo::all "$@""#,
        true,
        true,
    ),
    (
        BORG_SMALL_CHUNKS,
        "borg",
        r#"borg init -e none out/repo
        borg create --compression zstd,3 --chunker-params buzhash,11,16,13,4095 out/repo::all "$@""#,
        true,
        true,
    ),
    (
        RESTIC,
        "restic",
        r#"restic -q init --repo out/repo; restic -q backup --no-cache --repo out/repo "$@""#,
        true,
        true,
    ),
    (
        "zchunk, a file at a time",
        "zck",
        r#"for file; do zck -o "out/${file##*/}.zck" "$file"; done"#,
        true,
        false,
    ),
    (
        "gzip, a file at a time",
        "gzip",
        r#"for file; do gzip -c "$file" >"out/${file##*/}.gz"; done"#,
        false,
        false,
    ),
    (
        "bzip2, a file at a time",
        "bzip2",
        r#"for file; do bzip2 -c "$file" >"out/${file##*/}.bz2"; done"#,
        false,
        false,
    ),
];

/// What refrain's leave in `out`.
pub(super) const ARCHIVE: &str = "archive.czip";

/// The script that makes an archive with `options`, and says in JSON what came of it.
pub(super) fn create(options: &str) -> String {
    format!(r#""$REFRAIN" czip create --json {options} -o out/{ARCHIVE} "$@""#)
}

/// All of them, refrain's first.
pub(super) fn all() -> Vec<Way> {
    let ours = OURS.map(|(name, options)| Way {
        name: name.to_owned(),
        is_ours: true,
        programs: Vec::new(),
        script: create(options),
        reads_ranges: true,
        is_timed: true,
    });
    let peers = PEERS.map(|(name, program, script, reads_ranges, is_timed)| Way {
        name: name.to_owned(),
        is_ours: false,
        programs: vec![program],
        script: script.to_owned(),
        reads_ranges,
        is_timed,
    });
    ours.into_iter().chain(peers).collect()
}

/// Whether programs are installed.
pub(crate) fn are_installed(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path)
        // Servers live there, which is not on every user's path.
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .collect();
    let is_installed = |program: &&str| folders.iter().any(|folder| folder.join(program).is_file());
    programs.iter().all(is_installed)
}

/// The arguments that run a script on `files`.
pub(super) fn bash<'a>(
    script: &'a str,
    files: impl IntoIterator<Item = &'a Path>,
) -> Vec<&'a std::ffi::OsStr> {
    // bash takes the one behind the script for its own name.
    let fixed = ["bash", "-euo", "pipefail", "-c", script, "bash"];
    let fixed = fixed.into_iter().map(std::ffi::OsStr::new);
    fixed
        .chain(files.into_iter().map(Path::as_os_str))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_ways_have_a_name() {
        let all = all();
        let names: HashSet<_> = all.iter().map(|way| &way.name).collect();
        assert_eq!(names.len(), all.len());
        for name in [SMALL, SOLID, CASYNC] {
            assert!(names.contains(&name.to_owned()), "{name}");
        }
    }

    #[test]
    fn programs_that_nobody_has_are_not_installed() {
        assert!(are_installed(&["bash"]));
        assert!(!are_installed(&["bash", "a-program-that-nobody-has"]));
    }
}
