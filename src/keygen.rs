//! `refrain keygen FILE`.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

use anyhow::{Context, anyhow};
use refrain_gateway::keys::{KeyError, PrivateKey};

use crate::{standard_io::is_standard, stderr, usage::UsageError};

#[derive(clap::Args)]
pub(crate) struct KeygenArguments {
    /// Write the private key to this file, and the public key to FILE.pub. No file is overwritten
    file: PathBuf,
    /// Print the public key of an existing private key instead of making one
    #[arg(long)]
    show: bool,
}

pub(crate) fn run(arguments: &KeygenArguments) -> anyhow::Result<()> {
    // A private key in a pipe or on a screen is easily left there.
    if is_standard(&arguments.file) {
        let error = anyhow!(
            "\"-\" must be a file: private keys are not written to standard output, or read from standard input \
             (a file of this name is ./-)"
        );
        return Err(UsageError(error).into());
    }
    let file = arguments.file.display();
    let key = if arguments.show {
        PrivateKey::load(&arguments.file).map_err(|error| match error {
            KeyError::IsPublic(_) => {
                anyhow!("\"{file}\" is the public key already: print it with cat")
            }
            other => other.into(),
        })?
    } else {
        let key = PrivateKey::generate()?;
        key.write_new(&arguments.file)?;
        key
    };
    writeln!(io::stdout(), "{}", key.public()).with_context(|| {
        format!("the private key is in \"{file}\", but its public key cannot be printed")
    })?;
    // Scripts take the public key, and no advice.
    if !arguments.show && io::stdout().is_terminal() {
        stderr::warn(format_args!(
            "wrote the private key to \"{file}\" (keep it secret), and the public key for the other end to \
             \"{file}.pub\""
        ));
    }
    Ok(())
}
