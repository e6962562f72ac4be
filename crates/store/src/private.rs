//! What does not become history unless it is asked for: a prediction tells the other end what is
//! here, and of keys nobody means that. Chunk stores hold others' traffic, in files that never stay
//! as they are.

use std::{ffi::OsStr, fs::File, io::Read, path::Path};

use crate::format::{FORMAT_FILE, TITLE};

/// Keys are shorter. What is longer and is called like one is something else.
const KEY_FILE_BYTES_MAX: u64 = 64 << 10;

/// In which a private key in PEM says what it is.
pub(crate) const HEAD_BYTES: usize = 64;

/// What a chunk store is called, where it is said that it was passed over.
pub const STORE: &str = "a chunk store";
/// And a key.
pub const KEY: &str = "a private key";

/// Whether there is a chunk store in a folder, of whatever version.
#[must_use]
pub fn is_store(folder: &Path) -> bool {
    let path = folder.join(FORMAT_FILE);
    // A pipe of that name would be waited for.
    let is_file = path.symlink_metadata().is_ok_and(|it| it.is_file());
    let title = format!("{TITLE}\n");
    let mut head = vec![0; title.len()];
    let file = is_file.then(|| File::open(path)).and_then(Result::ok);
    file.is_some_and(|mut file| file.read_exact(&mut head).is_ok()) && head == title.as_bytes()
}

/// Whether a file is called as keys are.
#[must_use]
pub fn is_named_like_a_key(path: &Path, bytes: u64) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_of_ssh = path.parent().is_some_and(|folder| folder.ends_with(".ssh"));
    let is_key = match extension {
        Some("pem" | "key") => true,
        Some("pub") => false,
        _ => is_of_ssh && name.starts_with("id_"),
    };
    is_key && bytes <= KEY_FILE_BYTES_MAX
}

/// Whether a file of so many bytes that begins with `head` is a private key in PEM: refrain's own, or
/// another.
#[must_use]
pub fn begins_like_a_key(head: &[u8], bytes: u64) -> bool {
    let first = head[..head.len().min(HEAD_BYTES)]
        .split(|&byte| byte == b'\n')
        .next();
    let first = str::from_utf8(first.unwrap_or_default()).unwrap_or_default();
    let is_key = first.starts_with("-----BEGIN ") && first.contains("PRIVATE KEY-----");
    is_key && bytes <= KEY_FILE_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_name_or_by_how_they_begin() {
        let refrains = "-----BEGIN PRIVATE KEY-----\nMFECAQ\n";
        let sshs = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n";
        for (name, content, is_key) in [
            ("near.key", "x", true),
            ("server.pem", "x", true),
            (".ssh/id_ed25519", "x", true),
            (".ssh/id_ed25519.pub", "x", false),
            (".ssh/config", "x", false),
            ("id_of_a_thing", "x", false),
            ("far", refrains, true),
            ("deploy", sshs, true),
            ("cert", "-----BEGIN CERTIFICATE-----\n", false),
            ("prose", "-----BEGIN \nPRIVATE KEY-----\n", false),
            ("empty", "", false),
        ] {
            let path = Path::new(name);
            let (head, bytes) = (content.as_bytes(), content.len() as u64);
            let found = is_named_like_a_key(path, bytes) || begins_like_a_key(head, bytes);
            assert_eq!(found, is_key, "{name}");
            // Slides are called so too.
            assert!(!is_named_like_a_key(path, 1 << 20));
        }
    }

    #[test]
    fn stores_are_known_by_their_title() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!is_store(folder.path()));
        for (format, is_one) in [
            ("refrain chunk store\nversion = 9\n", true),
            ("refrain chunk stores\n", false),
            ("", false),
        ] {
            std::fs::write(folder.path().join("format"), format).expect("written");
            assert_eq!(is_store(folder.path()), is_one, "{format:?}");
        }
    }
}
