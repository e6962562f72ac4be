mod listeners;
mod reloads;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use clap::Parser;
use proptest::prelude::*;
use refrain_codec::simd::InstructionSet;
use tempfile::TempDir;

use super::*;
use crate::arguments::{CheckOptions, FarOptions, NearOptions};
use crate::intercept::handling::Handling;
use crate::options::{Role, STORE};

#[derive(Parser)]
enum Program {
    Near(NearOptions),
    Far(FarOptions),
    Check(CheckOptions),
}

/// A directory with a private key, and the flags that every end needs.
struct Fixture {
    dir: TempDir,
    peer: PublicKey,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = TempDir::new().unwrap();
        let key = PrivateKey::generate().unwrap();
        key.write_new(&dir.path().join("own.key")).unwrap();
        let peer = PrivateKey::generate().unwrap().public();
        Fixture { dir, peer }
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    }

    fn parse(&self, program: &str, flags: &[&str]) -> Program {
        let key = self.dir.path().join("own.key").display().to_string();
        let peer = self.peer.to_string();
        let needed = ["refrain", program, "--key", &key, "--peer-key", &peer];
        Program::try_parse_from(needed.iter().chain(flags))
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn near(&self, flags: &[&str]) -> Result<Config, ConfigError> {
        let flags = [&["--peer", "far.example:7000"], flags].concat();
        match self.parse("near", &flags) {
            Program::Near(options) => options.resolve(),
            _ => unreachable!("the flags begin with near"),
        }
    }

    fn far(&self, flags: &[&str]) -> Result<Config, ConfigError> {
        match self.parse("far", flags) {
            Program::Far(options) => options.resolve(),
            _ => unreachable!("the flags begin with far"),
        }
    }

    fn far_fault(&self, flags: &[&str]) -> String {
        self.far(flags).unwrap_err().to_string()
    }
}

/// A forward of a near end with one peer.
fn forward(listen: &str, target: &str) -> WayIn {
    WayIn {
        handling: Handling::PLAIN,
        option: &FORWARD,
        listen: listen.parse().unwrap(),
        target: Some(target.parse().unwrap()),
        service: None,
        named: Vec::new(),
        start_tls: None,
        peer: None,
    }
}

#[test]
fn instructions_that_this_machine_lacks_are_named_with_those_it_has() {
    let fixture = Fixture::new();
    let portable = fixture.far(&["--simd", "portable"]).unwrap();
    assert_eq!(portable.matching.backend, Backend::PORTABLE);
    let lacking = InstructionSet::ALL
        .into_iter()
        .find(|&set| Backend::new(set).is_none());
    let lacking = lacking
        .expect("no machine has both NEON and AVX2")
        .to_string();
    let error = fixture.far_fault(&["--simd", &lacking]);
    let start = format!("--simd \"{lacking}\": ");
    let lacks = format!("lacks {lacking}");
    for part in [&*start, &lacks, "`auto`", "this machine has `portable`"] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let error = fixture.far_fault(&["--simd", "mmx"]);
    assert!(error.contains("expected `auto`, `portable`"), "{error}");
    assert!(error.contains("this machine has `portable`"), "{error}");
}

#[test]
fn auto_wins_over_a_files_instructions() {
    let fixture = Fixture::new();
    let file = fixture.write("far.toml", "simd = \"portable\"\n");
    let backend = |flags: &[&str]| {
        let flags = [&["--config", &file], flags].concat();
        fixture.far(&flags).unwrap().matching.backend
    };
    assert_eq!(backend(&[]), Backend::PORTABLE);
    assert_eq!(backend(&["--simd", "auto"]), Backend::best());
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let config = Fixture::new().far(&["--memory", "1GiB"]).unwrap();
    let common = config;
    assert_eq!(common.cache, ByteSize(128 << 20));
    assert_eq!((common.lanes, common.lanes_max), (4, 16));
    assert_eq!(common.effort, EffortMode::Auto);
    assert_eq!(common.allow, AllowRules::loopback());
    assert_eq!(common.rate, None);
    assert!(common.admin.is_none() && common.ways_in.is_empty());
    let matching = MatchingConfig {
        algorithm: MatchingAlgorithm::MaxMatch,
        second_stage: SecondStage::Zstd,
        marker: MarkerAlgorithm::SampleByte,
        marker_table: SampleByteTable::default(),
        sampling_period: SamplingPeriod::DEFAULT,
        window: WindowBytes::DEFAULT,
        backend: Backend::best(),
        chunk_hash: ChunkHasher::Blake3,
    };
    assert_eq!(common.matching, matching);
    assert_eq!(common.timeouts.dead_after, Duration::from_secs(4));
}

#[test]
fn a_near_end_serves_what_it_is_told_and_allows_nothing_by_itself() {
    let fixture = Fixture::new();
    let flags = [
        "--socks5",
        "127.0.0.1:1080",
        "--forward",
        "127.0.0.1:8080=intranet:80",
    ];
    let config = fixture.near(&flags).unwrap();
    assert_eq!(config.dials[0].key, fixture.peer);
    let forward = forward("127.0.0.1:8080", "intranet:80");
    let socks5 = WayIn::any_target(&SOCKS5, "127.0.0.1:1080".parse().unwrap());
    assert_eq!(config.ways_in, [forward, socks5]);
    assert_eq!(config.allow, AllowRules::new(Vec::new()));
    assert!(
        fixture
            .near(&[])
            .unwrap_err()
            .to_string()
            .contains("one of --forward")
    );
    assert!(fixture.near(&["--allow", "10.0.0.0/8:80"]).is_ok());
}

#[test]
fn its_own_key_is_no_peers() {
    let fixture = Fixture::new();
    let own = PrivateKey::load(&fixture.dir.path().join("own.key")).unwrap();
    let own = own.public().to_string();
    let peers = fixture.write("peers", &format!("{} near\n{own} far\n", fixture.peer));
    for value in [&own, &peers] {
        let fault = fixture.far_fault(&["--peer-key", value]);
        let start = format!("--peer-key \"{value}\": ");
        assert!(
            fault.starts_with(&start) && fault.contains("own --key"),
            "{fault}"
        );
    }
    // The fixture's peer is the same end's key here.
    let fixture = Fixture {
        peer: own.parse().unwrap(),
        ..fixture
    };
    let fault = fixture.near(&["--socks5", "127.0.0.1:0"]).unwrap_err();
    assert!(fault.to_string().contains("own --key"), "{fault}");
}

#[test]
fn flags_win_over_the_file_and_a_second_look_sees_the_changed_file() {
    let fixture = Fixture::new();
    let file = fixture.write("far.toml", "lanes = 2\ncache = \"1MiB\"\n");
    let flags = ["--listen", "[::]:7000", "--config", &file, "--lanes", "3"];
    let Program::Far(options) = fixture.parse("far", &flags) else {
        unreachable!("the flags begin with far");
    };
    let common = options.resolve().unwrap();
    assert_eq!((common.lanes, common.cache), (3, ByteSize(1 << 20)));
    fixture.write("far.toml", "cache_size = \"2MiB\"\nallow = [\"*:443\"]\n");
    let common = options.resolve().unwrap();
    assert_eq!(common.cache, ByteSize(2 << 20));
    assert_eq!(common.allow.describe(), "*:443");
}

#[test]
fn files_may_begin_with_a_byte_order_mark() {
    let fixture = Fixture::new();
    let table = fixture.write("table", "\u{feff}1 2 3");
    let file =
        format!("\u{feff}lanes = 2\r\nmarker = \"samplebyte\"\r\nmarker_table = {table:?}\r\n");
    let file = fixture.write("far.toml", &file);
    let config = fixture.far(&["--config", &file]).unwrap();
    assert_eq!(config.lanes, 2);
    let no_text = fixture.dir.path().join("no text");
    fs::write(&no_text, [0xff; 10]).unwrap();
    let error = fixture.far_fault(&["--config", &no_text.display().to_string()]);
    assert!(
        error.contains("cannot read ") && error.contains("not a text file"),
        "{error}"
    );
}

#[test]
fn a_check_reads_the_near_ends_file() {
    let fixture = Fixture::new();
    let file = fixture.write("near.toml", "peer = \"far.example:7000\"\nlanes = 2\n");
    let Program::Check(options) = fixture.parse("check", &["--config", &file]) else {
        unreachable!("the flags begin with check");
    };
    assert_eq!(
        options.resolve().unwrap().dials[0].address.to_string(),
        "far.example:7000"
    );
}

#[test]
fn a_forward_of_a_far_end_names_one_of_several_peers() {
    let fixture = Fixture::new();
    let office = PrivateKey::generate().unwrap().public();
    let peers = fixture.write("peers", &format!("{office} office\n"));
    let forward = |flag: &str| fixture.far(&["--peer-key", &peers, "--forward", flag]);
    let config = forward("127.0.0.1:80=a:80@office").unwrap();
    assert_eq!(config.ways_in[0].peer, Some(office));
    let by_key = forward(&format!("127.0.0.1:80=a:80@{}", fixture.peer)).unwrap();
    assert_eq!(by_key.ways_in[0].peer, Some(fixture.peer));
    let by_key = forward(&format!("80:a:80@{}", fixture.peer)).unwrap();
    assert_eq!(by_key.ways_in[0].peer, Some(fixture.peer));
    let unnamed = forward("127.0.0.1:80=a:80").unwrap_err();
    assert!(unnamed.to_string().contains("8080:intranet:80@PEER"));
    let unknown = forward("127.0.0.1:80=a:80@depot").unwrap_err();
    assert!(unknown.to_string().contains("unknown peer"));
    let alone = fixture.far(&["--forward", "127.0.0.1:80=a:80"]).unwrap();
    assert_eq!(alone.ways_in[0].peer, Some(fixture.peer));
}

#[test]
fn an_admin_page_that_others_can_reach_needs_a_token() {
    let fixture = Fixture::new();
    for loopback in ["127.0.0.1:9000", "[::1]:9000", "[::ffff:127.0.0.1]:9000"] {
        assert!(fixture.far(&["--admin", loopback]).is_ok(), "{loopback}");
    }
    for open in ["0.0.0.0:9000", "[::]:9000", "192.0.2.1:9000"] {
        assert!(
            fixture
                .far_fault(&["--admin", open])
                .contains("other machines"),
            "{open}"
        );
    }
    let token = "0123456789abcdef";
    let file = fixture.write("token", &format!("{token}\n"));
    for flags in [["--admin-token", token], ["--admin-token-file", &file]] {
        let config = fixture.far(&[&["--admin", "[::]:9000"], &flags[..]].concat());
        let kept = config.unwrap().admin.unwrap().token.unwrap();
        assert!(kept.matches(token));
        assert!(!kept.matches("0123456789abcdeF") && !kept.matches(""));
        assert!(!format!("{kept:?}").contains(token));
        assert!(fixture.far_fault(&flags).ends_with("needs --admin"));
    }
    let both = ["--admin-token", token, "--admin-token-file", &file];
    let error = fixture.far_fault(&both);
    assert!(error.contains("contradicts --admin-token"), "{error}");
}

#[test]
fn an_error_never_shows_a_token() {
    let fixture = Fixture::new();
    let error = fixture.far_fault(&["--admin", "[::]:9000", "--admin-token", "hunter2"]);
    assert!(error.starts_with("--admin-token: a token must have 16"));
    assert!(!error.contains("hunter2"));
}

#[test]
fn a_default_cache_shrinks_to_the_memory_and_a_given_one_is_refused() {
    let fixture = Fixture::new();
    let config = fixture.far(&["--memory", "100MiB"]).unwrap();
    assert_eq!(config.cache, ByteSize(50 << 20));
    let error = fixture.far_fault(&["--memory", "100MiB", "--cache-size", "64MiB"]);
    assert!(error.starts_with("--cache-size \"64MiB\": two caches of 64MiB"));
    assert!(
        fixture
            .far_fault(&["--memory", "1MiB"])
            .starts_with("--memory")
    );
}

#[test]
fn lanes_are_at_most_lanes_max_except_at_a_far_end_which_opens_none() {
    let fixture = Fixture::new();
    let near = |flags: &[&str]| {
        let flags = [&["--socks5", "1080"], flags].concat();
        fixture.near(&flags).unwrap_err().to_string()
    };
    let by_default = near(&["--lanes-max", "3"]);
    for part in ["--lanes-max \"3\": ", "less than --lanes,", "4 by default"] {
        assert!(by_default.contains(part), "{by_default}");
    }
    let given = near(&["--lanes", "4", "--lanes-max", "3"]);
    for part in ["--lanes \"4\": ", "more than --lanes-max,", " 3"] {
        assert!(given.contains(part), "{given}");
    }
    assert!(!given.contains("by default"), "{given}");
    let flags = ["--lanes-max", "3", "--lanes", "5"];
    for flags in [&flags[..2], &flags] {
        assert_eq!(fixture.far(flags).unwrap().lanes_max, 3);
    }
}

#[test]
fn a_size_without_a_unit_is_said_to_be_bytes() {
    let fixture = Fixture::new();
    for (option, unit) in [("--cache-size", "MiB"), ("--memory", "GiB")] {
        for (number, found) in [("1", "1 byte"), ("5", "5 bytes")] {
            let error = fixture.far_fault(&[option, number]);
            for part in [
                format!("found {found} ("),
                format!("such as {number}{unit})"),
            ] {
                assert!(error.contains(&part), "{error}");
            }
        }
        let error = fixture.far_fault(&[option, "5kB"]);
        assert!(error.ends_with("found 5kB"), "{error}");
    }
    let store = ["--socks5", "0", "--store", "a", "--store-size", "5"];
    let error = fixture.near(&store).unwrap_err().to_string();
    assert!(error.contains("such as 5GiB"), "{error}");
}

#[test]
fn reasons_of_libraries_are_in_plain_words() {
    let fixture = Fixture::new();
    for (option, expected) in [
        ("--sampling-period", "a whole number"),
        ("--window-bytes", "a whole number"),
        ("--log", "error, warn, info, debug or trace"),
    ] {
        let error = fixture.far_fault(&[option, "x"]);
        assert!(error.starts_with(&format!("{option} \"x\": ")), "{error}");
        assert!(error.ends_with(expected), "{error}");
        assert!(!error.contains("invalid"), "{error}");
    }
}

#[test]
fn a_rate_that_pings_may_need_is_a_warning() {
    let fixture = Fixture::new();
    let warned = |rate: &str| fixture.far(&["--rate", rate]).unwrap().warnings();
    assert_eq!(warned("10kbit"), [""; 0]);
    let warnings = warned("1bit");
    let part = "--rate 1bit/s is less than 10kbit/s";
    assert!(warnings[0].starts_with(part), "{warnings:?}");
}

#[test]
fn more_memory_than_the_machine_has_is_a_warning() {
    let fixture = Fixture::new();
    let warned = |memory: &str| fixture.far(&["--memory", memory]).unwrap().warnings();
    assert_eq!(warned("40MiB"), [""; 0]);
    let warnings = warned("9000TB");
    let part = "--memory 9000TB is more than";
    assert!(warnings[0].starts_with(part), "{warnings:?}");
}

#[test]
fn each_bad_value_names_its_flag() {
    let fixture = Fixture::new();
    let table = fixture.write("table", "1 2 300");
    let cases = [
        ["--lanes", "0"],
        ["--lanes", "17"],
        ["--flows-max", "0"],
        ["--flows-max", "10001"],
        ["--cache-size", "512KiB"],
        ["--cache-size", "5GiB"],
        ["--rate", "0bit"],
        ["--rate", "20"],
        ["--effort", "some"],
        ["--sampling-period", "33"],
        ["--window-bytes", "11"],
        ["--marker", "rabin"],
        ["--marker-table", &table],
        ["--matching", "min"],
        ["--chunk-hash", "md5"],
        ["--idle-timeout", "0s"],
        ["--dead-after", "4x"],
        ["--allow", "10.0.0.1/8:80"],
        ["--allow", "300.1.1.1:80"],
        ["--exclude", "a"],
        ["--exclude", "10.20.0.0-10.20.0.9:*"],
        ["--forward", "127.0.0.1:80"],
        ["--forward", "example.org:80=a:80"],
        ["--forward", "80=a"],
        ["--admin", "example.org:9000"],
        ["--listen", "example.org"],
        ["--clients", "example.org"],
        ["--clients", "10.0.0.1/8"],
        ["--log", "loud"],
        ["--peer-key", "no-such-file"],
    ];
    for [flag, value] in cases {
        let error = fixture.far_fault(&[flag, value]);
        assert!(error.starts_with(flag), "{flag} {value}: {error}");
    }
    let other = fixture.far_fault(&[
        "--marker",
        "modp",
        "--marker-table",
        &fixture.write("t", "1"),
    ]);
    assert!(other.contains("needs --marker samplebyte"));
}

#[test]
fn what_a_store_cannot_be_is_said() {
    let fixture = Fixture::new();
    let near = |flags: &[&str]| {
        let flags = [&["--socks5", "127.0.0.1:1080"], flags].concat();
        fixture.near(&flags)
    };
    let history = |flags: &[&str]| near(flags).unwrap().history;
    assert_eq!(history(&[]), None);
    let default = history(&["--store", "a"]).unwrap();
    assert_eq!(default.realms[&fixture.peer], fixture.peer.to_string());
    assert_eq!(default.mask.count(), 13);
    let small = history(&["--store", "a", "--chunk-size", "1KiB", "--realm", "b"]).unwrap();
    assert_eq!(
        (small.mask.count(), &small.realms[&fixture.peer][..]),
        (10, "b")
    );
    for (flags, part) in [
        (&["--realm", "b"][..], "needs --store"),
        (&["--store", ""], "--store is empty"),
        (
            &["--store", "a", "--store-also", ""],
            "--store-also is empty",
        ),
        (&["--store", "a", "--realm", ""], "--realm is empty"),
        (&["--store", "a", "--realm", "a\tb"], "control characters"),
        (&["--store", "a", "--store-size", "1MB"], "16MiB or more"),
        (&["--store", "a", "--chunk-size", "3KiB"], "power of two"),
        (&["--store", "a", "--chunk-size", "64KiB"], "power of two"),
        (&["--store", "a", "--chunk-min", "40B"], "at least 48B"),
        (
            &["--store", "a", "--chunk-min", "64KiB"],
            "--chunk-min \"64KiB\"",
        ),
        (
            &["--store", "a", "--chunk-max", "1KiB"],
            "--chunk-max \"1KiB\"",
        ),
        (&["--store", "a", "--chunk-max", "128KiB"], "64KiB"),
        (&["--store", "a", "--predict", "later"], "`aligned`"),
    ] {
        let error = near(flags).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_missing_key_file_is_named() {
    let fixture = Fixture::new();
    fs::remove_file(fixture.dir.path().join("own.key")).unwrap();
    let error = fixture.far_fault(&[]);
    assert_eq!(error.matches("own.key").count(), 2, "{error}");
    assert!(
        error.starts_with("--key: cannot open ") && error.contains("own.key\": no such file"),
        "{error}"
    );
}

#[test]
fn each_peer_of_a_near_end_has_one_key_by_its_name() {
    let fixture = Fixture::new();
    let second = PrivateKey::generate().unwrap().public();
    let named = format!("second={second}");
    let near = |peers: &[&str]| {
        let mut flags = vec!["--socks5", "127.0.0.1:1080", "--peer-key", &named];
        flags.extend(peers.iter().flat_map(|peer| ["--peer", peer]));
        match fixture.parse("near", &flags) {
            Program::Near(options) => options.resolve(),
            _ => unreachable!("the flags begin with near"),
        }
    };
    let by_key = format!("{}=10.0.0.1:7001", fixture.peer);
    let config = near(&["second=far.example", &by_key]).unwrap();
    let dials = config.dials.iter();
    let dials: Vec<_> = dials
        .map(|dial| (dial.key, dial.address.to_string()))
        .collect();
    let expected = [
        (second, "far.example:7000"),
        (fixture.peer, "10.0.0.1:7001"),
    ];
    assert_eq!(
        dials,
        expected.map(|(key, address)| (key, address.to_owned()))
    );
    assert_eq!(config.peers.label(&second), "second");
    assert_eq!(config.peers.label(&fixture.peer), "10.0.0.1:7001");
    for (peers, parts) in [
        (&["a"][..], &["expected 1, found 2"][..]),
        (&["second=a", "b"], &["several peers", "name of its key"]),
        (&["second=a", "third=b"], &["has the name \"third\""]),
        (
            &["second=a", "second=b"],
            &["--peer \"second=b\": ", "same key as --peer a:7000"],
        ),
        (&["second=a", &by_key, "second=b"], &["expected 3, found 2"]),
        (&["second=a:b:c", &by_key], &["--peer \"second=a:b:c\""]),
        (
            &["second=300.1.1.1:7000", &by_key],
            &["--peer \"second=300.1.1.1:7000\": ", "IPv4"],
        ),
    ] {
        let error = near(peers).unwrap_err().to_string();
        assert!(
            parts.iter().all(|part| error.contains(part)),
            "{peers:?}: {error}"
        );
    }
}

#[test]
fn a_route_names_targets_and_a_peer() {
    let fixture = Fixture::new();
    let key = fixture.peer;
    let near = |text: &str| fixture.near(&["--socks5", "1080", "--route", text]);
    for (rule, target, is_covered) in [
        ("*.corp.example:*", "db.corp.example:5432", true),
        ("*.corp.example:*", "corp.example:5432", false),
        ("db:5432", "db:5432", true),
        ("db:5432", "db:80", false),
        ("10.0.0.0/8:80-90", "10.1.2.3:85", true),
        // Its address is not known here.
        ("10.0.0.0/8:*", "db:85", false),
        ("*:*", "[fd00::1]:1", true),
    ] {
        let routes = near(&format!("{rule}@{key}")).unwrap().routes;
        let covers = routes[0].covers(&target.parse().unwrap());
        assert_eq!(
            (routes[0].peer, covers),
            (key, is_covered),
            "{rule} {target}"
        );
    }
    for (text, part) in [
        ("a:1", "expected targets and a peer"),
        ("a:1@", "expected targets and a peer"),
        ("a:1@nobody", "unknown peer"),
        ("a@b", "--route \"a@b\""),
        (&format!("10.20.0:*@{key}"), "not an address or a range"),
    ] {
        let error = near(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

/// `htpasswd -nbB -C 4 alice secret`
const USER: &str = "alice:$2y$04$KdFfD4bmO//6y5KEHy0RbOWKDg3Yam7gFZkmO37TZsEiSu0VmDl0O";
