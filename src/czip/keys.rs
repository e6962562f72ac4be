//! Keys of archives: whom one is encrypted to, and what opens one.

use std::{
    env,
    fs::{self, File},
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, anyhow, ensure};
use console::Term;
use refrain_czip::{
    archive::{Archive, Source},
    create::EncryptOptions,
    crypt::{GroupSecret, Identities, RecipientProblem, Recipients},
    get::{KeySource, Keys},
};
use refrain_gateway::text_file::remove_byte_order_mark;
use zeroize::Zeroizing;

use crate::{stderr, usage::UsageError};

/// No file of keys is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Names the file of the group secret.
const GROUP_SECRET: &str = "REFRAIN_CZIP_GROUP_SECRET";

/// Keys to encrypt an archive to.
#[derive(clap::Args)]
pub(super) struct EncryptArguments {
    /// Encrypt to this public key, or to those in FILE
    ///
    /// Only holders of a private key can read the archive. KEY is an age key (age1...) or an ssh key
    /// (`ssh-ed25519 ...` or `ssh-rsa ...`). FILE has one key per line.
    #[arg(long, value_name = "KEY|FILE")]
    encrypt_to: Vec<String>,
    /// Use the group secret in this file [env: REFRAIN_CZIP_GROUP_SECRET=]
    ///
    /// It is 64 hexadecimal digits (`openssl rand -hex 32`). Only holders of the secret can test whether the archive
    /// contains data that they guess.
    #[arg(long, value_name = "FILE")]
    group_secret: Option<PathBuf>,
    /// Hide the lengths of chunks, for at most 12 % more bytes
    #[arg(long)]
    pad: bool,
}

/// Keys that open an encrypted archive.
#[derive(Clone, clap::Args)]
pub(super) struct UnlockArguments {
    /// Open encrypted archives with this age or ssh key
    ///
    /// FILE is an age identity file, with one key per line, or an ssh private key. May be given several times.
    #[arg(short, long, value_name = "FILE", env = "REFRAIN_CZIP_IDENTITY")]
    identity: Vec<PathBuf>,
    /// Use the group secret in this file
    ///
    /// Archives can be read without it. With it, data that was forged without the secret is refused. `verify --content`
    /// then checks the names of chunks too, and `get` reuses local data that is not encrypted.
    #[arg(long, value_name = "FILE", env = GROUP_SECRET)]
    group_secret: Option<PathBuf>,
}

fn read_secret(path: &Path) -> anyhow::Result<GroupSecret> {
    let content = read(path)?;
    let secret = GroupSecret::parse(&content);
    secret.with_context(|| format!("cannot use group secret \"{}\"", path.display()))
}

/// What to give instead of a private key, if the public key is next to it.
fn public_half(key: &str) -> String {
    let public = format!("{key}.pub");
    let text = fs::read_to_string(&public).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    match !lines.is_empty() && Recipients::parse(&lines).is_ok() {
        true => format!(" (give {public})"),
        false => String::new(),
    }
}

impl EncryptArguments {
    /// Fails if a flag has no effect, since the archive is not encrypted.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let flags = [
            ("--group-secret", self.group_secret.is_some()),
            ("--pad", self.pad),
        ];
        for (flag, is_given) in flags {
            ensure!(
                !is_given || !self.encrypt_to.is_empty(),
                "{flag} needs --encrypt-to: without it, the archive is not encrypted"
            );
        }
        Ok(())
    }

    /// How an archive is to be encrypted, if it is.
    pub(super) fn options(&self) -> anyhow::Result<Option<Arc<EncryptOptions>>> {
        // By hand: a flag without --encrypt-to is a mistake, and a variable that is set for all is none.
        let variable = env::var_os(GROUP_SECRET).filter(|value| !value.is_empty());
        if self.encrypt_to.is_empty() {
            if variable.is_some() {
                stderr::warn(format_args!(
                    "{GROUP_SECRET} is ignored: the archive is not encrypted (--encrypt-to encrypts it)"
                ));
            }
            return Ok(None);
        }
        let mut recipients = Recipients::default();
        for key in &self.encrypt_to {
            // Files may have names that begin as keys do.
            let is_key = key.starts_with("age1") || key.starts_with("ssh-");
            let is_file = Path::new(key).exists();
            if !is_key && !is_file {
                let error = anyhow!(
                    "--encrypt-to: \"{key}\" is neither an age or ssh public key nor an existing file"
                );
                return Err(UsageError(error).into());
            }
            let content = match is_file {
                true => {
                    let content = read(Path::new(key))?;
                    String::from_utf8(content.to_vec()).with_context(|| {
                        format!("cannot read keys from \"{key}\": it is not text")
                    })?
                }
                false => key.clone(),
            };
            let lines: Vec<&str> = content.lines().collect();
            let found = Recipients::parse(&lines).map_err(|error| match is_file {
                true => {
                    let hint = match error.problem {
                        RecipientProblem::PrivateKey => public_half(key),
                        _ => String::new(),
                    };
                    anyhow!("cannot read keys from \"{key}\": {error}{hint}")
                }
                false => UsageError(anyhow!("invalid key \"{key}\": {}", error.problem)).into(),
            })?;
            recipients.join(found)?;
        }
        let secret_path = self.group_secret.clone().or(variable.map(PathBuf::from));
        Ok(Some(Arc::new(EncryptOptions {
            recipients,
            group_secret: secret_path.as_deref().map(read_secret).transpose()?,
            is_padded: self.pad,
        })))
    }
}

impl UnlockArguments {
    pub(super) fn are_given(&self) -> bool {
        !self.identity.is_empty()
    }

    /// Unlocks `archive`, if it is encrypted.
    pub(super) fn unlock<S: Source>(&self, archive: &mut Archive<S>) -> anyhow::Result<()> {
        if !archive.is_locked() {
            return Ok(());
        }
        ensure!(
            self.are_given(),
            "the archive is encrypted (give the file of a recipient's private key with --identity)"
        );
        let keys = self.read()?;
        archive.unlock(&keys.identities, keys.group_secret.as_ref(), &mut ask)?;
        archive.check_group_secret()?;
        Ok(())
    }

    /// The keys, for who finds out later whether they are needed; none if there are none.
    pub(super) fn source(&self) -> Option<KeySource> {
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
            group_secret: self.group_secret.as_deref().map(read_secret).transpose()?,
            passphrase: ask,
        })
    }
}

/// Asks for the passphrase of a key, where there is somebody to ask.
fn ask(file: &str) -> Option<Zeroizing<String>> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    stderr::ask(format_args!("Passphrase of {file}: "));
    Term::stderr().read_secure_line().ok().map(Zeroizing::new)
}

/// A file of keys, or of other secrets.
pub(super) fn read(path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path).with_context(|| stderr::cannot_open(path))?;
    // What grows leaves copies behind that nobody wipes.
    let mut content = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX as usize + 1));
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut content)
        .with_context(|| format!("cannot read \"{}\"", path.display()))?;
    ensure!(
        content.len() as u64 <= FILE_BYTES_MAX,
        "\"{}\" is too large for a file of keys or headers (limit 1 MiB)",
        path.display()
    );
    remove_byte_order_mark(&mut content);
    Ok(content)
}
