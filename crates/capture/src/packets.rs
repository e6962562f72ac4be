//! The packets of a capture.

use std::{
    io::{self, BufReader, Read},
    ops::ControlFlow,
};

use flate2::read::MultiGzDecoder;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, traits::PcapNGPacketBlock};

use crate::Time;

/// A buffer of this size holds hundreds of packets.
const BUFFER_BYTES: usize = 1 << 20;

/// No longer packet is believed. The longest that a kernel hands out has 256 KiB.
const BUFFER_BYTES_MAX: usize = 16 << 20;

/// Interfaces of a section of pcapng.
const INTERFACES_MAX: usize = 65_536;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// A packet, as far as it was captured.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When it was captured.
    pub at: Time,
    /// How its bytes begin.
    pub link: Linktype,
    /// Its bytes, or the first of them.
    pub bytes: &'a [u8],
    /// All of its bytes on the wire.
    pub length: u32,
}

/// A capture that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The reader's own error, decompression included.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It has no bytes.
    #[error("it is empty")]
    Empty,
    /// It begins with other bytes.
    #[error("it is not a capture: it begins as neither pcap nor pcapng")]
    Unknown,
}

/// How a capture ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Behind its last packet.
    Whole,
    /// Within a packet or block, as if it was cut off.
    Cut,
    /// With bytes that are no packet and no block.
    Damaged,
    /// The caller wanted no more.
    Stopped,
}

struct Interface {
    link: Linktype,
    /// Units of a second.
    resolution: u64,
    /// Seconds.
    offset: i64,
}

/// Reads a capture, compressed by gzip or zstd or not, and gives `take` each of its packets.
///
/// # Errors
/// If nothing of it can be read, or reading fails.
pub fn read_packets<'r>(
    reader: impl Read + Send + 'r,
    mut take: impl FnMut(Packet<'_>) -> ControlFlow<()>,
) -> Result<Ended, CaptureError> {
    let mut failure = None;
    let ended = {
        let reader = Noting {
            reader: decompressed(reader)?,
            failure: &mut failure,
        };
        read_uncompressed(reader, &mut take)
    };
    match failure {
        // A compressed file that was cut.
        Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => ended.map(|_| Ended::Cut),
        Some(error) => Err(error.into()),
        None => ended,
    }
}

/// The parser forgets the reason of a failed read.
struct Noting<'a, R> {
    reader: R,
    failure: &'a mut Option<io::Error>,
}

impl<R: Read> Read for Noting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.reader.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // The end for the parser, which has all bytes before it.
                    *self.failure = Some(error);
                    return Ok(0);
                }
                read => return read,
            }
        }
    }
}

/// The content of a file that may be compressed by gzip or zstd, by its first bytes.
///
/// # Errors
/// If reading fails. A compressed file that is truncated fails with [`io::ErrorKind::UnexpectedEof`].
pub fn decompressed<'r>(
    mut reader: impl Read + Send + 'r,
) -> io::Result<Box<dyn Read + Send + 'r>> {
    let mut first = Vec::new();
    reader.by_ref().take(4).read_to_end(&mut first)?;
    let is = |magic: &[u8]| first.starts_with(magic);
    let (is_gzip, is_zstd) = (is(&[0x1f, 0x8b]), is(&[0x28, 0xb5, 0x2f, 0xfd]));
    let whole = io::Cursor::new(first).chain(reader);
    Ok(match (is_gzip, is_zstd) {
        (true, _) => Box::new(MultiGzDecoder::new(BufReader::with_capacity(
            BUFFER_BYTES,
            whole,
        ))),
        (_, true) => Box::new(zstd::Decoder::new(whole)?),
        _ => Box::new(whole),
    })
}

fn read_uncompressed(
    mut reader: impl Read + Send,
    take: &mut impl FnMut(Packet<'_>) -> ControlFlow<()>,
) -> Result<Ended, CaptureError> {
    // The parser looks at the first read alone, and a pipe may give little by one.
    let mut first = vec![0; BUFFER_BYTES / 2];
    let mut filled = 0;
    while filled < 4096 {
        match reader.read(&mut first[filled..])? {
            0 => break,
            bytes => filled += bytes,
        }
    }
    first.truncate(filled);
    if first.is_empty() {
        return Err(CaptureError::Empty);
    }
    let whole = io::Cursor::new(first).chain(reader);
    let mut parser =
        pcap_parser::create_reader(BUFFER_BYTES, whole).map_err(|_| CaptureError::Unknown)?;
    let mut capture = Capture::default();
    let mut capacity = BUFFER_BYTES;
    loop {
        match parser.next() {
            Ok((bytes, block)) => {
                let flow = match capture.packet(&block) {
                    Some(packet) => take(packet),
                    None => ControlFlow::Continue(()),
                };
                drop(block);
                parser.consume(bytes);
                if flow.is_break() {
                    return Ok(Ended::Stopped);
                }
            }
            Err(PcapError::Eof) => return Ok(Ended::Whole),
            Err(PcapError::Incomplete(_)) => {
                if parser.reader_exhausted() {
                    return Ok(Ended::Cut);
                }
                match parser.refill() {
                    Ok(()) => {}
                    Err(PcapError::BufferTooSmall) if capacity < BUFFER_BYTES_MAX => {
                        capacity *= 2;
                        parser.grow(capacity);
                    }
                    Err(_) => return Ok(Ended::Damaged),
                }
            }
            Err(PcapError::BufferTooSmall) if capacity < BUFFER_BYTES_MAX => {
                capacity *= 2;
                parser.grow(capacity);
            }
            Err(PcapError::UnexpectedEof) => return Ok(Ended::Cut),
            Err(_) => return Ok(Ended::Damaged),
        }
    }
}

/// The state of a capture that its packets need.
#[derive(Default)]
struct Capture {
    /// Of pcap.
    legacy: Option<Interface>,
    /// Of a section of pcapng.
    interfaces: Vec<Interface>,
    /// The time of the last packet: simple packets of pcapng have none.
    at: Time,
}

impl Capture {
    fn packet<'a>(&mut self, block: &'a PcapBlockOwned<'a>) -> Option<Packet<'a>> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.legacy = Some(Interface {
                    link: header.network,
                    resolution: match header.is_nanosecond_precision() {
                        true => SECOND,
                        false => 1_000_000,
                    },
                    offset: 0,
                });
                None
            }
            PcapBlockOwned::Legacy(packet) => {
                let interface = self.legacy.as_ref()?;
                let units = u64::from(packet.ts_sec) * interface.resolution;
                self.at = interface.time(units.saturating_add(u64::from(packet.ts_usec)));
                Some(Packet {
                    at: self.at,
                    link: interface.link,
                    bytes: packet.data,
                    length: packet.origlen,
                })
            }
            PcapBlockOwned::NG(block) => self.packet_of_block(block),
        }
    }

    fn packet_of_block<'a>(&mut self, block: &'a Block<'a>) -> Option<Packet<'a>> {
        match block {
            Block::SectionHeader(_) => {
                self.interfaces.clear();
                None
            }
            Block::InterfaceDescription(interface) => {
                if self.interfaces.len() < INTERFACES_MAX {
                    self.interfaces.push(Interface {
                        link: interface.linktype,
                        resolution: interface.ts_resolution().unwrap_or(1_000_000).max(1),
                        offset: interface.ts_offset(),
                    });
                }
                None
            }
            Block::EnhancedPacket(packet) => {
                let interface = self.interfaces.get(packet.if_id as usize)?;
                let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                self.at = interface.time(units);
                Some(Packet {
                    at: self.at,
                    link: interface.link,
                    bytes: packet.packet_data(),
                    length: packet.origlen,
                })
            }
            Block::SimplePacket(packet) => Some(Packet {
                at: self.at,
                link: self.interfaces.first()?.link,
                bytes: packet.packet_data(),
                length: packet.origlen,
            }),
            _ => None,
        }
    }
}

impl Interface {
    fn time(&self, units: u64) -> Time {
        let (seconds, rest) = (units / self.resolution, units % self.resolution);
        let rest = u128::from(rest) * u128::from(SECOND) / u128::from(self.resolution);
        let seconds = seconds.saturating_add_signed(self.offset);
        Time(seconds.saturating_mul(SECOND).saturating_add(rest as u64))
    }
}
