//! `refrain czip stat`: how an archive is made, and what its chunks save.

use anyhow::Context;
use refrain_czip::archive::{Archive, ReadError};
use refrain_czip_format::{Stream, method::Method, root::StreamRoot};
use serde::Serialize;

use super::{
    open::{AnySource, ArchiveArguments},
    report, share,
};
use crate::{
    interrupt::Interrupt,
    stderr::warn,
    table::{bytes, count, lines, percent},
};

#[derive(clap::Args)]
pub(super) struct StatArguments {
    #[command(flatten)]
    archive: ArchiveArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Show how the archive was made, its table, digest and streams
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
}

#[derive(Serialize)]
struct Report {
    profile: String,
    /// Whether the header that counts is at the end.
    has_footer: bool,
    /// Whether containers were taken apart.
    is_woven: bool,
    encrypted: bool,
    /// How, if it is.
    encryption: Option<EncryptionReport>,
    chunker: String,
    chunk_bytes: u32,
    chunk_bytes_min: u32,
    chunk_bytes_max: u32,
    frame_bytes_max: u32,
    /// Of most frames.
    method: String,
    archive_bytes: u64,
    stored_bytes: u64,
    chunks: u64,
    references: u64,
    /// What only recipients know of an encrypted archive.
    #[serde(flatten)]
    private: PrivateReport,
    streams: Vec<StreamReport>,
}

/// Without an identity, all of it is null.
#[derive(Default, Serialize)]
struct PrivateReport {
    entries: Option<u64>,
    plain_bytes: Option<u64>,
    unique_bytes: Option<u64>,
    /// Which share of the streams' bytes are in chunks that occurred before.
    redundancy: Option<f64>,
    /// Root, and all parts.
    table_bytes: Option<u64>,
    /// What of them is not for references, divided by the chunks.
    table_bytes_per_chunk: Option<f64>,
    /// What of them is for references, divided by these.
    table_bytes_per_reference: Option<f64>,
    /// BLAKE3 of the plain content.
    digest: Option<String>,
}

/// What everybody can know of how an archive is encrypted.
#[derive(Serialize)]
struct EncryptionReport {
    /// Whether lengths of chunks are hidden.
    padded: bool,
    /// Whether names and frame keys depend on the secret of a group.
    group_secret: bool,
    /// The kinds of keys that it is for, one for each recipient.
    recipients: Vec<String>,
}

#[derive(Serialize)]
struct StreamReport {
    name: String,
    bytes: Option<u64>,
    unique_bytes: Option<u64>,
    stored_bytes: u64,
    frames: u64,
    /// Those that were compressed against an earlier one.
    frames_with_base: u64,
    chunks: u64,
    references: Option<u64>,
}

pub(super) fn run(arguments: &StatArguments) -> anyhow::Result<()> {
    let archive = arguments.archive.open_with(&Interrupt::default())?;
    if archive.is_locked() {
        warn(format_args!(
            "the archive is encrypted: names and sizes are hidden (--identity shows them)"
        ));
    }
    let report = Report::new(&archive).with_context(|| arguments.archive.called())?;
    report::to_stdout(arguments.json, &report, |out| {
        writeln!(out, "{}", report.headline())?;
        lines(&report.lines(arguments.verbose), out)
    })
}

impl PrivateReport {
    fn new(archive: &Archive<AnySource>) -> Self {
        let (header, root) = (archive.header(), archive.root());
        let streams = Stream::ALL.map(|stream| root.stream(stream));
        let references = streams.iter().map(|it| it.references.stored_bytes());
        let of_references: u64 = references.sum();
        let of_others = u64::from(header.root.stored_bytes)
            + u64::from(header.root.private_stored_bytes)
            + root.part_bytes()
            - of_references;
        let all_bytes: u64 = streams.iter().map(|it| it.bytes()).sum();
        let summary = root.summary;
        Self {
            entries: Some(summary.entries),
            plain_bytes: Some(summary.plain_bytes),
            unique_bytes: Some(summary.unique_bytes),
            redundancy: (all_bytes > 0)
                .then(|| 1.0 - ratio(summary.unique_bytes, all_bytes).min(1.0)),
            table_bytes: Some(of_references + of_others),
            table_bytes_per_chunk: Some(ratio(of_others, header.chunks)),
            table_bytes_per_reference: Some(ratio(of_references, header.references)),
            digest: Some(report::hex(&summary.digest)),
        }
    }
}

impl Report {
    fn new(archive: &Archive<AnySource>) -> Result<Self, ReadError> {
        let (header, root) = (archive.header(), archive.root());
        let streams = Stream::ALL.map(|stream| (stream, root.stream(stream)));
        let known = |number: u64| (!archive.is_locked()).then_some(number);
        let method = Method::of_number(header.method).expect("headers are checked");
        let stream_report = |&(stream, it): &(Stream, &StreamRoot)| {
            Ok(StreamReport {
                name: stream.to_string(),
                bytes: known(it.bytes()),
                unique_bytes: known(it.unique_bytes()),
                stored_bytes: it.stored_bytes(),
                frames: it.frames.items(),
                frames_with_base: archive.frames_with_base(stream)?,
                chunks: it.chunks.items(),
                references: known(it.reference_count()),
            })
        };
        Ok(Self {
            profile: header.profile.to_string(),
            has_footer: header.has_footer,
            is_woven: header.is_woven,
            encrypted: header.encryption.is_some(),
            encryption: EncryptionReport::new(archive)?,
            chunker: header.chunking.to_string(),
            chunk_bytes: header.chunk_bytes,
            chunk_bytes_min: header.chunk_bytes_min,
            chunk_bytes_max: header.chunk_bytes_max,
            frame_bytes_max: header.frame_bytes_max,
            method: method.to_string(),
            archive_bytes: header.archive_bytes,
            stored_bytes: streams.iter().map(|(_, it)| it.stored_bytes()).sum(),
            chunks: header.chunks,
            references: header.references,
            private: match archive.is_locked() {
                true => PrivateReport::default(),
                false => PrivateReport::new(archive),
            },
            streams: streams
                .iter()
                .map(stream_report)
                .collect::<Result<_, ReadError>>()?,
        })
    }

    fn headline(&self) -> String {
        let (private, archive) = (&self.private, bytes(self.archive_bytes));
        match private.plain_bytes.zip(private.entries) {
            Some((plain_bytes, entries)) => format!(
                "{} of content in {archive}{}, {}",
                bytes(plain_bytes),
                share(self.archive_bytes, plain_bytes, ""),
                count(entries, "entry", "entries")
            ),
            None => format!("archive of {archive}, content encrypted"),
        }
    }

    fn lines(&self, is_verbose: bool) -> Vec<(&'static str, String)> {
        let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let private = &self.private;
        let repeated = self.references.saturating_sub(self.chunks);
        let redundancy = private.redundancy.map_or_else(String::new, |share| {
            format!(" ({} of the data)", percent(share, 1.0))
        });
        let encrypted = self.encryption.as_ref();
        let mut lines = vec![
            (
                "encrypted",
                encrypted.map_or_else(|| yes_or_no(self.encrypted), EncryptionReport::line),
            ),
            ("profile", self.profile.clone()),
            (
                "chunks",
                format!("{} unique, {repeated} repeated{redundancy}", self.chunks),
            ),
        ];
        if !is_verbose {
            return lines;
        }
        let table = private.table_bytes_per_chunk;
        let table = table.zip(private.table_bytes_per_reference);
        lines.extend([
            (
                "unique data",
                format!(
                    "{}, stored in {}",
                    private.unique_bytes.map_or_else(unknown, bytes),
                    bytes(self.stored_bytes)
                ),
            ),
            (
                "chunker",
                format!(
                    "{}, average {}, {} to {}",
                    self.chunker,
                    bytes(self.chunk_bytes.into()),
                    bytes(self.chunk_bytes_min.into()),
                    bytes(self.chunk_bytes_max.into())
                ),
            ),
            ("method", self.method.clone()),
            (
                "table",
                table.map_or_else(unknown, |(chunk, reference)| {
                    format!(
                        "{}: {chunk:.1} bytes per chunk, {reference:.1} per reference",
                        bytes(private.table_bytes.unwrap_or(0)),
                    )
                }),
            ),
            ("containers unpacked", yes_or_no(self.is_woven)),
            ("header at the end", yes_or_no(self.has_footer)),
            ("digest", private.digest.clone().unwrap_or_else(unknown)),
        ]);
        let streams = self.streams.iter().filter(|stream| stream.chunks > 0);
        lines.extend(streams.map(|stream| {
            let with_base = match stream.frames_with_base {
                0 => String::new(),
                some => format!(", {some} of them with a base"),
            };
            let explanation = match stream.name == Stream::Weave.to_string() {
                true => " (joins content, fields and times)",
                false => "",
            };
            let text = format!(
                "{}{explanation}: {}, {} unique in {}, {} stored in {}{with_base}",
                stream.name,
                stream.bytes.map_or_else(unknown, bytes),
                stream.unique_bytes.map_or_else(unknown, bytes),
                count(stream.chunks, "chunk", "chunks"),
                bytes(stream.stored_bytes),
                count(stream.frames, "frame", "frames")
            );
            ("stream", text)
        }));
        lines
    }
}

/// What a reader without the key is shown.
fn unknown() -> String {
    "unknown".to_owned()
}

impl EncryptionReport {
    fn new(archive: &Archive<AnySource>) -> Result<Option<Self>, ReadError> {
        let Some(how) = archive.header().encryption else {
            return Ok(None);
        };
        Ok(Some(Self {
            padded: how.is_padded,
            group_secret: how.has_group_secret,
            recipients: archive.recipient_kinds()?,
        }))
    }

    fn line(&self) -> String {
        let recipients = self.recipients.join(", ");
        let keys = count(self.recipients.len() as u64, "key", "keys");
        let mut line = format!("yes, to {keys} ({recipients})");
        for (is_so, what) in [
            (self.padded, "padded"),
            (self.group_secret, "with a group secret"),
        ] {
            if is_so {
                line += &format!(", {what}");
            }
        }
        line
    }
}

/// A share of nothing is nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}
