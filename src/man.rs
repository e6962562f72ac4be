//! `refrain man`: the manual pages, from the same definitions as help.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

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
    /// The directory is made if it does not exist. Pages that are already there are replaced.
    #[arg(
        short,
        long,
        alias = "out",
        value_name = "DIR",
        conflicts_with = "command"
    )]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ManArguments) -> anyhow::Result<()> {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    if let Some(folder) = &arguments.output {
        ensure!(
            folder.is_dir() || !folder.exists(),
            "\"{}\" is not a directory",
            folder.display()
        );
        let cannot_write = || format!("cannot write manual pages to \"{}\"", folder.display());
        fs::create_dir_all(folder).with_context(cannot_write)?;
        return write_all(&program, folder).with_context(cannot_write);
    }
    let printed = render(&page(named(program, &arguments.command)?))?;
    let printed = io::stdout().write_all(printed.as_bytes());
    printed.map_err(standard_io::output_failed)
}

/// Writes the page of a command, and those of the commands below it.
fn write_all(command: &clap::Command, folder: &Path) -> io::Result<()> {
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        write_all(below, folder)?;
    }
    let page = page(command.clone());
    fs::write(folder.join(page.get_filename()), render(&page)?)
}

/// The page's text. Its last section, with exit codes and examples, gets a title that manual pages have.
fn render(page: &Man) -> io::Result<String> {
    let mut rendered = Vec::new();
    page.render(&mut rendered)?;
    let text = String::from_utf8(rendered).map_err(io::Error::other)?;
    Ok(text.replace("\n.SH EXTRA\n", "\n.SH NOTES\n"))
}

/// The page of a command, with the short usage of its help, and the program's name and version at its foot.
fn page(mut command: clap::Command) -> Man {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    Man::new(command.override_usage(usage)).source(concat!("refrain ", env!("CARGO_PKG_VERSION")))
}

/// The command of these words, called by its whole name.
fn named(mut command: clap::Command, words: &[String]) -> anyhow::Result<clap::Command> {
    for word in words {
        let Some(found) = command.find_subcommand(word).cloned() else {
            let called = command.get_bin_name().unwrap_or("refrain");
            let error = anyhow!("\"{called}\" has no command \"{word}\"");
            return Err(UsageError(error).into());
        };
        command = found;
    }
    Ok(command)
}
