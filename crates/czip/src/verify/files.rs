//! Whom damage hits: the files that have bytes of damaged frames.

use std::{collections::BTreeSet, ops::ControlFlow};

use crate::{
    archive::{Archive, Grain, ReadError, Section, Source},
    format::{Stream, catalog::EntryKind},
};

/// What is looked at between two questions whether to go on.
const STEP_BYTES: u64 = 16 << 20;

/// Sections of a step; a hostile archive may have more than memory has room for.
const SECTIONS_MAX: usize = 1 << 18;

/// Finds the files that have bytes of the frames of the content whose numbers are given, or of those that
/// were compressed against them: by the table, without reading any frame of the content. Their paths are
/// given to `found`, in order; that of standard input is empty. `progress` is told how many bytes of the
/// plain content were looked at, and says whether to go on: if all were, the answer is true.
///
/// # Errors
/// If the archive is locked, or more of it is damaged.
pub fn files_in_frames<S: Source>(
    archive: &Archive<S>,
    numbers: &BTreeSet<u64>,
    found: &mut dyn FnMut(Vec<u8>),
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<bool, ReadError> {
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
            is_hit = has_frame(archive, numbers, position, step)?;
            position += step;
            if progress(position).is_break() {
                return Ok(false);
            }
        }
        if is_hit {
            found(entry.path);
        }
    }
    Ok(true)
}

/// Whether the plain content has bytes of any of the frames among these.
fn has_frame<S: Source>(
    archive: &Archive<S>,
    numbers: &BTreeSet<u64>,
    offset: u64,
    bytes: u64,
) -> Result<bool, ReadError> {
    let outline = archive.outline(offset, bytes, Grain::Frames, SECTIONS_MAX)?;
    for section in outline.into_iter().flat_map(|outline| outline.sections) {
        let Section::Content { number, .. } = section else {
            continue;
        };
        let base = || archive.frame_row(Stream::Content, number);
        if numbers.contains(&number) || base()?.base.is_some_and(|base| numbers.contains(&base)) {
            return Ok(true);
        }
    }
    Ok(false)
}
