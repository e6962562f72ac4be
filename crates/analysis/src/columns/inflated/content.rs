//! Content that may be a file of gzip, zlib or zip, by its first bytes.

use flate2::{Decompress, FlushDecompress, Status};

/// Of inflated bytes, for each compressed one. Content that grows by more stays as it is.
const GROWTH_MAX: u64 = 200;

/// Content may grow by so much in any case.
const GROWTH_FREE: u64 = 1 << 20;

const OUT_BYTES: usize = 64 << 10;

/// The first bytes of a zip entry's header.
const ZIP: &[u8] = b"PK\x03\x04";

/// The fixed part of a zip entry's header.
const ENTRY_BYTES: usize = 30;

/// See the module.
pub(super) struct Content {
    form: Form,
    compressed_bytes: u64,
    inflated_bytes: u64,
}

enum Form {
    /// Its first bytes, too few to tell.
    Unknown(Vec<u8>),
    Plain,
    Deflated {
        inflate: Decompress,
        is_zip: bool,
    },
    /// The header of an entry of a zip file, or other parts of it.
    Zip(Vec<u8>),
}

impl Default for Content {
    fn default() -> Self {
        Self {
            form: Form::Unknown(Vec::new()),
            compressed_bytes: 0,
            inflated_bytes: 0,
        }
    }
}

impl Content {
    pub(super) fn plain() -> Self {
        Self {
            form: Form::Plain,
            ..Self::default()
        }
    }

    /// Gives the bytes to `give`, inflated where they can be.
    pub(super) fn take(&mut self, mut bytes: &[u8], give: &mut dyn FnMut(&[u8])) {
        while !bytes.is_empty() {
            match &mut self.form {
                Form::Plain => {
                    give(bytes);
                    return;
                }
                Form::Unknown(first) => {
                    let (own, rest) = bytes.split_at(bytes.len().min(4 - first.len()));
                    first.extend_from_slice(own);
                    bytes = rest;
                    if first.len() == 4 {
                        let first = std::mem::take(first);
                        self.begin(&first, give);
                    }
                }
                Form::Zip(header) => {
                    if header.is_empty() {
                        let next = bytes.iter().position(|byte| *byte == ZIP[0]);
                        let (other, rest) = bytes.split_at(next.unwrap_or(bytes.len()));
                        give(other);
                        bytes = rest;
                    }
                    if let Some((byte, rest)) = bytes.split_first() {
                        header.push(*byte);
                        bytes = rest;
                        self.zip_header(give);
                    }
                }
                Form::Deflated { .. } => bytes = self.inflate(bytes, give),
            }
        }
    }

    /// The content is over: bytes that might have begun a file are given as they are.
    pub(super) fn end(&mut self, give: &mut dyn FnMut(&[u8])) {
        if let Form::Unknown(held) | Form::Zip(held) = &mut self.form {
            give(held);
        }
        self.form = Form::Unknown(Vec::new());
    }

    fn begin(&mut self, first: &[u8], give: &mut dyn FnMut(&[u8])) {
        let is_zlib =
            first[0] == 0x78 && u16::from_be_bytes([first[0], first[1]]).is_multiple_of(31);
        let inflate = match first {
            [0x1f, 0x8b, 8, _] => Some(Decompress::new_gzip(15)),
            _ if is_zlib => Some(Decompress::new(true)),
            ZIP => {
                self.form = Form::Zip(Vec::new());
                return self.take(first, give);
            }
            _ => None,
        };
        self.form = match inflate {
            Some(inflate) => Form::Deflated {
                inflate,
                is_zip: false,
            },
            None => Form::Plain,
        };
        self.take(first, give);
    }

    /// Looks for the end of an entry's header. Other bytes pass.
    fn zip_header(&mut self, give: &mut dyn FnMut(&[u8])) {
        let Form::Zip(header) = &mut self.form else {
            return;
        };
        if header.len() <= ZIP.len() {
            while !ZIP.starts_with(header) {
                give(&header[..1]);
                header.remove(0);
            }
            return;
        }
        let number = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        if header.len() < ENTRY_BYTES || header.len() < ENTRY_BYTES + number(26) + number(28) {
            return;
        }
        let is_deflated = number(8) == 8;
        give(header);
        header.clear();
        if is_deflated {
            self.form = Form::Deflated {
                inflate: Decompress::new(false),
                is_zip: true,
            };
        }
    }

    /// Returns the bytes after the compressed ones.
    fn inflate<'a>(&mut self, bytes: &'a [u8], give: &mut dyn FnMut(&[u8])) -> &'a [u8] {
        let Form::Deflated { inflate, is_zip } = &mut self.form else {
            return bytes;
        };
        let is_zip = *is_zip;
        let mut out = vec![0; OUT_BYTES];
        let mut rest = bytes;
        loop {
            let (taken, made) = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress(rest, &mut out, FlushDecompress::None);
            let taken = (inflate.total_in() - taken) as usize;
            let made = (inflate.total_out() - made) as usize;
            rest = &rest[taken..];
            self.compressed_bytes += taken as u64;
            self.inflated_bytes += made as u64;
            give(&out[..made]);
            let is_bomb = self.inflated_bytes > GROWTH_FREE + GROWTH_MAX * self.compressed_bytes;
            match status {
                _ if is_bomb => break,
                Ok(Status::StreamEnd) if is_zip => {
                    self.form = Form::Zip(Vec::new());
                    return rest;
                }
                Ok(Status::StreamEnd) => {
                    self.form = Form::Unknown(Vec::new());
                    return rest;
                }
                Ok(_) if rest.is_empty() && made < out.len() => return rest,
                Ok(_) if taken > 0 || made > 0 => {}
                _ => break,
            }
        }
        self.form = Form::Plain;
        rest
    }
}
