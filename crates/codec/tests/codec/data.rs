//! Real data, which the repository does not carry: `REFRAIN_DATA`, or `../shared/data` beside
//! the workspace. Where there is none a test is skipped, and says so, unless
//! `REFRAIN_REQUIRE_DATA=1`.

use std::{
    env,
    fs::{self, File},
    io::{BufReader, Read},
    path::PathBuf,
};

/// The folder; `None` where it may be missing, and is.
pub(crate) fn folder() -> Option<PathBuf> {
    if_here(path(), "../shared/data")
}

/// The test vectors of this name, made by others' code: they lie beside the folder.
pub(crate) fn vectors(name: &str) -> Option<String> {
    let path = if_here(path().join("../vectors").join(name), name)?;
    Some(fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn path() -> PathBuf {
    match env::var_os("REFRAIN_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    }
}

/// `path`; `None` where it may be missing, and is.
pub(crate) fn if_here(path: PathBuf, name: &str) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    assert!(
        env::var_os("REFRAIN_REQUIRE_DATA").is_none_or(|value| value != "1"),
        "{} is not here, and REFRAIN_REQUIRE_DATA=1",
        path.display()
    );
    println!("skipped: {name} is not here");
    None
}

/// The first `len` bytes of a file of the Silesia corpus.
pub(crate) fn silesia(name: &str, len: usize) -> Option<Vec<u8>> {
    let path = folder()?.join("silesia").join(name).with_extension("zst");
    Some(beginning_of(path, len))
}

/// The first `len` bytes of a mailbox.
pub(crate) fn mail(len: usize) -> Option<Vec<u8>> {
    Some(beginning_of(
        folder()?.join("mail/spamassassin-ham.mbox.zst"),
        len,
    ))
}

/// The first `len` bytes of each of the first `count` Linux 2.0 releases: one tar of tars.
pub(crate) fn linux_releases(count: usize, len: usize) -> Option<Vec<Vec<u8>>> {
    let mut releases = members("linux-2.0.1-2.0.40.tar.zst", count)?;
    for release in &mut releases {
        release.truncate(len);
    }
    Some(releases)
}

/// The first `count` files of a tar.
pub(crate) fn members(path: &str, count: usize) -> Option<Vec<Vec<u8>>> {
    const RECORD_BYTES: usize = 512;
    let mut archive = unpack(folder()?.join(path));
    let mut members = Vec::new();
    while members.len() < count {
        let header = take(&mut archive, RECORD_BYTES);
        let size = std::str::from_utf8(&header[124..135]).expect("octal digits");
        let size = usize::from_str_radix(size, 8).expect("octal digits");
        let mut member = take(&mut archive, size.next_multiple_of(RECORD_BYTES));
        member.truncate(size);
        // A folder is a member, too.
        if size > 0 {
            members.push(member);
        }
    }
    Some(members)
}

/// The first `len` bytes of what is packed at `path`.
pub(crate) fn beginning_of(path: PathBuf, len: usize) -> Vec<u8> {
    take(&mut unpack(path), len)
}

fn unpack(path: PathBuf) -> impl Read {
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut decoder = zstd::Decoder::with_buffer(BufReader::new(file)).expect("a decoder");
    decoder.window_log_max(31).expect("a valid window");
    decoder
}

fn take(file: &mut impl Read, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.take(len as u64)
        .read_to_end(&mut bytes)
        .expect("zstd data");
    bytes
}
