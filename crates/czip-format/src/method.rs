//! Methods: what makes a frame's plain bytes small, and plain again (CZIP, section 3).
//!
//! A frame as stored begins with a byte for its method, so that it can be read wherever it is found.

use std::{
    borrow::Cow,
    fmt,
    io::{self, Read},
    str::FromStr,
};

use bzip2::{
    Compression as BzipLevel,
    bufread::{BzDecoder, BzEncoder},
};
use flate2::{
    Compression as GzipLevel,
    bufread::{GzDecoder, GzEncoder},
};
use thiserror::Error;
use zstd::zstd_safe::{CCtx, CParameter, DCtx};

use crate::limits;

named! {
    /// A way to compress frames.
    #[derive(Default)]
    Method {
        /// Frames are stored as they are.
        None: "none",
        /// Zstandard.
        #[default]
        Zstd: "zstd",
        /// GZIP, the paper's default.
        Gzip: "gzip",
        /// BZIP2.
        Bzip2: "bzip2",
    }
}

impl Method {
    /// Its number in the format.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The method of a number, if there is one.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A method, and how hard it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Compression {
    method: Method,
    level: i32,
}

impl Compression {
    /// A method at its usual level: 3 of zstd, 6 of gzip, 9 of bzip2.
    #[must_use]
    pub fn new(method: Method) -> Self {
        let level = match method {
            Method::None => 0,
            Method::Zstd => 3,
            Method::Gzip => 6,
            Method::Bzip2 => 9,
        };
        Self { method, level }
    }

    /// The same at another level, if the method has it.
    pub fn with_level(self, level: i32) -> Result<Self, InvalidCompression> {
        let levels = match self.method {
            Method::None => 0..=0,
            Method::Zstd => -7..=22,
            Method::Gzip | Method::Bzip2 => 1..=9,
        };
        match levels.contains(&level) {
            true => Ok(Self { level, ..self }),
            false => Err(InvalidCompression),
        }
    }

    /// The method.
    #[must_use]
    pub fn method(self) -> Method {
        self.method
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::new(Method::default())
    }
}

impl FromStr for Compression {
    type Err = InvalidCompression;

    fn from_str(text: &str) -> Result<Self, InvalidCompression> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let method = Method::ALL.into_iter().find(|method| method.name() == name);
        let compression = Self::new(method.ok_or(InvalidCompression)?);
        match level {
            Some(level) => compression.with_level(level.parse().map_err(|_| InvalidCompression)?),
            None => Ok(compression),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.method {
            Method::None => f.pad("none"),
            method => write!(f, "{method}:{}", self.level),
        }
    }
}

/// No method, or no level of its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "expected zstd, gzip, bzip2 or none, optionally with a level: zstd:-7 to zstd:22, gzip:1 to gzip:9, bzip2:1 to bzip2:9"
)]
pub struct InvalidCompression;

/// Why a frame cannot be made plain.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// It is empty, or begins with the number of no method.
    #[error("unknown compression method: {number:?}")]
    UnknownMethod {
        /// The number.
        number: Option<u8>,
    },
    /// It has a base, and its method can have none.
    #[error("the frame has a base, but only zstd frames can have one")]
    Base,
    /// It is no output of its method.
    #[error("the data cannot be decompressed: {reason}")]
    Corrupt {
        /// In the words of the method's library.
        reason: String,
    },
    /// What was read of it is not what was written.
    #[error("its hash is wrong")]
    Digest,
    /// It has more plain bytes than a frame of its archive may have.
    #[error("the frame is too large (limit {limit} plain bytes)")]
    TooLong {
        /// The bound.
        limit: usize,
    },
}

/// Compresses frames.
pub struct Compressor {
    compression: Compression,
    context: CCtx<'static>,
}

impl Compressor {
    /// A compressor, with the memory that its method needs.
    #[must_use]
    pub fn new(compression: Compression) -> Self {
        Self {
            compression,
            context: CCtx::create(),
        }
    }

    /// A frame of `plain`, whose base, if any, has the plain bytes `base`. Where the method gains
    /// nothing, the bytes stay as they are.
    ///
    /// # Errors
    /// If the library fails, for want of memory.
    pub fn compress(&mut self, plain: &[u8], base: Option<&[u8]>) -> io::Result<Vec<u8>> {
        let mut out = vec![self.compression.method.number()];
        let level = self.compression.level;
        match self.compression.method {
            Method::None => {}
            Method::Zstd => self.zstd(plain, base.unwrap_or_default(), &mut out)?,
            Method::Gzip => {
                GzEncoder::new(plain, GzipLevel::new(level as u32)).read_to_end(&mut out)?;
            }
            Method::Bzip2 => {
                BzEncoder::new(plain, BzipLevel::new(level as u32)).read_to_end(&mut out)?;
            }
        }
        if self.compression.method == Method::None || out.len() > plain.len() {
            out.clear();
            out.push(Method::None.number());
            out.extend_from_slice(plain);
        }
        Ok(out)
    }

    fn zstd(&mut self, plain: &[u8], base: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match base {
            [] => zstd_frame(&mut self.context, self.compression.level, plain, &[], out),
            // A context that refers to a base does not outlive it.
            _ => zstd_frame(
                &mut CCtx::create(),
                self.compression.level,
                plain,
                base,
                out,
            ),
        }
    }
}

fn zstd_frame<'a>(
    context: &mut CCtx<'a>,
    level: i32,
    plain: &[u8],
    base: &'a [u8],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let in_words = |code| io::Error::other(zstd::zstd_safe::get_error_name(code));
    let mut set = |parameter| context.set_parameter(parameter).map_err(in_words);
    set(CParameter::CompressionLevel(level))?;
    set(CParameter::ContentSizeFlag(true))?;
    // The library would not look back over all of base and plain otherwise.
    let span = (base.len() + plain.len()).next_power_of_two().ilog2();
    set(CParameter::WindowLog(
        span.clamp(17, limits::WINDOW_LOG_MAX),
    ))?;
    if !base.is_empty() {
        context.ref_prefix(base).map_err(in_words)?;
    }
    let begin = out.len();
    out.resize(begin + zstd::zstd_safe::compress_bound(plain.len()), 0);
    let written = context
        .compress2(&mut out[begin..], plain)
        .map_err(in_words)?;
    out.truncate(begin + written);
    Ok(())
}

/// The plain bytes of a frame as stored, at most `limit` of them; `base` has the plain bytes of its
/// base, if it has one.
///
/// # Errors
/// If it is no such frame.
pub fn decompress<'a>(
    stored: impl Into<Cow<'a, [u8]>>,
    base: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<u8>, FrameError> {
    let stored = stored.into();
    let (number, payload) = match &*stored {
        [number, payload @ ..] => (Some(*number), payload),
        [] => (None, &stored[..]),
    };
    if base.is_some() && number != Some(Method::Zstd.number()) {
        return Err(FrameError::Base);
    }
    match number {
        Some(0) if payload.len() > limit => Err(FrameError::TooLong { limit }),
        Some(0) => Ok(match stored {
            Cow::Borrowed(_) => payload.to_vec(),
            // Large new memory costs more than moving what is there.
            Cow::Owned(mut stored) => {
                stored.remove(0);
                stored
            }
        }),
        Some(1) => zstd_plain(payload, base.unwrap_or_default(), limit),
        Some(2) => read_bounded(GzDecoder::new(payload), limit, GzDecoder::into_inner),
        Some(3) => read_bounded(BzDecoder::new(payload), limit, BzDecoder::into_inner),
        number => Err(FrameError::UnknownMethod { number }),
    }
}

fn zstd_plain(payload: &[u8], base: &[u8], limit: usize) -> Result<Vec<u8>, FrameError> {
    let corrupt = |reason: &str| FrameError::Corrupt {
        reason: reason.to_owned(),
    };
    let plain_bytes = match zstd::zstd_safe::get_frame_content_size(payload) {
        Ok(Some(bytes)) if bytes <= limit as u64 => bytes as usize,
        Ok(Some(_)) => return Err(FrameError::TooLong { limit }),
        _ => return Err(corrupt("it does not state its length")),
    };
    if zstd::zstd_safe::find_frame_compressed_size(payload) != Ok(payload.len()) {
        return Err(corrupt("it is not exactly one zstd frame"));
    }
    // A block of zstd's has 4 bytes at least, and at most 128 KiB of plain ones.
    if plain_bytes / (128 << 10) > payload.len() / 4 {
        return Err(corrupt("it is too short for the length that it states"));
    }
    // Unless its segment is a single one, whose window is its content.
    if let [_, _, _, _, descriptor, window, ..] = *payload
        && descriptor & 0x20 == 0
        && u32::from(window) + 80 > limits::WINDOW_LOG_MAX << 3
    {
        return Err(corrupt("its window is too large"));
    }
    let mut plain = Vec::with_capacity(plain_bytes);
    let mut context = DCtx::create();
    let in_words = |code| corrupt(zstd::zstd_safe::get_error_name(code));
    if !base.is_empty() {
        context.ref_prefix(base).map_err(in_words)?;
    }
    context.decompress(&mut plain, payload).map_err(in_words)?;
    match plain.len() == plain_bytes {
        true => Ok(plain),
        false => Err(corrupt("it is shorter than the length that it states")),
    }
}

/// What a decoder gives, if that is not too much. `rest` says what it left behind its end: nothing.
fn read_bounded<'a, D: Read>(
    mut decoder: D,
    limit: usize,
    rest: fn(D) -> &'a [u8],
) -> Result<Vec<u8>, FrameError> {
    let mut plain = Vec::new();
    let read = decoder
        .by_ref()
        .take(limit as u64 + 1)
        .read_to_end(&mut plain);
    let corrupt = |reason: String| FrameError::Corrupt { reason };
    match read {
        Ok(_) if plain.len() > limit => Err(FrameError::TooLong { limit }),
        Ok(_) if !rest(decoder).is_empty() => {
            Err(corrupt("there are extra bytes after it".to_owned()))
        }
        Ok(_) => Ok(plain),
        Err(error) => Err(corrupt(error.to_string())),
    }
}

/// Whether a part of the table is worth compressing, and how.
pub fn pack_part(plain: &[u8]) -> io::Result<Vec<u8>> {
    let packed = zstd::bulk::compress(plain, 3)?;
    Ok(match packed.len() < plain.len() {
        true => packed,
        false => plain.to_vec(),
    })
}

/// The same of a root: what would become too much longer than it is stored stays as it is.
pub fn pack_root(plain: &[u8]) -> io::Result<Vec<u8>> {
    let packed = pack_part(plain)?;
    Ok(match plain.len() <= limits::root_bytes_max(packed.len()) {
        true => packed,
        false => plain.to_vec(),
    })
}

/// A part of the table, or a root, as it was before it was packed.
pub fn unpack_part(stored: &[u8], plain_bytes: usize) -> Result<Vec<u8>, FrameError> {
    if stored.len() == plain_bytes {
        return Ok(stored.to_vec());
    }
    let plain = zstd_plain(stored, &[], plain_bytes)?;
    match plain.len() == plain_bytes {
        true => Ok(plain),
        false => Err(FrameError::Corrupt {
            reason: "a part has the wrong length".to_owned(),
        }),
    }
}
