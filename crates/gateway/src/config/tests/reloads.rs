//! Which changes SIGHUP takes, and which need a restart.

use super::*;
use crate::opening;

/// The keys that SIGHUP names when `spec` changes to `value`.
fn named_on_change(fixture: &Fixture, role: Role, spec: &OptionSpec, value: &str) -> Vec<String> {
    let authority = fixture.dir.path().join("ca");
    let (key, peer) = (fixture.dir.path().join("own.key"), fixture.peer.to_string());
    let mut flags = BTreeMap::from([
        (KEY.flag(), key.display().to_string()),
        (PEER_KEY.flag(), peer),
        (ADMIN.flag(), "127.0.0.1:9000".to_owned()),
        (CACHE_SIZE.flag(), "1MiB".to_owned()),
    ]);
    let program = if role == Role::Far { "far" } else { "near" };
    match program {
        "far" => flags.extend([(LISTEN.flag(), "[::]:7000".to_owned())]),
        _ => flags.extend([
            (PEER.flag(), "far.example:7000".to_owned()),
            (SOCKS5.flag(), "127.0.0.1:1080".to_owned()),
            (STORE.flag(), "store".to_owned()),
            (TRANSPARENT.flag(), "127.0.0.1:15001".to_owned()),
            // Each needs the other one.
            (CA.flag(), authority.display().to_string()),
            (CERT.flag(), "cert.pem".to_owned()),
            (CERT_KEY.flag(), "key.pem".to_owned()),
        ]),
    }
    let parse = |flags: &BTreeMap<String, String>| {
        let words = flags.iter().map(|(flag, value)| format!("{flag}={value}"));
        let program = ["refrain", program].map(str::to_owned);
        Program::try_parse_from(program.into_iter().chain(words)).unwrap()
    };
    let old = parse(&flags);
    flags.insert(spec.flag(), value.to_owned());
    let readings = |program: Program| match program {
        Program::Far(options) => options.resolve().unwrap().readings,
        Program::Near(options) => options.resolve().unwrap().readings,
        Program::Check(_) => unreachable!("a check reloads nothing"),
    };
    let (old, new) = (readings(old), readings(parse(&flags)));
    assert!(old.needs_restart(&old, role).is_empty());
    let named = old.needs_restart(&new, role);
    named.iter().map(|spec| spec.key.to_owned()).collect()
}

#[test]
fn each_change_is_reloaded_as_documented_or_named() {
    let fixture = Fixture::new();
    let other = PrivateKey::generate().unwrap();
    let other_file = fixture.dir.path().join("other.key");
    other.write_new(&other_file).unwrap();
    let token_file = fixture.write("token", "0123456789abcdef");
    let table_file = fixture.write("table", "1 2 3");
    let permitted = ["a.example".to_owned()];
    opening::authority::init(&fixture.dir.path().join("ca"), &permitted, None).unwrap();
    let authority = fixture.write("ca.pem", include_str!("ca.pem"));
    let revoked = fixture.write("list.pem", include_str!("list.pem"));
    let changed = |spec: &OptionSpec| match spec.key {
        "key" => other_file.display().to_string(),
        "peer_key" => other.public().to_string(),
        "admin_token_file" => token_file.clone(),
        "marker_table" => table_file.clone(),
        "proxy_auth" => USER.to_owned(),
        "clients" | "client_addresses" => "10.0.0.0/8".to_owned(),
        "open" => "a.example".to_owned(),
        "origin_ca" => authority.clone(),
        "origin_crl" => revoked.clone(),
        "service" => "5000=https://registry.example".to_owned(),
        "forward" => "127.0.0.1:8080=intranet:80".to_owned(),
        "admin_token" => "fedcba9876543210".to_owned(),
        "store_size" => "1GB".to_owned(),
        "chunk_size" => "4KiB".to_owned(),
        "chunk_min" => "1KiB".to_owned(),
        "chunk_max" => "16KiB".to_owned(),
        "simd" => "portable".to_owned(),
        "congestion" => "reno".to_owned(),
        "intercept" => "port=80,443".to_owned(),
        "route" => format!("intranet:80@{}", fixture.peer),
        "via_proxy" => "http://proxy.example:3128".to_owned(),
        // Any other than the default, by what a value looks like.
        _ => match spec.value {
            "" => "true",
            "[HOST:]PORT" | "PORT|HOST[:PORT]" => "127.0.0.1:7001",
            "HOST:PORT" | "[NAME=]HOST[:PORT]" => "other.example:7000",
            "RATE" => "5Mbit",
            "SIZE" => "64MiB",
            "COUNT" => "5",
            "BYTES" => "64",
            "TIME" => "90s",
            "DIR" | "NAME" => "elsewhere",
            choices => choices.rsplit('|').next().unwrap(),
        }
        .to_owned(),
    };
    for role in [Role::Near, Role::Far] {
        for spec in role.options() {
            let documented = spec.help.contains("SIGHUP");
            assert_eq!(documented, !spec.reloads.is_empty(), "{}", spec.key);
            let expected: &[&str] = match spec.key {
                // A near end has the one peer that it was started for.
                "peer_key" if role == Role::Near => &["peer_key"],
                _ if documented => &[],
                key => &[key],
            };
            let named = named_on_change(&fixture, role, spec, &changed(spec));
            assert_eq!(named, expected, "{role:?}: {}", spec.key);
        }
    }
}
