//! What is in an archive, a line an entry, as the second reader prints it too.

use std::fmt::Write;

use refrain_czip::archive::{Archive, ReadError, Source};
use refrain_czip_format::catalog::EntryKind;

/// Kind, permissions, time, path, and what the kind adds: bytes and BLAKE3, or a target.
pub(crate) fn listing<S: Source>(archive: &Archive<S>) -> Result<String, ReadError> {
    let mut lines = String::new();
    let mut content = archive.content(0)?;
    for entry in archive.entries()? {
        let (kind, more) = match &entry.kind {
            EntryKind::File { bytes } => {
                let mut file = vec![0; *bytes as usize];
                let read = content.read(&mut file)?;
                assert_eq!(read as u64, *bytes);
                ("file", format!("\t{bytes}\t{}", blake3::hash(&file)))
            }
            EntryKind::Folder => ("folder", String::new()),
            EntryKind::SymbolicLink { target } => ("symlink", format!("\t{}", escaped(target))),
            EntryKind::HardLink { target } => ("hardlink", format!("\t{}", escaped(target))),
        };
        let (mode, seconds, nanoseconds) = (entry.mode, entry.mtime_s, entry.mtime_ns);
        let path = escaped(&entry.path);
        writeln!(
            lines,
            "{kind}\t{mode:04o}\t{seconds} {nanoseconds}\t{path}{more}"
        )
        .unwrap();
    }
    Ok(lines)
}

/// Bytes but for printable ASCII as `\xNN`.
fn escaped(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, &byte| {
        match byte {
            b' '..=b'~' if byte != b'\\' => text.push(byte.into()),
            _ => write!(text, "\\x{byte:02x}").unwrap(),
        }
        text
    })
}
