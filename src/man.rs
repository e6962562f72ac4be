//! `refrain man`: the manual pages, from the same definitions as help.

use std::{io, io::Write, path::PathBuf};

use anyhow::{Context, anyhow, ensure};
use clap::CommandFactory;
use clap_mangen::Man;

use crate::{Arguments, standard_io, usage::UsageError};

#[derive(clap::Args)]
pub(crate) struct ManArguments {
    /// Print the page of this command, such as `czip get`; without it, the page of refrain
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Write all pages to this directory instead
    ///
    /// The directory is made if it does not exist. Pages that it has are replaced.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ManArguments) -> anyhow::Result<()> {
    let program = Arguments::command();
    if let Some(folder) = &arguments.out {
        ensure!(
            folder.is_dir() || !folder.exists(),
            "\"{}\" is not a directory",
            folder.display()
        );
        let cannot_write = || format!("cannot write manual pages to \"{}\"", folder.display());
        std::fs::create_dir_all(folder).with_context(cannot_write)?;
        return clap_mangen::generate_to(program, folder).with_context(cannot_write);
    }
    let mut page = Vec::new();
    Man::new(named(program, &arguments.command)?).render(&mut page)?;
    let printed = io::stdout().write_all(&page);
    printed.map_err(standard_io::output_failed)
}

/// The command of these words, called by its whole name.
fn named(program: clap::Command, words: &[String]) -> anyhow::Result<clap::Command> {
    let mut command = program.disable_help_subcommand(true);
    command.build();
    for word in words {
        let Some(found) = command.find_subcommand(word).cloned() else {
            let called = command.get_bin_name().unwrap_or("refrain");
            let error = anyhow!("\"{called}\" has no command \"{word}\" (see `{called} --help`)");
            return Err(UsageError(error).into());
        };
        command = found;
    }
    Ok(command)
}
