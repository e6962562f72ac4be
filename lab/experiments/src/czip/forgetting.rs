//! What it costs that `refrain czip create` forgets the names of chunks that it has not seen for longest.
//!
//! Archives are made in this process, with bounds that are too small for the program's option.

use std::{
    fmt::Write,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Instant,
};

use refrain_codec::chunk::{hash::ChunkHash, recent::RecentChunks};
use refrain_czip::create::{CreateOptions, Created, Input, Output, create};
use serde::{Deserialize, Serialize};

use super::{
    Setup,
    data::{DataSet, bytes_of},
};
use crate::{chapters::Figures, corpus};

/// Distinct chunks for each name that the index has room for.
const BOUNDS: [u64; 3] = [2, 10, 50];

/// As many chunks as 500 GB have.
const CHUNKS: u64 = 500_000_000_000 / (32 << 10);

#[derive(Serialize, Deserialize)]
pub(super) struct Forgetting {
    sets: Vec<Set>,
    index: Vec<Load>,
}

/// A set: with all names, and then with each of [`BOUNDS`].
#[derive(Serialize, Deserialize)]
struct Set {
    name: String,
    plain_bytes: u64,
    chunks: u64,
    archives: Vec<Made>,
}

#[derive(Serialize, Deserialize)]
struct Made {
    archive_bytes: u64,
    unique_bytes: u64,
    forgotten: u64,
}

/// The index alone, at the default bound.
#[derive(Serialize, Deserialize)]
struct Load {
    name: String,
    repeats: u64,
    lost: u64,
    ns: f64,
    memory_bytes: usize,
}

impl Figures<Setup<'_>> for Forgetting {
    const NAME: &'static str = "forgetting";
    const TITLE: &'static str = "Names that are forgotten";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let folder = setup.data.folder().join("forgetting");
        let mut sets = vec![
            set("40 Linux tars", linux(setup.data.shared(), &folder)?)?,
            set("mail", mail(setup.data.shared(), &folder)?)?,
        ];
        match setup.data.files(DataSet::RootFileSystems) {
            Ok(files) => sets.push(set(DataSet::RootFileSystems.name(), files)?),
            Err(error) => eprintln!("root file systems: not available: {error:#}"),
        }
        let mut random = fastrand::Rng::with_seed(1);
        let mut next = 0;
        let index = vec![
            load("all new", 0..CHUNKS),
            load(
                "100 GB, five times",
                (0..CHUNKS).map(|at| at % (CHUNKS / 5)),
            ),
            load("250 GB, twice", (0..CHUNKS).map(|at| at % (CHUNKS / 2))),
            load(
                "half repeat, most of them soon",
                (0..CHUNKS).map(|_| match next > 0 && random.bool() {
                    true => next - (next as f64).powf(random.f64()) as u64,
                    false => {
                        next += 1;
                        next - 1
                    }
                }),
            ),
        ];
        Ok(Self { sets, index })
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        *page += "Archives in MB, with an index for all distinct chunks (*all*), and for a part of them. In\n\
                  brackets: the ratio to *all*. *Forgotten*: names that the smallest index forgot.\n\n\
                  | | plain | chunks | all |";
        for part in BOUNDS {
            write!(page, " 1/{part} |")?;
        }
        *page += " forgotten |\n|---|--:|--:|--:|--:|--:|--:|--:|\n";
        for set in &self.sets {
            let mb = set.plain_bytes as f64 / 1e6;
            write!(page, "| {} | {mb:.1} | {} |", set.name, set.chunks)?;
            let first = set.archives[0].archive_bytes as f64;
            for made in &set.archives {
                let bytes = made.archive_bytes as f64;
                write!(page, " {:.2} ({:.3}) |", bytes / 1e6, bytes / first)?;
            }
            let last = set.archives.last().map_or(0, |made| made.forgotten);
            writeln!(page, " {last} |")?;
        }
        writeln!(
            page,
            "\nThe index only, with its default limit of {} MiB, and {CHUNKS} look-ups, which represent 500 GB.\n\
             *Repeats*: chunks that came before. *Lost*: repeats that the index did not know. The time includes\n\
             generating the hash. In the last row, half of all chunks repeat, at distances whose logarithms are\n\
             evenly distributed.\n\n\
             | | repeats | lost | ns per look-up | memory, MB |\n\
             |---|--:|--:|--:|--:|",
            CreateOptions::default().index_bytes >> 20
        )?;
        for load in &self.index {
            let lost = 100.0 * load.lost as f64 / load.repeats.max(1) as f64;
            let mb = load.memory_bytes as f64 / 1e6;
            writeln!(
                page,
                "| {} | {} | {lost:.1} % | {:.0} | {mb:.0} |",
                load.name, load.repeats, load.ns
            )?;
        }
        Ok(())
    }
}

fn linux(shared: &Path, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let tars = corpus::linux_releases(shared, 40)?.objects;
    let written = tars.iter().enumerate().map(|(number, tar)| {
        let path = folder.join(format!("{number:02}.tar"));
        fs::write(&path, tar)?;
        Ok(path)
    });
    written.collect()
}

fn mail(shared: &Path, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let path = folder.join("mail");
    let mail = shared.join("mail/spamassassin-ham.mbox.zst");
    fs::write(&path, corpus::unpacked(&mail)?)?;
    Ok(vec![path])
}

fn set(name: &str, files: Vec<PathBuf>) -> anyhow::Result<Set> {
    let all = made(&files, CreateOptions::default().index_bytes)?;
    anyhow::ensure!(all.forgotten_chunks == 0, "{name}: the index is too small");
    let chunks = all.header.chunks;
    let mut archives = vec![Made::of(&all)];
    for part in BOUNDS {
        let names = (chunks / part) as usize;
        let created = made(&files, names * RecentChunks::<u64>::BYTES_PER_CHUNK)?;
        archives.push(Made::of(&created));
    }
    Ok(Set {
        name: name.to_owned(),
        plain_bytes: files
            .iter()
            .map(|file| bytes_of(file))
            .sum::<Result<_, _>>()?,
        chunks,
        archives,
    })
}

fn made(files: &[PathBuf], index_bytes: usize) -> anyhow::Result<Created> {
    let output = tempfile::NamedTempFile::new_in(files[0].parent().unwrap_or(Path::new(".")))?;
    let options = CreateOptions {
        index_bytes,
        ..CreateOptions::default()
    };
    let inputs = files.iter().cloned().map(Input::Path).collect();
    let output = Output::File(output.path().to_owned());
    let go_on = &mut |_: refrain_czip::create::CreateProgress<'_>| ControlFlow::Continue(());
    Ok(create(inputs, output, &options, go_on)?)
}

impl Made {
    fn of(created: &Created) -> Self {
        Self {
            archive_bytes: created.header.archive_bytes,
            unique_bytes: created.summary.unique_bytes,
            forgotten: created.forgotten_chunks,
        }
    }
}

/// Asks for chunks by their numbers; a new one has the next number.
fn load(name: &str, chunks: impl Iterator<Item = u64>) -> Load {
    let mut index = RecentChunks::within(CreateOptions::default().index_bytes / 8 * 7);
    let (mut repeats, mut lost, mut next, mut asked) = (0, 0, 0, 0);
    let begun = Instant::now();
    for number in chunks {
        asked += 1;
        let is_repeat = number < next;
        repeats += u64::from(is_repeat);
        next = next.max(number + 1);
        let hash = digest(number);
        if index.find(&hash).is_none() {
            index.insert(&hash, number);
            lost += u64::from(is_repeat);
        }
    }
    Load {
        name: name.to_owned(),
        repeats,
        lost,
        ns: begun.elapsed().as_nanos() as f64 / f64::from(asked),
        memory_bytes: index.memory_bytes(),
    }
}

/// As even as a digest, and cheaper than a look-up.
fn digest(number: u64) -> ChunkHash {
    let mut random = fastrand::Rng::with_seed(number);
    let mut hash = [0; 20];
    random.fill(&mut hash);
    ChunkHash(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_within_the_bound_is_found() {
        let load = load("", (0..2000).map(|at| at % 1000));
        assert_eq!((load.repeats, load.lost), (1000, 0));
    }
}
