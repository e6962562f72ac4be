//! What `refrain bulk` and `refrain czip create` read, and what they leave alone.

use std::{
    fs::{self, Metadata},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, ensure};
use clap::Args;
use refrain_bulk::{Bounds, Input, Opens, Skips};
use refrain_czip::create::{Exclude, ExcludeError, FileId, name_of};

use crate::{
    interrupt::Interrupt,
    standard_io::{self, EndableInput, is_standard},
    table::printable_path,
};

#[derive(Args)]
pub(crate) struct InputArguments {
    /// Read these files and directories; `-` is standard input
    ///
    /// Directories are read with all their content. Sockets, pipes and devices in them are skipped and
    /// counted. Unreadable files and directories in them are reported and skipped, and the exit code is 1.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub inputs: Vec<PathBuf>,
    /// Skip matching files and directories, such as '*.o'
    ///
    /// May be given several times. Other examples are target/ and /site/cache.
    ///
    /// A pattern is compared with names. With a `/` inside, it is compared with the ends of paths. A path
    /// begins with the name of the FILE or DIR. With a `/` at its start, the pattern is compared with whole
    /// paths. With a `/` at its end, it matches only directories. `*` and `?` do not match `/`, but `**`
    /// does. A matching directory is skipped with all its content.
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    pub exclude: Vec<String>,
    /// Skip the content of other file systems
    ///
    /// A directory on a different file system from its FILE or DIR is treated as empty.
    #[arg(long)]
    pub one_file_system: bool,
}

impl InputArguments {
    /// Fails if patterns leave all of them alone.
    pub(crate) fn refuse_nothing(&self) -> anyhow::Result<()> {
        let exclude = self.patterns()?;
        // What is wrong with one that is not there is reported when it is to be read.
        let is_left_out = |input: &PathBuf| {
            let name = name_of(input).unwrap_or_default();
            exclude.is_of(name.as_bytes(), input.is_dir())
        };
        ensure!(
            !self.inputs.iter().all(is_left_out),
            "--exclude matches all inputs, including \"{}\": no input is left",
            printable_path(&self.inputs[0])
        );
        Ok(())
    }

    /// What is left out.
    pub(crate) fn patterns(&self) -> Result<Exclude, ExcludeError> {
        Exclude::new(self.exclude.iter().map(String::as_str))
    }

    /// All of them. What is in the file `output` is left alone where it is found: it will be replaced.
    pub(super) fn open(
        &self,
        output: Option<&Path>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Vec<Input>> {
        let opens = interrupt.clone();
        let opens: Opens = Arc::new(move |path| Ok(Box::new(EndableInput::open(path, &opens)?)));
        let exclude = match &self.exclude[..] {
            [] => None,
            _ => Some(self.patterns()?),
        };
        let own = output.and_then(|output| fs::metadata(output).ok());
        let own = own.filter(Metadata::is_file).as_ref().map(FileId::of);
        let mut inputs = Vec::new();
        for path in &self.inputs {
            inputs.push(match is_standard(path) {
                true => {
                    let stream = EndableInput::standard(interrupt);
                    let stream = stream.context("cannot open standard input")?;
                    Input::Stream("standard input".into(), Box::new(stream))
                }
                false => Input::Path(
                    path.clone(),
                    Bounds {
                        is_one_file_system: self.one_file_system,
                        skips: skips(path, exclude.as_ref(), own),
                        opens: Some(Arc::clone(&opens)),
                    },
                ),
            });
        }
        Ok(inputs)
    }
}

/// A pattern as it is, if it is one.
fn parse_pattern(text: &str) -> Result<String, ExcludeError> {
    Exclude::new([text]).map(|_| text.to_owned())
}

/// About how many bytes there are, if that can be known before they are read.
pub(crate) fn expected_bytes(inputs: &[Input], interrupt: &Interrupt) -> Option<u64> {
    let bytes = |input: &Input| match input {
        Input::Stream(..) => standard_io::input_left(),
        Input::Path(..) => input.expected_bytes(&mut || interrupt.check().is_ok()),
    };
    inputs.iter().map(bytes).sum()
}

/// What is left alone of an input: what patterns are of, by what an archive would call it, and below it
/// a file.
fn skips(input: &Path, exclude: Option<&Exclude>, own: Option<FileId>) -> Option<Skips> {
    if exclude.is_none() && own.is_none() {
        return None;
    }
    // One without a name is not there, or cannot be looked at: that is told when it is to be read.
    let name = name_of(input).unwrap_or_default();
    let (input, exclude) = (input.to_owned(), exclude.cloned());
    Some(Arc::new(move |path: &Path, metadata: &Metadata| {
        let below = path.strip_prefix(&input).unwrap_or(path).as_os_str();
        let (called, is_own) = match below.is_empty() {
            true => (name.as_bytes().to_vec(), false),
            false => (
                [name.as_bytes(), below.as_bytes()].join(&b'/'),
                own == Some(FileId::of(metadata)),
            ),
        };
        let excludes = |exclude: &Exclude| exclude.is_of(&called, metadata.is_dir());
        is_own || exclude.as_ref().is_some_and(excludes)
    }))
}
