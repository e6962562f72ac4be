//! What is measured on: noise, text, and everything real at hand.
//!
//! *Real* are two releases of a source tree (Linux 2.0) and the files of the Silesia corpus;
//! *text* are those of them that people wrote. The releases lie so far apart that a log does
//! not reach from one to the other, and each round is longer than a log: what is encoded is
//! new. Where the folder of data is missing, others' bytes stand in for both.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read},
    ops::Range,
    path::Path,
};

/// Of noise at most. Of less memory, a share.
const NOISE_BYTES_MAX: usize = 256_000_000;
const SHARE_OF_MEMORY: usize = 16;

/// Needed at least: twice the larger log.
const BYTES_MIN: usize = 128 << 20;

/// Silesia's files that hold text or program sources.
const TEXTS: [&str; 5] = ["dickens", "xml", "samba", "nci", "reymont"];
/// Its others, as far as they can be had.
const BINARIES: [&str; 7] = [
    "mozilla", "mr", "ooffice", "osdb", "sao", "webster", "x-ray",
];

/// More than a core's share of any last-level cache.
const EVICTING_BYTES: usize = 96 << 20;

const RELEASES: &str = "linux-2.0.1-2.0.40.tar.zst";

/// Bytes to measure on.
pub(crate) struct Inputs {
    random: Vec<u8>,
    real: Vec<u8>,
    text: Range<usize>,
    evicting: Vec<u8>,
    /// What the real bytes are.
    pub note: String,
}

impl Inputs {
    /// Reads what is real from `folder`.
    ///
    /// # Errors
    /// If a file is not there, and which.
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Self> {
        let (real, text) = read_real(folder)?;
        let note = format!(
            "text: {} MB, two Linux 2.0 releases and Silesia's texts; \
             real: these and Silesia's other files, {} MB in all (`lab/data get linux silesia`)",
            text.len() / 1_000_000,
            real.len() / 1_000_000
        );
        Ok(Self::new(real, text, note))
    }

    /// Takes the demo's content for what is real.
    pub(crate) fn of_demo(content: Vec<u8>) -> Self {
        let note = format!(
            "text and real: the demo's {} MB, four visits to the same pages, which repeat each \
             other; no --data was given",
            content.len() / 1_000_000
        );
        let text = 0..content.len();
        Self::new(content, text, note)
    }

    /// Makes the noise.
    fn new(real: Vec<u8>, text: Range<usize>, note: String) -> Self {
        let random = noise(
            memory_bytes()
                .map_or(NOISE_BYTES_MAX, |bytes| bytes / SHARE_OF_MEMORY)
                .clamp(BYTES_MIN, NOISE_BYTES_MAX),
        );
        Self {
            random,
            real,
            text,
            evicting: vec![1; EVICTING_BYTES],
            note,
        }
    }

    /// Full entropy.
    pub(crate) fn random(&self) -> &[u8] {
        &self.random
    }

    pub(crate) fn real(&self) -> &[u8] {
        &self.real
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.real[self.text.clone()]
    }

    /// Bytes that take the place of all others in the caches.
    pub(crate) fn evicting(&self) -> &[u8] {
        &self.evicting
    }

    /// What a log of `log_bytes` holds when it comes again.
    pub(crate) fn redundant(&self, log_bytes: usize) -> &[u8] {
        &self.random[..log_bytes / 2]
    }
}

/// All that is real, and the range of it that is text.
fn read_real(folder: &Path) -> anyhow::Result<(Vec<u8>, Range<usize>)> {
    let mut real = Vec::new();
    let mut releases = unpack(&folder.join(RELEASES))?;
    read_member(&mut releases, &mut real)?;
    let mut second = Vec::new();
    read_member(&mut releases, &mut second)?;

    let silesia = |name: &str| folder.join("silesia").join(name).with_extension("zst");
    for name in TEXTS {
        unpack(&silesia(name))?.read_to_end(&mut real)?;
    }
    real.append(&mut second);
    let text = 0..real.len();
    for path in BINARIES.map(silesia) {
        if path.exists() {
            unpack(&path)?.read_to_end(&mut real)?;
        }
    }
    Ok((real, text))
}

/// The next file of a tar.
fn read_member(archive: &mut impl Read, to: &mut Vec<u8>) -> io::Result<()> {
    const RECORD_BYTES: u64 = 512;
    const SIZE: Range<usize> = 124..135;
    let mut header = Vec::new();
    archive.take(RECORD_BYTES).read_to_end(&mut header)?;
    let size = header
        .get(SIZE)
        .and_then(|digits| str::from_utf8(digits).ok())
        .and_then(|digits| u64::from_str_radix(digits, 8).ok())
        .ok_or_else(|| io::Error::other("not a tar"))?;
    let padded = size.next_multiple_of(RECORD_BYTES);
    archive.take(padded).read_to_end(to)?;
    Ok(())
}

fn unpack(path: &Path) -> io::Result<impl Read + use<>> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = BufReader::new(File::open(path).map_err(named)?);
    let mut decoder = zstd::Decoder::with_buffer(file)?;
    decoder.window_log_max(31)?;
    Ok(decoder)
}

/// What programs may take now; `None` where the system does not say.
fn memory_bytes() -> Option<usize> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Noise::new(1).fill(&mut bytes);
    bytes
}

/// A source of bytes of full entropy (xorshift64), the same for the same seed.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        // The state must not be 0.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next bytes, eight by eight.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for word in out.chunks_exact_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_is_not_there_is_named() {
        let error = Inputs::read(Path::new("/nowhere"))
            .err()
            .expect("no such folder");
        assert!(error.to_string().contains(RELEASES), "{error}");
    }

    #[test]
    fn the_demo_stands_in() {
        let content = vec![7; 3 << 20];
        let inputs = Inputs::of_demo(content.clone());
        assert_eq!((inputs.text(), inputs.real()), (&content[..], &content[..]));
    }

    #[test]
    fn a_member_ends_where_its_header_says() {
        let mut header = [0; 512];
        header[124..135].copy_from_slice(b"00000001001");
        let mut archive = header.to_vec();
        archive.extend([5; 513]);
        archive.extend([0; 511]);
        archive.extend(header);
        let mut member = Vec::new();
        let mut rest = &archive[..];
        read_member(&mut rest, &mut member).expect("a tar");
        assert_eq!(member.len(), 1024, "with its padding");
        assert_eq!(rest, header);
        assert!(read_member(&mut &b"short"[..], &mut member).is_err());
    }
}
