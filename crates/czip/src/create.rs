//! Making archives: files, folders or a pipe enter, an archive leaves (CZIP, section 3).
//!
//! ```text
//! files ─▶ weaver ─▶ five streams, each: chunker ─▶ names ─▶ index ─▶ packer ─▶ pool ─▶ frames
//!                                                              └────▶ references, rows ─▶ table
//! ```
//!
//! All is read once and written once. Memory is bounded: past its bound the table goes to temporary files,
//! and the index forgets the names that were not seen for longest. Their chunks are stored once more if
//! they come again.

#[cfg(test)]
pub(crate) mod by_hand;
mod content;
mod earlier;
mod error;
mod exclude;
mod frame_table;
mod frames;
mod new_file;
mod output;
mod packer;
mod parts;
mod pool;
mod references;
mod row;
mod seal;
mod similarity;
mod spool;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod walk;

pub use error::CreateError;
pub use exclude::{Exclude, ExcludeError};
pub use output::Output;
pub use seal::EncryptOptions;
pub(crate) use walk::{Bounds, Found, Visited, walk};
pub use walk::{FileId, Input, name_of};

use std::{
    io::{self, Read},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    chunker::Chunking,
    container::{RestartPoint, Weaver, Woven},
    format::{
        Stream,
        catalog::{Entry, EntryKind},
        header::{Header, KeysPlace, PlainSummary, Profile, RootPlace},
        limits::catalog_bytes_max,
        part::{POINTS_MAX, PartKind, encode_points},
        root::Root,
    },
    method::Compression,
};
use frames::FrameMaker;
use parts::PartSpool;
use seal::Seal;
use stream::StreamMaker;

/// Read at once.
const PIECE_BYTES: usize = 1 << 20;

/// The average chunk of streams other than the content: what they hold is small, and often nearly
/// what an earlier archive holds.
pub(crate) const SMALL_CHUNK_BYTES: u32 = 8 << 10;

/// What the root takes for a chunk where rows are shortest, some 80 chunks in up to three parts, and half
/// of it to spare.
const ROOT_BYTES_PER_CHUNK: u64 = 2;

/// How an archive is to be.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// What it is made for.
    pub profile: Profile,
    /// How its content is cut.
    pub chunking: Chunking,
    /// How its frames are compressed.
    pub compression: Compression,
    /// In profile `small`, a frame is full from so many plain bytes on; 0: each chunk is one.
    pub frame_bytes: u32,
    /// In profile `small`, whether chunks that are similar to earlier ones are compressed against
    /// them.
    pub has_bases: bool,
    /// Archives that those have who fetch this one: in profile `small`, chunks of them are in other frames
    /// than new ones.
    pub earlier: Vec<PathBuf>,
    /// Whether containers are taken apart.
    pub is_woven: bool,
    /// Memory for the names of chunks, of all streams together. Beyond, those that were not seen for
    /// longest are forgotten.
    pub index_bytes: usize,
    /// Memory for frames that wait until it is known how long the table before them is; beyond,
    /// that is estimated.
    pub waiting_bytes: usize,
    /// About how many plain bytes are to come, if that is known: for room before the frames.
    pub expected_bytes: Option<u64>,
    /// Threads that compress.
    pub threads: usize,
    /// Where temporary files go.
    pub temporary: PathBuf,
    /// For whom it is encrypted.
    pub encryption: Option<Arc<EncryptOptions>>,
    /// Files that are passed over where they lie in a folder, such as what standard output goes to.
    /// The output is by itself.
    pub passed_over: Vec<FileId>,
    /// What is left out by its path.
    pub exclude: Exclude,
    /// Whether folders on other file systems than the input that they lie in are kept empty.
    pub is_one_file_system: bool,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            chunking: Chunking::default(),
            compression: Compression::default(),
            frame_bytes: 256 << 10,
            has_bases: true,
            earlier: Vec::new(),
            is_woven: true,
            index_bytes: 256 << 20,
            waiting_bytes: 64 << 20,
            expected_bytes: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            temporary: std::env::temp_dir(),
            encryption: None,
            passed_over: Vec::new(),
            exclude: Exclude::default(),
            is_one_file_system: false,
        }
    }
}

impl CreateOptions {
    /// Most plain bytes of a frame.
    fn frame_bytes_max(&self) -> u32 {
        let chunk_bytes_max = self.chunking.max_bytes();
        match self.profile {
            Profile::Small => self.frame_bytes.saturating_sub(1) + chunk_bytes_max,
            Profile::Shared => chunk_bytes_max,
        }
    }
}

/// How far an archive has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateProgress<'a> {
    /// Plain bytes read.
    pub plain_bytes: u64,
    /// Bytes of frames written.
    pub stored_bytes: u64,
    /// Entries of the catalog.
    pub entries: u64,
    /// What was left out just now.
    pub left_out: Option<LeftOut<'a>>,
}

/// What is not in an archive as it is on disk.
#[derive(Clone, Copy, Debug)]
pub enum LeftOut<'a> {
    /// A file that somebody wrote to while it was read: it may never have been what is in the archive.
    Changed {
        /// Where.
        path: &'a Path,
    },
    /// A socket, a pipe or a device: it has no content.
    Special {
        /// Where.
        path: &'a Path,
    },
    /// What cannot be read, or was removed meanwhile.
    Unread {
        /// Where.
        path: &'a Path,
        /// Why.
        error: &'a io::Error,
        /// If a file failed in its middle: the bytes before, which are in the archive.
        archived_bytes: u64,
    },
}

/// An archive that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its header.
    pub header: Header,
    /// What is in it, which the header of an encrypted archive does not say.
    pub summary: PlainSummary,
    /// Names of chunks that were forgotten, as often as that happened: without any, no chunk is stored twice.
    pub forgotten_chunks: u64,
}

/// Makes an archive of `inputs`. `progress` is told how far it came, and says whether to go on.
///
/// # Errors
/// If an input cannot be read, nothing is to be archived, or the archive cannot be written; then the output
/// file is as it was.
/// What lies in a folder and cannot be read, or has no content, is no error: it is told, and left out. Nor
/// is a file that changes meanwhile: it is told as well.
pub fn create(
    inputs: Vec<Input>,
    output: Output,
    options: &CreateOptions,
    progress: &mut dyn FnMut(CreateProgress) -> ControlFlow<()>,
) -> Result<Created, CreateError> {
    let mut creator = Creator::new(output, options)?;
    let mut piece = vec![0; PIECE_BYTES + content::ALIGNMENT];
    let aligned = piece.as_ptr().align_offset(content::ALIGNMENT);
    let piece = &mut piece[aligned..][..PIECE_BYTES];
    let mut passed_over = creator.own_files();
    passed_over.extend(&options.passed_over);
    let bounds = Bounds {
        own: &passed_over,
        exclude: Some(&options.exclude),
        is_one_file_system: options.is_one_file_system,
    };
    walk::walk(inputs, &bounds, &mut |visited| {
        let found = match visited {
            Visited::Found(found) => found,
            Visited::Special(path) => {
                let left_out = LeftOut::Special { path };
                return creator.tell(Some(left_out), progress).map(|()| false);
            }
            Visited::Unread(path, error) => {
                return creator.unread(path, &error, 0, progress).map(|()| false);
            }
        };
        let Found { path, entry, .. } = found;
        let Some(mut file) = found.file else {
            return creator.entry(&entry).map(|()| true);
        };
        creator.streams.written(entry.mtime_s);
        let (bytes, failed) = creator.file(&mut file, piece, progress)?;
        if let Some(error) = failed {
            if found.is_given {
                return Err(CreateError::Input { path, error });
            }
            creator.unread(&path, &error, bytes, progress)?;
            if bytes == 0 {
                return Ok(false);
            }
        } else if file.has_changed() {
            creator.tell(Some(LeftOut::Changed { path: &path }), progress)?;
        }
        let kind = EntryKind::File { bytes };
        creator.entry(&Entry { kind, ..entry }).map(|()| true)
    })?;
    creator.finish()
}

struct Creator<'a> {
    options: &'a CreateOptions,
    digest: blake3::Hasher,
    progress: CreateProgress<'static>,
    weaver: Weaver,
    streams: Streams,
    seal: Option<Arc<Seal>>,
}

/// The streams, which take what the weaver gives.
struct Streams {
    makers: [StreamMaker; 5],
    frames: FrameMaker,
    points: Vec<[u64; 5]>,
    weave_index: PartSpool,
}

impl<'a> Creator<'a> {
    fn new(output: Output, options: &'a CreateOptions) -> Result<Self, CreateError> {
        let seal = options.encryption.as_deref().map(Seal::new).transpose()?;
        let mut frames = FrameMaker::new(output, options, seal.as_ref())?;
        let advisory = Self::header(options, frames.frames.has_footer, seal.as_deref());
        frames.frames.begin(&advisory.to_bytes())?;
        let mut makers = Stream::ALL.map(|stream| StreamMaker::new(stream, options, seal.as_ref()));
        earlier::tell_names(&mut makers, options, &advisory)?;
        Ok(Self {
            options,
            digest: blake3::Hasher::new(),
            progress: CreateProgress::default(),
            weaver: Weaver::new(),
            streams: Streams {
                makers,
                frames,
                points: Vec::new(),
                weave_index: PartSpool::new(
                    PartKind::WeaveIndex,
                    None,
                    &options.temporary,
                    seal.as_ref(),
                ),
            },
            seal,
        })
    }

    fn header(options: &CreateOptions, has_footer: bool, seal: Option<&Seal>) -> Header {
        Header {
            has_footer,
            is_trailer: false,
            profile: options.profile,
            is_woven: options.is_woven,
            encryption: seal.map(|seal| seal.how),
            chunking: options.chunking.method(),
            method: options.compression.method().number(),
            chunk_bytes: options.chunking.average_bytes(),
            chunk_bytes_min: options.chunking.min_bytes(),
            chunk_bytes_max: options.chunking.max_bytes(),
            frame_bytes_max: options.frame_bytes_max(),
            archive_bytes: 0,
            summary: PlainSummary::default(),
            chunks: 0,
            references: 0,
            root: RootPlace::default(),
            keys: KeysPlace::default(),
        }
    }

    /// The files that the archive is made in, and that it replaces.
    fn own_files(&self) -> Vec<FileId> {
        self.streams.frames.frames.own_files()
    }

    /// Takes a file's bytes, and says how many there are, and why no more if there may be.
    fn file(
        &mut self,
        file: &mut dyn Read,
        piece: &mut [u8],
        progress: &mut dyn FnMut(CreateProgress) -> ControlFlow<()>,
    ) -> Result<(u64, Option<io::Error>), CreateError> {
        let before = self.progress.plain_bytes;
        let mut failed = None;
        self.weaver.begin_file();
        loop {
            let count = match file.read(piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            self.digest.update(&piece[..count]);
            match self.options.is_woven {
                true => self.weaver.feed(&piece[..count], &mut self.streams)?,
                false => self.streams.push(Stream::Content, &piece[..count])?,
            }
            self.progress.plain_bytes += count as u64;
            self.progress.stored_bytes = self.streams.frames.frames.bytes;
            self.streams.estimate_table(self.options);
            self.tell(None, progress)?;
        }
        match self.options.is_woven {
            true => self.weaver.end_file(&mut self.streams)?,
            false => self.streams.boundary()?,
        }
        Ok((self.progress.plain_bytes - before, failed))
    }

    fn unread(
        &self,
        path: &Path,
        error: &io::Error,
        archived_bytes: u64,
        progress: &mut dyn FnMut(CreateProgress) -> ControlFlow<()>,
    ) -> Result<(), CreateError> {
        let left_out = LeftOut::Unread {
            path,
            error,
            archived_bytes,
        };
        self.tell(Some(left_out), progress)
    }

    fn tell(
        &self,
        left_out: Option<LeftOut<'_>>,
        progress: &mut dyn FnMut(CreateProgress) -> ControlFlow<()>,
    ) -> Result<(), CreateError> {
        let now = CreateProgress {
            left_out,
            ..self.progress
        };
        match progress(now) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CreateError::Interrupted),
        }
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), CreateError> {
        let mut record = Vec::new();
        entry.put(&mut record);
        self.progress.entries += 1;
        self.streams.push(Stream::Catalog, &record)
    }

    fn finish(mut self) -> Result<Created, CreateError> {
        if self.progress.entries == 0 {
            return Err(CreateError::Nothing);
        }
        if self.options.is_woven {
            self.weaver.finish(&mut self.streams)?;
        }
        let digest = *self.digest.finalize().as_bytes();
        let catalog_bytes = self.streams.makers[Stream::Catalog.index()].bytes;
        let (frames, lists, sums) = self.streams.finish(self.progress.plain_bytes)?;
        let limit = catalog_bytes_max(frames.bytes);
        if catalog_bytes > limit {
            return Err(CreateError::Catalog {
                bytes: catalog_bytes,
                limit,
            });
        }
        let summary = PlainSummary {
            plain_bytes: self.progress.plain_bytes,
            unique_bytes: sums.unique_bytes,
            stored_bytes: frames.bytes,
            entries: self.progress.entries,
            digest,
        };
        let seal = self.seal.as_deref();
        let mut header = Self::header(self.options, frames.has_footer, seal);
        if seal.is_none() {
            header.summary = summary;
        }
        header.chunks = sums.chunks;
        header.references = sums.references;
        let root = Root {
            summary,
            ..Root::default()
        };
        Ok(Created {
            header: table::write(frames, lists, header, &root, seal)?,
            summary,
            forgotten_chunks: sums.forgotten_chunks,
        })
    }
}

/// What all streams came to.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    chunks: u64,
    references: u64,
    unique_bytes: u64,
    forgotten_chunks: u64,
}

impl Streams {
    fn push(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), CreateError> {
        self.makers[stream.index()].push(bytes, &mut self.frames)
    }

    /// Room for what the table takes by now, and for the whole root, which every reader reads first.
    /// Nobody knows how much of what is to come is new, and room that stays empty is sent in vain; the
    /// table of what comes later goes behind the frames.
    fn estimate_table(&mut self, options: &CreateOptions) {
        let chunk_bytes = match options.profile {
            Profile::Shared => 40,
            Profile::Small => 26,
        };
        let chunks: u64 = self.makers.iter().map(StreamMaker::chunks).sum();
        let expected_bytes = options.expected_bytes.unwrap_or(0);
        let expected_chunks = expected_bytes / u64::from(options.chunking.average_bytes());
        let table_bytes = chunks * chunk_bytes;
        let root_bytes = expected_chunks * ROOT_BYTES_PER_CHUNK;
        self.frames.table_bytes = (64 << 10) + table_bytes + root_bytes;
    }

    /// Ends all streams, and gives the frames and the parts of the table.
    fn finish(
        mut self,
        plain_bytes: u64,
    ) -> Result<(output::Frames, Vec<PartSpool>, Sums), CreateError> {
        let mut sums = Sums::default();
        for maker in &mut self.makers {
            maker.end(&mut self.frames)?;
            sums.chunks += maker.chunks();
            sums.references += maker.reference_count;
            sums.unique_bytes += maker.unique_bytes;
            sums.forgotten_chunks += maker.forgotten();
        }
        let end = [
            Stream::Weave,
            Stream::Content,
            Stream::Fields,
            Stream::Times,
        ]
        .map(|stream| self.makers[stream.index()].bytes);
        self.end_points([plain_bytes, end[0], end[1], end[2], end[3]])?;
        let (written, mut lists) = self.frames.finish()?;
        for maker in self.makers {
            lists.extend(maker.parts()?);
        }
        lists.push(self.weave_index);
        Ok((written, lists, sums))
    }

    /// The restart points so far make a part, which ends at `end`.
    fn end_points(&mut self, end: [u64; 5]) -> Result<(), CreateError> {
        let Some(first) = self.points.first() else {
            return Ok(());
        };
        let covered = std::array::from_fn(|of| end[of] - first[of]);
        self.weave_index.push(
            self.points.len(),
            encode_points(&self.points, &end),
            covered,
        )?;
        self.points.clear();
        Ok(())
    }
}

impl Woven for Streams {
    type Error = CreateError;

    fn put(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), CreateError> {
        self.push(stream, bytes)
    }

    fn written(&mut self, mtime: i64) {
        self.makers[Stream::Content.index()].written(mtime);
    }

    fn boundary(&mut self) -> Result<(), CreateError> {
        self.makers[Stream::Content.index()].boundary();
        Ok(())
    }

    fn restart(&mut self, at: RestartPoint) -> Result<(), CreateError> {
        let point = [at.plain, at.weave, at.content, at.fields, at.times];
        if self.points.len() == POINTS_MAX {
            self.end_points(point)?;
        }
        self.points.push(point);
        Ok(())
    }
}
