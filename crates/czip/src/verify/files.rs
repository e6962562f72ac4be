//! Whom damage hits: the files that have bytes of a frame.

use std::ops::ControlFlow;

use crate::{
    archive::{Archive, Grain, ReadError, Section, Source},
    format::{Stream, catalog::EntryKind},
};

/// What is looked at between two questions whether to go on.
const STEP_BYTES: u64 = 16 << 20;

/// Sections of a step; a hostile archive may have more than memory has room for.
const SECTIONS_MAX: usize = 1 << 18;

/// The files that have bytes of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesInFrame {
    /// The path of the first, which is empty if it is standard input.
    pub first: Option<Vec<u8>>,
    /// How many there are.
    pub files: u64,
}

/// Finds the files that have bytes of frame `number` of the content, or of one that was compressed against
/// it: by the table, without reading any frame of the content. `progress` is told how many bytes of the
/// plain content were looked at, and says whether to go on.
///
/// # Errors
/// If the archive is locked, or more of it is damaged. `None` if `progress` said so.
pub fn files_in_frame<S: Source>(
    archive: &Archive<S>,
    number: u64,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Option<FilesInFrame>, ReadError> {
    let mut found = FilesInFrame::default();
    let mut end = 0;
    for entry in archive.entries()? {
        let EntryKind::File { bytes } = entry.kind else {
            continue;
        };
        let mut position = end;
        end += bytes;
        let mut is_hit = false;
        while position < end && !is_hit {
            let step = STEP_BYTES.min(end - position);
            is_hit = has_frame(archive, number, position, step)?;
            position += step;
            if progress(position).is_break() {
                return Ok(None);
            }
        }
        if is_hit {
            found.files += 1;
            found.first.get_or_insert(entry.path);
        }
    }
    Ok(Some(found))
}

/// Whether the plain content has bytes of the frame among these.
fn has_frame<S: Source>(
    archive: &Archive<S>,
    number: u64,
    offset: u64,
    bytes: u64,
) -> Result<bool, ReadError> {
    let outline = archive.outline(offset, bytes, Grain::Frames, SECTIONS_MAX)?;
    for section in outline.into_iter().flat_map(|outline| outline.sections) {
        if let Section::Content { number: frame, .. } = section
            && (frame == number || archive.frame_row(Stream::Content, frame)?.base == Some(number))
        {
            return Ok(true);
        }
    }
    Ok(false)
}
