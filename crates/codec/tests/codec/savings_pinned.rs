//! What is saved, pinned: corpus × matching × markers × p × cache, in `savings.tsv`.
//!
//! A row that changes needs a reason in the commit's message; `REFRAIN_BLESS=1` writes the table
//! anew. The backends take turns row by row, so that each must find the same. Rows of data that
//! is not here are neither tested nor lost.

use std::{
    env,
    fmt::{self, Write},
    fs,
    path::{Path, PathBuf},
    str::FromStr,
    thread,
};

use refrain_codec::{
    EncodedBlock, Encoder, EncoderConfig, SourceCursor,
    geometry::CacheGeometry,
    marker::MarkerAlgorithm,
    matching::{
        Everything,
        MatchingAlgorithm::{self, ChunkMatch, MaxMatch},
    },
    simd::Backend,
};

use crate::{
    data,
    ends::{BLOCK_BYTES_MAX, config, markers},
};

const HEAD: &str =
    "corpus\tmatching\tmarkers\tp\tcache_mib\tplain_bytes\tregion_bytes\tencoded_bytes";

const PERIODS: [usize; 3] = [32, 64, 256];

/// Less than passes between most repeats, and more than each corpus has.
const CACHES_MIB: [usize; 2] = [4, 32];

/// What is encoded, and how.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    corpus: String,
    matching: MatchingAlgorithm,
    algorithm: MarkerAlgorithm,
    period: usize,
    cache_mib: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Saved {
    plain_bytes: usize,
    /// Of them, what regions cover.
    region_bytes: usize,
    /// Tokens and literals.
    encoded_bytes: usize,
}

/// Flows, one after another.
type Corpus = Vec<Vec<u8>>;

#[test]
fn savings_are_as_pinned() {
    let pinned = read_table();
    let corpora = [
        ("demo", demo()),
        ("pages", data::page("github-tos", 40)),
        ("mail", Some(vec![data::mail()])),
        ("linux", Some(data::linux_releases(8 << 20))),
    ];
    let mut measured = Vec::new();
    for (name, corpus) in corpora {
        match corpus {
            Some(corpus) => measured.extend(measure(name, &corpus)),
            None => {
                println!("skipped: savings of {name}");
                measured.extend(pinned.iter().filter(|row| row.0.corpus == name).cloned());
            }
        }
    }
    if env::var_os("REFRAIN_BLESS").is_some_and(|value| value == "1") {
        fs::write(path(), written(&measured)).expect("a writable table");
        return;
    }
    let changes = changes(&pinned, &measured);
    assert!(
        changes.is_empty(),
        "{changes}if that is meant, `REFRAIN_BLESS=1` pins it, and the commit says why"
    );
}

/// All cases of one corpus; on a thread for each size of the cache.
fn measure(name: &str, corpus: &Corpus) -> Vec<(Case, Saved)> {
    let backends: Vec<Backend> = Backend::available().collect();
    let cases = |cache_mib| {
        let matchings = [MaxMatch, ChunkMatch].into_iter();
        matchings.flat_map(move |matching| {
            MarkerAlgorithm::ALL.iter().flat_map(move |&algorithm| {
                PERIODS.into_iter().map(move |period| Case {
                    corpus: name.to_owned(),
                    matching,
                    algorithm,
                    period,
                    cache_mib,
                })
            })
        })
    };
    thread::scope(|scope| {
        let threads = CACHES_MIB.map(|cache_mib| {
            let mut backends = backends.iter().cycle();
            let cases = cases(cache_mib);
            scope.spawn(move || {
                let measured = cases.map(|case| {
                    let backend = backends.next().expect("a backend");
                    let saved = case.encode(corpus, *backend);
                    (case, saved)
                });
                measured.collect::<Vec<_>>()
            })
        });
        let measured = threads.map(|thread| thread.join().expect("no panic"));
        measured.concat()
    })
}

impl Case {
    fn encode(&self, corpus: &Corpus, backend: Backend) -> Saved {
        let markers = markers(self.algorithm, self.period, 32);
        let mut encoder = Encoder::new(EncoderConfig {
            geometry: CacheGeometry::new(self.cache_mib << 20).expect("a valid size"),
            backend,
            ..config(self.matching, markers)
        });
        let mut out = EncodedBlock::default();
        let mut saved = Saved {
            plain_bytes: 0,
            region_bytes: 0,
            encoded_bytes: 0,
        };
        for flow in corpus {
            let mut cursor = SourceCursor::default();
            for block in flow.chunks(BLOCK_BYTES_MAX) {
                encoder.encode(0, block, &Everything, &mut cursor, &mut out);
                saved.plain_bytes += block.len();
                saved.region_bytes += out.region_bytes;
                saved.encoded_bytes += out.tokens.len() + out.literals.len();
            }
        }
        saved
    }
}

/// What differs, a line each.
fn changes(pinned: &[(Case, Saved)], measured: &[(Case, Saved)]) -> String {
    let mut changes = String::new();
    for (case, saved) in measured {
        let before = pinned.iter().find(|(other, _)| other == case);
        let line = match before {
            Some((_, before)) if before == saved => continue,
            Some((_, before)) => {
                let points = saved.share() - before.share();
                writeln!(
                    changes,
                    "{case}: {before} is now {saved}, {points:+.3} points"
                )
            }
            None => writeln!(changes, "{case}: {saved} is new"),
        };
        line.expect("memory");
    }
    let gone = pinned
        .iter()
        .filter(|(case, _)| measured.iter().all(|(other, _)| other != case));
    for (case, saved) in gone {
        writeln!(changes, "{case}: {saved} is gone").expect("memory");
    }
    changes
}

impl Saved {
    /// In percent, what need not be sent.
    fn share(&self) -> f64 {
        100.0 * (1.0 - self.encoded_bytes as f64 / self.plain_bytes as f64)
    }
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            plain_bytes,
            region_bytes,
            encoded_bytes,
        } = self;
        write!(
            f,
            "{encoded_bytes} of {plain_bytes} bytes, {region_bytes} in regions"
        )
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            corpus,
            matching,
            algorithm,
            period,
            cache_mib,
        } = self;
        write!(
            f,
            "{corpus}\t{matching}\t{algorithm}\t{period}\t{cache_mib}"
        )
    }
}

fn read_table() -> Vec<(Case, Saved)> {
    let table = fs::read_to_string(path()).unwrap_or_default();
    let rows = table.lines().skip(1);
    let rows = rows.map(|line| row(line).unwrap_or_else(|| panic!("a malformed row: {line}")));
    rows.collect()
}

fn row(line: &str) -> Option<(Case, Saved)> {
    fn next<'a, T: FromStr>(cells: &mut impl Iterator<Item = &'a str>) -> Option<T> {
        cells.next()?.parse().ok()
    }
    let cells = &mut line.split('\t');
    let case = Case {
        corpus: next(cells)?,
        matching: next(cells)?,
        algorithm: next(cells)?,
        period: next(cells)?,
        cache_mib: next(cells)?,
    };
    let saved = Saved {
        plain_bytes: next(cells)?,
        region_bytes: next(cells)?,
        encoded_bytes: next(cells)?,
    };
    Some((case, saved))
}

fn written(rows: &[(Case, Saved)]) -> String {
    let mut table = format!("{HEAD}\n");
    for (case, saved) in rows {
        let Saved {
            plain_bytes,
            region_bytes,
            encoded_bytes,
        } = saved;
        writeln!(
            table,
            "{case}\t{plain_bytes}\t{region_bytes}\t{encoded_bytes}"
        )
        .expect("memory");
    }
    table
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/codec/savings.tsv")
}

/// Two of the demo's four visits, as one flow: the repository carries them.
fn demo() -> Option<Corpus> {
    const VISIT_BYTES: usize = 11 << 20;
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/corpus/objects.tar.zst");
    Some(vec![data::beginning_of(archive, 2 * VISIT_BYTES)])
}
