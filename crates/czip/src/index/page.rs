//! Pages of temporary files: what they hold, and a check behind it.
//!
//! The check covers the page's place too. It only tells what the disk or the memory on the way did to
//! a file of our own; that a name is the one looked for is always decided by its 20 bytes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::NAME_BYTES;
use super::error::{Folder, IndexError};

/// Bytes of a page of names; the least of a page of a run.
pub(super) const PAGE_BYTES: usize = 4096;
pub(super) const CHECK_BYTES: usize = 8;
pub(super) const NAMES_PER_PAGE: usize = (PAGE_BYTES - CHECK_BYTES) / NAME_BYTES;

/// Names in order of number, [`NAMES_PER_PAGE`] of them.
pub(super) type NamePage = [u8; PAGE_BYTES];

pub(super) fn name_at(page: &NamePage, place: usize) -> &[u8; NAME_BYTES] {
    debug_assert!(place < NAMES_PER_PAGE);
    page.as_chunks().0[place..]
        .first()
        .expect("within the page")
}

pub(super) fn seal(page: &mut [u8], number: u64) {
    let (held, check) = page.split_at_mut(page.len() - CHECK_BYTES);
    check.copy_from_slice(&xxh3_64_with_seed(held, number).to_le_bytes());
}

pub(super) fn is_whole(page: &[u8], number: u64) -> bool {
    let (held, check) = page.split_at(page.len() - CHECK_BYTES);
    check == xxh3_64_with_seed(held, number).to_le_bytes()
}

/// Reads page `number` of a file whose pages are as long as `page`.
pub(super) fn read(
    file: &File,
    number: u64,
    page: &mut [u8],
    folder: &Folder,
) -> Result<(), IndexError> {
    file.read_exact_at(page, number * page.len() as u64)
        .map_err(|source| folder.read(source))?;
    if !is_whole(page, number) {
        return Err(folder.damaged(number));
    }
    Ok(())
}
