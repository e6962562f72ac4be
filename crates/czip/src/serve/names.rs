//! Where chunks are, by name, over all archives of profile `shared`.
//!
//! Eight bytes a chunk: the beginning of its name, and its number in its archive; an archive's are
//! sorted, and the table of the archive decides. The folder is looked over when a name is not found,
//! though not more often than once in a while.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use super::{
    ServeError,
    cache::in_thread,
    opened::Opened,
    plan::FrameUnit,
    site::{Site, shown},
    tree::{Components, Identity},
};
use crate::{
    archive::ReadError,
    format::{ChunkName, FormatError, Stream, header::Profile},
};

/// The folder is not looked over again before this.
const LOOKED_OVER_FOR: Duration = Duration::from_secs(1);
/// Archives whose names are kept.
const ARCHIVES_MAX: usize = 4096;

/// The names of all archives.
#[derive(Default)]
pub(super) struct Names {
    known: Mutex<Known>,
}

#[derive(Default, Clone)]
struct Known {
    archives: Vec<Arc<ArchiveNames>>,
    looked_over: Option<Instant>,
}

struct ArchiveNames {
    path: Components,
    identity: Identity,
    /// Of the open archive whose names they are.
    digest: blake3::Hash,
    /// Beginnings of names, sorted, and the chunks' numbers, those of all streams one after the other.
    places: Vec<(u32, u32)>,
}

impl ArchiveNames {
    fn read(path: Components, identity: Identity, opened: &Opened) -> Result<Self, ReadError> {
        let mut places = Vec::new();
        if opened.archive.header().profile == Profile::Shared {
            for stream in Stream::ALL {
                let list = &opened.archive.root().stream(stream).chunks;
                for row in 0..list.rows().len() {
                    for name in opened.archive.chunk_names(stream, row)? {
                        let Ok(number) = u32::try_from(places.len()) else {
                            break;
                        };
                        places.push((beginning(name), number));
                    }
                }
            }
        }
        places.sort_unstable();
        Ok(Self {
            path,
            identity,
            digest: opened.digest,
            places,
        })
    }

    fn find(&self, opened: &Opened, name: ChunkName) -> Result<Option<FrameUnit>, ReadError> {
        let first = self
            .places
            .partition_point(|&(start, _)| start < beginning(name));
        let same = self.places[first..]
            .iter()
            .take_while(|&&(start, _)| start == beginning(name));
        for &(_, number) in same {
            let mut number = u64::from(number);
            for stream in Stream::ALL {
                let chunks = opened.archive.root().stream(stream).chunks.items();
                if number >= chunks {
                    number -= chunks;
                    continue;
                }
                if opened.archive.name(stream, number)? == name {
                    let frame = opened.archive.frame_row(stream, number)?;
                    return Ok(Some(FrameUnit::stored(stream, number, frame)));
                }
                break;
            }
        }
        Ok(None)
    }

    fn may_have(&self, name: ChunkName) -> bool {
        self.places
            .binary_search_by_key(&beginning(name), |&(start, _)| start)
            .is_ok()
    }
}

/// Paths of chunks begin so, before the name.
pub(super) const CHUNK_PATH: &str = "/.czip/chunk/";

/// A name in hexadecimal.
pub(super) fn parse_name(text: &str) -> Option<ChunkName> {
    let mut name = [0; ChunkName::BYTES];
    if text.len() != 2 * name.len() {
        return None;
    }
    for (byte, digits) in name.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(digits[0])? << 4 | digit(digits[1])?) as u8;
    }
    Some(ChunkName(name))
}

fn beginning(name: ChunkName) -> u32 {
    u32::from_be_bytes([name.0[0], name.0[1], name.0[2], name.0[3]])
}

/// A chunk, and which archive has it.
pub(super) type Located = Option<(Arc<Opened>, FrameUnit)>;

impl Names {
    pub(super) async fn find(
        &self,
        site: &Arc<Site>,
        name: ChunkName,
    ) -> Result<Located, ServeError> {
        let mut known = self.known.lock().await.clone();
        for is_again in [false, true] {
            let site_then = site.clone();
            let found = in_thread(move || Ok(find_in(&site_then, &known.archives, name)));
            let found = found.await?;
            if found.is_some() || is_again {
                return Ok(found);
            }
            known = self.look_over(site).await?;
        }
        unreachable!("the second time returns")
    }

    async fn look_over(&self, site: &Arc<Site>) -> Result<Known, ServeError> {
        let mut known = self.known.lock().await;
        let is_fresh = known
            .looked_over
            .is_some_and(|then| then.elapsed() < LOOKED_OVER_FOR);
        if !is_fresh {
            let before = known.archives.clone();
            let site = site.clone();
            known.archives = in_thread(move || look_over(&site, &before)).await?;
            known.looked_over = Some(Instant::now());
        }
        Ok(known.clone())
    }
}

fn find_in(site: &Site, archives: &[Arc<ArchiveNames>], name: ChunkName) -> Located {
    for archive in archives.iter().filter(|archive| archive.may_have(name)) {
        // An archive that went, changed or is damaged has no chunks; another one may have them.
        let Ok(Some(opened)) = site.open_archive(&archive.path) else {
            continue;
        };
        if opened.digest != archive.digest {
            continue;
        }
        match archive.find(&opened, name) {
            Ok(Some(unit)) => return Some((opened, unit)),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(path = shown(&archive.path), %error, "an archive is damaged");
            }
        }
    }
    None
}

/// The names of all archives, of which those in `before` that did not change need not be read.
fn look_over(
    site: &Site,
    before: &[Arc<ArchiveNames>],
) -> Result<Vec<Arc<ArchiveNames>>, ReadError> {
    let mut archives = Vec::new();
    for (path, identity) in site.all_archives(ARCHIVES_MAX)? {
        let same = |known: &&Arc<ArchiveNames>| known.path == path && known.identity == identity;
        if let Some(known) = before.iter().find(same) {
            archives.push(known.clone());
            continue;
        }
        let read = match site.open_archive(&path) {
            Ok(Some(opened)) => ArchiveNames::read(path.clone(), identity, &opened),
            Ok(None) | Err(ReadError::Format(FormatError::NotAnArchive | FormatError::Empty)) => {
                continue;
            }
            Err(error) => Err(error),
        };
        match read {
            Ok(names) => archives.push(Arc::new(names)),
            Err(error) => {
                tracing::error!(path = shown(&path), %error, "an archive is damaged");
            }
        }
    }
    Ok(archives)
}
