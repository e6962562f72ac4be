//! Chunks of earlier archives, by their names: who fetches this archive may have them.
//!
//! In a frame with new chunks they would be fetched once more, so the packer keeps them apart.

use std::{fs::File, path::Path};

use super::{CreateError, CreateOptions, stream::StreamMaker};
use crate::{
    archive::{Archive, CacheBytes, FileSource, ReadError},
    format::{Stream, header::Header},
};

/// Tells the streams the names of all chunks of the earlier archives. `header` is that of the archive that
/// is made.
pub(super) fn tell_names(
    makers: &mut [StreamMaker; 5],
    options: &CreateOptions,
    header: &Header,
) -> Result<(), CreateError> {
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
                    makers[stream.index()].keep_apart(name);
                }
            }
        }
    }
    Ok(())
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
