//! What a demo moves: embedded releases and pages, or the user's files.

use std::{fs, path::PathBuf};

use anyhow::{Context, ensure};

/// Successive releases of real packages and their pages; `demo/corpus/README.md` has their
/// sources and licences.
const CORPUS: &[u8] = include_bytes!("../../demo/corpus/objects.tar.zst");
const CORPUS_OBJECTS: &str = include_str!("../../demo/corpus/objects.tsv");

/// A tar member's header.
const HEADER_BYTES: usize = 512;

/// One thing to fetch.
#[derive(Clone)]
pub struct Object {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// The built-in content, in the order in which a client would fetch it.
pub fn embedded() -> anyhow::Result<Vec<Object>> {
    let archive = zstd::decode_all(CORPUS).context("the built-in content is damaged")?;
    let mut rest = &archive[..];
    let mut objects = Vec::new();
    for line in CORPUS_OBJECTS.lines().skip(1) {
        let mut fields = line.split('\t').skip(1);
        let (name, bytes) = fields
            .next()
            .zip(fields.next())
            .context("a malformed list of objects")?;
        let bytes: usize = bytes.parse()?;
        let member = HEADER_BYTES + bytes;
        ensure!(rest.len() >= member, "the built-in content is cut short");
        objects.push(Object {
            name: name.to_owned(),
            bytes: rest[HEADER_BYTES..member].to_vec(),
        });
        rest = &rest[(HEADER_BYTES + bytes.next_multiple_of(HEADER_BYTES)).min(rest.len())..];
    }
    Ok(objects)
}

/// The user's files.
pub fn from_files(paths: &[PathBuf]) -> anyhow::Result<Vec<Object>> {
    paths
        .iter()
        .map(|path| {
            let bytes =
                fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok(Object {
                name: path.display().to_string(),
                bytes,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_content_is_what_its_list_says() {
        let objects = embedded().expect("intact");
        for (object, line) in objects.iter().zip(CORPUS_OBJECTS.lines().skip(1)) {
            let sum = line.rsplit('\t').next().expect("a checksum");
            let digest = ring::digest::digest(&ring::digest::SHA256, &object.bytes);
            let hex: String = digest
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(hex, sum, "{}", object.name);
        }
        assert_eq!(objects.len(), CORPUS_OBJECTS.lines().count() - 1);
    }
}
