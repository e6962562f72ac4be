//! Real series of objects, in the order in which a client would fetch them.

use std::{fs::File, io::Read, path::Path};

use anyhow::Context;

/// Objects that are fetched one after the other, or several at once.
pub(crate) struct Corpus {
    pub name: &'static str,
    pub objects: Vec<Vec<u8>>,
}

impl Corpus {
    pub(crate) fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.len() as u64).sum()
    }
}

/// All corpora that `data` has.
pub(crate) fn load_all(data: &Path) -> anyhow::Result<Vec<Corpus>> {
    let pages = |file: &str, count: usize| -> anyhow::Result<Vec<Vec<u8>>> {
        members(&data.join("pages").join(file), count)
    };
    Ok(vec![
        Corpus {
            name: "8 Linux 2.0 releases",
            objects: members(&data.join("linux-2.0.1-2.0.40.tar.zst"), 8)?,
        },
        Corpus {
            name: "200 revisions of a page (GitHub)",
            objects: pages("github-tos.tar.zst", 200)?,
        },
        Corpus {
            name: "200 revisions of a page (Brevo)",
            objects: pages("brevo-privacy.tar.zst", 200)?,
        },
        Corpus {
            name: "mail, 41.6 MB in one flow",
            objects: vec![unpacked(&data.join("mail/spamassassin-ham.mbox.zst"))?],
        },
        Corpus {
            name: "Silesia, 9 files",
            objects: silesia(&data.join("silesia"))?,
        },
    ])
}

/// The seven Silesia files that WANProxy was measured with.
pub(crate) fn silesia_seven(data: &Path) -> anyhow::Result<Corpus> {
    let names = ["dickens", "mr", "nci", "ooffice", "osdb", "reymont", "xml"];
    let objects = names.map(|name| unpacked(&data.join("silesia").join(format!("{name}.zst"))));
    Ok(Corpus {
        name: "Silesia, 7 files",
        objects: objects.into_iter().collect::<Result<_, _>>()?,
    })
}

/// The first releases of Linux 2.0, as tars.
pub(crate) fn linux_releases(data: &Path, count: usize) -> anyhow::Result<Corpus> {
    Ok(Corpus {
        name: "Linux 2.0, successive releases",
        objects: members(&data.join("linux-2.0.1-2.0.40.tar.zst"), count)?,
    })
}

/// What a pair may carry: all kinds of content that `data` has, and the demo's.
pub(crate) fn load_kinds(data: &Path) -> anyhow::Result<Vec<Corpus>> {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/corpus/objects.tar.zst");
    let mut kinds = load_all(data)?;
    // Releases are long: a few show what all do.
    kinds[0] = linux_releases(data, 4)?;
    kinds.push(Corpus {
        name: "the demo's objects",
        objects: members(&demo, usize::MAX)?,
    });
    kinds.push(Corpus {
        name: "33 captures, unchanged files",
        objects: files(&data.join("pcap"), |path| Ok(std::fs::read(path)?))?,
    });
    kinds.push(Corpus {
        name: "a log of requests (YouTube)",
        objects: files(&data.join("youtube"), unpacked)?,
    });
    kinds.push(Corpus {
        name: "compressed files (Silesia)",
        objects: files(&data.join("silesia"), |path| Ok(std::fs::read(path)?))?,
    });
    Ok(kinds)
}

/// The files of Silesia, in the order of their names.
pub(crate) fn silesia(folder: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    files(folder, unpacked)
}

fn files(
    folder: &Path,
    read: impl Fn(&Path) -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<Vec<Vec<u8>>> {
    let listing = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<_> = listing
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn decoder(path: &Path) -> anyhow::Result<impl Read> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut decoder = zstd::Decoder::new(file)?;
    decoder.window_log_max(31)?;
    Ok(decoder)
}

pub(crate) fn unpacked(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    decoder(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Bytes of all objects when each is compressed on its own, with `zstd -3`.
pub(crate) fn zstd_each(corpus: &Corpus) -> anyhow::Result<u64> {
    let mut sum = 0;
    for object in &corpus.objects {
        sum += zstd::bulk::compress(object, 3)?.len() as u64;
    }
    Ok(sum)
}

/// The first `count` files of a compressed tar.
pub(crate) fn members(path: &Path, count: usize) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut archive = tar::Archive::new(decoder(path)?);
    let mut objects = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        if objects.len() < count && entry.header().entry_type().is_file() {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            objects.push(bytes);
        }
        if objects.len() == count {
            break;
        }
    }
    Ok(objects)
}
