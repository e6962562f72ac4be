//! Chunks of earlier archives, by their names: who fetches this archive may have them.
//!
//! In a frame with new chunks they would be fetched once more, so the packer keeps them apart.

use std::{fs::File, path::Path};

use super::{CreateError, CreateOptions};
use crate::{
    archive::{Archive, CacheBytes, FileSource, ReadError},
    format::{Stream, header::Header},
    index::NameIndex,
};

/// The names of all chunks of the earlier archives, stream by stream. `header` is that of the archive
/// that is made.
pub(super) fn names(
    options: &CreateOptions,
    header: &Header,
) -> Result<[NameIndex; 5], CreateError> {
    // Beside the index of the archive's own names, which is in use at the same time.
    let index_bytes = options.index_bytes / 4;
    let mut names = Stream::ALL.map(|stream| {
        let share = match stream {
            Stream::Content => index_bytes,
            _ => index_bytes / 32,
        };
        NameIndex::new(share, &options.temporary)
    });
    for path in &options.earlier {
        let unread = |error| CreateError::Earlier {
            path: path.clone(),
            error: Box::new(error),
        };
        let archive = open(path).map_err(unread)?;
        if !cuts_alike(archive.header(), header) {
            return Err(CreateError::EarlierCut { path: path.clone() });
        }
        for stream in Stream::ALL {
            for row in 0..archive.root().stream(stream).chunks.rows().len() {
                for name in archive.chunk_names(stream, row).map_err(unread)? {
                    names[stream.index()].find_or_insert(&name.0)?;
                }
            }
        }
    }
    Ok(names)
}

fn open(path: &Path) -> Result<Archive<FileSource>, ReadError> {
    let source = FileSource::new(File::open(path)?)?;
    Archive::open(source, CacheBytes::default())
}

/// Whether equal content has equal chunks in both, and these equal names.
fn cuts_alike(one: &Header, other: &Header) -> bool {
    let cut = |header: &Header| {
        (
            header.chunking,
            header.chunk_bytes,
            (header.chunk_bytes_min, header.chunk_bytes_max),
            header.is_woven,
            header.encryption.map(|how| how.has_group_secret),
        )
    };
    cut(one) == cut(other)
}
