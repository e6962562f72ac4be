//! The set of peers that an end accepts, and its replacement while the gateway runs.

use std::collections::BTreeMap;
use std::path::Path;

use super::{KeyError, PublicKey, PublicKeyError, io_error, read_bounded};
use crate::shared::Shared;
use crate::text_file;

/// The keys of the peers that an end accepts, each with a name or without.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerKeys {
    names: BTreeMap<PublicKey, Option<String>>,
}

/// The peer keys of a running gateway: a reload replaces them, and handshakes from then on use
/// the new ones.
pub type SharedPeerKeys = Shared<PeerKeys>;

impl PeerKeys {
    /// Reads values that are each a public key, the path of a file of them, or `NAME=` and a key
    /// or the path of a file of one. Calling it again with the same values reloads the files.
    ///
    /// A file has a key per line, after its name if it has one; `#` begins a comment.
    pub fn load<S: AsRef<str>>(values: &[S]) -> Result<PeerKeys, KeyError> {
        let mut peers = PeerKeys::default();
        for value in values.iter().map(AsRef::as_ref) {
            if peers.add_keys(value)? {
                continue;
            }
            // Keys end with the sign that ends a name, so only what is neither has a name.
            let (name, rest) = value
                .split_once('=')
                .ok_or_else(|| KeyError::NeitherKeyNorFile(value.into()))?;
            let mut named = PeerKeys::default();
            if !named.add_keys(rest)? {
                return Err(KeyError::NeitherKeyNorFile(value.into()));
            }
            let mut keys = named.iter();
            match (keys.next(), keys.next()) {
                (Some(key), None) => peers.add(key, Some(checked_name(name)?))?,
                _ => return Err(KeyError::NotOneKey(rest.into(), named.len())),
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

    /// What logs and tables call the peer: its name, or the short form of its key.
    pub fn label(&self, key: &PublicKey) -> String {
        let name = self.name(key).map(str::to_owned);
        name.unwrap_or_else(|| key.fingerprint())
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

    /// Adds the key that `value` is, or those in the file of that name; whether it is either.
    fn add_keys(&mut self, value: &str) -> Result<bool, KeyError> {
        // A key first: base64 has slashes and could pass for a path, but hardly the reverse.
        match value.parse() {
            Ok(key) => self.add(key, None)?,
            Err(_) if Path::new(value).exists() => self.add_file(Path::new(value))?,
            Err(_) => return Ok(false),
        }
        Ok(true)
    }

    fn add_file(&mut self, path: &Path) -> Result<(), KeyError> {
        let file = text_file::open(path).map_err(io_error(path))?;
        let text = read_bounded(file, path, PEER_KEYS_FILE_BYTES_MAX)?;
        if text.contains("PRIVATE KEY-----") {
            return Err(KeyError::IsPrivate(path.into()));
        }
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (key, name) = parse_line(line).map_err(|reason| KeyError::PeerLine {
                path: path.into(),
                line: index + 1,
                reason: likely_reason(line, reason),
            })?;
            let name = name.map(checked_name).transpose()?;
            self.add(key, name)?;
        }
        Ok(())
    }

    fn add(&mut self, key: PublicKey, name: Option<String>) -> Result<(), KeyError> {
        if let Some(name) = &name {
            if let Some(holder) = self.find(name).filter(|holder| *holder != key) {
                return Err(KeyError::SameName(name.clone(), holder, key));
            }
            if let Some(other) = self.name(&key).filter(|other| *other != name) {
                return Err(KeyError::SameKey(other.to_owned(), name.clone()));
            }
        }
        let known = self.names.entry(key).or_default();
        *known = name.or(known.take());
        Ok(())
    }
}

impl FromIterator<PublicKey> for PeerKeys {
    fn from_iter<I: IntoIterator<Item = PublicKey>>(keys: I) -> PeerKeys {
        keys.into_iter().map(|key| (key, None)).collect()
    }
}

impl FromIterator<(PublicKey, Option<String>)> for PeerKeys {
    fn from_iter<I: IntoIterator<Item = (PublicKey, Option<String>)>>(keys: I) -> PeerKeys {
        let names = keys.into_iter().collect();
        PeerKeys { names }
    }
}

/// A key and its name, as a line of a file has them. The name stands before the key; files of
/// earlier versions have it behind.
fn parse_line(line: &str) -> Result<(PublicKey, Option<&str>), PublicKeyError> {
    if let Ok(key) = line.parse() {
        return Ok((key, None));
    }
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if let Ok(key) = first.parse() {
        return Ok((key, Some(rest.trim())));
    }
    // `NAME KEY`, or `NAME=KEY` as on the command line.
    let key_at = line.len().saturating_sub(PUBLIC_KEY_CHARS);
    let (name, key) = line
        .split_at_checked(key_at)
        .ok_or(PublicKeyError::NotBase64)?;
    let key = key.parse()?;
    let is_apart = |sign: char| sign == '=' || sign.is_whitespace();
    match name.ends_with(is_apart) {
        true => Ok((key, Some(name.trim_end_matches(is_apart)))),
        false => Err(PublicKeyError::NotBase64),
    }
}

/// Why a line has no key, where its form tells more than `reason`.
fn likely_reason(line: &str, reason: PublicKeyError) -> PublicKeyError {
    if line.starts_with("ssh-") && line.contains(" AAAA") {
        PublicKeyError::OpenSsh
    } else if line.len() + PART_CHARS < PUBLIC_KEY_CHARS {
        PublicKeyError::Missing
    } else {
        reason
    }
}

/// What is wrong with a value that is neither a public key nor a file, nor a name and one of these. A key may have been
/// copied in part.
pub(super) fn neither_key_nor_file(value: &str) -> String {
    let key = match value.split_once('=') {
        Some((_, key)) if !key.is_empty() => key,
        _ => value,
    };
    let is_base64 = |sign: char| sign.is_ascii_alphanumeric() || "+/=".contains(sign);
    let is_near =
        key.len() != PUBLIC_KEY_CHARS && key.len().abs_diff(PUBLIC_KEY_CHARS) <= PART_CHARS;
    match is_near && !key.starts_with('/') && key.chars().all(is_base64) {
        true => format!(
            "\"{value}\" is a key of {} characters instead of {PUBLIC_KEY_CHARS}",
            key.len()
        ),
        false => format!("no such file: \"{key}\""),
    }
}

/// A name that a peer may have: it goes to logs and tables, and must not pass for a key.
fn checked_name(name: &str) -> Result<String, KeyError> {
    let is_key = name.parse::<PublicKey>().is_ok();
    match name.is_empty() || name.contains(char::is_control) || is_key {
        true => Err(KeyError::BadName(name.into())),
        false => Ok(name.to_owned()),
    }
}

/// A public key as text, in base64.
const PUBLIC_KEY_CHARS: usize = 44;

/// A copy of a key that lacks at most so many characters is still recognised.
const PART_CHARS: usize = 4;

/// A file of peer keys: some ten thousand of them.
const PEER_KEYS_FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::PrivateKey;
    use proptest::prelude::*;
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
        let text = format!("# sites\n\noffice {office}  # Bonn\n{depot}\n");
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
    fn a_name_stands_before_its_key_and_in_older_files_behind_it() {
        let dir = TempDir::new().unwrap();
        let key = public();
        for line in [
            format!("head office\t{key}"),
            format!("{key}\thead office"),
            format!("head office = {key}"),
            format!("head office={key} # Bonn"),
        ] {
            let path = write(&dir, "peers", &line);
            let peers = PeerKeys::load(&[path.to_str().unwrap()]).unwrap();
            assert_eq!(peers.name(&key), Some("head office"), "{line}");
        }
    }

    #[test]
    fn a_value_may_name_its_key_or_the_one_key_of_its_file() {
        let dir = TempDir::new().unwrap();
        let key = public();
        let file = write(&dir, "one=far.pub", &format!("{key}\n"));
        let file = file.to_str().unwrap();
        for value in [format!("office={key}"), format!("office={file}")] {
            let peers = PeerKeys::load(&[&value]).unwrap();
            assert_eq!(peers.name(&key), Some("office"), "{value}");
            assert_eq!(peers.label(&key), "office");
        }
        // Keys end with that sign, and files may have it.
        for value in [key.to_string(), file.to_owned()] {
            let peers = PeerKeys::load(&[&value]).unwrap();
            assert_eq!(peers.name(&key), None, "{value}");
            assert_eq!(peers.label(&key), key.fingerprint());
        }

        let error = |value: &str| PeerKeys::load(&[value]).unwrap_err();
        let short = &key.to_string()[1..];
        for value in [short, "office=", &format!("office={short}")] {
            let error = error(value);
            assert!(matches!(error, KeyError::NeitherKeyNorFile(_)), "{error}");
        }
        for name in ["", "\x1b[2J"] {
            let error = error(&format!("{name}={key}"));
            assert!(matches!(error, KeyError::BadName(_)), "{error}");
            assert!(!error.to_string().contains('\x1b'), "{error:?}");
        }
        assert!(PeerKeys::load(&[format!("{key}={key}")]).is_err());
        let twice = write(&dir, "twice", &format!("{key} {key}\n"));
        let error_of_file = error(twice.to_str().unwrap());
        assert!(matches!(error_of_file, KeyError::BadName(_)));
        let two = write(&dir, "two", &format!("{key}\n{}\n", public()));
        let error = error(&format!("office={}", two.display()));
        assert!(matches!(error, KeyError::NotOneKey(_, 2)), "{error}");
    }

    proptest! {
        #[test]
        fn any_line_is_a_key_or_an_error(line in any::<String>(), end in any::<String>()) {
            let _ = parse_line(&line);
            let _ = parse_line(&format!("{line}{}{end}", public()));
        }

        #[test]
        fn a_name_and_its_key_are_read_in_each_form(name in "[a-zA-Z][a-zA-Z0-9 ._@-]{0,60}[a-zA-Z0-9]") {
            let key = public();
            let named = Ok((key, Some(name.as_str())));
            for line in [
                format!("{name} {key}"),
                format!("{name}={key}"),
                format!("{key} {name}"),
            ] {
                prop_assert_eq!(parse_line(&line), named, "{}", line);
            }
            let peers = PeerKeys::load(&[format!("{name}={key}")]).unwrap();
            prop_assert_eq!(peers.find(&name), Some(key));
        }
    }

    #[test]
    fn a_bad_peer_key_names_its_file_and_line() {
        let dir = TempDir::new().unwrap();
        for (line, part) in [
            ("bonn", "no key: expected NAME KEY"),
            ("head office", "no key: expected NAME KEY"),
            ("A".repeat(43).as_str(), "not a public key"),
            (SSH_KEY, "this is an OpenSSH public key"),
        ] {
            let path = write(&dir, "peers", &format!("{}\n# x\n{line}\n", public()));
            let path = path.to_str().unwrap();
            let error = PeerKeys::load(&[path]).unwrap_err().to_string();
            let start = format!("line 3 of \"{path}\": {part}");
            assert!(error.starts_with(&start), "{error}");
        }
        let private = dir.path().join("near.key");
        PrivateKey::generate().unwrap().write_new(&private).unwrap();
        let error = PeerKeys::load(&[private.to_str().unwrap()]).unwrap_err();
        assert!(matches!(error, KeyError::IsPrivate(_)));
        let public = format!("give \"{}.pub\"", private.display());
        assert!(error.to_string().contains(&public), "{error}");
        let error = PeerKeys::load(&["no/such/file"]).unwrap_err();
        assert!(matches!(error, KeyError::NeitherKeyNorFile(_)));
        let part = "A".repeat(43);
        for (value, kind) in [
            ("no/such/file", "no such file: \"no/such/file\""),
            ("office=no/such/file", "no such file: \"no/such/file\""),
            (part.as_str(), "a key of 43 characters instead of 44"),
            (format!("office={part}").as_str(), "a key of 43 characters"),
        ] {
            let error = PeerKeys::load(&[value]).unwrap_err().to_string();
            assert!(error.contains(kind), "{error}");
        }
    }

    const SSH_KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPqHrU6mOBM7sNaVFkuERxKPStDFMUaNVHcjyDG5vJ5W a@b";

    #[test]
    fn a_name_stands_for_one_key() {
        let dir = TempDir::new().unwrap();
        let (one, two) = (public(), public());
        for (text, parts) in [
            (
                format!("{one} a\n{two} a\n"),
                [one.to_string(), two.to_string()],
            ),
            (
                format!("{one} a\n{one} b\n"),
                ["\"a\"", "\"b\""].map(str::to_owned),
            ),
        ] {
            let path = write(&dir, "peers", &text);
            let error = PeerKeys::load(&[path.to_str().unwrap()]).unwrap_err();
            let error = error.to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
