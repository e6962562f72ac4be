//! Compressed content by name, for users who ask why it was not saved. Nothing else depends on it.
//!
//! A format is known by the first bytes of a block: a file, or the body of an HTTP/1 response, begins a write and with
//! it a block. So some are missed, and the names are hints.

use refrain_codec::names;

use crate::{limits::HTTP_HEAD_BYTES_MAX, traffic::TrafficClass};

names! {
    /// A format whose content is compressed.
    pub enum Format {
        /// RFC 1952.
        Gzip = "gzip",
        /// RFC 8878.
        Zstd = "zstd",
        /// RFC 7932. It has no first bytes of its own: `Content-Encoding` names it.
        Brotli = "brotli",
        /// The content encoding `deflate`.
        Deflate = "deflate",
        /// .xz
        Xz = "xz",
        /// .bz2
        Bzip2 = "bzip2",
        /// LZ4 frames
        Lz4 = "lz4",
        /// .zip, and all that is made of it: .jar, .docx, .whl, .apk
        Zip = "zip",
        /// .7z
        SevenZip = "7z",
        /// .rar
        Rar = "RAR",
        /// .png
        Png = "PNG",
        /// .jpg
        Jpeg = "JPEG",
        /// .gif
        Gif = "GIF",
        /// .webp
        WebP = "WebP",
        /// .mp4, .m4a, .mov, .heic, .avif
        Mp4 = "MP4",
        /// .mkv, .webm
        Matroska = "Matroska",
        /// .ogg, .opus
        Ogg = "Ogg",
        /// .mp3 with ID3
        Mp3 = "MP3",
        /// Web fonts
        Woff = "WOFF",
    }
}

/// First bytes of files, from an offset on.
const SIGNATURES: [(usize, &[u8], Format); 19] = [
    (0, b"\x1f\x8b\x08", Format::Gzip),
    (0, b"\x28\xb5\x2f\xfd", Format::Zstd),
    (0, b"\xfd7zXZ\0", Format::Xz),
    (0, b"BZh", Format::Bzip2),
    (0, b"\x04\x22\x4d\x18", Format::Lz4),
    (0, b"PK\x03\x04", Format::Zip),
    (0, b"7z\xbc\xaf\x27\x1c", Format::SevenZip),
    (0, b"Rar!\x1a\x07", Format::Rar),
    (0, b"\x89PNG\r\n\x1a\n", Format::Png),
    (0, b"\xff\xd8\xff", Format::Jpeg),
    (0, b"GIF87a", Format::Gif),
    (0, b"GIF89a", Format::Gif),
    (8, b"WEBP", Format::WebP),
    (4, b"ftyp", Format::Mp4),
    (0, b"\x1a\x45\xdf\xa3", Format::Matroska),
    (0, b"OggS", Format::Ogg),
    (0, b"ID3", Format::Mp3),
    (0, b"wOF2", Format::Woff),
    (0, b"wOFF", Format::Woff),
];

/// Values of `Content-Encoding`.
const ENCODINGS: [(&str, Format); 5] = [
    ("gzip", Format::Gzip),
    ("x-gzip", Format::Gzip),
    ("br", Format::Brotli),
    ("zstd", Format::Zstd),
    ("deflate", Format::Deflate),
];

const ENCODING_FIELD: &str = "content-encoding:";

impl Format {
    /// Of a file, or an HTTP/1 response, that begins with `block`.
    pub(crate) fn at(block: &[u8]) -> Option<Self> {
        if !block.starts_with(b"HTTP/1.") {
            return Self::of_file(block);
        }
        let head = &block[..block.len().min(HTTP_HEAD_BYTES_MAX)];
        let end = head.windows(4).position(|four| four == b"\r\n\r\n")?;
        let encoded = str::from_utf8(&head[..end])
            .ok()
            .and_then(Self::of_encoding);
        encoded.or_else(|| {
            let body = &block[end + 4..];
            Self::of_file(body).or_else(|| Self::of_file(after_chunk_size(body)))
        })
    }

    fn of_file(block: &[u8]) -> Option<Self> {
        let mut signatures = SIGNATURES.iter();
        let found = signatures.find(|(at, bytes, _)| {
            block
                .get(*at..)
                .is_some_and(|block| block.starts_with(bytes))
        });
        found.map(|&(_, _, format)| format)
    }

    fn of_encoding(head: &str) -> Option<Self> {
        let value = head.split("\r\n").find_map(|line| {
            let (name, value) = line.split_at_checked(ENCODING_FIELD.len())?;
            name.eq_ignore_ascii_case(ENCODING_FIELD).then_some(value)
        })?;
        let value = value.trim();
        let mut encodings = ENCODINGS.iter();
        let found = encodings.find(|(name, _)| value.eq_ignore_ascii_case(name));
        found.map(|&(_, format)| format)
    }
}

/// The first chunk of a body that may be sent in chunks.
fn after_chunk_size(body: &[u8]) -> &[u8] {
    let digits = body.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let digits = digits.take(8).count();
    let rest = &body[digits..];
    rest.strip_prefix(b"\r\n").unwrap_or_default()
}

/// Content of one direction of a flow that does not compress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compressed {
    /// Plain bytes in blocks of full entropy.
    pub bytes: u64,
    formats: u32,
}

impl Compressed {
    /// The formats that were seen.
    pub fn formats(&self) -> impl Iterator<Item = Format> + use<> {
        let formats = self.formats;
        let all = Format::ALL.into_iter();
        all.filter(move |&format| formats & bit(format) != 0)
    }

    /// A block of `len` bytes passed.
    pub(crate) fn count(&mut self, len: usize, class: TrafficClass, format: Option<Format>) {
        if class == TrafficClass::FullEntropy {
            self.bytes += len as u64;
        }
        self.formats |= format.map_or(0, bit);
    }
}

fn bit(format: Format) -> u32 {
    const { assert!(Format::ALL.len() <= 32) };
    1 << format as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_are_known_by_their_first_bytes() {
        for (at, bytes, format) in SIGNATURES {
            let file = [&vec![1; at][..], bytes, b"the rest"].concat();
            assert_eq!(Format::at(&file), Some(format));
            assert_eq!(Format::at(&file[..at + bytes.len() - 1]), None, "{format}");
        }
        assert_eq!(Format::at(b"GIF of a cat"), None);
        assert_eq!(Format::at(b""), None);
    }

    #[test]
    fn a_response_names_its_encoding_or_begins_its_body_with_a_file() {
        let gzip = b"\x1f\x8b\x08\0";
        for (head, body, format) in [
            (
                "Content-Encoding: br",
                &b"\x0b\x02"[..],
                Some(Format::Brotli),
            ),
            ("content-encoding:GZIP", b"", Some(Format::Gzip)),
            ("Content-Encoding: identity", b"text", None),
            ("Content-Encoding: aws-chunked", gzip, Some(Format::Gzip)),
            (
                "Content-Type: image/png",
                b"\x89PNG\r\n\x1a\n",
                Some(Format::Png),
            ),
            (
                "Transfer-Encoding: chunked",
                b"1a2b\r\n\x1f\x8b\x08\0",
                Some(Format::Gzip),
            ),
            ("Transfer-Encoding: chunked", b"1a2b", None),
            ("Age: 3", b"", None),
        ] {
            let head = format!("HTTP/1.1 200 OK\r\nDate: now\r\n{head}\r\n\r\n");
            let response = [head.as_bytes(), body].concat();
            assert_eq!(Format::at(&response), format, "{head}");
        }
        assert_eq!(
            Format::at(b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n"),
            None
        );
    }

    #[test]
    fn formats_are_listed_once() {
        let mut seen = Compressed::default();
        seen.count(5, TrafficClass::FullEntropy, Some(Format::Gzip));
        seen.count(100, TrafficClass::Ordinary, Some(Format::Bzip2));
        seen.count(3, TrafficClass::FullEntropy, Some(Format::Gzip));
        seen.count(3, TrafficClass::FullEntropy, None);
        assert_eq!(seen.bytes, 11);
        assert_eq!(
            seen.formats().map(Format::name).collect::<Vec<_>>(),
            ["gzip", "bzip2"]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_may_come(block: Vec<u8>, head in "[ -~\r\n]{0,100}") {
            Format::at(&block);
            let response = [b"HTTP/1.1", head.as_bytes(), b"\r\n\r\n", &block].concat();
            for end in 0..response.len() {
                Format::at(&response[..end]);
            }
        }
    }
}
