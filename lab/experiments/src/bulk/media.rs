//! Media, as one day's YouTube requests of a campus ask for them (the UMass trace, which HARENS was
//! measured with): the traces say which video, and there are no videos. Each is a file of noise here, as
//! long as such files are, the same for the same id: compressed media have no redundancy of their own.

use std::{
    collections::HashSet,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use anyhow::Context;
use xxhash_rust::xxh3::xxh3_64;

const TRACE: &str = "youtube/youtube.parsed.012908.S1.dat.zst";

/// Characters of an id; what follows are parameters.
const ID_BYTES: usize = 11;

/// Half of the files are longer.
const MEDIAN_BYTES: f64 = 9e6;
const BYTES_MIN: f64 = 1e6;
const BYTES_MAX: f64 = 60e6;
/// Of the logarithm of their lengths: one in six is twice as long as the median.
const DEVIATION: f64 = 0.7;

/// The ids of all requests, in order.
pub(super) fn requests(data: &Path) -> anyhow::Result<Vec<String>> {
    let path = data.join(TRACE);
    let file = File::open(&path).with_context(|| path.display().to_string())?;
    let lines = BufReader::new(zstd::Decoder::new(file)?).lines();
    let mut ids = Vec::new();
    for line in lines {
        ids.extend(id(&line?).map(ToOwned::to_owned));
    }
    Ok(ids)
}

/// Whose video a line asks for; a broken line asks for none, and some name a server in its place.
fn id(line: &str) -> Option<&str> {
    let asked = line.split_whitespace().nth(4)?;
    let id = asked.split('&').next()?;
    (id.len() == ID_BYTES).then_some(id)
}

/// How long the file of an id is.
pub(super) fn bytes_of(id: &str) -> u64 {
    let mut random = fastrand::Rng::with_seed(xxh3_64(id.as_bytes()));
    // The sum of twelve has a deviation of 1, and nearly a normal distribution.
    let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    (MEDIAN_BYTES * (DEVIATION * normal).exp()).clamp(BYTES_MIN, BYTES_MAX) as u64
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
            left = left.saturating_sub(bytes_of(id));
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
        noise.resize(bytes_of(id) as usize, 0);
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
    fn ids_have_no_parameters_and_broken_lines_none() {
        let line =
            "1189828810.2 63.22.65.73 35.139.191.73 GETVIDEO bBXyB7niEc0&origin 55.253.185.27 ";
        assert_eq!(id(line), Some("bBXyB7niEc0"));
        assert_eq!(
            id("594956655.1 63.22.65.73 205.1.1.1 GETVIDEO ash-v10.ash.youtube.com 1"),
            None
        );
        assert_eq!(id("594956655.1"), None);
    }

    #[test]
    fn lengths_are_those_of_media_and_stay_the_same() {
        let mut lengths: Vec<u64> = (0..1001).map(|id| bytes_of(&id.to_string())).collect();
        assert_eq!(bytes_of("0"), lengths[0]);
        lengths.sort_unstable();
        assert!(
            (8_000_000..10_000_000).contains(&lengths[500]),
            "{}",
            lengths[500]
        );
        assert!(lengths[0] >= 1_000_000 && lengths[1000] <= 60_000_000);
    }

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
        assert_eq!(bytes, bytes_of("b"));
    }
}
