//! The set of peers that an end accepts, and its replacement while the gateway runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use super::{KeyError, PublicKey, io_error, read_bounded};

/// The keys of the peers that an end accepts, each with a name or without.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerKeys {
    names: BTreeMap<PublicKey, Option<String>>,
}

/// The peer keys of a running gateway: a reload replaces them, and handshakes from then on use
/// the new ones.
#[derive(Debug, Default)]
pub struct SharedPeerKeys(RwLock<Arc<PeerKeys>>);

impl PeerKeys {
    /// Reads values that are each a public key or the path of a file of them. Calling it again
    /// with the same values reloads the files.
    ///
    /// A file has a key a line, with an optional name behind it; `#` begins a comment.
    pub fn load<S: AsRef<str>>(values: &[S]) -> Result<PeerKeys, KeyError> {
        let mut peers = PeerKeys::default();
        for value in values.iter().map(AsRef::as_ref) {
            // A key first: base64 has slashes and could pass for a path, but hardly the reverse.
            match value.parse() {
                Ok(key) => peers.add(key, None)?,
                Err(_) if Path::new(value).exists() => peers.add_file(Path::new(value))?,
                Err(_) => return Err(KeyError::NeitherKeyNorFile(value.into())),
            }
        }
        Ok(peers)
    }

    /// Whether the key is one of the peers'.
    pub fn contains(&self, key: &PublicKey) -> bool {
        self.names.contains_key(key)
    }

    /// The peer's name, if it has one.
    pub fn name(&self, key: &PublicKey) -> Option<&str> {
        self.names.get(key)?.as_deref()
    }

    /// The key of the peer with this name, or the key itself if the text is one of the peers'.
    pub fn find(&self, name_or_key: &str) -> Option<PublicKey> {
        if let Ok(key) = name_or_key.parse() {
            return self.contains(&key).then_some(key);
        }
        let named = |(key, name): (&PublicKey, &Option<String>)| {
            (name.as_deref() == Some(name_or_key)).then_some(*key)
        };
        self.names.iter().find_map(named)
    }

    /// The keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = PublicKey> + '_ {
        self.names.keys().copied()
    }

    /// How many peers there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn add_file(&mut self, path: &Path) -> Result<(), KeyError> {
        let file = File::open(path).map_err(io_error(path))?;
        let text = read_bounded(file, path, PEER_KEYS_FILE_BYTES_MAX)?;
        if text.contains("PRIVATE KEY-----") {
            return Err(KeyError::IsPrivate(path.into()));
        }
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (key, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let key = key.parse().map_err(|reason| KeyError::PeerLine {
                path: path.into(),
                line: index + 1,
                reason,
            })?;
            let name = name.trim();
            self.add(key, (!name.is_empty()).then(|| name.to_owned()))?;
        }
        Ok(())
    }

    fn add(&mut self, key: PublicKey, name: Option<String>) -> Result<(), KeyError> {
        if let Some(name) = &name {
            let holder = self.find(name);
            let other_name = self.name(&key).filter(|other| *other != name);
            if holder.is_some_and(|holder| holder != key) || other_name.is_some() {
                return Err(KeyError::Ambiguous(name.clone()));
            }
        }
        let known = self.names.entry(key).or_default();
        *known = name.or(known.take());
        Ok(())
    }
}

impl FromIterator<PublicKey> for PeerKeys {
    fn from_iter<I: IntoIterator<Item = PublicKey>>(keys: I) -> PeerKeys {
        let names = keys.into_iter().map(|key| (key, None)).collect();
        PeerKeys { names }
    }
}

impl SharedPeerKeys {
    /// Shares these keys.
    pub fn new(peers: PeerKeys) -> SharedPeerKeys {
        SharedPeerKeys(RwLock::new(Arc::new(peers)))
    }

    /// The keys as they are now.
    pub fn load(&self) -> Arc<PeerKeys> {
        // A writer only swaps a pointer, so a poisoned lock still guards a whole value.
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&guard)
    }

    /// Replaces the keys.
    pub fn replace(&self, peers: PeerKeys) {
        let mut guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *guard = Arc::new(peers);
    }
}

/// A file of peer keys: some ten thousand of them.
const PEER_KEYS_FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::PrivateKey;
    use std::fs;
    use std::path::PathBuf;
    use tempfile::TempDir;

    fn write(dir: &TempDir, name: &str, text: &str) -> PathBuf {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn public() -> PublicKey {
        PrivateKey::generate().unwrap().public()
    }

    #[test]
    fn peers_come_from_keys_and_files_and_a_reload_sees_a_changed_file() {
        let dir = TempDir::new().unwrap();
        let (lone, office, depot) = (public(), public(), public());
        let text = format!("# sites\n\n{office} office  # Bonn\n{depot}\n");
        let path = write(&dir, "peers", &text);
        let values = [lone.to_string(), path.display().to_string()];
        let peers = PeerKeys::load(&values).unwrap();
        assert_eq!(peers.len(), 3);
        assert_eq!(peers.name(&office), Some("office"));
        assert_eq!(peers.name(&depot), None);
        assert_eq!(peers.find("office"), Some(office));
        assert_eq!(peers.find(&lone.to_string()), Some(lone));
        assert_eq!(peers.find("elsewhere"), None);

        let shared = SharedPeerKeys::new(peers);
        fs::write(&path, format!("{depot} depot\n")).unwrap();
        shared.replace(PeerKeys::load(&values).unwrap());
        assert!(!shared.load().contains(&office));
        assert_eq!(shared.load().name(&depot), Some("depot"));
    }

    #[test]
    fn a_bad_peer_key_names_its_file_and_line() {
        let dir = TempDir::new().unwrap();
        let path = write(&dir, "peers", &format!("{}\n# x\nnonsense\n", public()));
        let error = PeerKeys::load(&[path.to_str().unwrap()]).unwrap_err();
        assert!(error.to_string().contains("peers:3: not a public key"));
        let private = dir.path().join("near.key");
        PrivateKey::generate().unwrap().write_new(&private).unwrap();
        let error = PeerKeys::load(&[private.to_str().unwrap()]).unwrap_err();
        assert!(matches!(error, KeyError::IsPrivate(_)));
        let error = PeerKeys::load(&["no/such/file"]).unwrap_err();
        assert!(matches!(error, KeyError::NeitherKeyNorFile(_)));
    }

    #[test]
    fn a_name_stands_for_one_key() {
        let dir = TempDir::new().unwrap();
        let (one, two) = (public(), public());
        for text in [format!("{one} a\n{two} a\n"), format!("{one} a\n{one} b\n")] {
            let path = write(&dir, "peers", &text);
            let error = PeerKeys::load(&[path.to_str().unwrap()]).unwrap_err();
            assert!(matches!(error, KeyError::Ambiguous(_)), "{text}");
        }
    }
}
