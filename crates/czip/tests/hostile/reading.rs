//! Reads an archive in every way that there is.

use std::ops::ControlFlow;

use refrain_czip::{
    archive::{Archive, CacheBytes, ReadError, Source},
    crypt::Identities,
    verify::{verify, verify_content, verify_names},
};
use refrain_czip_format::{Stream, catalog::Entry};

use crate::draft::IDENTITY;

/// Read at once.
const PIECE_BYTES: usize = 64 << 10;
/// No test's plain content is longer: a reader may stop there.
pub(crate) const CONTENT_BYTES_MAX: u64 = 4 << 20;

/// What is in an archive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub entries: Vec<Entry>,
    pub content: Vec<u8>,
}

/// Opens an archive; an encrypted one as the recipient of drafts does.
pub(crate) fn open<S: Source>(source: S) -> Result<Archive<S>, ReadError> {
    // Caches take little, so that what they do not take is seen.
    let cache = CacheBytes {
        frames: 1 << 20,
        parts: 1 << 20,
    };
    let mut archive = Archive::open(source, cache)?;
    if archive.is_locked() {
        let mut identities = Identities::new();
        let identity = identities.add("identity", IDENTITY.as_bytes());
        identity.expect("an identity");
        archive.unlock(&identities, None, &mut |_| None)?;
    }
    Ok(archive)
}

/// The entries, and the content from its beginning.
pub(crate) fn read<S: Source>(source: S) -> Result<Read, ReadError> {
    let archive = open(source)?;
    let entries = archive.entries()?;
    let content = content(&archive, 0)?;
    Ok(Read { entries, content })
}

/// The content from `offset` on.
pub(crate) fn content<S: Source>(archive: &Archive<S>, offset: u64) -> Result<Vec<u8>, ReadError> {
    let mut reader = archive.content(offset)?;
    let mut content = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    while (content.len() as u64) < CONTENT_BYTES_MAX {
        let count = reader.read(&mut piece)?;
        if count == 0 {
            break;
        }
        content.extend_from_slice(&piece[..count]);
    }
    Ok(content)
}

/// Everything that can be asked of an archive, whatever it says. The first error, if there is one.
pub(crate) fn everything(bytes: &[u8]) -> Result<(), ReadError> {
    let archive = open(bytes.to_vec())?;
    let end = archive.plain_bytes();
    let verified = verify(&archive, 1, &|_| ControlFlow::Continue(())).map(|_| ());
    let entries = archive.entries().map(|_| ());
    let mut results = vec![verified, entries];
    for offset in [0, end.min(1), end / 2, end.saturating_sub(1), end] {
        results.push(content(&archive, offset).map(|_| ()));
    }
    for stream in Stream::ALL {
        let bytes = archive.root().stream(stream).bytes();
        for offset in [0, bytes / 2, bytes.saturating_sub(1)] {
            let mut reader = archive.stream(stream);
            reader.seek(offset);
            results.push(reader.read(&mut [0; 5000]).map(|_| ()));
        }
    }
    if end <= CONTENT_BYTES_MAX {
        results.push(verify_content(&archive, 1, &mut |_| Ok(())));
        let go_on = |_| ControlFlow::Continue(());
        results.push(verify_names(&archive, 1, &go_on).map(|_| ()));
    }
    results.into_iter().collect()
}
