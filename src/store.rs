//! `refrain store`: looks after the chunk store of a near gateway.
//!
//! `stat` and `verify` only read, and work while a gateway has the store open. `add` writes, needs the
//! store for itself, and reports which process has it.

mod print;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use refrain_bulk::{Bounds, Input};
use refrain_codec::{
    chunk::{hash::ChunkHasher, stream::ChunkBounds},
    marker::PackMask,
};
pub(crate) use refrain_gateway::config::parse_realm;
use refrain_gateway::{config::parse_folder, units::ByteSize};
use refrain_store::{
    ChunkSource, Chunking, DiskStore, ReadOnlyStore, Realm, RealmStat, StoreConfig, StoreStat,
};

use crate::{
    bounded,
    progress::bar,
    report,
    stderr::{cannot_open, warn},
    table::{bytes, count, printable_path},
};

/// Of a store that is made and for which no bound was given.
const SIZE_BYTES_DEFAULT: u64 = 100_000_000_000;

#[derive(clap::Args)]
pub(crate) struct StoreArguments {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(clap::Subcommand)]
enum StoreCommand {
    /// Use existing files as history
    ///
    /// The store keeps only metadata, and the data stays in the files. A file that changes later is noticed
    /// and no longer used.
    #[command(
        after_help = "Example:\n  refrain store add /srv/releases --store /var/lib/refrain/store --realm releases"
    )]
    Add(AddArguments),
    /// Show the size of a store and its realms
    #[command(after_help = "Example:\n  refrain store stat --store /var/lib/refrain/store")]
    Stat(StatArguments),
    /// Read and check all data of a store; the exit code is 1 if any of it is damaged
    #[command(after_help = "Example:\n  refrain store verify --store /var/lib/refrain/store")]
    Verify(StoreOptions),
}

#[derive(clap::Args)]
struct StoreOptions {
    /// Use the store in this directory
    #[arg(long, env = "REFRAIN_STORE", value_name = "STORE", value_parser = parse_folder)]
    store: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct StatArguments {
    #[command(flatten)]
    store: StoreOptions,
    /// Show the parts of the store, its age, and the memory that it needs when open
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
}

#[derive(clap::Args)]
struct AddArguments {
    /// Add all files in this directory, and in all directories below it
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Store the history under this realm: the near end's --realm or, if it has none, the far end's public key
    #[arg(long, value_name = "NAME", value_parser = parse_realm)]
    realm: String,
    /// Also add private keys and other chunk stores: predictions can reveal them to the other end
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    store: StoreOptions,
    #[command(flatten)]
    new: NewStoreOptions,
}

/// The options of a new store. An existing one keeps its values where no option is given.
#[derive(clap::Args)]
struct NewStoreOptions {
    /// Limit the store on disk to this size [default: unchanged, or 100GB for a new store]
    #[arg(long, env = "REFRAIN_STORE_SIZE", value_name = "SIZE", value_parser = bounded::store_size)]
    store_size: Option<ByteSize>,
    /// Set how much longer than --chunk-min the chunks of a new store are on average: a power of two [default:
    /// 8KiB, for chunks of about 10 KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_average)]
    chunk_size: Option<u8>,
    /// Set the shortest chunk of a new store [default: 2KiB]
    #[arg(long, value_name = "SIZE")]
    chunk_min: Option<ByteSize>,
    /// Set the longest chunk of a new store [default: 32KiB]
    #[arg(long, value_name = "SIZE")]
    chunk_max: Option<ByteSize>,
    /// Set the hash of a new store: blake3 or sha1 [default: blake3]
    #[arg(long, value_name = "NAME")]
    chunk_hash: Option<ChunkHasher>,
}

impl NewStoreOptions {
    /// The configuration of a store, of the one at `path` if there is one.
    fn config(&self, path: &Path) -> anyhow::Result<StoreConfig> {
        let mut config = store_config(path, self.store_size)?;
        let Chunking {
            mask_bits,
            bounds,
            hasher,
        } = config.chunking;
        let bytes_or = |asked: Option<ByteSize>, there| asked.map_or(there, |size| size.0);
        let bytes_min = bytes_or(self.chunk_min, bounds.bytes_min());
        let bytes_max = bytes_or(self.chunk_max, bounds.bytes_max());
        config.chunking = Chunking {
            mask_bits: self.chunk_size.unwrap_or(mask_bits),
            bounds: ChunkBounds::new(usize::try_from(bytes_min)?, usize::try_from(bytes_max)?)?,
            hasher: self.chunk_hash.unwrap_or(hasher),
        };
        Ok(config)
    }
}

/// The configuration of the store at `path`, or of a new one, with this bound if one is asked for.
pub(crate) fn store_config(path: &Path, size: Option<ByteSize>) -> anyhow::Result<StoreConfig> {
    let there = StoreConfig::of(path)?;
    let mut config = there.unwrap_or_else(|| StoreConfig::new(SIZE_BYTES_DEFAULT));
    config.size_bytes = size.map_or(config.size_bytes, |size| size.0);
    Ok(config)
}

pub(crate) fn run(arguments: &StoreArguments) -> anyhow::Result<()> {
    match &arguments.command {
        StoreCommand::Add(arguments) => add(arguments),
        StoreCommand::Stat(arguments) => {
            let stat = ReadOnlyStore::inspect(&arguments.store.store)?.stat();
            report::to_stdout(arguments.store.json, &stat, |out| {
                print::stat(&stat, arguments.verbose, out)
            })
        }
        StoreCommand::Verify(options) => verify(options),
    }
}

fn add(arguments: &AddArguments) -> anyhow::Result<()> {
    let is_folder = std::fs::metadata(&arguments.dir)
        .with_context(|| cannot_open(&arguments.dir))?
        .is_dir();
    ensure!(
        is_folder,
        "\"{}\" is not a directory",
        arguments.dir.display()
    );
    std::fs::read_dir(&arguments.dir).with_context(|| cannot_open(&arguments.dir))?;
    let path = &arguments.store.store;
    let config = arguments.new.config(path)?;
    let files = Input::Path(arguments.dir.clone(), Bounds::default());
    ensure!(
        StoreConfig::of(path)?.is_some() || files.expected_bytes(&mut || true) != Some(0),
        "nothing to add: no file in \"{}\" has content (no store was made)",
        arguments.dir.display()
    );
    refuse_loss(path, config)?;
    let mut store = DiskStore::open(path, config)?;
    let before = store.stat();
    store.name_realm(&arguments.realm)?;
    let bar = bar("{bar:30} {decimal_bytes} of {decimal_total_bytes} {msg}");
    let realm = Realm::named(&arguments.realm);
    let report = store.add_files(&arguments.dir, realm, arguments.all, &mut |progress| {
        bar.set_length(progress.bytes_total);
        bar.set_position(progress.bytes);
        let files = count(progress.files_total, "file", "files");
        bar.set_message(format!("{} of {files}", progress.files));
    });
    bar.finish_and_clear();
    let report = report?;
    store.close()?;
    for (path, why) in &report.told {
        let path = printable_path(path);
        warn(format_args!("not added: \"{path}\": {why}"));
    }
    for (path, what) in &report.told_private {
        let path = printable_path(path);
        warn(format_args!(
            "skipped \"{path}\": {what} (--all adds it too)"
        ));
    }
    tell_new_realm(&before, &arguments.realm);
    let left = report.unreadable + report.changed_while_read;
    report::to_stdout(arguments.store.json, &report, |out| {
        print::added(&report, out)
    })?;
    ensure!(
        left == 0,
        "{} not added",
        count(left, "file or directory was", "files or directories were")
    );
    Ok(())
}

/// Refuses a bound that takes history: who adds some hardly means that.
pub(crate) fn refuse_loss(path: &Path, config: StoreConfig) -> anyhow::Result<()> {
    if let Some(lowered) = DiskStore::lowered(path, config)? {
        let [held, bound, leaving] =
            [lowered.held_bytes, config.size_bytes, lowered.leaving_bytes].map(bytes);
        bail!(
            "the store \"{}\" uses {held}: --store-size {bound} would delete {leaving} of its oldest history \
             (omit --store-size, or start `refrain near` with the lower size first)",
            path.display()
        );
    }
    Ok(())
}

/// Says that a realm is new in a store that had others.
pub(crate) fn tell_new_realm(before: &StoreStat, realm: &str) {
    if let Some(others) = other_realms(before, realm) {
        warn(format_args!(
            "realm \"{realm}\" is new in this store, which has: {others} (a near end predicts from it only \
             with --realm {realm})"
        ));
    }
}

/// What other realms than this one are called, if there is history of some and none of this.
fn other_realms(stat: &StoreStat, realm: &str) -> Option<String> {
    let wanted = Realm::named(realm).to_string();
    let known: Vec<&RealmStat> = stat.realms.iter().filter(|it| it.chunks > 0).collect();
    if known.is_empty() || known.iter().any(|known| known.realm == wanted) {
        return None;
    }
    let names = known
        .into_iter()
        .map(|known| known.name.as_ref().unwrap_or(&known.realm).as_str());
    Some(names.collect::<Vec<_>>().join(", "))
}

fn verify(options: &StoreOptions) -> anyhow::Result<()> {
    let mut store = ReadOnlyStore::inspect(&options.store)?;
    let bar = bar("{bar:30} {pos} of {len} chunks");
    let report = store.verify(&mut |progress| {
        bar.set_length(progress.chunks_total);
        bar.set_position(progress.chunks);
    });
    bar.finish_and_clear();
    for error in &report.told {
        warn(error);
    }
    report::to_stdout(options.json, &report, |out| print::verified(&report, out))?;
    if !report.is_whole() {
        bail!(
            "the store \"{}\" is damaged. No action is needed: damaged data is not used, and is received again. \
             If it happens again, the disk may be failing. If files were added to it, run `refrain store add` again",
            options.store.display()
        );
    }
    Ok(())
}

/// An average as the bits of the mask that gives it.
fn parse_average(text: &str) -> Result<u8, String> {
    let ByteSize(bytes) = text.parse().map_err(|error| format!("{error}"))?;
    let bits = u8::try_from(bytes.checked_ilog2().unwrap_or(0)).unwrap_or(u8::MAX);
    match bytes.is_power_of_two() && PackMask::with_bits(bits).is_ok() {
        true => Ok(bits),
        false => Err("must be a power of two from 64B to 32KiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_average;

    #[test]
    fn averages_are_powers_of_two_that_a_mask_has() {
        assert_eq!(parse_average("8KiB"), Ok(13));
        assert_eq!(parse_average("64"), Ok(6));
        for text in ["0", "32", "8000", "64KiB", "x"] {
            assert!(parse_average(text).is_err(), "{text}");
        }
    }
}
