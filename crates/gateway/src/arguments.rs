//! The options of a program as its command line and the environment give them.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, value_parser};

use crate::options::Role;
use crate::settings::{Origin, Settings};

/// A program's options as the command line and the environment give them, with the name of its
/// configuration file. `#[command(flatten)]` it, or use it as a subcommand's arguments.
///
/// Ask it for a configuration with [`NearOptions::resolve`](Options::resolve) and its siblings;
/// asking again re-reads the files, for SIGHUP.
#[derive(Debug, Clone)]
pub struct Options<P> {
    pub(crate) file: Option<PathBuf>,
    /// The flag or the variable that names the file.
    pub(crate) file_option: &'static str,
    pub(crate) given: Settings,
    program: PhantomData<P>,
}

/// The options of `refrain near`.
pub type NearOptions = Options<Near>;
/// The options of `refrain far`.
pub type FarOptions = Options<Far>;
/// The options of `refrain check`.
pub type CheckOptions = Options<Check>;

/// A program, as a type: it tells [`NearOptions`] from [`FarOptions`].
pub trait Program {
    /// Whose options these are.
    const ROLE: Role;
}

/// Marks [`NearOptions`].
#[derive(Debug, Clone, Copy)]
pub struct Near;
/// Marks [`FarOptions`].
#[derive(Debug, Clone, Copy)]
pub struct Far;
/// Marks [`CheckOptions`].
#[derive(Debug, Clone, Copy)]
pub struct Check;

impl Program for Near {
    const ROLE: Role = Role::Near;
}

impl Program for Far {
    const ROLE: Role = Role::Far;
}

impl Program for Check {
    const ROLE: Role = Role::Check;
}

const CONFIG: &str = "config";
const CONFIG_VARIABLE: &str = "REFRAIN_CONFIG";

impl<P> Options<P> {
    /// The configuration file, if one is given.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl<P: Program> clap::Args for Options<P> {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .env(CONFIG_VARIABLE)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .hide_env(true)
            .help("Read options from this TOML file")
            .long_help(
                "Read options from this TOML file. Flags and the environment override it. The variable \
                 REFRAIN_CONFIG can name it instead.",
            );
        let args = P::ROLE.options().map(|spec| spec.arg(P::ROLE));
        command.arg(config).args(args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<P: Program> clap::FromArgMatches for Options<P> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Options<P>, clap::Error> {
        let mut given = Settings::default();
        for spec in P::ROLE.options() {
            let origin = match matches.value_source(spec.key) {
                Some(ValueSource::EnvVariable) => Origin::Environment,
                _ => Origin::Flag,
            };
            let texts = matches.get_many::<String>(spec.key);
            for text in texts.unwrap_or_default() {
                given.add(spec, text.clone(), origin.clone());
            }
            let old = spec.old_environment().and_then(std::env::var_os);
            if let Some(old) = old.filter(|_| !given.is_given(spec)) {
                given.add(
                    spec,
                    old.to_string_lossy().into_owned(),
                    Origin::Environment,
                );
            }
        }
        Ok(Options {
            file: matches.get_one(CONFIG).cloned(),
            file_option: match matches.value_source(CONFIG) {
                Some(ValueSource::EnvVariable) => CONFIG_VARIABLE,
                _ => "--config",
            },
            given,
            program: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_lines_are_consistent() {
        fn command<P: Program>() -> Command {
            <Options<P> as clap::Args>::augment_args(Command::new("test"))
        }
        command::<Near>().debug_assert();
        command::<Far>().debug_assert();
        command::<Check>().debug_assert();
    }
}
