//! Opening a store: its format, its segments, and what a crash left of the youngest.
//!
//! After a crash only the youngest segment can have more in one file than in another. Its records
//! from the last mark on are proved by hashing their chunks. What lies behind the last that holds is
//! cut off; since readers may have seen what was cut, nothing is written in its place: the next
//! segment begins. Those that fail before it are damaged, and nothing else is.

use std::{collections::HashMap, io, sync::Arc};

use super::{
    DiskStore, Head, Lock, Sealed, StoreConfig,
    evict::{now_s, room_for_head},
    lock::LOCK_FILE,
    room::room_bytes,
};
use crate::{
    StoreError, StoreStat,
    folder::Folder,
    format::{self, FORMAT_FILE, Format, NEW, list, remove, segment_files, sizes},
    history::{History, Segment},
    index::{Batch, ChunkAt, NUMBER_END},
    layout::{
        FileKind,
        index_file::{self, position_of},
    },
};

impl DiskStore {
    pub(super) fn open_folder(
        folder: Arc<dyn Folder>,
        config: StoreConfig,
        lock: Option<Lock>,
    ) -> Result<Self, StoreError> {
        let segment_bytes = config.checked_segment_bytes(room_bytes(&*folder)?)?;
        settle_format(&*folder, &config)?;
        // Cut off what a crash left, and look again: what was cut may have hidden what lies
        // deeper.
        let mut was_cut = false;
        let (history, resumed) = loop {
            let mut history = History::new(Arc::clone(&folder), config.chunking.hasher);
            match load(&mut history)? {
                Youngest::IsCut => was_cut = true,
                Youngest::GoesOn { number, mark } if !was_cut => {
                    break (history, Some((number, mark)));
                }
                _ => break (history, None),
            }
        };
        Self::of_history(history, resumed, config, segment_bytes, lock)
    }

    fn of_history(
        mut history: History,
        resumed: Option<(u32, u32)>,
        config: StoreConfig,
        segment_bytes: u64,
        lock: Option<Lock>,
    ) -> Result<Self, StoreError> {
        let last = history.segments.keys().next_back().copied().unwrap_or(0);
        let head = match resumed {
            Some((number, mark)) => Head::resume(&mut history, number, mark)?,
            None => {
                if last + 1 >= NUMBER_END {
                    return Err(StoreError::WornOut);
                }
                Head::create(&mut history, last + 1, now_s())?
            }
        };
        history.segments.values_mut().for_each(Segment::shrink);
        let [mut sealed, of_files] = Sealed::of(&*history.folder)?;
        sealed.remove(head.number);
        let mut store = Self {
            history,
            config,
            segment_bytes,
            head,
            sealed,
            of_files,
            recipes: HashMap::new(),
            next_recipe: 0,
            counted: StoreStat::default(),
            gave_way_in_vain: false,
            lock,
        };
        // The bound may be less than it was.
        match store.head.disk_bytes(&store.history).total() > segment_bytes {
            true => store.roll()?,
            false => store.make_room()?,
        }
        Ok(store)
    }
}

/// What is to become of the youngest segment of the log.
enum Youngest {
    /// It is whole, and has this number. Records before the mark are known to be synced.
    GoesOn { number: u32, mark: u32 },
    /// Another one is to be begun.
    IsSealed,
    /// It was cut: all is to be loaded again.
    IsCut,
}

/// Looks at the file `format`, and refuses what is no store like this, nor to be one.
pub(super) fn check_format(
    folder: &dyn Folder,
    config: &StoreConfig,
) -> Result<Option<Format>, StoreError> {
    // First: of a file in place of the folder it says so.
    let files = list(folder)?;
    let stored = format::read(folder)?;
    match &stored {
        Some(stored) => {
            stored.check_chunking(folder, config.chunking)?;
            check_files_fit(folder, config)?;
        }
        None => {
            let ours = [LOCK_FILE.to_owned(), format!("{FORMAT_FILE}{NEW}")];
            if !files.iter().all(|(name, _)| ours.contains(name)) {
                return Err(StoreError::NotAStore {
                    path: folder.path(),
                });
            }
        }
    }
    Ok(stored)
}

/// Refuses a bound in which what is known of files of others leaves no room: it is not evicted, and
/// all else would be in vain.
fn check_files_fit(folder: &dyn Folder, config: &StoreConfig) -> Result<(), StoreError> {
    let [_, of_files] = Sealed::of(folder)?;
    let segment_bytes = config.checked_segment_bytes(room_bytes(folder)?)?;
    match of_files.bytes + room_for_head(segment_bytes) <= config.size_bytes {
        true => Ok(()),
        false => Err(StoreError::TooManyFiles {
            size_bytes: config.size_bytes,
        }),
    }
}

fn settle_format(folder: &dyn Folder, config: &StoreConfig) -> Result<(), StoreError> {
    let format = Format {
        chunking: config.chunking,
        size_bytes: config.size_bytes,
    };
    match check_format(folder, config)? == Some(format) {
        true => Ok(()),
        false => format::write(folder, format),
    }
}

/// The numbers of the segments that have an index, in order. Files of others are removed if they
/// are ours: their segment was being begun or evicted.
fn segments(folder: &dyn Folder) -> Result<Vec<u32>, StoreError> {
    for (name, _) in list(folder)? {
        if name.ends_with(NEW) {
            remove(folder, &name)?;
        }
    }
    let files = segment_files(folder)?;
    let mut numbers = Vec::new();
    for &(number, kind) in files.keys() {
        if kind == FileKind::Index {
            numbers.push(number);
        } else if !files.contains_key(&(number, FileKind::Index)) {
            remove(folder, &kind.file_name(number))?;
        }
    }
    Ok(numbers)
}

/// Loads all segments: their records, then, since a recipe may name a chunk that lies later, their
/// recipes.
fn load(history: &mut History) -> Result<Youngest, StoreError> {
    let folder = Arc::clone(&history.folder);
    let numbers = segments(&*folder)?;
    let sizes = sizes(&*folder)?;
    let index_bytes: u64 = sizes.values().map(|size| size.index).sum();
    // Files may be as long as their owner likes: no more is taken than a million entries need.
    let entries = (index_bytes / index_file::RECORD_BYTES as u64).min(1 << 20);
    history.index.reserve(entries as usize);
    let has_files = |number: &u32| sizes.get(number).is_some_and(|size| size.other > 0);
    let last = numbers.iter().rfind(|number| !has_files(number)).copied();
    let mut batch = Batch::new();
    let mut youngest = Youngest::IsSealed;
    let mut failed = Vec::new();
    for &number in &numbers {
        let header = if_readable(history.read_header(number))?.flatten();
        let segment = Segment::new(header.map_or(0, |header| header.created_s));
        history.segments.insert(number, segment);
        if has_files(&number) {
            history.load_files(number)?;
        }
        let Some(loaded) = if_readable(history.load_index(number, &mut batch))? else {
            // Nothing is cut off: another time it may be read.
            history.note_damage(number);
            continue;
        };
        if Some(number) == last {
            let records = history.segment(number).records;
            let mark = header.map_or(0, |header| header.mark).min(records);
            let end;
            (end, failed) = prove(history, number, mark)?;
            if end < records {
                cut(history, number, end)?;
                return Ok(Youngest::IsCut);
            }
            if loaded.has_rest || header.is_none() {
                cut(history, number, records)?;
            } else if !loaded.is_sealed {
                youngest = Youngest::GoesOn { number, mark };
            }
        }
    }
    for &number in &numbers {
        let is_last = Some(number) == last;
        let loaded = if_readable(history.load_recipes(number, &mut batch))?;
        // Else the slot of what no record declares would be given to another realm.
        if is_last && loaded.is_none_or(|loaded| loaded.has_undeclared) {
            youngest = Youngest::IsSealed;
        }
        match loaded {
            Some(loaded) if is_last && loaded.has_rest => {
                let end = history.segment(number).recipe_bytes;
                set_bytes(history, number, FileKind::Recipes, end)?;
            }
            Some(loaded) if !loaded.has_rest => {}
            _ => history.note_damage(number),
        }
    }
    history.put(&mut batch);
    failed.into_iter().for_each(|at| history.give_up(at));
    Ok(youngest)
}

/// What was read; nothing where the disk cannot, and the store opens all the same.
fn if_readable<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(error) if error.is_unreadable() => Ok(None),
        read => read.map(Some),
    }
}

/// Proves the chunks behind the mark: gives the record behind the last that holds, and those before
/// it that do not.
fn prove(history: &History, segment: u32, mark: u32) -> Result<(u32, Vec<ChunkAt>), StoreError> {
    let (mut end, mut failed) = (mark, Vec::new());
    for record in mark..history.segment(segment).records {
        let at = ChunkAt { segment, record };
        if if_readable(history.is_proved(at))? == Some(true) {
            end = record + 1;
        } else {
            failed.push(at);
        }
    }
    failed.retain(|at| at.record < end);
    Ok((end, failed))
}

/// Cuts a segment off before a record.
fn cut(history: &mut History, number: u32, record: u32) -> Result<(), StoreError> {
    set_bytes(history, number, FileKind::Index, position_of(record))?;
    history.forget_cached(number);
    Ok(())
}

fn set_bytes(history: &History, number: u32, kind: FileKind, bytes: u64) -> Result<(), StoreError> {
    let file = history.folder.open_or_create(&kind.file_name(number));
    let cut = file.and_then(|file| {
        // Never longer: what is not there is no zeros.
        match file.bytes()? > bytes {
            true => file.set_bytes(bytes).and_then(|()| file.sync()),
            false => Ok(()),
        }
    });
    match cut {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        cut => cut.map_err(history.error_at("cut", kind, number)),
    }
}
