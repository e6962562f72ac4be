//! The table of an archive that was made: where each part goes, and the root that says so.

use std::io;

use super::{output::Frames, parts::PartSpool};
use crate::{
    format::{
        FormatError, Stream,
        header::{Header, Profile, RootPlace},
        limits::HEADER_BYTES,
        part::PartKind,
        root::{PartPlace, Root},
    },
    method::pack_part,
};

/// The parts of a stream's lists.
pub(super) struct StreamLists {
    pub(super) chunks: PartSpool,
    pub(super) lengths: PartSpool,
    pub(super) frames: PartSpool,
    pub(super) references: PartSpool,
}

/// The parts of all lists.
pub(super) struct Lists {
    pub(super) streams: Vec<StreamLists>,
    pub(super) weave_index: PartSpool,
}

/// A part, by stream, kind and row.
type PartNumber = (Option<Stream>, PartKind, usize);

impl Lists {
    fn list(&mut self, stream: Option<Stream>, kind: PartKind) -> &mut PartSpool {
        let Some(stream) = stream else {
            return &mut self.weave_index;
        };
        let lists = &mut self.streams[stream.index()];
        match kind {
            PartKind::Chunks => &mut lists.chunks,
            PartKind::Lengths => &mut lists.lengths,
            PartKind::Frames => &mut lists.frames,
            PartKind::References => &mut lists.references,
            PartKind::Keys | PartKind::WeaveIndex => unreachable!("no stream has these"),
        }
    }

    /// All parts in the order in which they are stored: what is fetched together stands together.
    fn order(&mut self, profile: Profile) -> Vec<PartNumber> {
        let mut order = Vec::new();
        for stream in Stream::ALL {
            let rows = |kind, lists: &mut Self| lists.list(Some(stream), kind).len();
            let by_chunks: &[PartKind] = match profile {
                Profile::Shared => &[PartKind::Chunks, PartKind::Frames, PartKind::Lengths],
                Profile::Small => &[PartKind::Chunks, PartKind::Lengths],
            };
            for row in 0..rows(PartKind::Chunks, self) {
                order.extend(by_chunks.iter().map(|&kind| (Some(stream), kind, row)));
            }
            if profile == Profile::Small {
                let count = rows(PartKind::Frames, self);
                order.extend((0..count).map(|row| (Some(stream), PartKind::Frames, row)));
            }
            let count = rows(PartKind::References, self);
            order.extend((0..count).map(|row| (Some(stream), PartKind::References, row)));
        }
        let count = self.weave_index.len();
        order.extend((0..count).map(|row| (None, PartKind::WeaveIndex, row)));
        order
    }
}

/// Where the table goes.
struct Layout {
    root_at: u64,
    /// Parts go from here to `room_end`, and what does not fit, from `tail` on.
    parts_at: u64,
    room_end: u64,
    tail: u64,
}

/// A root as it is stored, and where.
struct PackedRoot {
    place: RootPlace,
    stored: Vec<u8>,
    offsets: Vec<u64>,
    end: u64,
}

fn too_large(error: FormatError) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, error)
}

/// Writes the table, and the header that says where it is. `header` and `root` lack that alone.
pub(super) fn write(
    mut frames: Frames,
    mut lists: Lists,
    mut header: Header,
    root: &Root,
) -> io::Result<Header> {
    let order = lists.order(header.profile);
    let header_bytes = HEADER_BYTES as u64;
    let mut parts_bytes = 0;
    for &(stream, kind, row) in &order {
        parts_bytes += u64::from(lists.list(stream, kind).draft(row).stored_bytes);
    }
    let mut fill =
        |layout: &Layout, frames_at: u64| pack_root(&mut lists, &order, root, layout, frames_at);
    let packed = if frames.has_footer() {
        let end = header_bytes + frames.bytes();
        let layout = Layout {
            root_at: end + parts_bytes,
            parts_at: end,
            room_end: end + parts_bytes,
            tail: end + parts_bytes,
        };
        fill(&layout, header_bytes)?
    } else {
        // The root's length depends a little on the offsets in it.
        let mut root_bytes = 0;
        loop {
            let parts_at = header_bytes + root_bytes;
            let front = Layout {
                root_at: header_bytes,
                parts_at,
                room_end: parts_at + parts_bytes,
                tail: 0,
            };
            let frames_at = frames.start().unwrap_or(front.room_end);
            let packed = match front.room_end <= frames_at {
                true => fill(&front, frames_at)?,
                false => {
                    let mut behind = Layout {
                        root_at: 0,
                        parts_at: header_bytes,
                        room_end: frames_at,
                        tail: frames_at + frames.bytes(),
                    };
                    behind.root_at = fill(&behind, frames_at)?.end;
                    fill(&behind, frames_at)?
                }
            };
            let is_behind = packed.place.offset != header_bytes;
            if is_behind || packed.stored.len() as u64 <= root_bytes {
                frames.place_at(frames_at)?;
                break packed;
            }
            root_bytes = packed.stored.len() as u64;
        }
    };
    for (&(stream, kind, row), &at) in order.iter().zip(&packed.offsets) {
        let (_, stored) = lists.list(stream, kind).read(row)?;
        frames.write_at(&stored, at)?;
    }
    frames.write_at(&packed.stored, packed.place.offset)?;
    header.root = packed.place;
    let end = packed
        .end
        .max(packed.place.offset + packed.stored.len() as u64);
    let frames_end = frames.start().unwrap_or(header_bytes) + frames.bytes();
    header.archive_bytes = end.max(frames_end);
    if frames.has_footer() {
        header.is_trailer = true;
        header.archive_bytes += header_bytes;
        frames.write_at(&header.to_bytes(), header.archive_bytes - header_bytes)?;
    } else {
        frames.write_at(&header.to_bytes(), 0)?;
    }
    frames.finish()?;
    Ok(header)
}

/// The root, with all parts where `layout` says.
fn pack_root(
    lists: &mut Lists,
    order: &[PartNumber],
    root: &Root,
    layout: &Layout,
    frames_at: u64,
) -> io::Result<PackedRoot> {
    let mut root = root.clone();
    let (mut room_at, mut tail) = (layout.parts_at, layout.tail);
    let mut offsets = Vec::with_capacity(order.len());
    for &(stream, kind, row) in order {
        let draft = *lists.list(stream, kind).draft(row);
        let bytes = u64::from(draft.stored_bytes);
        let at = match room_at + bytes <= layout.room_end {
            true => &mut room_at,
            false => &mut tail,
        };
        let place = PartPlace {
            items: draft.items,
            offset: *at,
            stored_bytes: draft.stored_bytes,
            plain_bytes: draft.plain_bytes,
            digest: draft.digest,
        };
        offsets.push(*at);
        *at += bytes;
        let list = match stream {
            Some(stream) => root.streams[stream.index()].list_mut(kind),
            None => &mut root.weave_index,
        };
        let mut further = draft.further;
        if kind == PartKind::Frames && row == 0 {
            further[0] += frames_at;
        }
        list.push(kind, place, further).map_err(too_large)?;
    }
    let (public, private) = (root.encode_public(), root.encode_private(false));
    let mut stored = pack_part(&public)?;
    let stored_bytes = stored.len();
    stored.extend_from_slice(&pack_part(&private)?);
    let as_u32 = |bytes: usize| u32::try_from(bytes).map_err(io::Error::other);
    let end = room_at.max(tail);
    Ok(PackedRoot {
        place: RootPlace {
            offset: layout.root_at,
            stored_bytes: as_u32(stored_bytes)?,
            plain_bytes: as_u32(public.len())?,
            private_stored_bytes: as_u32(stored.len() - stored_bytes)?,
            private_plain_bytes: as_u32(private.len())?,
            digest: *blake3::hash(&stored).as_bytes(),
        },
        stored,
        offsets,
        end,
    })
}
