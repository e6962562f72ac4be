//! Archives that tests make, as programs write them and as none should.

use proptest::collection::vec;
use proptest::prelude::*;

/// A tar member, with all that can be odd about one.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub name: Vec<u8>,
    pub kind: u8,
    pub data: Vec<u8>,
    pub mtime: u64,
    pub mode: u64,
    pub magic: &'static [u8],
    pub oddity: Oddity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Oddity {
    None,
    SevenDigits,
    WrongChecksum,
    SpacedChecksum,
    BytesBehindName,
    Base256Size,
    NoSize,
    SizeTooLarge,
    Padding,
    MtimeInTwelveDigits,
    LastBytes,
}

const ODDITIES: [Oddity; 10] = [
    Oddity::SevenDigits,
    Oddity::WrongChecksum,
    Oddity::SpacedChecksum,
    Oddity::BytesBehindName,
    Oddity::Base256Size,
    Oddity::NoSize,
    Oddity::SizeTooLarge,
    Oddity::Padding,
    Oddity::MtimeInTwelveDigits,
    Oddity::LastBytes,
];

impl Member {
    pub(crate) fn header(&self) -> [u8; 512] {
        let mut header = [0; 512];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.name[..self.name.len().min(100)]);
        put(100, format!("{:07o}\0", self.mode).as_bytes());
        put(108, b"0001750\x000001750\0");
        let size = self.data.len();
        put(124, format!("{size:011o}\0").as_bytes());
        put(136, format!("{:011o}\0", self.mtime).as_bytes());
        put(156, &[self.kind]);
        put(257, self.magic);
        match self.oddity {
            Oddity::BytesBehindName => put(98, b"\0b"),
            Oddity::Base256Size => {
                put(124, b"\x80\0\0\0");
                put(128, &(size as u64).to_be_bytes());
            }
            Oddity::NoSize => put(124, &[0; 12]),
            Oddity::SizeTooLarge => put(124, b"77777777777\0"),
            Oddity::MtimeInTwelveDigits => put(136, b"000000000017"),
            Oddity::LastBytes => put(510, b"zz"),
            _ => {}
        }
        put(148, b"        ");
        let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
        let checksum = match self.oddity {
            Oddity::SevenDigits => format!("{sum:07o}\0"),
            Oddity::SpacedChecksum => format!("{sum:6o}\0 "),
            Oddity::WrongChecksum => format!("{:06o}\0 ", sum + 1),
            _ => format!("{sum:06o}\0 "),
        };
        header[148..156].copy_from_slice(checksum.as_bytes());
        header
    }

    fn append(&self, tar: &mut Vec<u8>) {
        tar.extend_from_slice(&self.header());
        tar.extend_from_slice(&self.data);
        let padding = tar.len().next_multiple_of(512) - tar.len();
        tar.resize(tar.len() + padding, 0);
        if self.oddity == Oddity::Padding && padding > 0 {
            let last = tar.len() - 1;
            tar[last] = 1;
        }
    }
}

/// Members, one after the other, and blocks of zeros.
pub(crate) fn tar(members: &[Member], zero_blocks: usize) -> Vec<u8> {
    let mut tar = Vec::new();
    for member in members {
        member.append(&mut tar);
    }
    tar.resize(tar.len() + zero_blocks * 512, 0);
    tar
}

/// A regular file.
pub(crate) fn file(name: &str, data: &[u8], mtime: u64) -> Member {
    Member {
        name: name.as_bytes().to_vec(),
        kind: b'0',
        data: data.to_vec(),
        mtime,
        mode: 0o644,
        magic: b"ustar\x0000",
        oddity: Oddity::None,
    }
}

/// An extended header.
pub(crate) fn extended(records: &[(&str, String)]) -> Member {
    let mut data = Vec::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let mut length = rest.len() + 1;
        while length.to_string().len() + rest.len() != length {
            length = length.to_string().len() + rest.len();
        }
        data.extend_from_slice(format!("{length}{rest}").as_bytes());
    }
    Member {
        kind: b'x',
        ..file("././@PaxHeader", &data, 0)
    }
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => Just(Vec::new()),
        6 => vec(any::<u8>(), 1..1500),
        3 => vec(any::<u8>(), 0..3).prop_map(|data| data.repeat(512)),
        1 => (any::<u8>(), 1..300_000usize).prop_map(|(byte, count)| vec![byte; count]),
    ]
}

fn member() -> impl Strategy<Value = Vec<Member>> {
    let name = prop_oneof!["[ab]/[a-c/]{0,6}", "[a-z/]{0,120}", "\\./[ab]"];
    let kind = prop_oneof![
        6 => Just(b'0'), 2 => Just(b'5'), 1 => Just(0), 1 => b'1'..=b'7', 1 => any::<u8>(),
        1 => prop_oneof![Just(b'x'), Just(b'g'), Just(b'L'), Just(b'K'), Just(b'S')]
    ];
    let oddity = prop_oneof![9 => Just(Oddity::None), 1 => proptest::sample::select(&ODDITIES[..])];
    let magic = prop_oneof![6 => Just(&b"ustar\x0000"[..]), 2 => Just(&b"ustar  \0"[..]), 1 => Just(&b""[..])];
    let mode = prop_oneof![5 => Just(0o644u64), 1 => 0..0o7777u64];
    let before = prop_oneof![
        3 => Just(None),
        3 => (0..3u64, 0..2u8).prop_map(Some),
    ];
    (
        name,
        kind,
        data(),
        (1000..1004u64),
        mode,
        magic,
        oddity,
        before,
        any::<bool>(),
    )
        .prop_map(
            |(name, kind, data, mtime, mode, magic, oddity, before, sized)| {
                let member = Member {
                    name: name.into_bytes(),
                    kind,
                    data,
                    mtime,
                    mode,
                    magic,
                    oddity,
                };
                let mut members = Vec::new();
                if let Some((off, fraction)) = before {
                    let time = format!("{}.{fraction}", mtime - off.min(mtime));
                    let mut records = vec![("mtime", time), ("atime", "5".to_owned())];
                    if sized {
                        records.push(("size", member.data.len().to_string()));
                    }
                    members.push(extended(&records));
                }
                members.push(member);
                members
            },
        )
}

/// Tar archives of all kinds: odd headers, damaged, cut off, one behind the other, with garbage.
pub(crate) fn tars() -> impl Strategy<Value = Vec<u8>> {
    let archive = (vec(member(), 1..12), 0..5usize)
        .prop_map(|(members, zero_blocks)| tar(&members.concat(), zero_blocks));
    let change = prop_oneof![
        4 => Just(None),
        1 => (0..3u8, any::<prop::sample::Index>(), vec(any::<u8>(), 1..700)).prop_map(Some),
    ];
    (vec(archive, 1..3), change).prop_map(|(archives, change)| {
        let mut tar = archives.concat();
        if let Some((what, at, bytes)) = change {
            let at = at.index(tar.len());
            match what {
                0 => tar[at] ^= bytes[0],
                1 => tar.truncate(at),
                _ => drop(tar.splice(at..at, bytes)),
            }
        }
        tar
    })
}
