//! Streams in memory, and both directions over them.

use std::convert::Infallible;

use proptest::prelude::*;
use refrain_czip_format::Stream;
use refrain_czip_format::container::{RestartPoint, Weaver, Woven};
use refrain_czip_format::weave::{StreamReader, Streams, Unweaver, WeaveError};

/// No test's files are longer: who goes on without end takes no more memory than this a stream.
pub(crate) const FILES_BYTES_MAX: usize = 128 << 20;

/// What a weaver told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub content: Vec<u8>,
    pub fields: Vec<u8>,
    pub times: Vec<u8>,
    pub weave: Vec<u8>,
    /// Places in content.
    pub boundaries: Vec<usize>,
    /// Places in content, and when what follows was written.
    pub written: Vec<(usize, i64)>,
    pub restarts: Vec<RestartPoint>,
}

/// Appends to a stream.
fn append(stream: &mut Vec<u8>, bytes: &[u8]) {
    stream.extend_from_slice(bytes);
    assert!(stream.len() <= FILES_BYTES_MAX, "a stream without end");
}

impl Woven for Told {
    type Error = Infallible;

    fn put(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), Infallible> {
        let stream = match stream {
            Stream::Content => &mut self.content,
            Stream::Weave => &mut self.weave,
            Stream::Fields => &mut self.fields,
            Stream::Times => &mut self.times,
            Stream::Catalog => panic!("the catalog is not woven"),
        };
        append(stream, bytes);
        Ok(())
    }

    fn written(&mut self, mtime: i64) {
        self.written.push((self.content.len(), mtime));
    }

    fn boundary(&mut self) -> Result<(), Infallible> {
        self.boundaries.push(self.content.len());
        Ok(())
    }

    fn restart(&mut self, at: RestartPoint) -> Result<(), Infallible> {
        let lengths = [&self.weave, &self.content, &self.fields, &self.times].map(Vec::len);
        let told = [at.weave, at.content, at.fields, at.times];
        assert_eq!(told, lengths.map(|length| length as u64));
        self.restarts.push(at);
        Ok(())
    }
}

/// Weaves files, each in pieces of these lengths, over and over.
pub(crate) fn weave_split(files: &[&[u8]], pieces: &[usize]) -> Told {
    let mut told = Told::default();
    let mut weaver = Weaver::new();
    let mut pieces = pieces.iter().cycle();
    for mut file in files.iter().copied() {
        weaver.begin_file();
        while !file.is_empty() {
            let (now, rest) = file.split_at(file.len().min(*pieces.next().unwrap()));
            weaver.feed(now, &mut told).unwrap();
            file = rest;
        }
        weaver.end_file(&mut told).unwrap();
    }
    weaver.finish(&mut told).unwrap();
    told
}

pub(crate) fn weave(file: &[u8]) -> Told {
    weave_split(&[file], &[1 << 16])
}

/// Reads a slice, and fails a test that asks for more than there is.
pub(crate) struct Slice<'a>(pub &'a [u8]);

impl StreamReader for Slice<'_> {
    type Error = WeaveError;

    fn left(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), WeaveError> {
        let (now, rest) = self.0.split_at(bytes.len());
        bytes.copy_from_slice(now);
        self.0 = rest;
        Ok(())
    }

    fn skip(&mut self, count: u64) -> Result<(), WeaveError> {
        self.0 = &self.0[usize::try_from(count).unwrap()..];
        Ok(())
    }
}

impl Told {
    pub(crate) fn unweaver(&self, from: RestartPoint) -> Unweaver<Slice<'_>> {
        let rest = |stream: &'_ [u8], at: u64| -> usize {
            assert!(at as usize <= stream.len());
            at as usize
        };
        Unweaver::new(Streams {
            weave: Slice(&self.weave[rest(&self.weave, from.weave)..]),
            content: Slice(&self.content[rest(&self.content, from.content)..]),
            fields: Slice(&self.fields[rest(&self.fields, from.fields)..]),
            times: Slice(&self.times[rest(&self.times, from.times)..]),
        })
    }

    pub(crate) fn unweave(&self) -> Result<Vec<u8>, WeaveError> {
        read_all(&mut self.unweaver(RestartPoint::default()), FILES_BYTES_MAX)
    }

    /// How many bytes each operation appends, or how many headers it is of.
    pub(crate) fn operations(&self) -> [u64; 7] {
        let mut sums = [0; 7];
        let mut bytes = self.weave.iter().copied();
        while let Some(operation) = bytes.next() {
            let mut count = u64::from(operation == 6);
            for shift in (0..).step_by(7).take_while(|_| operation < 6) {
                let byte = bytes.next().unwrap();
                count |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            sums[usize::from(operation)] += count;
        }
        sums
    }
}

/// What comes, up to a bit more than `most` bytes.
pub(crate) fn read_all(
    unweaver: &mut Unweaver<Slice<'_>>,
    most: usize,
) -> Result<Vec<u8>, WeaveError> {
    let mut plain = Vec::new();
    let mut piece = [0; 5000];
    while plain.len() < most {
        match unweaver.read(&mut piece)? {
            0 => break,
            count => plain.extend_from_slice(&piece[..count]),
        }
    }
    Ok(plain)
}

/// Lengths to split input by: from single bytes to all.
pub(crate) fn pieces() -> impl Strategy<Value = Vec<usize>> {
    let piece = prop_oneof![1..8usize, 500..530usize, 1..5000usize, Just(1 << 20)];
    proptest::collection::vec(piece, 1..6)
}

/// That a file comes back, from every restart point and over any skip, however it was split.
pub(crate) fn assert_round_trip(file: &[u8], pieces: &[usize], skips: &[u64]) -> Told {
    let told = weave(file);
    assert!(told.unweave().unwrap() == file, "other bytes come back");
    assert!(
        told == weave_split(&[file], pieces),
        "the split {pieces:?} matters"
    );
    for restart in &told.restarts {
        let back = read_all(&mut told.unweaver(*restart), file.len() + 1).unwrap();
        assert!(back == file[restart.plain as usize..], "from {restart:?}");
    }
    let mut unweaver = told.unweaver(RestartPoint::default());
    let mut at = 0;
    for skip in skips.iter().cycle() {
        let passed = unweaver.skip(*skip).unwrap() as usize;
        assert_eq!(passed, (file.len() - at).min(*skip as usize));
        at += passed;
        let mut piece = [0; 700];
        let count = unweaver.read(&mut piece).unwrap();
        assert!(
            piece[..count] == file[at..at + count],
            "behind a skip, at {at}"
        );
        at += count;
        if count == 0 {
            break;
        }
    }
    assert_eq!(at, file.len());
    told
}
