//! A user's configuration file, through to valid types. What is wrong with it is said in one error.
//!
//! Flags win over the file; they name the keys, so that a text cannot make this program read
//! somebody's key and go no further for want of one.
#![no_main]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use libfuzzer_sys::fuzz_target;
use refrain_gateway::arguments::{FarOptions, NearOptions};
use refrain_gateway::config::{Config, Timeouts};
use refrain_gateway::keys::PrivateKey;
use refrain_gateway::options::Role;
use refrain_gateway::settings::{ConfigError, Settings};

fuzz_target!(|text: &str| {
    ENDS.with(|ends| {
        if parses(text, Role::Near) {
            fs::write(&ends.file, text).expect("the folder is there");
            check(ends.near.resolve());
        }
        if parses(text, Role::Far) {
            fs::write(&ends.file, text).expect("the folder is there");
            check(ends.far.resolve());
        }
    });
});

fn parses(text: &str, role: Role) -> bool {
    let parsed = Settings::parse(text, Path::new("refrain.toml"), role);
    parsed.inspect_err(check_message).is_ok()
}

fn check(resolved: Result<Config, ConfigError>) {
    match resolved {
        Ok(config) => {
            assert!((1..=config.lanes_max).contains(&config.lanes));
            let Timeouts {
                connect,
                dead_after,
                ..
            } = config.timeouts;
            assert!(!connect.is_zero() && !dead_after.is_zero());
        }
        Err(error) => check_message(&error),
    }
}

fn check_message(error: &ConfigError) {
    assert!(!error.to_string().is_empty());
}

struct Ends {
    file: PathBuf,
    near: NearOptions,
    far: FarOptions,
}

thread_local! { static ENDS: Ends = ends(); }

fn ends() -> Ends {
    let name = format!("configuration-{}", std::process::id());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target")
        .join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the file and the key");
    let (file, key_file) = (folder.join("refrain.toml"), folder.join("key"));
    let key = PrivateKey::generate().expect("the system has randomness");
    key.write_new(&key_file).expect("the folder is empty");
    let flags = [
        "refrain".into(),
        "--config".into(),
        file.clone().into(),
        "--key".into(),
        key_file.into(),
        "--peer-key".into(),
        key.public().to_string().into(),
    ];
    Ends {
        near: options(&flags),
        far: options(&flags),
        file,
    }
}

fn options<O: Args>(flags: &[OsString]) -> O {
    let matches = O::augment_args(Command::new("refrain")).get_matches_from(flags);
    O::from_arg_matches(&matches).expect("the flags are valid")
}
