//! The root: where the parts of the table are, and what is cumulative in them.
//!
//! Written column by column, since columns of small numbers compress better than rows.

mod list;

pub use list::{Further, PartList, PartPlace, PartRow, digest_bytes};

use crate::{
    FormatError, Input, Portion, Stream, Violation,
    header::{Header, PlainSummary},
    part::PartKind,
};

/// The lists of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRoot {
    /// Names of chunks.
    pub chunks: PartList,
    /// Stored frames.
    pub frames: PartList,
    /// Lengths of chunks, row by row as in `chunks`.
    pub lengths: PartList,
    /// What makes up the stream.
    pub references: PartList,
    /// Keys of frames, row by row as in `frames`.
    pub keys: PartList,
}

impl StreamRoot {
    /// Plain bytes of the stream's chunks.
    #[must_use]
    pub fn unique_bytes(&self) -> u64 {
        self.lengths.total(1)
    }

    /// References.
    #[must_use]
    pub fn reference_count(&self) -> u64 {
        self.references.total(1)
    }

    /// Bytes of the stream.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.references.total(2)
    }

    /// Stored bytes of its frames.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.frames.total(2)
    }

    /// The list of parts of this kind.
    ///
    /// # Panics
    /// For the weave index, which is no stream's.
    #[must_use]
    pub fn list(&self, kind: PartKind) -> &PartList {
        match kind {
            PartKind::Chunks => &self.chunks,
            PartKind::Frames => &self.frames,
            PartKind::Lengths => &self.lengths,
            PartKind::References => &self.references,
            PartKind::Keys => &self.keys,
            PartKind::WeaveIndex => unreachable!("the weave index is no stream's"),
        }
    }

    /// The list of this kind, to be filled.
    ///
    /// # Panics
    /// For the weave index, which is no stream's.
    pub fn list_mut(&mut self, kind: PartKind) -> &mut PartList {
        match kind {
            PartKind::Chunks => &mut self.chunks,
            PartKind::Frames => &mut self.frames,
            PartKind::Lengths => &mut self.lengths,
            PartKind::References => &mut self.references,
            PartKind::Keys => &mut self.keys,
            PartKind::WeaveIndex => unreachable!("the weave index is no stream's"),
        }
    }
}

/// The directory of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// By the streams' numbers.
    pub streams: [StreamRoot; 5],
    /// Where the weave may be entered.
    pub weave_index: PartList,
    /// What is in the archive.
    pub summary: PlainSummary,
}

impl Root {
    /// The lists of `stream`.
    #[must_use]
    pub fn stream(&self, stream: Stream) -> &StreamRoot {
        &self.streams[stream.index()]
    }

    /// Stored bytes of all parts.
    #[must_use]
    pub fn part_bytes(&self) -> u64 {
        let lists = self.streams.iter().flat_map(|stream| {
            let lists = PartKind::OF_STREAMS.into_iter();
            lists.map(|kind| stream.list(kind))
        });
        let lists = lists.chain([&self.weave_index]);
        lists.map(PartList::stored_bytes).sum()
    }

    /// The bytes of the root.
    pub fn encode_public(&self, is_encrypted: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for stream in &self.streams {
            stream.chunks.put(PartKind::Chunks, false, &mut out);
            stream.frames.put(PartKind::Frames, false, &mut out);
            if is_encrypted {
                for &kind in private_of_streams(true) {
                    stream.list(kind).put_sealed(kind, &mut out);
                }
            }
        }
        if is_encrypted {
            self.weave_index.put_sealed(PartKind::WeaveIndex, &mut out);
        }
        out
    }

    /// The bytes of the private root.
    pub fn encode_private(&self, is_encrypted: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for stream in &self.streams {
            for &kind in private_of_streams(is_encrypted) {
                stream.list(kind).put(kind, is_encrypted, &mut out);
            }
        }
        self.weave_index
            .put(PartKind::WeaveIndex, is_encrypted, &mut out);
        self.summary.put(&mut out);
        out
    }

    /// Parses what everybody may know: all of chunks and frames, and where sealed parts are. It is what a
    /// cache needs, which has no key.
    pub fn parse_public(
        bytes: &[u8],
        is_shared: bool,
        is_encrypted: bool,
    ) -> Result<Self, FormatError> {
        let mut input = Input::new(Portion::Root, bytes);
        let mut root = Self::default();
        for stream in &mut root.streams {
            stream.chunks = PartList::parse(PartKind::Chunks, None, &mut input)?;
            stream.frames = PartList::parse(PartKind::Frames, None, &mut input)?;
            if is_shared && !have_same_items(&stream.chunks, &stream.frames) {
                return Err(FormatError::Invalid(Violation::ChunksAreNotFrames));
            }
            if is_encrypted {
                for &kind in private_of_streams(true) {
                    *stream.list_mut(kind) = PartList::parse_sealed(kind, &mut input)?;
                }
            }
        }
        if is_encrypted {
            root.weave_index = PartList::parse_sealed(PartKind::WeaveIndex, &mut input)?;
        }
        input.finish()?;
        Ok(root)
    }

    /// Adds what the private root says. It is an error if that contradicts the root.
    pub fn parse_private(&mut self, bytes: &[u8], is_encrypted: bool) -> Result<(), FormatError> {
        let mut input = Input::new(Portion::PrivateRoot, bytes);
        for stream in &mut self.streams {
            for &kind in private_of_streams(is_encrypted) {
                let list = stream.list_mut(kind);
                *list = PartList::parse(kind, is_encrypted.then_some(&*list), &mut input)?;
            }
            let has_keys = !is_encrypted || have_same_items(&stream.frames, &stream.keys);
            let has_all = stream.references.total(3) == stream.chunks.items();
            if !has_keys || !has_all || !have_same_items(&stream.chunks, &stream.lengths) {
                return Err(FormatError::Invalid(Violation::PartLists));
            }
        }
        let sealed = is_encrypted.then_some(&self.weave_index);
        self.weave_index = PartList::parse(PartKind::WeaveIndex, sealed, &mut input)?;
        self.summary = PlainSummary::parse(&input.array()?);
        input.finish()
    }

    /// Holds what the header says against what the lists come to.
    pub fn check_header(&self, header: &Header) -> Result<(), FormatError> {
        let sum = |of: fn(&StreamRoot) -> u64| {
            let mut streams = self.streams.iter();
            streams.try_fold(0_u64, |sum, stream| sum.checked_add(of(stream)))
        };
        let is_consistent = sum(|stream| stream.chunks.items()) == Some(header.chunks)
            && sum(StreamRoot::reference_count) == Some(header.references)
            && sum(StreamRoot::unique_bytes) == Some(self.summary.unique_bytes)
            && sum(StreamRoot::stored_bytes) == Some(self.summary.stored_bytes)
            && (header.encryption.is_some() || header.summary == self.summary);
        match is_consistent {
            true => Ok(()),
            false => Err(FormatError::Invalid(Violation::HeaderAndTable)),
        }
    }

    /// Holds the sums of what is woven against each other.
    pub fn check_weave(&self, is_woven: bool) -> Result<(), FormatError> {
        let bytes = |stream: Stream| self.stream(stream).bytes();
        let plain = self.summary.plain_bytes;
        let is_consistent = match is_woven {
            true => {
                let woven = [
                    plain,
                    bytes(Stream::Weave),
                    bytes(Stream::Content),
                    bytes(Stream::Fields),
                    bytes(Stream::Times),
                ];
                self.weave_index.total[1..] == woven
            }
            false => {
                let others = [Stream::Weave, Stream::Fields, Stream::Times];
                self.weave_index.items() == 0
                    && bytes(Stream::Content) == plain
                    && others.into_iter().all(|stream| bytes(stream) == 0)
            }
        };
        match is_consistent {
            true => Ok(()),
            false => Err(FormatError::Invalid(Violation::StreamLengths)),
        }
    }
}

/// The kinds of a stream's lists in a private root.
fn private_of_streams(is_encrypted: bool) -> &'static [PartKind] {
    match is_encrypted {
        true => &[PartKind::Lengths, PartKind::References, PartKind::Keys],
        false => &[PartKind::Lengths, PartKind::References],
    }
}

fn have_same_items(one: &PartList, other: &PartList) -> bool {
    let items = |list| PartList::rows(list).iter().map(|row| row.place.items);
    items(one).eq(items(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of one part with so many items, of which `further` is said.
    fn list(kind: PartKind, items: u32, further: Further) -> PartList {
        let mut list = PartList::default();
        let place = PartPlace {
            items,
            ..PartPlace::default()
        };
        list.push(kind, place, further).expect("small numbers");
        list
    }

    /// A root of three chunks in the first stream.
    fn honest() -> Root {
        let mut root = Root::default();
        root.streams[0] = StreamRoot {
            chunks: list(PartKind::Chunks, 3, [0; 5]),
            frames: list(PartKind::Frames, 3, [0; 5]),
            lengths: list(PartKind::Lengths, 3, [0; 5]),
            references: list(PartKind::References, 1, [0, 0, 3, 0, 0]),
            keys: list(PartKind::Keys, 3, [0; 5]),
        };
        root
    }

    fn parsed(root: &Root, is_shared: bool, is_encrypted: bool) -> Result<(), FormatError> {
        let public = root.encode_public(is_encrypted);
        let mut read = Root::parse_public(&public, is_shared, is_encrypted)?;
        read.parse_private(&root.encode_private(is_encrypted), is_encrypted)
    }

    #[test]
    fn lists_that_contradict_each_other_are_no_root() {
        for (is_shared, is_encrypted) in [(false, false), (true, false), (true, true)] {
            assert_eq!(parsed(&honest(), is_shared, is_encrypted), Ok(()));
        }
        let frames = |root: &mut Root| root.streams[0].frames = list(PartKind::Frames, 2, [0; 5]);
        let mut lie = honest();
        frames(&mut lie);
        assert_eq!(parsed(&lie, false, false), Ok(()));
        assert!(parsed(&lie, true, false).is_err());
        assert!(parsed(&lie, false, true).is_err(), "frames without keys");
        let lies: [fn(&mut StreamRoot); 3] = [
            |stream| stream.lengths = list(PartKind::Lengths, 2, [0; 5]),
            |stream| stream.references = list(PartKind::References, 1, [0, 0, 2, 0, 0]),
            |stream| stream.references = PartList::default(),
        ];
        for (number, lie) in lies.into_iter().enumerate() {
            let mut root = honest();
            lie(&mut root.streams[0]);
            for is_encrypted in [false, true] {
                assert!(parsed(&root, false, is_encrypted).is_err(), "{number}");
            }
        }
    }

    #[test]
    fn parts_without_items_or_with_too_many_are_in_no_root() {
        let most = PartKind::Chunks.items_max() as u32;
        for (items, is_right) in [(0, false), (1, true), (most, true), (most + 1, false)] {
            let mut root = Root::default();
            root.streams[0].chunks = list(PartKind::Chunks, items, [0; 5]);
            let public = root.encode_public(false);
            assert_eq!(
                Root::parse_public(&public, false, false).is_ok(),
                is_right,
                "{items}"
            );
        }
    }
}
