//! `refrain czip mount`: an archive as a folder.

use std::path::PathBuf;

use tracing::level_filters::LevelFilter;

use super::open::{ArchiveArguments, CacheArguments};
use crate::log::{self, LogForm};

#[derive(clap::Args)]
// Elsewhere it is only taken, and refused.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(super) struct MountArguments {
    #[command(flatten)]
    archive: ArchiveArguments,
    /// Mount the archive on this directory, which hides the directory's own content
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    cache: CacheArguments,
    /// Mount on DIR even if it is a mount point: its earlier mount is hidden until this one is unmounted
    #[arg(long)]
    over_mount: bool,
    /// Let other users read the files too, as their modes permit
    ///
    /// Root can always use this option. Other users need `user_allow_other` in /etc/fuse.conf.
    #[arg(long)]
    allow_other: bool,
    /// Log to stderr at this level
    #[arg(
        long = "log",
        value_name = "LEVEL",
        env = "REFRAIN_LOG",
        default_value = "warn",
        value_parser = log::levels()
    )]
    level: LevelFilter,
    #[command(flatten)]
    log: LogForm,
}

#[cfg(not(target_os = "linux"))]
pub fn run(arguments: &MountArguments) -> anyhow::Result<()> {
    anyhow::bail!(
        "{} cannot be mounted on {}: that needs Linux and its FUSE; `refrain czip cat` and `refrain \
         czip extract` read it anywhere",
        arguments.archive.called(),
        arguments.folder.display()
    )
}

#[cfg(target_os = "linux")]
pub(super) use linux::run;

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        io::{self, Write},
        path::Path,
        process,
        sync::mpsc::{Receiver, RecvTimeoutError, channel},
        thread,
        time::Duration,
    };

    use anyhow::Context;
    use refrain_czip::mount::{MountOptions, UnmountError, Unmounter, mount};
    use tokio::{
        runtime::{Builder, Runtime},
        time::timeout,
    };

    use super::MountArguments;
    use crate::{
        interrupt::{Interrupt, Signals},
        table::count,
    };

    /// How long whoever has files open may take before we say that we wait for him.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// How often we look whether what is mounted on it is gone.
    const LOOK_AGAIN: Duration = Duration::from_millis(200);

    pub(crate) fn run(arguments: &MountArguments) -> anyhow::Result<()> {
        let called = arguments.archive.called();
        // Until it is mounted, Ctrl-C ends it at once.
        let archive = arguments.archive.open_unlocked(&Interrupt::default())?;
        let archive = arguments.archive.with_cache(archive, &arguments.cache)?;
        let _log = arguments.log.begin(arguments.level);
        let asked = Asked::listen()?;
        let options = MountOptions {
            name: called.clone(),
            allow_other: arguments.allow_other,
            covers_mount: arguments.over_mount,
            failed: Box::new(|failure| {
                let path = String::from_utf8_lossy(failure.path);
                tracing::warn!(
                    "cannot read \"{path}\" at byte {}: {}",
                    failure.offset,
                    failure.error
                );
            }),
        };
        let mut mounted =
            mount(archive, &arguments.folder, options).with_context(|| called.clone())?;
        if mounted.left_out() > 0 {
            let left_out = count(mounted.left_out(), "path", "paths");
            tracing::warn!("not shown: {left_out} with a name that is too long");
        }
        let unmounter = mounted.unmounter();
        let (_serving, has_ended) = channel();
        let at = arguments.folder.clone();
        thread::Builder::new()
            .spawn(move || asked.unmount(unmounter, &at, &has_ended))
            .context("cannot start a thread")?;
        // Who started it may not listen; it is mounted all the same.
        let _ = writeln!(
            io::stdout(),
            "{called} is mounted on {}; Ctrl-C unmounts it",
            arguments.folder.display()
        );
        mounted.serve().with_context(|| called.clone())
    }

    /// Unmounts when a signal asks to end: what is left of a mount without its process is an error to
    /// whoever looks at it.
    struct Asked {
        runtime: Runtime,
        signals: Signals,
    }

    impl Asked {
        fn listen() -> io::Result<Self> {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let signals = {
                let _entered = runtime.enter();
                Signals::listen()?
            };
            Ok(Self { runtime, signals })
        }

        fn wait(&mut self) -> u8 {
            self.runtime.block_on(self.signals.next())
        }

        /// The same, for a while.
        fn wait_for(&mut self, patience: Duration) -> Option<u8> {
            let signal = async { timeout(patience, self.signals.next()).await.ok() };
            self.runtime.block_on(signal)
        }

        fn unmount(mut self, mut unmounter: Unmounter, at: &Path, has_ended: &Receiver<()>) {
            self.wait();
            let mut is_reported = false;
            while let Err(error) = unmounter.unmount() {
                if !is_reported {
                    tracing::warn!(
                        "{error}; another Ctrl-C ends the program and leaves a dead mount"
                    );
                    is_reported = true;
                }
                let signal = match error {
                    UnmountError::Covered { .. } => self.wait_for(LOOK_AGAIN),
                    _ => Some(self.wait()),
                };
                if let Some(exit_code) = signal {
                    process::exit(exit_code.into());
                }
            }
            if has_ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                tracing::warn!(
                    "{} is unmounted, but files in it are open: the program ends when they are closed, or \
                     after another Ctrl-C",
                    at.display()
                );
            }
            process::exit(self.wait().into());
        }
    }
}
