//! Opens archives to read them.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Seek, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, ensure};
use clap::builder::{PathBufValueParser, TypedValueParser};
use refrain_czip::{
    archive::{
        Archive, CacheBytes, FileSource, ReadError, RemoteSource, RemoteSourceError, Source,
    },
    cache::{Cache, CacheOptions},
};
use refrain_czip_format::{FormatError, Portion, catalog::Entry};
use refrain_gateway::units::{ByteSize, TimeSpan};
use refrain_http_ranges::{ConnectionError, OnRetry, RemoteError, RemoteOptions};

use super::{
    bounded,
    headers::HeaderArguments,
    keys::UnlockArguments,
    retry,
    standard_io::{self, EndableInput, is_standard},
};
use crate::{
    interrupt::Interrupt,
    progress,
    stderr::{cannot_open, warn},
    table::printable_path,
    usage::UsageError,
};

/// Options for reading an archive: keys, headers and a time limit.
#[derive(clap::Args)]
pub(super) struct AccessArguments {
    #[command(flatten)]
    pub keys: UnlockArguments,
    #[command(flatten)]
    headers: HeaderArguments,
    /// Wait at most this long for a silent server
    ///
    /// A request whose answer does not begin or continue is repeated, up to 5 times in a row.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = bounded::time_to_wait)]
    timeout: TimeSpan,
}

impl AccessArguments {
    /// How a server is asked.
    pub(super) fn remote(&self, on_retry: OnRetry) -> anyhow::Result<RemoteOptions> {
        let defaults = RemoteOptions::default();
        let TimeSpan(timeout) = self.timeout;
        Ok(RemoteOptions {
            headers: self.headers.read()?,
            progress_timeout: timeout,
            connect_timeout: timeout.min(defaults.connect_timeout),
            on_retry,
            ..defaults
        })
    }
}

/// The cache for chunks of archives on servers.
#[derive(clap::Args)]
pub(super) struct CacheArguments {
    /// Keep chunks in this directory for later downloads
    ///
    /// The kept chunks serve downloads of any archive. `get`, `extract`, `mount` and `proxy` can share the directory.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Limit the cache on disk
    ///
    /// At least 1MB. The oldest chunks are deleted first. 1GiB is 2^30 bytes. 1GB or 1G is 10^9 bytes.
    #[arg(
        long,
        value_name = "SIZE",
        default_value_t = ByteSize(CacheOptions::BYTES_MAX),
        value_parser = bounded::disk_cache,
        requires = "cache"
    )]
    cache_size: ByteSize,
}

impl CacheArguments {
    pub(super) fn options(&self) -> Option<CacheOptions> {
        let folder = self.cache.clone()?;
        let bytes_max = self.cache_size.0;
        Some(CacheOptions { folder, bytes_max })
    }
}

/// A file, or a URL.
pub(super) type AnySource = Box<dyn Source>;

/// An archive that is read.
#[derive(clap::Args)]
pub(super) struct ArchiveArguments {
    /// Read this archive or URL; `-` is standard input
    ///
    /// A URL is an http or https address.
    #[arg(value_name = "IN.czip|URL", value_parser = PathBufValueParser::new().try_map(parse_archive))]
    archive: PathBuf,
    #[command(flatten)]
    access: AccessArguments,
}

impl ArchiveArguments {
    /// Opens the archive: one at a URL is read block by block. A pipe on standard input goes to a temporary
    /// file without a name first: an archive is not read in order.
    fn open(&self, interrupt: &Interrupt) -> anyhow::Result<Archive<AnySource>> {
        let source = self.source(interrupt)?;
        let archive = Archive::open(source, CacheBytes::default());
        let archive = archive.map_err(with_advice);
        archive.with_context(|| self.called())
    }

    /// The same, unlocked if it is encrypted.
    pub(super) fn open_unlocked(
        &self,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Archive<AnySource>> {
        let mut archive = self.open(interrupt)?;
        let unlocked = self.access.keys.unlock(&mut archive);
        unlocked.with_context(|| self.called())?;
        Ok(archive)
    }

    /// The same of one that may be shorter or longer than it should be: that is told.
    pub(super) fn open_damaged(&self, interrupt: &Interrupt) -> anyhow::Result<Archive<AnySource>> {
        let cannot_open = || self.cannot_open();
        let source = self.source(interrupt)?;
        let found = source.bytes().with_context(cannot_open)?;
        let archive = Archive::open_damaged(source, CacheBytes::default());
        let archive = archive.map_err(with_advice);
        let mut archive = archive.with_context(|| self.called())?;
        let expected = archive.header().archive_bytes;
        if expected != found {
            let length = FormatError::Length { expected, found };
            warn(format_args!("{}: {length}", self.called()));
        }
        let unlocked = self.access.keys.unlock(&mut archive);
        unlocked.with_context(|| self.called())?;
        Ok(archive)
    }

    /// The same, unlocked if it is encrypted and keys were given.
    pub(super) fn open_with(&self, interrupt: &Interrupt) -> anyhow::Result<Archive<AnySource>> {
        match self.access.keys.are_given() {
            true => self.open_unlocked(interrupt),
            false => self.open(interrupt),
        }
    }

    /// Has chunks of `archive`, which is this one, kept in the cache if there is one.
    pub(super) fn with_cache(
        &self,
        archive: Archive<AnySource>,
        cache: &CacheArguments,
    ) -> anyhow::Result<Archive<AnySource>> {
        let Some(options) = cache.options() else {
            return Ok(archive);
        };
        ensure!(
            url(&self.archive).is_some(),
            "{}: --cache is only for archives on web servers, and this one is local (remove --cache)",
            self.called()
        );
        let cache = Cache::open(&options, |folder, error| {
            let folder = printable_path(folder);
            warn(format_args!(
                "cannot keep all fetched data in cache \"{folder}\": {error}"
            ));
        });
        let cache = cache.with_context(|| format!("--cache: {}", cannot_open(&options.folder)))?;
        Ok(archive.with_cache(Arc::new(cache)))
    }

    fn source(&self, interrupt: &Interrupt) -> anyhow::Result<AnySource> {
        let cannot_open = || self.cannot_open();
        if let Some(url) = url(&self.archive) {
            let options = self.access.remote(retry::to_stderr())?;
            let source = RemoteSource::open(url, options, RemoteSource::CACHE_BYTES);
            let source = source.map_err(|error| match error {
                RemoteSourceError::Remote(error) => failed(error),
                error => error.into(),
            });
            return Ok(Box::new(source.with_context(cannot_open)?));
        }
        let file = match is_standard(&self.archive) {
            true => standard_input(interrupt),
            false => File::open(&self.archive),
        };
        let source = file.and_then(FileSource::new).with_context(cannot_open)?;
        Ok(Box::new(source))
    }

    /// What the error says first if it cannot be opened. Those of servers name the address again.
    fn cannot_open(&self) -> String {
        match url(&self.archive) {
            Some(_) => self.called(),
            None if is_standard(&self.archive) => "cannot open standard input".to_owned(),
            None => cannot_open(&self.archive),
        }
    }

    /// What messages call it.
    pub(super) fn called(&self) -> String {
        match url(&self.archive) {
            Some(url) => shown(url),
            None if is_standard(&self.archive) => "standard input".to_owned(),
            None => self.archive.display().to_string(),
        }
    }

    /// Its entries. Standard input's only file has the name that it is extracted by, if there is one.
    pub(super) fn entries(&self, archive: &Archive<AnySource>) -> anyhow::Result<Vec<Entry>> {
        let mut entries = archive.entries().with_context(|| self.called())?;
        if let [entry] = &mut entries[..]
            && entry.path.is_empty()
        {
            entry.path = self.stream_name().unwrap_or_default();
        }
        Ok(entries)
    }

    /// What the file of an archive of standard input is called: as the archive, without `.czip`.
    pub(super) fn stream_name(&self) -> Option<Vec<u8>> {
        let name = self.archive.file_name()?.as_bytes();
        let name = name.strip_suffix(b".czip")?;
        (!name.is_empty()).then(|| name.to_vec())
    }
}

/// Why an archive cannot be opened, with what to do.
#[derive(Debug, thiserror::Error)]
#[error("{}{}", .0, advice(.0))]
struct Advised(#[source] ReadError);

fn with_advice(error: ReadError) -> anyhow::Error {
    match advice(&error) {
        "" => error.into(),
        _ => Advised(error).into(),
    }
}

/// What to do about an archive that is damaged, or not as long as it should be.
pub(super) fn advice(error: &ReadError) -> &'static str {
    use FormatError::{Digest, Length, NoHeader, Truncated};
    match error {
        // Bytes behind its end keep nobody from its files.
        ReadError::Format(Length { expected, found }) if found > expected => {
            " (`refrain czip extract --skip-damaged` extracts the intact files)"
        }
        ReadError::Format(
            Length { .. } | NoHeader { .. } | Truncated(Portion::File | Portion::Footer),
        ) => " (its end is missing: copy or create it again)",
        ReadError::Format(Digest(Portion::Header | Portion::Root)) => {
            " (nothing can be extracted: use another copy)"
        }
        _ => "",
    }
}

/// A server's error, with what to do. A proxy variable that cannot be used is as arguments that cannot be.
pub(super) fn failed(error: RemoteError) -> anyhow::Error {
    if let RemoteError::Proxy { .. } = error {
        return UsageError(error.into()).into();
    }
    match advice_on_server(&error) {
        "" => error.into(),
        advice => {
            let text = format!("{error}{advice}");
            anyhow::Error::from(error).context(text)
        }
    }
}

/// What to do about a server that refuses.
fn advice_on_server(error: &RemoteError) -> &'static str {
    match error {
        RemoteError::Status {
            status: 401 | 403, ..
        } => " (if it needs credentials, give them with --header @FILE)",
        RemoteError::Connection { source, .. }
            if matches!(
                **source,
                ConnectionError::Io {
                    kind: io::ErrorKind::ConnectionRefused,
                    ..
                }
            ) =>
        {
            " (is the web server running there?)"
        }
        _ => "",
    }
}

/// A file or an address. That of another scheme would be taken for a file that is missing.
fn parse_archive(path: PathBuf) -> Result<PathBuf, String> {
    let is_other = |scheme: &str| {
        let is_word = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_known = ["", "file"].contains(&scheme) || url(&path).is_some();
        is_word && !is_known && !path.exists()
    };
    let parts = path.to_str().and_then(|text| text.split_once("://"));
    match parts {
        Some((scheme, _)) if is_other(scheme) => Err(format!(
            "{scheme} is not supported: use an http or https URL"
        )),
        _ => Ok(path),
    }
}

/// The address, if it is one rather than a path.
pub(super) fn url(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    let is_url = ["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    is_url.then_some(text)
}

/// An address in messages. What follows a `?` is often a signature that opens the door.
pub(super) fn shown(url: &str) -> String {
    match url.split_once('?') {
        Some((address, _)) => format!("{address}?..."),
        None => url.to_owned(),
    }
}

/// The path of the entry that `asked` means: as it is, or as `list` shows one that has bytes which it
/// escapes.
pub(super) fn meant(entries: &[Entry], asked: &OsStr) -> Vec<u8> {
    let bytes = asked.as_bytes();
    let has_shown = |entry: &&Entry| {
        bytes.contains(&b'\\') && printable_path(OsStr::from_bytes(&entry.path)).as_bytes() == bytes
    };
    let shown = || entries.iter().find(has_shown);
    match entries.iter().any(|entry| entry.path == bytes) {
        true => bytes.to_vec(),
        false => shown().map_or_else(|| bytes.to_vec(), |entry| entry.path.clone()),
    }
}

fn standard_input(interrupt: &Interrupt) -> io::Result<File> {
    let mut file = standard_io::input()?;
    if file.metadata()?.is_file() && file.stream_position()? == 0 {
        return Ok(file);
    }
    let spool = tempfile::tempfile().map_err(no_room)?;
    let bar = progress::of_bytes(standard_io::input_left());
    bar.set_message("copying to a temporary file");
    let mut reader = bar.wrap_read(EndableInput::standard(interrupt)?);
    let copied = io::copy(&mut reader, &mut Spool(&spool));
    bar.finish_and_clear();
    copied?;
    Ok(spool)
}

/// A temporary file whose errors say where it is.
struct Spool<'a>(&'a File);

impl Write for Spool<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(no_room)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// There is no temporary file, or no room for it.
fn no_room(error: io::Error) -> io::Error {
    // Who tries again has to see what it is.
    if error.kind() == io::ErrorKind::Interrupted {
        return error;
    }
    let folder = std::env::temp_dir();
    io::Error::new(
        error.kind(),
        format!(
            "cannot copy it to a temporary file in \"{}\": {error} (set TMPDIR to use another directory)",
            folder.display()
        ),
    )
}
