//! Fetching what is in an archive from any web server (CZIP, section 4.2).
//!
//! A URL enters, and what is here already: seeds, what is to be replaced, a cache, what an earlier get
//! brought. The plain content leaves, as a file that is there whole or not at all. The server need not
//! know of CZIP.
//!
//! ```text
//! 1  header, root    one request, or two                           `opening`
//! 2  seeds           cut as the archive was, for their names        `seeds`
//!                    stored frames, where those are of use          `stored`
//! 3  parts           those that digests do not tell are known       `table`
//!                    of edges, if there are any                     `named`
//! 4  chunks          out of `FILE.part`, seeds and cache            `local`, `chunks`
//! 5  frames          of the missing ones: by name, of edges          `named`
//!                    the others in few single ranges                `frames`
//! 6  plain content   put together, checked, renamed                 `finish`
//! ```
//!
//! Memory is bounded but for a bit a chunk and the archive's root. All that is used was checked: parts
//! and frames by their digests, chunks by their names, the whole by its own digest.
//!
//! - Deviation: the paper's client fetches the header with all names. Here parts of the table whose
//!   names are known are not fetched.
//! - Deviation: it asks for chunks one by one. Here those that lie close together come with one request,
//!   unless there are edges.

mod chunks;
mod error;
mod finish;
mod frames;
mod keys;
mod local;
mod named;
mod opening;
mod part_folder;
mod places;
mod presence;
mod report;
mod seeds;
mod stored;
mod table;
mod target;
mod whole;

pub use crate::cache::CacheOptions;
pub use error::GetError;
pub use keys::{KeySource, Keys};
pub use part_folder::{Partial, partial};
pub use report::{
    ChunkCount, FrameCount, GetReport, NamedReport, NotByName, ServerProblem, StoredReport,
    Transfer, UnusedSeed,
};

use std::{
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{
    archive::{Archive, Naming, READS_MAX, ReadError},
    cache::Cache,
    format::{FormatError, Portion},
    remote::{Counters, Remote, RemoteError, RemoteOptions, union},
};
use local::{Begun, Local, OldChunks};
use named::Named;
use part_folder::PartFolder;
use presence::Presence;
use seeds::Seeds;
use stored::Stored;

/// A file that changes on the server again and again is given up.
const CHANGES_MAX: u32 = 3;

/// So many needed bytes are worth another request, whatever a request costs.
const BYTES_PER_REQUEST: u64 = 1 << 20;

/// How a file is fetched.
#[derive(Clone, Debug)]
pub struct GetOptions {
    /// Where from, and how patiently.
    pub remote: RemoteOptions,
    /// Requests in all, and one more for each MiB that is needed. Retries are not counted.
    pub requests_max: usize,
    /// Files, folders and archives that may hold chunks of it.
    pub seeds: Vec<PathBuf>,
    /// Chunks of earlier downloads.
    pub cache: Option<CacheOptions>,
    /// URLs of servers that know chunks by name, and of caches in front of them: in profile `shared` they
    /// are asked, by name, before the archive's server is for ranges. `URL/.czip/chunk/NAME` is a chunk.
    /// The archive's server may be among them.
    pub edges: Vec<String>,
    /// Requests for chunks that may be in flight at a time, to all edges together, but for one each. The archive's own
    /// server, if it is an edge, gets twice its part.
    pub edge_requests_max: usize,
    /// Whether the archive is to be the output, as it is. Then it takes no keys.
    pub keeps_archive: bool,
    /// Whether the content of an archive with several entries is written all the same, one file behind the
    /// other.
    pub joins_files: bool,
    /// What opens the archive, if it is encrypted.
    pub keys: Option<KeySource>,
    /// Memory for names of chunks of seeds and cache. Beyond, those that were not seen for longest are
    /// forgotten, and their chunks fetched.
    pub index_bytes: usize,
    /// Threads that put the plain content together.
    pub threads: usize,
    /// Where temporary files go.
    pub temporary: PathBuf,
}

impl Default for GetOptions {
    fn default() -> Self {
        Self {
            remote: RemoteOptions::default(),
            requests_max: 20,
            seeds: Vec::new(),
            cache: None,
            edges: Vec::new(),
            edge_requests_max: 256,
            keeps_archive: false,
            joins_files: true,
            keys: None,
            index_bytes: 256 << 20,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            temporary: std::env::temp_dir(),
        }
    }
}

/// What a get is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading seeds; of how many bytes is not known.
    Seeds,
    /// Fetching the table.
    Table,
    /// Looking for chunks that are here; of how many bytes is not known.
    Chunks,
    /// Fetching chunks by name: plain bytes.
    Named,
    /// Fetching frames: stored bytes.
    Frames,
    /// Putting the output together: its bytes.
    Output,
}

/// How far a get has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetProgress {
    /// What it is doing.
    pub phase: Phase,
    /// How much of that is done.
    pub done: u64,
    /// Of how much; 0 if that is not known.
    pub total: u64,
}

/// What a request is counted as.
type Kind = fn(&mut GetReport) -> &mut Transfer;

type Progress<'a> = &'a mut dyn FnMut(GetProgress) -> ControlFlow<()>;

/// Fetches what is in the archive at `url` into the file `output`, or the one that it links to. What that
/// is by now is a seed as well. `progress` is told how far it came, and says whether to go on.
///
/// # Errors
/// Before anything is fetched if `output` is there and no regular file. Then `output` is as it was. What came is kept in `output.part`, and the next get of it goes on from
/// there.
pub fn get(
    url: &str,
    output: &Path,
    options: &GetOptions,
    progress: Progress<'_>,
) -> Result<GetReport, GetError> {
    let begun = Instant::now();
    let named = Named::new(url, options)?;
    let output = target::target(output)?;
    let folder = PartFolder::open(&output)?;
    let mut report = GetReport {
        has_ranges: true,
        ..GetReport::default()
    };
    loop {
        report.begin_anew();
        let places = (output.as_path(), &folder);
        match get_once(url, places, options, named.as_ref(), &mut report, progress) {
            Ok(()) => break,
            // What still fits is used.
            Err(GetError::Remote(RemoteError::Changed { .. })) if report.changes < CHANGES_MAX => {
                report.changes += 1;
            }
            Err(GetError::Archive(error))
                if report.damaged + 1 < READS_MAX && may_come_right(&error) =>
            {
                report.damaged += 1;
            }
            Err(error) => {
                folder.remove_if_empty();
                return Err(error);
            }
        }
    }
    // The file is there. What was beside it is of no use any more, and may as well stay.
    folder.remove();
    report.named = named.map_or_else(Vec::new, Named::reports);
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// Whether damage may have come to it on its way; whose digest of the whole is another one has lied.
fn may_come_right(error: &ReadError) -> bool {
    match error {
        ReadError::Frame { .. } | ReadError::Format(FormatError::DamagedOrLater { .. }) => true,
        ReadError::Format(FormatError::Digest(of)) => *of != Portion::Content,
        _ => false,
    }
}

fn get_once(
    url: &str,
    (output, folder): (&Path, &PartFolder),
    options: &GetOptions,
    named: Option<&Named>,
    report: &mut GetReport,
    progress: Progress<'_>,
) -> Result<(), GetError> {
    let index = (options.index_bytes / 3, options.temporary.as_path());
    // What is wrong with it shows before anything is fetched.
    let cache = options.cache.as_ref().map(|options| {
        let cache = Cache::open_within(options, index.0, |_, _| ());
        cache.map_err(|error| GetError::Cache {
            path: options.folder.clone(),
            error,
        })
    });
    let cache = cache.transpose()?;
    let first_bytes = match named.is_some_and(Named::has_caches) {
        true => opening::FIRST_BYTES_WITH_CACHES,
        false => opening::FIRST_BYTES,
    };
    let remote = Remote::open(
        url,
        RemoteOptions {
            first_bytes,
            has_digests: true,
            ..options.remote.clone()
        },
    )?;
    let keys = (options.keys.as_ref()).filter(|_| !options.keeps_archive);
    let opened = opening::open(&remote, first_bytes, options);
    report.header += transfer(Counters::default(), remote.counters());
    let (header, pieces) = opened?;
    let Begun {
        archive,
        is_resumed,
        mut old,
    } = local::begin(folder, &header, &pieces, keys, index)?;
    report.entries = (!archive.is_locked()).then_some(archive.root().summary.entries);
    if let Some(entries) = report.entries.filter(|&entries| entries > 1)
        && !(options.keeps_archive || options.joins_files)
    {
        if !is_resumed && old.is_none() {
            folder.remove();
        }
        let url = remote.url();
        return Err(GetError::SeveralEntries { url, entries });
    }
    let came = (pieces.iter()).map(|(offset, bytes)| *offset..offset + bytes.len() as u64);
    let mut getting = Getting {
        remote: &remote,
        presence: Presence::new(archive.root()),
        archive: &archive,
        naming: archive.naming(),
        is_resumed,
        came: came.collect(),
        requests_max: options.requests_max,
        extra_requests: 0,
        stored: Stored::new((index.0 / 8, index.1)),
        named,
        cache,
        report,
        progress,
    };
    let keeps_archive = options.keeps_archive;
    getting.choose_names(keeps_archive);
    let mut seeds = getting.look_at_seeds((output, folder), options, index)?;
    let fetched = getting.fetch_all(folder, keeps_archive, &mut old, &mut seeds);
    getting.report.has_ranges &= remote.has_ranges();
    // What came is of use for the next get, whatever became of this one.
    if let Some(cache) = getting.cache.take() {
        cache.flush();
        getting.report.cache_damaged += cache.damaged();
        getting.report.cache_failure = cache.take_failure();
    }
    fetched?;
    getting.finish(folder, options)
}

/// A get at work.
struct Getting<'a> {
    remote: &'a Remote,
    archive: &'a Archive<Local>,
    presence: Presence,
    /// What names chunks; `None` if nothing here does.
    naming: Option<Naming>,
    /// Whether an earlier get left something of the archive.
    is_resumed: bool,
    /// What came when the archive was opened.
    came: Vec<Range<u64>>,
    requests_max: usize,
    /// Those that bytes have allowed.
    extra_requests: usize,
    /// Stored frames that are here.
    stored: Stored,
    /// Who is asked for chunks by name; `None` if nobody is.
    named: Option<&'a Named>,
    cache: Option<Cache>,
    report: &'a mut GetReport,
    progress: Progress<'a>,
}

impl Getting<'_> {
    /// Until all chunks are here, or all of the archive.
    fn fetch_all(
        &mut self,
        folder: &PartFolder,
        keeps_archive: bool,
        old: &mut Option<OldChunks>,
        seeds: &mut Seeds,
    ) -> Result<(), GetError> {
        if !self.remote.has_ranges() && self.archive.header().has_footer {
            self.fetch_whole()?;
            // Then all is here.
            self.named = None;
        }
        self.put_known_parts()?;
        if self.archive.is_locked() {
            return self.fetch_archive();
        }
        let asks_by_name = self.named.is_some();
        let unknown = table::unknown(self.archive, seeds, self.cache.as_ref(), asks_by_name)?;
        if !unknown.is_empty() {
            self.fetch_parts(&unknown)?;
        }
        self.keep_parts()?;
        self.find_chunks(old, seeds)?;
        // What is of use of them was taken.
        *old = None;
        folder.remove_file("chunks.old");
        if keeps_archive {
            return self.fetch_archive();
        }
        self.fetch_chunks()
    }

    /// A server without ranges sends all from the beginning, whatever is read: once is enough.
    fn fetch_whole(&mut self) -> Result<(), GetError> {
        let whole = 0..self.archive.header().archive_bytes;
        self.came.push(whole.clone());
        self.fetch(&[whole], 1, |report| &mut report.frames, &mut |_, _| Ok(()))
    }

    /// Requests that may still be made; one if there are none.
    fn requests_left(&self) -> usize {
        let made = self.remote.counters();
        let made = (made.requests - made.retries) as usize;
        let allowed = self.requests_max.saturating_add(self.extra_requests);
        allowed.saturating_sub(made).max(1)
    }

    /// Fetches ranges of the archive to where they belong, by at most `share` of the requests that are
    /// left and what the bytes allow, and counts what that took; `arrived` is told up to where they came.
    fn fetch(
        &mut self,
        ranges: &[Range<u64>],
        share: usize,
        kind: Kind,
        arrived: &mut dyn FnMut(&mut Self, u64) -> Result<(), GetError>,
    ) -> Result<(), GetError> {
        let needed: u64 = union(ranges)
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        let extra = (needed / BYTES_PER_REQUEST) as usize;
        let requests_max = self.requests_left().div_ceil(share) + extra;
        self.extra_requests += extra;
        let (remote, archive) = (self.remote, self.archive);
        let before = remote.counters();
        let fetched = remote.fetch_within(ranges, requests_max, &mut |offset, bytes: &[u8]| {
            archive.source().write(bytes, offset)?;
            arrived(self, offset + bytes.len() as u64)
        });
        *kind(self.report) += transfer(before, remote.counters());
        fetched
    }

    fn go_on(&mut self, phase: Phase, done: u64, total: u64) -> Result<(), GetError> {
        match (self.progress)(GetProgress { phase, done, total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(GetError::Interrupted),
        }
    }
}

/// Is told how many more bytes of seeds were read, and says whether to go on.
fn reading_seeds<'a>(progress: Progress<'a>) -> impl FnMut(usize) -> bool + 'a {
    let (phase, mut done, total) = (Phase::Seeds, 0, 0);
    move |bytes| {
        done += bytes as u64;
        progress(GetProgress { phase, done, total }).is_continue()
    }
}

fn transfer(before: Counters, now: Counters) -> Transfer {
    Transfer {
        requests: now.requests - before.requests,
        bytes: now.body_bytes - before.body_bytes,
    }
}
