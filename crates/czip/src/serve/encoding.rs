//! Content codings: which one a client gets (RFC 9110, section 12.5.3), and encoding while sending.
//!
//! Windows and levels are small: there is an encoder a client.

use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use zstd::zstd_safe::CParameter;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Zstd,
    Gzip,
}

impl Coding {
    /// Its name in HTTP.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// The coding that a client likes most, of those that are worth the time; `None` is none.
    pub(super) fn choose(accept: &[&str]) -> Option<Self> {
        let [mut zstd, mut gzip, mut identity, mut others] = [None; 4];
        for element in accept.iter().flat_map(|value| value.split(',')) {
            let mut parameters = element.split(';').map(str::trim);
            let name = parameters.next().unwrap_or_default();
            let said = match &*name.to_ascii_lowercase() {
                "zstd" => &mut zstd,
                "gzip" | "x-gzip" => &mut gzip,
                "identity" => &mut identity,
                "*" => &mut others,
                _ => continue,
            };
            *said = Some(match parameters.next() {
                None => 1000,
                // What is no weight is taken as a refusal: it may be one.
                Some(parameter) => weight(parameter).unwrap_or(0),
            });
        }
        let [zstd, gzip] = [zstd, gzip].map(|said| said.or(others).unwrap_or(0));
        // Not to encode is as good as any other, unless somebody says less of it: then it costs
        // bytes, and encoding time.
        let enough = identity.unwrap_or(0).max(1);
        // zstd takes less time for what it saves.
        match zstd >= gzip {
            true => Some(Self::Zstd).filter(|_| zstd >= enough),
            false => Some(Self::Gzip).filter(|_| gzip >= enough),
        }
    }
}

/// What `q=0.5` says, in thousandths. None if it cannot be read, or is another parameter.
fn weight(parameter: &str) -> Option<u16> {
    let value = parameter
        .strip_prefix("q=")
        .or_else(|| parameter.strip_prefix("Q="))?;
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<3}").parse().ok()?;
    match (whole, fraction) {
        ("0", fraction) => Some(fraction),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

pub(super) enum Encoder {
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Gzip(GzEncoder<Vec<u8>>),
}

/// zstd's window has 256 KiB.
const WINDOW_LOG: u32 = 18;

impl Encoder {
    pub(super) fn new(coding: Coding) -> io::Result<Self> {
        Ok(match coding {
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1)?;
                encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
                Self::Zstd(encoder)
            }
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), Compression::new(4))),
        })
    }

    /// Takes bytes, and gives what it has made of all so far and not given yet.
    pub(super) fn encode(&mut self, plain: &[u8]) -> io::Result<Vec<u8>> {
        Ok(match self {
            Self::Zstd(encoder) => {
                encoder.write_all(plain)?;
                std::mem::take(encoder.get_mut())
            }
            Self::Gzip(encoder) => {
                encoder.write_all(plain)?;
                std::mem::take(encoder.get_mut())
            }
        })
    }

    /// The rest.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Zstd(encoder) => encoder.finish(),
            Self::Gzip(encoder) => encoder.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coding_is_the_one_with_the_most_weight() {
        for (accept, expected) in [
            ("", None),
            ("identity", None),
            ("gzip", Some(Coding::Gzip)),
            ("gzip, br, zstd", Some(Coding::Zstd)),
            ("GZIP;q=0.8, zstd;q=0.5", Some(Coding::Gzip)),
            ("zstd;q=0, *", Some(Coding::Gzip)),
            ("*;q=0", None),
            ("gzip;q=0.3, identity;q=0.9", None),
            ("gzip;q=0", None),
            ("gzip;q=2", None),
            ("gzip;q=1.000", Some(Coding::Gzip)),
            ("deflate, sdch", None),
            ("identity;q=0, gzip;q=0.001", Some(Coding::Gzip)),
        ] {
            assert_eq!(Coding::choose(&[accept]), expected, "{accept}");
        }
    }
}
