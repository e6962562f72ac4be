//! Media, as one day's YouTube requests of a campus ask for them (the UMass trace, which HARENS was
//! measured with): the trace names videos, and there are no videos. Each is a file of noise here, as long as such files
//! are, and the same for the same id: compressed media have no redundancy of their own.

use std::{
    collections::HashSet,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use anyhow::Context;
use refrain_analysis::requests::trace::{media_bytes, parse};
use xxhash_rust::xxh3::xxh3_64;

const TRACE: &str = "youtube/youtube.parsed.012908.S1.dat.zst";

/// The ids of all requests, in order.
pub(super) fn requests(data: &Path) -> anyhow::Result<Vec<String>> {
    let path = data.join(TRACE);
    let file = File::open(&path).with_context(|| path.display().to_string())?;
    let lines = BufReader::new(zstd::Decoder::new(file)?).lines();
    let mut ids = Vec::new();
    for line in lines {
        let line = line?;
        let object = parse(line.as_bytes()).and_then(|request| request.object);
        ids.extend(object.map(|id| String::from_utf8_lossy(id).into_owned()));
    }
    Ok(ids)
}

/// As many parts of the trace, evenly from its beginning to its end, each of requests for `bytes`.
pub(super) fn parts(ids: &[String], count: usize, bytes: u64) -> Vec<&[String]> {
    let parts = (0..count).map(|part| {
        let ids = &ids[part * ids.len() / count..];
        let mut left = bytes;
        let mut asked = 0;
        while let Some(id) = ids.get(asked)
            && left > 0
        {
            left = left.saturating_sub(media_bytes(id.as_bytes()));
            asked += 1;
        }
        &ids[..asked]
    });
    parts.collect()
}

/// Makes the files of a part in `folder`, and says in which order they are asked for.
pub(super) fn make(ids: &[String], folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder)?;
    let mut made = HashSet::new();
    let mut noise = Vec::new();
    for id in ids.iter().filter(|&id| made.insert(id)) {
        noise.resize(media_bytes(id.as_bytes()) as usize, 0);
        // Another seed than that of the length.
        fastrand::Rng::with_seed(!xxh3_64(id.as_bytes())).fill(&mut noise);
        std::fs::write(folder.join(id), &noise)?;
    }
    Ok(ids.iter().map(|id| folder.join(id)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_twice_is_one_file() {
        let ids = ["a", "b", "a"].map(ToOwned::to_owned);
        let part = parts(&ids, 1, u64::MAX);
        assert_eq!(part, [&ids[..]]);
        assert_eq!(parts(&ids, 3, 1), [&ids[..1], &ids[1..2], &ids[2..]]);
        let folder = tempfile::tempdir().expect("a folder");
        let files = make(part[0], folder.path()).expect("room");
        assert_eq!(files[0], files[2]);
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 2);
        let bytes = files[1].metadata().expect("there").len();
        assert_eq!(bytes, media_bytes(b"b"));
    }
}
