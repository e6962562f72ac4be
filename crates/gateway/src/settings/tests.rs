use super::*;
use crate::options::{CACHE_SIZE, KEY, LANES, MEMORY, PEER_KEY};
use crate::units::ByteSize;
use proptest::prelude::*;

fn parse(text: &str) -> Result<Settings, ConfigError> {
    Settings::parse(text, Path::new("near.toml"), Role::Near)
}

fn fault(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

/// What is wrong with the text, with each of these parts in it.
#[track_caller]
fn fault_with(text: &str, parts: &[&str]) -> String {
    let error = fault(text);
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    error
}

#[test]
fn values_are_strings_or_numbers_and_lists_where_an_option_repeats() {
    let text = "lanes = 1_2\nallow = ['a:80', 'b:81']\npeer_key = 'K'\ncache_size = '1MiB'\n";
    let settings = parse(text).unwrap();
    assert_eq!(settings.one::<u8>(&LANES).unwrap(), 12);
    assert_eq!(settings.many::<String>(&ALLOW).unwrap(), ["a:80", "b:81"]);
    assert_eq!(settings.many::<String>(&PEER_KEY).unwrap(), ["K"]);
    assert_eq!(
        settings.one::<ByteSize>(&CACHE_SIZE).unwrap(),
        ByteSize(1 << 20)
    );
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    let mut flags = Settings::default();
    flags.add(&LANES, "7".into(), Origin::Flag);
    flags.add(&ALLOW, "c:80".into(), Origin::Flag);
    let file = parse("lanes = 5\ncache_size = '2MiB'\nallow = ['a:80', 'b:80']").unwrap();
    let settings = flags.over(file);
    assert_eq!(settings.one::<u8>(&LANES).unwrap(), 7);
    assert_eq!(settings.many::<String>(&ALLOW).unwrap(), ["c:80"]);
    assert_eq!(
        settings.one::<ByteSize>(&CACHE_SIZE).unwrap(),
        ByteSize(2 << 20)
    );
    assert_eq!(settings.optional::<ByteSize>(&MEMORY).unwrap(), None);
    let missing = settings.one::<String>(&KEY).unwrap_err();
    assert!(missing.to_string().starts_with("missing --key "));
}

#[test]
fn all_that_is_missing_is_named_at_once() {
    let missing = |text: &str, role| {
        let settings = Settings::parse(text, Path::new("a.toml"), role).unwrap();
        let checked = settings.check_complete(role);
        checked.err().map(|error| error.to_string())
    };
    let far = missing("key = 'K'", Role::Far).unwrap();
    for part in ["--peer-key", "peer_key"] {
        assert!(far.contains(part), "{part} is not in: {far}");
    }
    assert!(!far.contains("--key") && !far.contains("one of"), "{far}");
    let near = missing("forward = []", Role::Near).unwrap();
    for part in [
        "--peer,",
        "--peer-key",
        "--key",
        "and one of --forward, --socks5, --http-proxy",
    ] {
        assert!(near.contains(part), "{part} is not in: {near}");
    }
    let given = "peer = 'a:1'\npeer_key = 'K'\nkey = 'K'\n";
    assert!(
        missing(given, Role::Near)
            .unwrap()
            .starts_with("missing one of ")
    );
    for enough in ["socks5 = '127.0.0.1:1'", "allow = []"] {
        assert_eq!(missing(&format!("{given}{enough}"), Role::Near), None);
    }
    assert_eq!(missing(given, Role::Check), None);
}

#[test]
fn a_key_of_an_earlier_version_is_taken_but_not_with_the_new_one() {
    let settings = parse("cache = '2MiB'").unwrap();
    assert_eq!(
        settings.one::<ByteSize>(&CACHE_SIZE).unwrap(),
        ByteSize(2 << 20)
    );
    let both = fault("cache = '2MiB'\ncache_size = '2MiB'");
    assert!(both.contains("\"cache_size\" is given twice"), "{both}");
}

#[test]
fn an_empty_list_counts_as_given() {
    let settings = parse("allow = []").unwrap();
    assert!(settings.is_given(&ALLOW));
    assert!(settings.many::<String>(&ALLOW).unwrap().is_empty());
}

#[test]
fn an_unknown_key_names_the_nearest() {
    let parts = [
        "near.toml:3: unknown",
        "\"idle_timeot\"",
        "\"idle_timeout\"?",
    ];
    fault_with("lanes = 4\n\nidle_timeot = '1h'\n", &parts);
    fault_with("peer_keys = []", &["\"peer_key\"?"]);
    let error = fault_with("xyz = 1", &["near.toml:1: unknown", "\"xyz\""]);
    assert!(!error.contains('?'), "{error}");
    assert!(fault("listen = 'a'").contains("\"listen\" is an option of the far end"));
}

#[test]
fn a_flag_that_no_file_sets_is_named() {
    for key in ["json_log", "dry_run", "require_peer"] {
        let error = fault(&format!("{key} = true"));
        let flag = format!(" is only a flag: --{}", key.replace('_', "-"));
        assert!(error.ends_with(&flag), "{error}");
    }
    let of_check = ["near.toml:1: \"wait\"", "a flag of refrain check", "--wait"];
    fault_with("wait = '10s'", &of_check);
}

#[test]
fn a_value_without_quotes_is_said_to_lack_them() {
    for (line, key, value) in [
        ("peer = far.example.org # Bonn", "peer", "far.example.org"),
        ("peer = near.example.org", "peer", "near.example.org"),
        ("peer=10.0.0.5", "peer", "10.0.0.5"),
        ("clients = 10.0.0.0/8", "clients", "10.0.0.0/8"),
        ("  key = /etc/near.key\r", "key", "/etc/near.key"),
        ("forward = 8080:intranet:80", "forward", "8080:intranet:80"),
    ] {
        let start = format!("near.toml:2: {key}: ");
        let quoted = format!("{key} = \"{value}\"");
        let text = format!("lanes = 4\n{line}\n");
        fault_with(&text, &[&start, "in quotes", &quoted]);
    }
    for text in [
        "allow = [a:80, 10.0.0.0/8:80]",
        "peer = [::1]:7000",
        "proxy_auth = alice:$2y$04$KdFf",
        "pear = far.example.org",
    ] {
        let error = fault_with(text, &["near.toml:1: ", "each value in quotes"]);
        // It may be secret.
        let (_, value) = text.split_once(" = ").unwrap();
        assert!(!error.contains(value), "{error}");
    }
    let of_array = "forward = [\n'80:a:80',\n8080=intranet:80,\n]";
    fault_with(of_array, &["near.toml:3: ", "each value in quotes"]);
    assert!(fault("open_to_all = True").ends_with("expected true or false"));
    for text in [
        "lanes = 4\nlanes = 5",
        "peer = 'a",
        "peer = a'",
        "allow = [",
        "peer",
    ] {
        let error = fault(text);
        assert!(!error.contains("in quotes"), "{error}");
    }
}

#[test]
fn a_value_without_its_closing_quote_is_said_to_lack_it() {
    for text in [
        "lanes = 4\nrate = \"20Mbit\n",
        "lanes = 4\nrate = \"20Mbit",
        "lanes = 4\nkey = 'near.key # the key\ncache_size = '1MiB'\n",
        "allow = [\n  \"a:80,\n]\n",
        "peer_key = [\n  \"bonn=Gb9ECWmEzf6F\n]\n",
    ] {
        fault_with(text, &["near.toml:2: ", "closing quote"]);
    }
}

#[test]
fn several_values_without_brackets_are_said_to_need_an_array() {
    for text in [
        "\nforward = \"8080:a:80\", \"8081:b:80\"",
        "\n forward = '8080:a:80' , '8081:b:80' # two\n",
        "\nforward = \"8080:a:80\" \"8081:b:80\"\n",
    ] {
        fault_with(
            text,
            &["near.toml:2: ", "array", "forward = [\"…\", \"…\"]"],
        );
    }
    for of_one in ["rate = '1Mbit', '2Mbit'", "rate = '1Mbit' '2Mbit'"] {
        fault_with(of_one, &["near.toml:1: rate: ", "one value (RATE)"]);
    }
}

#[test]
fn a_missing_value_is_said_to_be_missing() {
    for text in ["lanes =", "lanes = \r\nrate = '1Mbit'", "lanes = # four\n"] {
        fault_with(text, &["near.toml:1: lanes: ", "missing"]);
    }
    fault_with("lanes = 4\npear =\n", &["near.toml:2: pear: ", "missing"]);
}

#[test]
fn a_key_file_is_told_from_a_configuration() {
    let public = "cHfDo3G03mJ8gcUDW1JwWBZArIxyCLAjz9zBRdx7ZiQ=\n";
    let private = "-----BEGIN PRIVATE KEY-----\nMFECAQEw\n-----END PRIVATE KEY-----\n";
    for text in [public, private] {
        let error = fault(text);
        assert!(error.contains("is a key"), "{error}");
    }
}

#[test]
fn several_values_in_one_text_of_a_file_are_told_from_a_list() {
    let rules = |settings: Settings| {
        let error = settings.many::<crate::rules::Rule>(&ALLOW).unwrap_err();
        error.to_string()
    };
    let file = rules(parse("allow = 'a:80, b:80'").unwrap());
    for part in [
        "near.toml:1: allow \"a:80, b:80\": ",
        "array",
        "[\"…\", \"…\"]",
    ] {
        assert!(file.contains(part), "{part:?} is not in: {file}");
    }
    let mut flags = Settings::default();
    flags.add(&ALLOW, "a,b:80".into(), Origin::Flag);
    for other in [flags, parse("allow = 'a'").unwrap()] {
        let error = rules(other);
        assert!(!error.contains("array"), "{error}");
    }
}

#[test]
fn a_section_is_named_as_one() {
    let error = fault("# near\n[near]\npeer = 'a:1'\n");
    assert!(
        error.starts_with("near.toml:2: ") && error.contains("remove \"[near]\""),
        "{error}"
    );
    assert!(!error.contains("did you mean"), "{error}");
    let instead = "lanes = … instead of near.lanes = …";
    fault_with(
        "\n near.lanes = 4\n",
        &["near.toml:2: ", "no sections", instead],
    );
    let secret = fault("near.admin_token = 'hunter2'");
    assert!(!secret.contains("hunter2"), "{secret}");
}

#[test]
fn an_error_names_where_the_value_stands() {
    let message = |settings: &Settings| {
        settings
            .one::<ByteSize>(&CACHE_SIZE)
            .unwrap_err()
            .to_string()
    };
    let file = parse("lanes = 4\ncache_size = '12 parsecs'").unwrap();
    assert!(message(&file).starts_with("near.toml:2: cache_size \"12 parsecs\": unknown unit"));
    for (origin, start) in [
        (Origin::Flag, "--cache-size \"12 parsecs\": unknown"),
        (
            Origin::Environment,
            "REFRAIN_CACHE_SIZE \"12 parsecs\": unknown",
        ),
    ] {
        let mut settings = Settings::default();
        settings.add(&CACHE_SIZE, "12 parsecs".into(), origin);
        assert!(message(&settings).starts_with(start));
    }
}

#[test]
fn an_error_has_no_quotation_marks_around_others() {
    let message = |text: &str| {
        let settings = parse(&format!("cache_size = {text}")).unwrap();
        let read = settings.one_with::<(), _>(&CACHE_SIZE, |text| {
            Err(format!("cannot open \"{text}\": no such file"))
        });
        read.unwrap_err().to_string()
    };
    for (text, start) in [
        ("'a'", "cache_size: cannot open \"a\": no such file"),
        ("''", "cache_size is empty"),
        (
            "'\"a\"'",
            "cache_size '\"a\"': cannot open it: no such file",
        ),
    ] {
        let error = message(text);
        let start = format!("near.toml:1: {start}");
        assert!(error.starts_with(&start), "{error}");
        assert_eq!(
            error.contains("quotation marks"),
            text.contains('"'),
            "{error}"
        );
    }
}

#[test]
fn values_of_other_types_and_bad_syntax_name_their_line() {
    for (text, place, wanted, found) in [
        (
            "\ncache_size = true",
            "2: cache_size",
            "a size in quotes",
            "a boolean",
        ),
        (
            "cache_size = ['1MiB']",
            "1: cache_size",
            "one value (SIZE)",
            "an array",
        ),
        (
            "socks5 = [1080, 1081]",
            "1: socks5",
            "one value ([HOST:]PORT)",
            "an array",
        ),
        (
            "socks5 = true",
            "1: socks5",
            "a value in quotes ([HOST:]PORT)",
            "a boolean",
        ),
        ("socks5 = true", "1: socks5", "a port", "a boolean"),
        (
            "open_to_all = [true]",
            "1: open_to_all",
            "one value (true or false)",
            "an array",
        ),
        ("lanes = 4.5", "1: lanes", "a whole number", "a float"),
        ("lanes = 0x10", "1: lanes", "a whole number", "base 16"),
        (
            "open_to_all = 0.0",
            "1: open_to_all",
            "true or false",
            "a float",
        ),
        (
            "allow = [\n'a:80',\n['b']]",
            "3: allow",
            "a value in quotes (HOST:PORT)",
            "an array",
        ),
    ] {
        fault_with(text, &[&format!("near.toml:{place}: "), wanted, found]);
    }
    let twice = ["near.toml:3: duplicate", "\"lanes\"", "line 2"];
    fault_with("# two\nlanes = 4\nlanes = 5", &twice);
    assert!(fault("lanes = 4\n\ncache = \n").starts_with("near.toml:3: "));
}

proptest! {
    #[test]
    fn any_text_parses_or_fails(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn any_value_parses_or_fails(
        key in prop::sample::select(OPTIONS),
        value in "[0-9]{1,30}|'[^\n]{0,20}'|\\[.{0,20}\\]|\\{.{0,20}\\}",
    ) {
        if let Ok(settings) = parse(&format!("{} = {value}", key.key)) {
            let _ = settings.many::<crate::rules::Rule>(&ALLOW);
            let _ = settings.one::<ByteSize>(&CACHE_SIZE);
        }
    }

    #[test]
    fn a_flipped_or_truncated_file_is_survived(
        at in 0..EXAMPLE.len(), byte in any::<u8>(), end in 0..=EXAMPLE.len(),
    ) {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        bytes[at] = byte;
        bytes.truncate(end);
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }
}

const EXAMPLE: &str = "peer = \"far.example:7000\"\nallow = [\n  \"a:80\", # one\n]\nlanes = 4\n";
