//! Users and the hashes of their passwords, as `htpasswd` and `openssl passwd` make them.
//!
//! A hash is slow on purpose, and a browser opens a hundred connections with the same password.
//! So a password that was right is remembered by a keyed digest, which is fast to compare; the
//! others are verified on threads of their own, a few at a time, and of each address one at a
//! time: a crowd of guesses from one address delays nobody elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use refrain_admission::source;
use ring::hmac;
use ring::rand::SystemRandom;
use sha_crypt::{Params, PasswordVerifier as _, ShaCrypt};
use tokio::sync::{AcquireError, Semaphore};
use tokio::time::timeout;

use super::Login;
use crate::keys::{KeyError, read_secret_file};

/// The longest user name and the longest password, in bytes: SOCKS5 has a byte for each length,
/// and the time that a hash takes grows with them.
pub(crate) const LOGIN_PART_BYTES_MAX: usize = 255;

/// Hashes that are computed at once.
const VERIFICATIONS_MAX: usize = 2;

/// A login that waits longer to be verified is refused.
const VERIFICATION_WAIT: Duration = Duration::from_secs(10);

/// The users that may use the proxies.
pub(crate) struct Users {
    hashes: BTreeMap<String, PasswordHash>,
    /// Random for each set, and never shown.
    digest_key: hmac::Key,
    /// Of each user the login that was right.
    verified: Mutex<BTreeMap<String, hmac::Tag>>,
    verifying: Arc<Semaphore>,
    /// Of each address that has logins to verify, whose turn it is.
    turns: Mutex<BTreeMap<IpAddr, Arc<Semaphore>>>,
}

/// Why a login is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoginError {
    /// No user has this name and password.
    #[error("wrong user name or password")]
    Wrong,
    /// Others are before it, for too long.
    #[error("too many logins wait to be verified")]
    Busy,
}

/// A password's hash, in the form of crypt(3).
#[derive(Clone, PartialEq, Eq)]
enum PasswordHash {
    Bcrypt(String),
    Sha(String),
}

/// Why a value of `proxy_auth` is not a user. None shows the value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserError {
    /// Not of the form `USER:HASH`.
    #[error("expected USER:HASH, as `htpasswd -nB USER` prints it, or a file of such lines")]
    NotUser,
    /// A password that stands there as it is, or a hash of another kind.
    #[error(
        "not a bcrypt ($2y$) or SHA-crypt ($5$, $6$) hash; make one with `htpasswd -nB USER` or \
         `openssl passwd -6`"
    )]
    NotHash,
    /// A hash that would keep a processor busy for seconds.
    #[error(
        "the hash is too expensive to verify (limits: bcrypt cost {BCRYPT_COST_MAX}, \
         {SHA_ROUNDS_MAX} rounds of SHA-crypt)"
    )]
    TooExpensive,
    /// An empty or a very long name, or one with control characters.
    #[error("a user name has 1 to {LOGIN_PART_BYTES_MAX} bytes and no control characters")]
    Name,
    /// Two hashes for one user.
    #[error("a user name is given twice")]
    Twice,
    /// There is no file of that name. The value may be the name of a user, without a hash.
    #[error(
        "cannot open \"{}\": no such file (give USER:HASH, as `htpasswd -nB USER` prints it, or a file of such lines)",
        .0.display()
    )]
    NoFile(PathBuf),
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] KeyError),
    /// A line of the file is not a user.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: Box<UserError>,
    },
    /// Values or files without a user.
    #[error("contains no user (give USER:HASH, as `htpasswd -nB USER` prints it)")]
    Empty,
}

/// About a second of one core each.
const BCRYPT_COST_MAX: u32 = 14;
const SHA_ROUNDS_MAX: u32 = 1_000_000;

impl Users {
    /// Reads values that are each `USER:HASH` or the path of a file of such lines.
    pub(crate) fn load<S: AsRef<str>>(values: &[S]) -> Result<Users, UserError> {
        let mut hashes = BTreeMap::new();
        for value in values.iter().map(AsRef::as_ref) {
            let path = Path::new(value);
            // A hash begins with a dollar sign, which hardly a path has behind a colon.
            let is_user = value.contains(":$") || value.starts_with('$');
            if is_user || value.contains(':') && !path.exists() {
                add(&mut hashes, value)?;
            } else {
                add_file(&mut hashes, path)?;
            }
        }
        if hashes.is_empty() {
            return Err(UserError::Empty);
        }
        let digest_key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Ok(Users {
            hashes,
            digest_key: digest_key.expect("the system has random numbers"),
            verified: Mutex::default(),
            verifying: Arc::new(Semaphore::new(VERIFICATIONS_MAX)),
            turns: Mutex::default(),
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.hashes.len()
    }

    /// Whether it is a user's name with that user's password; `client` presents it.
    pub(crate) async fn verify(
        self: &Arc<Users>,
        client: IpAddr,
        login: Login,
    ) -> Result<(), LoginError> {
        let part = 1..=LOGIN_PART_BYTES_MAX;
        if !part.contains(&login.user.len()) || !part.contains(&login.password.len()) {
            return Err(LoginError::Wrong);
        }
        if self.was_verified(&login) {
            return Ok(());
        }
        let turn = self.turn_of(client);
        let permits = async {
            let turn = turn.acquire_owned().await?;
            let verifying = Arc::clone(&self.verifying).acquire_owned().await?;
            Ok::<_, AcquireError>((turn, verifying))
        };
        let Ok(Ok(permits)) = timeout(VERIFICATION_WAIT, permits).await else {
            return Err(LoginError::Busy);
        };
        // A client's other connections may have waited for the first of them.
        if self.was_verified(&login) {
            return Ok(());
        }
        let users = Arc::clone(self);
        let verifying = tokio::task::spawn_blocking(move || {
            let is_right = users.verify_slowly(&login);
            // Not before: a client that has gone leaves its work behind.
            drop(permits);
            is_right
        });
        match verifying.await {
            Ok(true) => Ok(()),
            _ => Err(LoginError::Wrong),
        }
    }

    /// What a client takes turns by: its source.
    fn turn_of(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().expect("held for a moment");
        // Whoever waits or has a permit holds it as well.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        let turn = turns.entry(source(client));
        Arc::clone(turn.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }

    fn was_verified(&self, login: &Login) -> bool {
        let verified = self.verified.lock().expect("held for a moment");
        let Some(tag) = login.user().and_then(|user| verified.get(user)) else {
            return false;
        };
        hmac::verify(&self.digest_key, &login.message(), tag.as_ref()).is_ok()
    }

    fn verify_slowly(&self, login: &Login) -> bool {
        let known = login
            .user()
            .and_then(|user| self.hashes.get_key_value(user));
        // An unknown user takes as long as one that is there.
        let any = self.hashes.iter().next();
        let Some((user, hash)) = known.or(any) else {
            return false;
        };
        if !hash.verify(&login.password) || known.is_none() {
            return false;
        }
        let tag = hmac::sign(&self.digest_key, &login.message());
        let mut verified = self.verified.lock().expect("held for a moment");
        verified.insert(user.clone(), tag);
        true
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.count())
    }
}

fn add(hashes: &mut BTreeMap<String, PasswordHash>, text: &str) -> Result<(), UserError> {
    let (user, hash) = text.split_once(':').ok_or(UserError::NotUser)?;
    let has_name = (1..=LOGIN_PART_BYTES_MAX).contains(&user.len());
    if !has_name || user.chars().any(char::is_control) {
        return Err(UserError::Name);
    }
    match hashes.insert(user.to_owned(), hash.parse()?) {
        None => Ok(()),
        Some(_) => Err(UserError::Twice),
    }
}

/// A file has a user a line; `#` begins a comment.
fn add_file(hashes: &mut BTreeMap<String, PasswordHash>, path: &Path) -> Result<(), UserError> {
    let read: Result<(), UserError> = read_secret_file(path, |text| {
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            add(hashes, line).map_err(|reason| UserError::Line {
                path: path.into(),
                line: index + 1,
                reason: Box::new(reason),
            })?;
        }
        Ok(())
    });
    read.map_err(|error| match error {
        UserError::File(KeyError::Io { source, .. })
            if source.kind() == io::ErrorKind::NotFound =>
        {
            UserError::NoFile(path.into())
        }
        error => error,
    })
}

impl PasswordHash {
    fn verify(&self, password: &[u8]) -> bool {
        // Both compare in constant time.
        match self {
            PasswordHash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            PasswordHash::Sha(hash) => {
                let sha_crypt = ShaCrypt::default();
                sha_crypt.verify_password(password, hash.as_str()).is_ok()
            }
        }
    }
}

impl FromStr for PasswordHash {
    type Err = UserError;

    fn from_str(text: &str) -> Result<PasswordHash, UserError> {
        if let Ok(parts) = text.parse::<bcrypt::HashParts>() {
            return match parts.get_cost() {
                0..=3 => Err(UserError::NotHash),
                4..=BCRYPT_COST_MAX => Ok(PasswordHash::Bcrypt(text.to_owned())),
                _ => Err(UserError::TooExpensive),
            };
        }
        if is_sha_crypt(text)? {
            return Ok(PasswordHash::Sha(text.to_owned()));
        }
        Err(UserError::NotHash)
    }
}

/// `$6$[rounds=N$]SALT$HASH`, with `$5$` for SHA-256.
fn is_sha_crypt(text: &str) -> Result<bool, UserError> {
    let (hash_chars, rest) = match (text.strip_prefix("$5$"), text.strip_prefix("$6$")) {
        (Some(rest), _) => (43, rest),
        (_, Some(rest)) => (86, rest),
        _ => return Ok(false),
    };
    let rest = match rest.strip_prefix("rounds=") {
        None => rest,
        Some(rest) => {
            let Some((rounds, rest)) = rest.split_once('$') else {
                return Ok(false);
            };
            match rounds.parse() {
                Ok(Params::ROUNDS_MIN..=SHA_ROUNDS_MAX) => rest,
                Ok(rounds) if rounds > SHA_ROUNDS_MAX => return Err(UserError::TooExpensive),
                _ => return Ok(false),
            }
        }
    };
    let is_crypt_char = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/';
    Ok(rest.split_once('$').is_some_and(|(salt, hash)| {
        (1..=16).contains(&salt.len())
            && hash.len() == hash_chars
            && salt.bytes().chain(hash.bytes()).all(is_crypt_char)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::sync::atomic::{AtomicUsize, Ordering};

    // htpasswd -nbB -C 4 alice secret; openssl passwd -6 -salt saltstring secret, and -5; mkpasswd
    // with its fewest rounds.
    const BCRYPT: &str = "$2y$04$KdFfD4bmO//6y5KEHy0RbOWKDg3Yam7gFZkmO37TZsEiSu0VmDl0O";
    const SHA512: &str = "$6$saltstring$AIsRs/Ee56G/tC8MEHhvReZTfx8u3rXXMl6eYrjCG9ibix19DxoMBLog\
         dTET5Ukw9Sf7eZTITsuk0Ry5qulYz.";
    const SHA256: &str = "$5$saltstring$C3o4O1TC6aRHF4FI.QSZMXtHbaj2gSXr4sUc/3NcUi.";
    const SHA512_ROUNDS: &str = "$6$rounds=1000$saltstring$2BkAo106CG84raQcWpAlhyy6TSSkAsL1nfvBCoez\
         LYyerUzY2l8axTvq6NynEt7SQAx3/cdop9ds0po8uaeHq0";

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn login(user: &str, password: &str) -> Login {
        Login::new(user.as_bytes(), password.as_bytes())
    }

    fn fault(values: &[&str]) -> String {
        Users::load(values).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn hashes_of_the_usual_programs_verify_their_password_and_no_other() {
        for hash in [BCRYPT, SHA512, SHA256, SHA512_ROUNDS] {
            let users = Users::load(&[format!("alice:{hash}"), format!("bob:{SHA512_ROUNDS}")]);
            let users = Arc::new(users.unwrap());
            for (user, password, is_right) in [
                ("alice", "secret", true),
                ("alice", "Secret", false),
                ("alice", "secret ", false),
                ("alice", "", false),
                ("Alice", "secret", false),
                ("mallory", "secret", false),
                ("", "secret", false),
                ("alice", "secret", true),
            ] {
                let verified = users.verify(CLIENT, login(user, password)).await;
                let expected = is_right.then_some(()).ok_or(LoginError::Wrong);
                assert_eq!(verified, expected, "{hash}: {user} {password}");
            }
        }
    }

    #[tokio::test]
    async fn a_password_that_was_right_is_not_hashed_again() {
        let users = Users::load(&[format!("alice:{SHA512_ROUNDS}")]).unwrap();
        let users = Arc::new(users);
        assert!(!users.was_verified(&login("alice", "secret")));
        let verify = async |user, password| users.verify(CLIENT, login(user, password)).await;
        assert_eq!(verify("alice", "secret").await, Ok(()));
        // With no permit left nothing can be hashed.
        users.verifying.close();
        assert_eq!(verify("alice", "secret").await, Ok(()));
        assert_eq!(verify("alice", "wrong").await, Err(LoginError::Busy));
        // The parts are told apart, wherever the border lies.
        assert_eq!(verify("alic", "esecret").await, Err(LoginError::Busy));
    }

    #[tokio::test]
    async fn a_crowd_computes_few_hashes_at_once() {
        let users = Users::load(&[format!("alice:{SHA512_ROUNDS}")]).unwrap();
        let users = Arc::new(users);
        let most_at_once = Arc::new(AtomicUsize::new(0));
        let crowd: Vec<_> = (1..=20)
            .map(|index: u8| {
                let (users, most) = (Arc::clone(&users), Arc::clone(&most_at_once));
                tokio::spawn(async move {
                    let client = IpAddr::from([10, 0, 0, index]);
                    let password = index.to_string();
                    let verified = users.verify(client, login("alice", &password)).await;
                    let at_once = VERIFICATIONS_MAX - users.verifying.available_permits();
                    most.fetch_max(at_once, Ordering::Relaxed);
                    verified
                })
            })
            .collect();
        for verification in crowd {
            assert_eq!(verification.await.unwrap(), Err(LoginError::Wrong));
        }
        assert!(most_at_once.load(Ordering::Relaxed) <= VERIFICATIONS_MAX);
        assert_eq!(users.verifying.available_permits(), VERIFICATIONS_MAX);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_crowd_at_one_address_does_not_delay_another() {
        let users = Users::load(&[format!("alice:{SHA512_ROUNDS}")]).unwrap();
        let users = Arc::new(users);
        const CROWD: usize = 40;
        // The lower half of an IPv6 address is the client's to choose.
        let crowd_network = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 0).to_bits();
        let crowd: Vec<_> = (0..CROWD)
            .map(|index| {
                let users = Arc::clone(&users);
                let client = Ipv6Addr::from_bits(crowd_network + index as u128).into();
                let guess = login("alice", &index.to_string());
                tokio::spawn(async move { users.verify(client, guess).await })
            })
            .collect();
        while users.verifying.available_permits() == VERIFICATIONS_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(users.verify(CLIENT, login("alice", "secret")).await, Ok(()));
        let waiting = crowd.iter().filter(|guess| !guess.is_finished()).count();
        assert!(waiting > CROWD / 2, "{waiting} of {CROWD} wait");
        for guess in crowd {
            assert_eq!(guess.await.unwrap(), Err(LoginError::Wrong));
        }
        users.turn_of(CLIENT);
        assert_eq!(users.turns.lock().unwrap().len(), 1, "others are forgotten");
    }

    #[tokio::test]
    async fn what_is_too_long_is_not_hashed() {
        let users = Users::load(&[format!("alice:{SHA512_ROUNDS}")]).unwrap();
        let users = Arc::new(users);
        users.verifying.close();
        let longer = "a".repeat(LOGIN_PART_BYTES_MAX + 1);
        for login in [login("alice", &longer), login(&longer, "secret")] {
            assert_eq!(users.verify(CLIENT, login).await, Err(LoginError::Wrong));
        }
    }

    #[test]
    fn each_fault_is_named_and_shows_no_secret() {
        for (values, part) in [
            (&["alice:secret"][..], "htpasswd -nB"),
            (&["alice:"], "htpasswd -nB"),
            (&["alice:$1$salt$secret"], "openssl passwd -6"),
            (&["alice:{SHA}secret"], "openssl passwd -6"),
            (&["alice:$6$secret"], "openssl passwd -6"),
            (&["alice:$6$salt$secret"], "openssl passwd -6"),
            (&["alice:$2y$05$secret"], "openssl passwd -6"),
            (&[&format!(":{BCRYPT}")], "a user name"),
            (&[&format!("a\tb:{BCRYPT}")], "a user name"),
            (
                &[&format!("{}:{BCRYPT}", "a".repeat(256))],
                "1 to 255 bytes",
            ),
            (
                &[&format!("alice:{}", BCRYPT.replace("$04$", "$15$"))],
                "too expensive",
            ),
            (
                &[&format!(
                    "alice:{}",
                    SHA512_ROUNDS.replace("=1000$", "=1000001$")
                )],
                "too expensive",
            ),
            (
                &[&format!("alice:{BCRYPT}"), &format!("alice:{SHA512}")],
                "given twice",
            ),
            (&["$6$salt$secret"], "expected USER:HASH"),
            (&["nowhere/users"], "cannot open \"nowhere/users\": "),
            (&["alice"], "(give USER:HASH, "),
            (&["/dev"], "\"/dev\" is a directory"),
            (&[], "no user"),
        ] {
            let error = fault(values);
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_file_has_a_user_a_line() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("users");
        let write = |text: &str, mode: u32| {
            use std::os::unix::fs::PermissionsExt;
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Users::load(&[path.display().to_string()])
        };
        let two = format!("# users\n\nalice:{BCRYPT}\n  bob:{SHA512}\r\n");
        assert_eq!(write(&two, 0o600).unwrap().count(), 2);
        let exposed = write(&two, 0o644).unwrap_err().to_string();
        assert!(exposed.contains("chmod 600"), "{exposed}");
        let wrong = write("# users\nalice:secret\n", 0o600).unwrap_err();
        let wrong = wrong.to_string();
        assert!(
            wrong.contains("users:2: ") && !wrong.contains("secret"),
            "{wrong}"
        );
        let empty = write("# nobody\n", 0o600).unwrap_err().to_string();
        assert!(empty.contains("no user"), "{empty}");
    }

    #[test]
    fn debug_shows_no_user() {
        let users = Users::load(&[format!("alice:{BCRYPT}")]).unwrap();
        assert_eq!(format!("{users:?}"), "Users(1)");
    }

    proptest! {
        #[test]
        fn any_text_is_a_hash_or_an_error(text in "\\$(2[abxy]|[56])\\$(rounds=[0-9]{0,12}\\$)?[./A-Za-z0-9$]{0,110}|.{0,70}") {
            if let Ok(hash) = text.parse::<PasswordHash>()
                && !text.contains("rounds=") && !text.starts_with("$2")
            {
                prop_assert!(!hash.verify(b"secret"));
            }
        }
    }
}
