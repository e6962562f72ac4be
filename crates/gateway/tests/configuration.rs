//! Holds `docs/configuration.md` and the example files to the options that the program has.
//!
//! After a change of options, `REFRAIN_BLESS=1 cargo test -p refrain-gateway --test configuration`
//! writes the documentation again.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use refrain_gateway::arguments::{FarOptions, NearOptions};
use refrain_gateway::keys::PrivateKey;
use refrain_gateway::options::{DefaultValue, OPTIONS, OptionSpec, Role};
use tempfile::TempDir;

const BEGIN: &str = "<!-- options: begin -->\n";
/// As `htpasswd -nbB -C 4 alice secret` prints it.
const USERS: &str = "alice:$2y$04$KdFfD4bmO//6y5KEHy0RbOWKDg3Yam7gFZkmO37TZsEiSu0VmDl0O\n";
const END: &str = "<!-- options: end -->\n";

#[test]
fn the_documentation_has_every_option_as_it_is() {
    let path = docs().join("configuration.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("where options begin");
    let (documented, after) = rest.split_once(END).expect("where options end");
    let mut expected = String::new();
    for options in OPTIONS.chunk_by(|one, next| one.group == next.group) {
        write!(expected, "### {}\n\n", options[0].group.heading()).unwrap();
        expected.extend(options.iter().map(|spec| section(spec)));
    }
    if std::env::var_os("REFRAIN_BLESS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        documented, expected,
        "run with REFRAIN_BLESS=1 to write it again"
    );
}

/// One option's section.
fn section(spec: &OptionSpec) -> String {
    let programs = spec.roles.iter().map(|role| match role {
        Role::Near => "near",
        Role::Far => "far",
        Role::Check => "check",
    });
    let programs = programs.collect::<Vec<_>>().join(", ");
    let default = match spec.default {
        DefaultValue::Required => "required".into(),
        DefaultValue::Nothing => "off unless given".into(),
        DefaultValue::Value(value) => format!("default `{value}`"),
        DefaultValue::Described(words) => format!("default: {words}"),
    };
    let repeats = if spec.repeats { " · repeats" } else { "" };
    let mut text = format!("#### `{}`\n\n", spec.key);
    let (flag, value, variable) = (spec.flag(), spec.value, spec.environment());
    let spelled = if spec.is_switch() {
        flag
    } else {
        format!("{flag} {value}")
    };
    writeln!(
        text,
        "`{spelled}` · `{variable}` · {programs} · {default}{repeats}\n"
    )
    .unwrap();
    writeln!(text, "{}\n", spec.help).unwrap();
    text
}

/// The far end's example, with this test's keys instead of the files in `/etc`.
#[test]
fn the_far_ends_example_works() {
    let keys = Keys::new();
    let far = Far::try_parse_from(keys.flags("far.toml", "sites.keys")).unwrap();
    let config = far.options.resolve().unwrap();
    assert_eq!(config.listen, ["[::]:7000".parse().unwrap()]);
    assert_eq!(config.peers.len(), 1);
    assert_eq!(config.ways_in.len(), 1);
    assert!(config.admin.unwrap().token.is_some());
}

#[test]
fn the_near_ends_example_works() {
    let keys = Keys::new();
    let near = Near::try_parse_from(keys.flags("near.toml", "far.pub")).unwrap();
    let config = near.options.resolve().unwrap();
    assert_eq!(config.dials[0].address.to_string(), "far.example.org:7000");
    let ways_in = config.ways_in.iter();
    let ways_in: Vec<_> = ways_in.map(|way_in| way_in.option.key).collect();
    assert_eq!(ways_in, ["forward", "forward", "socks5", "http_proxy"]);
    assert!(config.access.admits([10, 0, 0, 7].into()));
    assert!(!config.access.admits([10, 0, 1, 7].into()));
    assert_eq!(config.warnings(), [""; 0]);
}

#[derive(Parser)]
struct Near {
    #[command(flatten)]
    options: NearOptions,
}

#[derive(Parser)]
struct Far {
    #[command(flatten)]
    options: FarOptions,
}

/// The files that the examples name.
struct Keys(TempDir);

impl Keys {
    fn new() -> Keys {
        let dir = TempDir::new().unwrap();
        PrivateKey::generate()
            .unwrap()
            .write_new(&dir.path().join("own.key"))
            .unwrap();
        // A token in a file that only its owner can read: what a private key's file is, too.
        fs::copy(dir.path().join("own.key"), dir.path().join("token")).unwrap();
        fs::write(dir.path().join("token"), "0123456789abcdef\n").unwrap();
        fs::copy(dir.path().join("own.key"), dir.path().join("users")).unwrap();
        fs::write(dir.path().join("users"), USERS).unwrap();
        let peer = PrivateKey::generate().unwrap().public();
        fs::write(dir.path().join("sites.keys"), format!("{peer} bonn\n")).unwrap();
        fs::write(dir.path().join("far.pub"), format!("{peer}\n")).unwrap();
        Keys(dir)
    }

    fn flags(&self, example: &str, peer_key: &str) -> Vec<PathBuf> {
        let dir = self.0.path();
        let mut flags: Vec<PathBuf> = vec!["refrain".into()];
        let mut push = |flag: &str, file: PathBuf| flags.extend([flag.into(), file]);
        push("--config", docs().join("examples").join(example));
        push("--key", dir.join("own.key"));
        push("--peer-key", dir.join(peer_key));
        match example {
            "far.toml" => push("--admin-token-file", dir.join("token")),
            _ => push("--proxy-auth", dir.join("users")),
        }
        flags
    }
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}
