//! Keys of archives: whom one is encrypted to, and what opens one.

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, ensure};
use console::Term;
use refrain_czip::{
    archive::{Archive, Source},
    create::EncryptOptions,
    crypt::{GroupSecret, Identities, Recipients},
    get::{KeySource, Keys},
};
use zeroize::Zeroizing;

/// No file of keys is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// For whom an archive is made.
#[derive(clap::Args)]
pub struct EncryptArguments {
    /// Encrypt to this key, so that only who has its other half can read the archive: an age key
    /// (age1...), an ssh one (`ssh-ed25519 ...` or `ssh-rsa ...`), or a file of such lines
    #[arg(long, value_name = "KEY|FILE")]
    encrypt_to: Vec<String>,
    #[command(flatten)]
    secret: SecretArguments,
    /// Hide how long chunks are, for at most 12 % more bytes
    #[arg(long, requires = "encrypt_to")]
    pad: bool,
}

/// What opens an encrypted archive.
#[derive(Clone, clap::Args)]
pub struct UnlockArguments {
    /// Open encrypted archives with the keys in this file: an age identity file or an ssh private key
    #[arg(short, long, value_name = "FILE", env = "REFRAIN_CZIP_IDENTITY")]
    identity: Vec<PathBuf>,
    #[command(flatten)]
    secret: SecretArguments,
}

#[derive(Clone, clap::Args)]
struct SecretArguments {
    /// A file with the secret of a group, 64 hexadecimal digits (`openssl rand -hex 32`): only who
    /// knows it can tell whether an encrypted archive holds what he guesses
    #[arg(long, value_name = "FILE", env = "REFRAIN_CZIP_GROUP_SECRET")]
    group_secret: Option<PathBuf>,
}

impl SecretArguments {
    fn read(&self) -> anyhow::Result<Option<GroupSecret>> {
        let Some(path) = &self.group_secret else {
            return Ok(None);
        };
        let content = read(path)?;
        let secret = GroupSecret::parse(&content).with_context(|| path.display().to_string())?;
        Ok(Some(secret))
    }
}

impl EncryptArguments {
    /// How an archive is to be encrypted, if it is.
    pub fn options(&self) -> anyhow::Result<Option<Arc<EncryptOptions>>> {
        if self.encrypt_to.is_empty() {
            return Ok(None);
        }
        let mut recipients = Recipients::default();
        for key in &self.encrypt_to {
            let is_file = !key.starts_with("age1") && !key.starts_with("ssh-");
            let content = match is_file {
                true => {
                    let content = read(Path::new(key))?;
                    String::from_utf8(content.to_vec())
                        .with_context(|| format!("{key} holds no keys: it is no text"))?
                }
                false => key.clone(),
            };
            let lines: Vec<&str> = content.lines().collect();
            let found = Recipients::parse(&lines).with_context(|| key.clone())?;
            recipients.join(found)?;
        }
        Ok(Some(Arc::new(EncryptOptions {
            recipients,
            group_secret: self.secret.read()?,
            is_padded: self.pad,
        })))
    }
}

impl UnlockArguments {
    pub fn are_given(&self) -> bool {
        !self.identity.is_empty()
    }

    /// Unlocks `archive`, if it is encrypted.
    pub fn unlock<S: Source>(&self, archive: &mut Archive<S>) -> anyhow::Result<()> {
        if !archive.is_locked() {
            return Ok(());
        }
        ensure!(
            self.are_given(),
            "the archive is encrypted: give the file of a key that it is encrypted to with --identity"
        );
        let keys = self.read()?;
        archive.unlock(&keys.identities, keys.group_secret.as_ref(), &mut ask)?;
        Ok(())
    }

    /// The keys, for who finds out later whether they are needed; none if there are none.
    pub fn source(&self) -> Option<KeySource> {
        let arguments = self.clone();
        self.are_given()
            .then(|| KeySource::new(move || Ok(arguments.read()?)))
    }

    fn read(&self) -> anyhow::Result<Keys> {
        let mut identities = Identities::new();
        for path in &self.identity {
            identities.add(&path.display().to_string(), &read(path)?)?;
        }
        Ok(Keys {
            identities,
            group_secret: self.secret.read()?,
            passphrase: ask,
        })
    }
}

/// Asks for the passphrase of a key, where there is somebody to ask.
fn ask(file: &str) -> Option<Zeroizing<String>> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    eprint!("Passphrase of {file}: ");
    Term::stderr().read_secure_line().ok().map(Zeroizing::new)
}

fn read(path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let called = || path.display().to_string();
    let file = File::open(path).with_context(called)?;
    let mut content = Zeroizing::new(Vec::new());
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut content)
        .with_context(called)?;
    ensure!(
        content.len() as u64 <= FILE_BYTES_MAX,
        "{} is too long for a file of keys",
        path.display()
    );
    Ok(content)
}
