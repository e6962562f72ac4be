//! Keeping within the bound: whole segments go, the oldest first.
//!
//! Room is made when a segment begins, for all that it may take, and half as much beside: so the
//! bound holds at every moment, also while chunks of the oldest segment are copied. Those are the
//! ones that were seen again in the younger half of the log; without a second chance, what is
//! used every day would fall out like the rest. At most half a segment of them is copied each
//! time, the latest seen first.

use super::{DiskStore, Head, OTHER_BYTES, SEGMENTS_MAX, Sealed};
use crate::{
    StoreError,
    format::remove,
    index::{ChunkAt, NUMBER_END},
    key::IndexKey,
    layout::FileKind,
};

/// A chunk that would go with its segment.
struct Leaving {
    key: IndexKey,
    at: ChunkAt,
    /// The segment in which it was seen last.
    seen_in: u32,
}

impl DiskStore {
    /// Ends the head and begins the next.
    pub(super) fn roll(&mut self) -> Result<(), StoreError> {
        self.head.seal(&mut self.history)?;
        let (number, disk) = (self.head.number, self.head.disk_bytes(&self.history));
        let next = self.next_number()?;
        self.head = Head::create(&mut self.history, next, now_s())?;
        let sealed = self.history.segment_mut(number);
        sealed.shrink();
        self.sealed.insert(number, disk);
        self.make_room()
    }

    /// The number of the segment that is begun next.
    pub(super) fn next_number(&self) -> Result<u32, StoreError> {
        let last = self.history.segments.keys().next_back().copied();
        let next = last.unwrap_or(0) + 1;
        match next < NUMBER_END {
            true => Ok(next),
            false => Err(StoreError::WornOut),
        }
    }

    /// Evicts until the head has room for all that it may take.
    pub(super) fn make_room(&mut self) -> Result<(), StoreError> {
        let mut copied_max = self.segment_bytes / 2;
        while !self.has_room()
            && let Some(&oldest) = self.sealed.segments.keys().next()
        {
            match self.evict(oldest, &mut copied_max) {
                // It has to go, and nothing can be copied.
                Err(error) if error.is_full_disk() => self.evict(oldest, &mut 0)?,
                evicted => evicted?,
            }
        }
        Ok(())
    }

    /// Evicts the oldest chunks, without a copy, on a disk that others have filled; says whether
    /// there were any.
    pub(super) fn give_way(&mut self) -> Result<bool, StoreError> {
        while let Some((&oldest, disk)) = self.sealed.segments.first_key_value() {
            let has_chunks = disk.chunks > 0;
            self.evict(oldest, &mut 0)?;
            if has_chunks {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether all fits that the head may become, and what is copied on the way.
    pub(super) fn has_room(&self) -> bool {
        let size_bytes = self.config.size_bytes;
        is_within(size_bytes, self.segment_bytes, &self.sealed, &self.of_files)
    }

    /// Removes a segment. What is copied is safe before anything goes.
    fn evict(&mut self, number: u32, copied_max: &mut u64) -> Result<(), StoreError> {
        let leaving = self.leaving(number);
        let mut gone = Vec::new();
        if let Ok(leaving) = &leaving {
            let segments = &self.history.segments;
            let middle = segments.keys().nth(segments.len() / 2).copied();
            let middle = middle.unwrap_or(number).max(number + 1);
            for chunk in leaving {
                if chunk.seen_in < middle || !self.copy(chunk, copied_max)? {
                    gone.push((chunk.key, chunk.at));
                }
            }
            if gone.len() < leaving.len() {
                self.head.sync(&mut self.history)?;
            }
        }
        let openings = self.history.openings_of(number);
        self.remove_files(number)?;
        self.counted.evicted_bytes += self.sealed.remove(number);
        self.history.drop_segment(number);
        self.counted.evicted_segments += 1;
        self.counted.evicted_chunks += gone.len() as u64;
        match (leaving, openings) {
            (Ok(_), Ok(openings)) => {
                for (key, at) in gone {
                    if self.history.index.at(key) == Some(at) {
                        self.history.forget(key);
                    }
                }
                for (realm, key) in openings {
                    self.history.forget_opening(realm, key);
                }
            }
            // Its files could not be read: whatever the index has of it is looked for.
            _ => self.history.sweep(),
        }
        Ok(())
    }

    /// The chunks that the index finds in a segment, those seen last first.
    fn leaving(&self, segment: u32) -> Result<Vec<Leaving>, StoreError> {
        let mut leaving = Vec::new();
        for record in 0..self.history.segment(segment).records {
            let Some(found) = self.history.record(ChunkAt { segment, record })? else {
                continue;
            };
            let Some((key, entry)) = self.history.entry_of(&found) else {
                continue;
            };
            let places = entry.places().filter(|&place| self.history.is_live(place));
            leaving.push(Leaving {
                key,
                at: found.at,
                seen_in: places.map(|place| place.segment).max().unwrap_or(0),
            });
        }
        // Those of one recipe stay together, in their order.
        leaving.sort_by_key(|chunk| std::cmp::Reverse(chunk.seen_in));
        Ok(leaving)
    }

    /// Appends a chunk anew, if it is whole and there is room.
    fn copy(&mut self, chunk: &Leaving, copied_max: &mut u64) -> Result<bool, StoreError> {
        // What the disk cannot read goes: else nothing more would ever be learnt.
        let Ok(Some(found)) = self.history.record(chunk.at) else {
            self.history.note_damage(chunk.at.segment);
            return Ok(false);
        };
        let bytes = u64::from(found.bytes);
        let fits = self
            .head
            .fits(&self.history, found.bytes as usize, self.segment_bytes);
        if bytes > *copied_max || !fits {
            return Ok(false);
        }
        let Ok(Some(content)) = self.history.verified(&found) else {
            self.history.note_damage(chunk.at.segment);
            return Ok(false);
        };
        self.store(found.realm, chunk.key, &found.digest, &content)?;
        *copied_max -= bytes;
        self.counted.rewritten_chunks += 1;
        self.counted.rewritten_bytes += bytes;
        Ok(true)
    }

    /// The index goes first: without it the others are none of a segment.
    pub(super) fn remove_files(&self, number: u32) -> Result<(), StoreError> {
        FileKind::ALL
            .into_iter()
            .try_for_each(|kind| remove(&*self.history.folder, &kind.file_name(number)))
    }
}

/// Whether these segments, and a head beside them, are within the bound.
pub(super) fn is_within(
    size_bytes: u64,
    segment_bytes: u64,
    sealed: &Sealed,
    of_files: &Sealed,
) -> bool {
    let needed = sealed.bytes + of_files.bytes + room_for_head(segment_bytes);
    needed <= size_bytes && sealed.segments.len() < SEGMENTS_MAX
}

/// What the head may become, what is copied on the way, and what is there beside segments.
pub(super) fn room_for_head(segment_bytes: u64) -> u64 {
    segment_bytes * 3 / 2 + OTHER_BYTES
}

/// Seconds since 1970.
pub(super) fn now_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
