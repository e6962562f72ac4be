//! What each marker algorithm selects, and PACK's anchors, and what that is good for: not how
//! fast it is.
//!
//! Each kind of content is sent twice, the second time edited: 1 to 16 bytes put in now and
//! then, as newer releases of a text, or files in another archive, are.

use std::{collections::HashSet, fmt::Write, path::Path};

use anyhow::{Context, ensure};
use refrain_codec::{
    EncodedBlock, Encoder, EncoderConfig, SourceCursor,
    chunk::stream::StreamChunks,
    geometry::CacheGeometry,
    marker::{
        AnchorFinder, FindAnchors, MarkerAlgorithm, MarkerFinder, PackMask, SampleByteTable,
        SamplingPeriod, WindowBytes,
    },
    matching::Everything,
};

use crate::corpus;

const CONTENT_BYTES: usize = 8_000_000;

const BLOCK_BYTES: usize = 64 << 10;

const CACHE_BYTES: usize = 32 << 20;

const PERIODS: [usize; 3] = [32, 64, 256];

/// One of [`PERIODS`].
const GAP_PERIOD: usize = 64;

/// About so many bytes lie between two edits; where whole chunks count, more.
pub(crate) const EDIT_DISTANCE: usize = 4 << 10;
const CHUNK_EDIT_DISTANCE: usize = 64 << 10;
const EDIT_BYTES_MAX: usize = 16;

const BEGIN: &str = "<!-- written by `cargo run --release -p refrain-experiments -- markers \
                     --write docs/algorithms.md` -->\n";
const END: &str = "<!-- end of what is written -->\n";

/// The tables from the folder of test data; within the page at `path`, if there is one.
pub(crate) fn run(data: &Path, path: Option<&Path>) -> anyhow::Result<String> {
    let contents = contents(data)?;
    let tables = [marker_table(&contents)?, anchor_table(&contents)?].join("\n");
    let Some(path) = path else {
        return Ok(tables);
    };
    let page = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    replaced(&page, &tables)
}

/// `page` with `tables` between the two comments.
fn replaced(page: &str, tables: &str) -> anyhow::Result<String> {
    let parts = page.split_once(BEGIN);
    let (before, rest) = parts.context("the page has no comment at which the tables begin")?;
    let parts = rest.split_once(END);
    let (_, after) = parts.context("the page has no comment at which the tables end")?;
    Ok([before, BEGIN, "\n", tables, "\n", END, after].concat())
}

/// A kind of content, and its bytes.
pub(crate) type Content = (&'static str, Vec<u8>);

fn marker_table(contents: &[Content]) -> anyhow::Result<String> {
    let mut table = "| content | `marker` |".to_owned();
    for period in PERIODS {
        write!(table, " selected, p = {period} |")?;
    }
    write!(table, " longest gap, p = {GAP_PERIOD} |")?;
    for period in PERIODS {
        write!(table, " saved, p = {period} |")?;
    }
    table += "\n|---|---|";
    table += &"---|".repeat(2 * PERIODS.len() + 1);
    table.push('\n');
    for (name, content) in contents {
        let twice = [&content[..], &edited(content, EDIT_DISTANCE)].concat();
        for algorithm in MarkerAlgorithm::ALL {
            write!(table, "| {name} | `{algorithm}` |")?;
            for period in PERIODS {
                let selected = Selected::of(algorithm, period, content);
                write!(table, " {:.2} |", selected.over_expected())?;
            }
            let gap = Selected::of(algorithm, GAP_PERIOD, content).longest_gap;
            write!(table, " {} |", with_separators(gap))?;
            for period in PERIODS {
                write!(
                    table,
                    " {:.1} % |",
                    saved_percent(algorithm, period, &twice)
                )?;
            }
            table.push('\n');
        }
    }
    Ok(table)
}

fn anchor_table(contents: &[Content]) -> anyhow::Result<String> {
    let mut table = "| content | anchors, 13 bits | longest gap | mean chunk | saved by chunks |\n\
                     |---|---|---|---|---|\n"
        .to_owned();
    for (name, content) in contents {
        let mut anchors = Vec::new();
        AnchorFinder::new(PackMask::DEFAULT).feed(content, &mut anchors);
        let expected = (content.len() >> PackMask::DEFAULT.count()) as f64;
        let ends = anchors.iter().copied().chain([content.len() as u64]);
        let gaps = ends.scan(0, |start, end| Some(end - std::mem::replace(start, end)));

        let twice = [&content[..], &edited(content, CHUNK_EDIT_DISTANCE)].concat();
        let mut chunks = Vec::new();
        let mut stream = StreamChunks::default();
        stream.feed(&twice, &mut chunks);
        stream.finish(&mut chunks);
        let chunks: Vec<&[u8]> = chunks
            .iter()
            .map(|chunk| &twice[chunk.start as usize..chunk.end as usize])
            .collect();
        let sent: usize = HashSet::<&[u8]>::from_iter(chunks.iter().copied())
            .iter()
            .map(|chunk| chunk.len())
            .sum();
        writeln!(
            table,
            "| {name} | {:.2} | {} | {} | {:.1} % |",
            anchors.len() as f64 / expected,
            with_separators(gaps.max().unwrap_or(0) as usize),
            with_separators(twice.len() / chunks.len()),
            100.0 * (1.0 - sent as f64 / twice.len() as f64),
        )?;
    }
    Ok(table)
}

pub(crate) fn contents(data: &Path) -> anyhow::Result<[Content; 4]> {
    let silesia = |name: &str| corpus::unpacked(&data.join("silesia").join(name));
    let mut text = silesia("dickens.zst")?;
    text.truncate(CONTENT_BYTES / 2);
    text.extend(silesia("samba.zst")?);
    let binaries = silesia("ooffice.zst")?;
    // Compressed, as media are.
    let mut media = Vec::new();
    for name in ["samba.zst", "x-ray.zst"] {
        media.extend(std::fs::read(data.join("silesia").join(name))?);
    }
    let mut contents = [
        ("text", text),
        ("binaries", binaries),
        ("media", media),
        ("zeros", vec![0; CONTENT_BYTES]),
    ];
    for (name, content) in &mut contents {
        ensure!(!content.is_empty(), "no data for {name}");
        content.truncate(CONTENT_BYTES);
    }
    Ok(contents)
}

/// What an algorithm made of some content.
struct Selected {
    markers: usize,
    expected: f64,
    /// Bytes without a marker at most, in a block.
    longest_gap: usize,
}

impl Selected {
    fn of(algorithm: MarkerAlgorithm, period: usize, content: &[u8]) -> Self {
        let finder = finder(algorithm, period);
        let mut selected = Self {
            markers: 0,
            expected: content.len() as f64 / distance_expected(algorithm, period),
            longest_gap: 0,
        };
        let mut found = Vec::new();
        for block in content.chunks(BLOCK_BYTES) {
            finder.find(block, &mut found);
            selected.markers += found.len();
            let mut end = 0;
            for marker in found
                .iter()
                .map(|&marker| marker as usize)
                .chain([block.len()])
            {
                selected.longest_gap = selected.longest_gap.max(marker - end);
                end = marker;
            }
        }
        selected
    }

    fn over_expected(&self) -> f64 {
        self.markers as f64 / self.expected
    }
}

/// Between two markers in random data, in bytes.
fn distance_expected(algorithm: MarkerAlgorithm, period: usize) -> f64 {
    let period = period as f64;
    match algorithm {
        MarkerAlgorithm::SampleByte => {
            let table = SampleByteTable::default();
            let values = (0..=255).filter(|&value| table.contains(value)).count();
            period / 2.0 + 256.0 / values as f64
        }
        MarkerAlgorithm::Maxp | MarkerAlgorithm::MaxpBytes => period + 1.0,
        _ => period,
    }
}

/// What need not be sent of `content` by Max-Match, before entropy coding.
fn saved_percent(algorithm: MarkerAlgorithm, period: usize, content: &[u8]) -> f64 {
    let geometry = CacheGeometry::new(CACHE_BYTES).expect("a valid size");
    let mut encoder = Encoder::new(EncoderConfig {
        markers: finder(algorithm, period),
        ..EncoderConfig::with_defaults(geometry)
    });
    let mut out = EncodedBlock::default();
    let mut cursor = SourceCursor::default();
    let sent = content.chunks(BLOCK_BYTES).map(|block| {
        encoder.encode(0, block, &Everything, &mut cursor, &mut out);
        out.tokens.len() + out.literals.len()
    });
    100.0 * (1.0 - sent.sum::<usize>() as f64 / content.len() as f64)
}

pub(crate) fn finder(algorithm: MarkerAlgorithm, period: usize) -> MarkerFinder {
    MarkerFinder::new(
        algorithm,
        SamplingPeriod::new(period).expect("a valid period"),
        WindowBytes::DEFAULT,
        SampleByteTable::default(),
    )
}

/// `content` with a few bytes put in, twice `distance` apart at most.
pub(crate) fn edited(content: &[u8], distance: usize) -> Vec<u8> {
    let mut edited = Vec::with_capacity(content.len() + content.len() / 128);
    let mut random = 1_u64;
    let mut below = |end: usize| {
        // Knuth's generator, of which the upper bits are good.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % end
    };
    let mut rest = content;
    while !rest.is_empty() {
        let (kept, after) = rest.split_at(rest.len().min(below(2 * distance)));
        edited.extend_from_slice(kept);
        let inserted = 1 + below(EDIT_BYTES_MAX);
        edited.extend((0..inserted).map(|_| below(256) as u8));
        rest = after;
    }
    edited
}

fn with_separators(number: usize) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", with_separators(number / 1000), number % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_takes_the_place_of_the_last_one() {
        let page = |table: &str| format!("before\n{BEGIN}\n{table}\n{END}after\n");
        let now = replaced(&page("old\n"), "new\n").expect("a page with a table");
        assert_eq!(now, page("new\n"));
        assert!(replaced("before\n", "new\n").is_err());
    }

    #[test]
    fn fixed_markers_are_as_many_as_expected() {
        let selected = Selected::of(MarkerAlgorithm::Fixed, 64, &[0; BLOCK_BYTES]);
        assert!((0.99..=1.0).contains(&selected.over_expected()));
        assert_eq!(selected.longest_gap, 64);
    }

    #[test]
    fn an_edited_copy_is_hardly_longer() {
        let content = vec![7; 1_000_000];
        let added = edited(&content, EDIT_DISTANCE).len() - content.len();
        assert!((1000..4000).contains(&added), "{added}");
    }
}
