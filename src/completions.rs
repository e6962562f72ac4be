//! `refrain completions SHELL`.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Arguments, standard_io};

#[derive(clap::Args)]
pub(crate) struct CompletionsArguments {
    /// Complete the command lines of this shell
    shell: Shell,
}

pub(crate) fn run(arguments: &CompletionsArguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "refrain",
        &mut script,
    );
    let printed = io::stdout().write_all(&script);
    printed.map_err(standard_io::output_failed)
}
