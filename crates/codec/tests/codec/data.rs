//! Real data. `testdata` has what licences allow. The rest is in `REFRAIN_DATA`, or `../shared/data`
//! beside the workspace; `lab/data` gets it. Where it is missing a test is skipped, and says so,
//! unless `REFRAIN_REQUIRE_DATA=1`.

use std::{
    env,
    fs::File,
    io::{BufReader, Read},
    path::{Path, PathBuf},
};

/// What `testdata` has of each Linux release.
const RELEASE_BYTES: usize = 8 << 20;

/// A path from the workspace's folder.
fn workspace(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A file that the repository has.
pub(crate) fn testdata(name: &str) -> PathBuf {
    workspace("testdata").join(name)
}

/// A file that the repository may not have; `None` where it may be missing, and is.
fn shared(name: &str) -> Option<PathBuf> {
    let folder = env::var_os("REFRAIN_DATA").unwrap_or_else(|| "../shared/data".into());
    let path = workspace(folder).join(name);
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
    let path = shared(&format!("silesia/{name}.zst"))?;
    Some(beginning_of(path, len))
}

/// A mailbox of 8 MiB.
pub(crate) fn mail() -> Vec<u8> {
    beginning_of(testdata("spamassassin-ham.mbox.zst"), 8 << 20)
}

/// The first `len` bytes, up to 8 MiB, of the tars of two Linux 2.0 releases.
pub(crate) fn linux_releases(len: usize) -> Vec<Vec<u8>> {
    let releases = beginning_of(testdata("linux-2.0.1-2.0.2.zst"), 2 * RELEASE_BYTES);
    releases
        .chunks(RELEASE_BYTES)
        .map(|release| release[..len].to_vec())
        .collect()
}

/// The first `count` revisions of a page.
pub(crate) fn page(name: &str, count: usize) -> Option<Vec<Vec<u8>>> {
    const RECORD_BYTES: usize = 512;
    let mut archive = unpack(shared(&format!("pages/{name}.tar.zst"))?);
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
