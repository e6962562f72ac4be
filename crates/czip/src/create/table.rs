//! The table of an archive that was made: where each part goes, and the root that says so.

use std::io;

use super::{output::Frames, parts::PartSpool, seal::Seal};
use crate::{
    crypt::SEAL_BYTES,
    format::{
        Stream,
        header::{Header, KeysPlace, Profile, RootPlace},
        limits::HEADER_BYTES,
        part::PartKind,
        root::{PartPlace, Root},
    },
    method::pack_root,
};

/// A part, by the number of its list and its row.
type PartNumber = (usize, usize);

/// All parts in the order in which they are stored: what is fetched together stands together.
fn order(lists: &[PartSpool], profile: Profile) -> Vec<PartNumber> {
    let list = |stream, kind| {
        let list = lists
            .iter()
            .position(|list| (list.stream, list.kind) == (stream, kind));
        list.expect("each kind has a list")
    };
    let mut order = Vec::new();
    let mut add = |together: &[usize]| {
        for row in 0..lists[together[0]].drafts.len() {
            order.extend(together.iter().map(|&list| (list, row)));
        }
    };
    for stream in Stream::ALL {
        let list = |kind| list(Some(stream), kind);
        let (chunks, lengths) = (list(PartKind::Chunks), list(PartKind::Lengths));
        let frames = list(PartKind::Frames);
        match profile {
            Profile::Shared => add(&[chunks, frames, lengths]),
            Profile::Small => {
                add(&[chunks, lengths]);
                add(&[frames]);
            }
        }
        add(&[list(PartKind::References)]);
        add(&[list(PartKind::Keys)]);
    }
    add(&[list(None, PartKind::WeaveIndex)]);
    order
}

/// Where the table goes.
#[derive(Clone, Copy)]
struct Layout {
    root_at: u64,
    /// Parts go from here to `room_end`, and what does not fit, from `tail` on.
    parts_at: u64,
    room_end: u64,
    tail: u64,
    frames_at: u64,
}

/// A root, with all parts where a layout says.
struct PackedRoot {
    public: Vec<u8>,
    public_plain_bytes: usize,
    /// Not sealed yet.
    private: Vec<u8>,
    private_plain_bytes: usize,
    layout: Layout,
    offsets: Vec<u64>,
    parts_end: u64,
}

/// What writes a table.
struct TableWriter<'a> {
    frames: Frames,
    lists: Vec<PartSpool>,
    order: Vec<PartNumber>,
    parts_bytes: u64,
    root: &'a Root,
    seal: Option<&'a Seal>,
}

/// Writes the table, and the header that says where it is. `header` and `root` lack that alone.
pub(super) fn write(
    frames: Frames,
    lists: Vec<PartSpool>,
    mut header: Header,
    root: &Root,
    seal: Option<&Seal>,
) -> io::Result<Header> {
    let order = order(&lists, header.profile);
    let stored = order
        .iter()
        .map(|&(list, row)| u64::from(lists[list].drafts[row].place.stored_bytes));
    let parts_bytes = stored.sum();
    let mut writer = TableWriter {
        frames,
        lists,
        order,
        parts_bytes,
        root,
        seal,
    };
    let packed = match writer.frames.has_footer {
        true => writer.behind_pipe()?,
        false => writer.in_file()?,
    };
    writer.finish(&packed, &mut header)?;
    Ok(header)
}

impl TableWriter<'_> {
    /// What a root takes: with what seals it, and with the keys behind it.
    fn root_bytes(&self, packed: &PackedRoot) -> u64 {
        let (sealed, keys) = self
            .seal
            .map_or((0, 0), |seal| (SEAL_BYTES, seal.keys.len()));
        (packed.public.len() + packed.private.len() + sealed + keys) as u64
    }

    fn behind_pipe(&mut self) -> io::Result<PackedRoot> {
        let frames_at = HEADER_BYTES as u64;
        let parts_at = frames_at + self.frames.bytes;
        let root_at = parts_at + self.parts_bytes;
        self.pack(Layout {
            root_at,
            parts_at,
            room_end: root_at,
            tail: root_at,
            frames_at,
        })
    }

    fn in_file(&mut self) -> io::Result<PackedRoot> {
        let header_bytes = HEADER_BYTES as u64;
        // The root's length depends a little on the offsets in it.
        let mut root_bytes = 0;
        loop {
            let parts_at = header_bytes + root_bytes;
            let all = parts_at + self.parts_bytes;
            let frames_at = self.frames.start.unwrap_or(all);
            if parts_at > frames_at {
                return self.behind_frames(frames_at);
            }
            let packed = self.pack(Layout {
                root_at: header_bytes,
                parts_at,
                room_end: frames_at,
                tail: frames_at + self.frames.bytes,
                frames_at,
            })?;
            let needed = self.root_bytes(&packed);
            if needed <= root_bytes {
                self.frames.place_at(frames_at)?;
                return Ok(packed);
            }
            root_bytes = needed;
        }
    }

    /// The room is too small even for the root.
    fn behind_frames(&mut self, frames_at: u64) -> io::Result<PackedRoot> {
        let tail = frames_at + self.frames.bytes;
        let layout = Layout {
            root_at: tail,
            parts_at: HEADER_BYTES as u64,
            room_end: frames_at,
            tail,
            frames_at,
        };
        let root_at = self.pack(layout)?.parts_end;
        self.pack(Layout { root_at, ..layout })
    }

    /// The root, with all parts where `layout` says.
    fn pack(&mut self, layout: Layout) -> io::Result<PackedRoot> {
        let mut root = self.root.clone();
        let (mut room_at, mut tail) = (layout.parts_at, layout.tail);
        let mut offsets = Vec::with_capacity(self.order.len());
        for &(list, row) in &self.order {
            let PartSpool {
                kind,
                stream,
                drafts,
                ..
            } = &self.lists[list];
            let draft = drafts[row];
            let bytes = u64::from(draft.place.stored_bytes);
            let at = match room_at + bytes <= layout.room_end {
                true => &mut room_at,
                false => &mut tail,
            };
            let place = PartPlace {
                offset: *at,
                ..draft.place
            };
            offsets.push(*at);
            *at += bytes;
            let list = match stream {
                Some(stream) => root.streams[stream.index()].list_mut(*kind),
                None => &mut root.weave_index,
            };
            let mut further = draft.further;
            if *kind == PartKind::Frames && row == 0 {
                further[0] = further[0].wrapping_add(layout.frames_at);
            }
            list.push(*kind, place, further)
                .map_err(|error| io::Error::new(io::ErrorKind::FileTooLarge, error))?;
        }
        let public = root.encode_public(self.seal.is_some());
        let private = root.encode_private(self.seal.is_some());
        Ok(PackedRoot {
            public: pack_root(&public)?,
            public_plain_bytes: public.len(),
            private: pack_root(&private)?,
            private_plain_bytes: private.len(),
            layout,
            offsets,
            parts_end: room_at.max(tail),
        })
    }

    fn finish(mut self, packed: &PackedRoot, header: &mut Header) -> io::Result<()> {
        let header_bytes = HEADER_BYTES as u64;
        let as_u32 = |bytes: usize| u32::try_from(bytes).map_err(io::Error::other);
        let sealed_bytes = self.seal.map_or(0, |_| SEAL_BYTES);
        let root_end = packed.layout.root_at + self.root_bytes(packed);
        let frames_end = packed.layout.frames_at + self.frames.bytes;
        header.archive_bytes = packed.parts_end.max(root_end).max(frames_end);
        if self.frames.has_footer {
            header.is_trailer = true;
            header.archive_bytes += header_bytes;
        }
        header.root = RootPlace {
            offset: packed.layout.root_at,
            stored_bytes: as_u32(packed.public.len())?,
            plain_bytes: as_u32(packed.public_plain_bytes)?,
            private_stored_bytes: as_u32(packed.private.len() + sealed_bytes)?,
            private_plain_bytes: as_u32(packed.private_plain_bytes)?,
            digest: [0; 32],
        };
        let mut private = packed.private.clone();
        if let Some(seal) = self.seal {
            // What it vouches for in the header is all there but for its own digest, behind that.
            let vouched = header.to_bytes();
            let key = &seal.private;
            private = key.seal_private_root(&vouched, &packed.public, private);
        }
        let mut stored = packed.public.clone();
        stored.extend_from_slice(&private);
        header.root.digest = *blake3::hash(&stored).as_bytes();
        if let Some(seal) = self.seal {
            let keys_at = packed.layout.root_at + stored.len() as u64;
            header.keys = KeysPlace {
                offset: keys_at,
                bytes: as_u32(seal.keys.len())?,
                digest: *blake3::hash(&seal.keys).as_bytes(),
            };
            stored.extend_from_slice(&seal.keys);
        }
        for (&(list, row), &at) in self.order.iter().zip(&packed.offsets) {
            let part = self.lists[list].read(row)?;
            self.frames.write_at(&part, at)?;
        }
        self.frames.write_at(&stored, packed.layout.root_at)?;
        let (header_at, parse): (_, fn(&_) -> _) = match header.is_trailer {
            true => (header.archive_bytes - header_bytes, Header::parse_last),
            false => (0, Header::parse_first),
        };
        let header = header.to_bytes();
        // What no reader would open must not take the place of what was there.
        parse(&header).map_err(|error| io::Error::new(io::ErrorKind::FileTooLarge, error))?;
        self.frames.write_at(&header, header_at)?;
        self.frames.finish()
    }
}
