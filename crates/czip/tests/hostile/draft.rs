//! Archives by hand: right in all digests and free in all else.
//!
//! A [`Draft`] is the table of an archive whose lists have at most one part each. It begins honest;
//! a test puts a lie into it. What it becomes has the digests that its bytes have.

use std::sync::OnceLock;

use refrain_czip::crypt::{ArchiveKey, GroupKeys, Place, PrivateKey, Recipients, wrap};

/// A recipient of encrypted drafts, and his identity.
const RECIPIENT: &str = "age18x9npz5grrssnqcn3q7jczj74m57w0km58xhh6f9xg8znvqad9ys99mrhc";
pub(crate) const IDENTITY: &str =
    "AGE-SECRET-KEY-13FRM9VGUH6XJ3AYLZ5VZDFH576C77QH98GK5PFVGUNNX5QYC0SQSLEAYVE";

const MAGIC: [u8; 8] = *b"\x89CZIP\r\n\x1a";

pub(crate) const SHARED: u32 = 4;
pub(crate) const WOVEN: u32 = 8;
const ENCRYPTED: u32 = 16;

pub(crate) const CONTENT: usize = 0;
pub(crate) const WEAVE: usize = 1;
pub(crate) const FIELDS: usize = 2;
pub(crate) const TIMES: usize = 3;
pub(crate) const CATALOG: usize = 4;

/// A frame as stored, and what its part says of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameDraft {
    pub stored: Vec<u8>,
    /// How far back its base is; 0: none.
    pub back: u64,
    /// Bytes that are said to be before it.
    pub gap: u64,
    /// Where it is said to be, if not where it is.
    pub stored_bytes: Option<u64>,
}

/// A stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamDraft {
    pub names: Vec<[u8; 20]>,
    pub lengths: Vec<u64>,
    /// Chunks less 1, frame as zigzag, place in the frame.
    pub places: Vec<[u64; 3]>,
    pub frames: Vec<FrameDraft>,
    /// A run's number, and its distance.
    pub runs: Vec<(u64, Option<u64>)>,
    /// What the list says of all lengths, if not their sum.
    pub lengths_sum: Option<u64>,
    /// References, bytes and new chunks, if not what the runs are.
    pub runs_sums: Option<[u64; 3]>,
    /// Where the first frame is said to be, if not where it is.
    pub frames_at: Option<u64>,
    /// Further rows of the root that have the one frame part too, and its frames in the same place.
    pub frame_rows_more: usize,
    /// Those of frames, if they are sealed.
    pub keys: Vec<[u8; 32]>,
    /// The chunk part as stored and its plain bytes, if not the names.
    pub chunk_part: Option<(Vec<u8>, u64)>,
}

/// An archive to be.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub flags: u32,
    pub chunk_bytes_max: u32,
    pub frame_bytes_max: u32,
    pub streams: [StreamDraft; 5],
    /// Restart points: bytes of plain content, weave, content, fields and times up to the next.
    pub points: Vec<[u64; 5]>,
    /// What is said of the plain content.
    pub plain_bytes: u64,
    pub digest: [u8; 32],
    pub entries: u64,
    /// Root and private root, if not those of all this: as stored, and their plain bytes.
    pub root: Option<(Vec<u8>, u32)>,
    pub private_root: Option<(Vec<u8>, u32)>,
    /// Last changes of the header's first 240 bytes.
    pub header: Vec<(usize, Vec<u8>)>,
}

pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: u64) -> u64 {
    value << 1 ^ ((value as i64) >> 63) as u64
}

fn digest(bytes: &[u8], count: usize) -> Vec<u8> {
    blake3::hash(bytes).as_bytes()[..count].to_vec()
}

impl StreamDraft {
    /// A chunk that is all of a frame of method 0.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let stored = [&[0], chunk].concat();
        self.push_stored(chunk, stored);
    }

    /// A chunk that is all of the frame that is stored so.
    pub(crate) fn push_stored(&mut self, chunk: &[u8], stored: Vec<u8>) {
        let step = u64::from(!self.frames.is_empty());
        self.frames.push(FrameDraft {
            stored,
            ..FrameDraft::default()
        });
        self.names.push(digest(chunk, 20).try_into().unwrap());
        self.lengths.push(chunk.len() as u64);
        self.places.push([0, zigzag(step), 0]);
        self.runs.push((0, None));
    }

    fn reference_sums(&self) -> [u64; 3] {
        let mut sums = [0_u64; 3];
        for (number, distance) in &self.runs {
            let count = number / 4 + 1;
            let first = match distance {
                None => sums[2],
                Some(distance) => sums[2].wrapping_sub(1).wrapping_sub(*distance),
            };
            let length = |chunk: u64| {
                let chunk = usize::try_from(chunk).unwrap_or(usize::MAX);
                self.lengths.get(chunk).copied().unwrap_or(0)
            };
            let bytes = match number % 4 {
                2 => length(first).wrapping_mul(count),
                _ => (0..count.min(1000))
                    .map(|more| length(first.wrapping_add(more)))
                    .fold(0, u64::wrapping_add),
            };
            sums[0] = sums[0].wrapping_add(count);
            sums[1] = sums[1].wrapping_add(bytes);
            if number % 4 == 0 {
                sums[2] = sums[2].wrapping_add(count);
            }
        }
        sums
    }
}

impl Draft {
    /// An archive of standard input, of these chunks, without a weave.
    pub(crate) fn honest(chunks: &[&[u8]]) -> Self {
        let plain = chunks.concat();
        let mut draft = Self {
            flags: 0,
            chunk_bytes_max: 1 << 20,
            frame_bytes_max: 1 << 20,
            streams: Default::default(),
            points: Vec::new(),
            plain_bytes: plain.len() as u64,
            digest: *blake3::hash(&plain).as_bytes(),
            entries: 1,
            root: None,
            private_root: None,
            header: Vec::new(),
        };
        for chunk in chunks {
            draft.streams[CONTENT].push(chunk);
        }
        draft.catalog(&[(0, b"", plain.len() as u64, b"")]);
        draft
    }

    /// The same content in one operation of a weave, from one restart point.
    pub(crate) fn woven(content: &[u8]) -> Self {
        let mut draft = Self::honest(&[content]);
        let mut weave = vec![0];
        varint(&mut weave, content.len() as u64);
        draft.flags |= WOVEN;
        let bytes = content.len() as u64;
        draft.points = vec![[bytes, weave.len() as u64, bytes, 0, 0]];
        draft.streams[WEAVE].push(&weave);
        draft
    }

    /// The same, encrypted by somebody who may: frames are sealed now, and all else when it is built.
    pub(crate) fn encrypted(mut self) -> Self {
        let group = GroupKeys::new(None);
        self.flags |= ENCRYPTED;
        for stream in &mut self.streams {
            for (frame, name) in stream.frames.iter_mut().zip(&mut stream.names) {
                *name = group.name(&frame.stored[1..]);
                let sealed = group.seal_frame(std::mem::take(&mut frame.stored), false);
                frame.stored = sealed.stored;
                stream.keys.push(sealed.key.0);
            }
        }
        self
    }

    /// Says what files there are: kind, path, length and target of each.
    pub(crate) fn catalog(&mut self, entries: &[(u8, &[u8], u64, &[u8])]) {
        let mut catalog = Vec::new();
        for (kind, path, length, target) in entries {
            let mut record = vec![*kind];
            varint(&mut record, path.len() as u64);
            record.extend_from_slice(path);
            record.extend_from_slice(&[0, 0, 0]);
            if *kind != 1 {
                varint(&mut record, *length);
            }
            record.extend_from_slice(target);
            varint(&mut catalog, record.len() as u64);
            catalog.extend_from_slice(&record);
        }
        self.entries = entries.len() as u64;
        self.streams[CATALOG] = StreamDraft::default();
        self.streams[CATALOG].push(&catalog);
    }

    /// The archive.
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut out = vec![0; 256];
        let mut starts = [0; 5];
        for (start, stream) in starts.iter_mut().zip(&self.streams) {
            *start = out.len() as u64;
            for frame in &stream.frames {
                out.extend_from_slice(&frame.stored);
            }
        }
        let is_small = self.flags & SHARED == 0;
        let seal = Seal::of(self.flags);
        let (mut root, mut private) = (Vec::new(), Vec::new());
        let mut sums = [0_u64; 4];
        for (number, (stream, start)) in (0..).zip(self.streams.iter().zip(starts)) {
            let names = stream.names.concat();
            match &stream.chunk_part {
                None => list(&mut out, &mut root, stream.names.len(), names, 20, &[]),
                Some((part, plain_bytes)) => {
                    let further = [*plain_bytes];
                    list(
                        &mut out,
                        &mut root,
                        stream.names.len(),
                        part.clone(),
                        0,
                        &further,
                    );
                    root.extend_from_slice(&[0; 20]);
                }
            }

            let (frames, stored_bytes) = frame_part(stream, is_small);
            let further = [zigzag(stream.frames_at.unwrap_or(start)), stored_bytes];
            let rows = 1 + stream.frame_rows_more;
            rows_of_one_part(
                &mut out,
                &mut root,
                (stream.frames.len(), rows),
                frames,
                12,
                &further,
            );
            let stored_bytes = stored_bytes.wrapping_mul(rows as u64);

            let mut lengths = Vec::new();
            for length in &stream.lengths {
                varint(&mut lengths, *length);
            }
            if is_small {
                varint(&mut lengths, stream.places.len() as u64);
                for column in 0..3 {
                    for place in &stream.places {
                        varint(&mut lengths, place[column]);
                    }
                }
            }
            let unique = stream.lengths.iter().copied().fold(0, u64::wrapping_add);
            let unique = stream.lengths_sum.unwrap_or(unique);
            let count = stream.lengths.len();
            let place = Place::Lengths {
                stream: number,
                row: 0,
            };
            let mut roots = (&mut root, &mut private);
            seal.list(&mut out, &mut roots, place, count, lengths, &[unique]);

            let mut runs = Vec::new();
            for (number, distance) in &stream.runs {
                varint(&mut runs, *number);
                if let Some(distance) = distance {
                    varint(&mut runs, *distance);
                }
            }
            let references = stream.runs_sums.unwrap_or_else(|| stream.reference_sums());
            let count = stream.runs.len();
            let place = Place::References {
                stream: number,
                row: 0,
            };
            seal.list(&mut out, &mut roots, place, count, runs, &references);
            if seal.private.is_some() {
                let place = Place::Keys {
                    stream: number,
                    row: 0,
                };
                let count = stream.keys.len();
                let keys = stream.keys.concat();
                seal.list(&mut out, &mut roots, place, count, keys, &[]);
            }
            let more = [
                unique,
                stored_bytes,
                stream.names.len() as u64,
                references[0],
            ];
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum = sum.wrapping_add(more);
            }
        }
        let mut points = Vec::new();
        let mut covered = [0_u64; 5];
        for of in 0..5 {
            for point in &self.points {
                varint(&mut points, point[of]);
                covered[of] = covered[of].wrapping_add(point[of]);
            }
        }
        seal.list(
            &mut out,
            &mut (&mut root, &mut private),
            Place::WeaveIndex { row: 0 },
            self.points.len(),
            points,
            &covered,
        );

        let mut summary: Vec<u8> = [self.plain_bytes, sums[0], sums[1], self.entries]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        summary.extend_from_slice(&self.digest);
        private.extend_from_slice(&summary);
        let (root, root_bytes) = self
            .root
            .clone()
            .unwrap_or((root.clone(), root.len() as u32));
        let (private, private_bytes) = self
            .private_root
            .clone()
            .unwrap_or((private.clone(), private.len() as u32));
        let root_at = out.len() as u64;
        let sealed_bytes = if seal.private.is_some() { 16 } else { 0 };
        let lengths = [
            root.len() as u32,
            root_bytes,
            private.len() as u32 + sealed_bytes,
            private_bytes,
        ];
        let private_at = out.len() + root.len();
        out.extend_from_slice(&root);
        out.resize(private_at + private.len() + sealed_bytes as usize, 0);
        let roots_end = out.len();
        out.extend_from_slice(seal.keys);

        let archive_bytes = out.len() as u64;
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &[1, 0, 0, 1]);
        put(12, &self.flags.to_le_bytes());
        put(28, &self.chunk_bytes_max.to_le_bytes());
        put(32, &self.frame_bytes_max.to_le_bytes());
        put(40, &archive_bytes.to_le_bytes());
        put(18, &[seal.private.is_some().into()]);
        if seal.private.is_none() {
            put(48, &summary[..32]);
            put(96, &self.digest);
        } else {
            put(184, &(roots_end as u64).to_le_bytes());
            put(192, &(seal.keys.len() as u32).to_le_bytes());
            put(196, &digest(seal.keys, 32));
        }
        put(80, &sums[2].to_le_bytes());
        put(88, &sums[3].to_le_bytes());
        put(128, &root_at.to_le_bytes());
        for (place, length) in lengths.iter().enumerate() {
            put(136 + 4 * place, &length.to_le_bytes());
        }
        for (at, bytes) in &self.header {
            put(*at, bytes);
        }
        // What the private root vouches for is as it will be.
        let header = *out.first_chunk().expect("a header");
        let private = seal.private_root(&header, &root, private);
        out[private_at..roots_end].copy_from_slice(&private);
        let roots = digest(&out[root_at as usize..roots_end], 32);
        out[152..184].copy_from_slice(&roots);
        for (at, bytes) in &self.header {
            out[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        with_header_digest(out)
    }
}

/// An archive with the digest that its header has.
pub(crate) fn with_header_digest(mut archive: Vec<u8>) -> Vec<u8> {
    let check = digest(&archive[..240], 16);
    archive[240..256].copy_from_slice(&check);
    archive
}

/// What seals private parts, if anything does, and the keys section.
struct Seal {
    private: Option<PrivateKey>,
    keys: &'static [u8],
}

impl Seal {
    fn of(flags: u32) -> Self {
        static KEYS: OnceLock<Vec<u8>> = OnceLock::new();
        if flags & ENCRYPTED == 0 {
            return Self {
                private: None,
                keys: &[],
            };
        }
        let key = ArchiveKey::from_bytes([7; 32]);
        let keys = KEYS.get_or_init(|| {
            let recipients = Recipients::parse(&[RECIPIENT]).expect("a recipient");
            wrap(&key, &recipients).expect("a recipient")
        });
        Self {
            private: Some(PrivateKey::new(&key)),
            keys,
        }
    }

    /// A private part, and the lists of it. Of a sealed one the root says where it is.
    fn list(
        &self,
        out: &mut Vec<u8>,
        (root, private_root): &mut (&mut Vec<u8>, &mut Vec<u8>),
        place: Place,
        items: usize,
        part: Vec<u8>,
        further: &[u64],
    ) {
        let Some(private) = &self.private else {
            return list(out, private_root, items, part, 12, further);
        };
        let rows = u64::from(items > 0);
        varint(root, rows);
        varint(private_root, rows);
        if items == 0 {
            return;
        }
        varint(private_root, items as u64);
        varint(private_root, part.len() as u64);
        for column in further {
            varint(private_root, *column);
        }
        let stored = private.seal_part(place, part);
        varint(root, zigzag(out.len() as u64));
        varint(root, stored.len() as u64);
        root.extend_from_slice(&digest(&stored, 12));
        out.extend_from_slice(&stored);
    }

    fn private_root(&self, header: &[u8; 256], root: &[u8], private_root: Vec<u8>) -> Vec<u8> {
        match &self.private {
            Some(private) => private.seal_private_root(header, root, private_root),
            None => private_root,
        }
    }
}

/// What the frame part of a stream says, and how many bytes it says are stored.
fn frame_part(stream: &StreamDraft, is_small: bool) -> (Vec<u8>, u64) {
    let mut part = Vec::new();
    let bytes = |frame: &FrameDraft| frame.stored_bytes.unwrap_or(frame.stored.len() as u64);
    for frame in &stream.frames {
        varint(&mut part, bytes(frame));
    }
    for frame in &stream.frames {
        varint(&mut part, frame.gap);
    }
    for frame in stream.frames.iter().filter(|_| is_small) {
        varint(&mut part, frame.back);
    }
    for frame in &stream.frames {
        part.extend_from_slice(&digest(&frame.stored, 12));
    }
    let sum = stream.frames.iter().map(bytes).fold(0, u64::wrapping_add);
    (part, sum)
}

/// Appends a part to the archive, and the list of it to a root. Without items there is none.
fn list(
    out: &mut Vec<u8>,
    root: &mut Vec<u8>,
    items: usize,
    part: Vec<u8>,
    digest_bytes: usize,
    further: &[u64],
) {
    rows_of_one_part(out, root, (items, 1), part, digest_bytes, further);
}

/// The same, with so many rows in the list: each of the one part. Of frames, whose first further column
/// is a distance, all are in the place of the first row's.
fn rows_of_one_part(
    out: &mut Vec<u8>,
    root: &mut Vec<u8>,
    (items, rows): (usize, usize),
    part: Vec<u8>,
    digest_bytes: usize,
    further: &[u64],
) {
    if items == 0 {
        root.push(0);
        return;
    }
    // Where something is that ends where its first row's does.
    let back = |row: usize, first: u64, bytes: u64| match row {
        0 => first,
        _ => zigzag(bytes.wrapping_neg()),
    };
    let part_bytes = part.len() as u64;
    varint(root, rows as u64);
    let mut column = |of_row: &dyn Fn(usize) -> u64| {
        (0..rows).for_each(|row| varint(root, of_row(row)));
    };
    column(&|_| items as u64);
    column(&|row| back(row, zigzag(out.len() as u64), part_bytes));
    column(&|_| part_bytes);
    // Without a digest, what follows says how long the part is.
    if digest_bytes > 0 {
        column(&|_| part_bytes);
    }
    for _ in 0..rows {
        root.extend_from_slice(&digest(&part, digest_bytes));
    }
    for (number, &of_part) in further.iter().enumerate() {
        for row in 0..rows {
            let is_distance = further.len() == 2 && number == 0;
            let value = match is_distance {
                true => back(row, of_part, further[1]),
                false => of_part,
            };
            varint(root, value);
        }
    }
    out.extend_from_slice(&part);
}
