//! How rules are written, and which one counts.

use proptest::prelude::*;

use super::{text::RULE_BYTES_MAX, *};

fn rules_of(texts: &[&str]) -> Vec<InterceptRule> {
    let rules = texts.iter().map(|text| rule(text).expect("a rule"));
    rules.collect()
}

fn rule(text: &str) -> Result<InterceptRule, InterceptRuleError> {
    text.parse()
}

#[test]
fn each_key_is_read_and_written() {
    for text in [
        "port=80,443,8000-8099 action=optimize",
        "dst=10.20.0.0/16,10.30.0.5,fd00::/8 src=10.0.0.0/8 action=direct",
        "in=lan0,wlan0 action=optimize on_failure=reset",
        "dst=fd00::1 in=* action=reject",
        "uid=www-data,1000 gid=adm cgroup=system.slice/app.service action=optimize",
        "port=443 name=*.example.org,shop.example action=pass on_failure=reset",
        "in=* name=* action=reject",
        "port=80 action=pass client_address=proxy_v2",
        "port=80,443 action=optimize client_address=keep quic=reject on_failure=reset",
        "port=80 action=pass client_address=proxy_v2 on_refusal=direct",
        "in=lan0 action=pass client_address=keep refusal=exact on_failure=reset",
        "port=443 action=optimize quic=reject refusal=exact on_refusal=direct",
        "port=873 sport=1-1023,5000 action=pass",
    ] {
        assert_eq!(rule(text).map(|rule| rule.to_string()).as_deref(), Ok(text));
    }
    let short = rule("  dst=10.20.0.0/16\tport=443-443 cgroup=/a/b/ ").expect("a rule");
    let written = "port=443 dst=10.20.0.0/16 cgroup=a/b action=optimize";
    assert_eq!(short.to_string(), written);
    let overlapping = rule("dst=10.0.0.0/8,10.20.0.0/16 port=100,80-90,85-99").expect("a rule");
    let written = "port=80-100 dst=10.0.0.0/8 action=optimize";
    assert_eq!(overlapping.to_string(), written);
}

#[test]
fn networks_of_ipv4_may_be_written_as_of_ipv6() {
    for (mapped, plain) in [
        ("dst=::ffff:10.1.2.3", "dst=10.1.2.3"),
        ("dst=::ffff:10.1.0.0/112", "dst=10.1.0.0/16"),
    ] {
        assert_eq!(rule(mapped), rule(plain));
    }
    assert!(rule("dst=::ffff:0:0/90").is_err());
}

#[test]
fn each_fault_has_its_error() {
    use InterceptRuleError as Error;
    let text = |text: &str| text.to_owned();
    for (rule, error) in [
        ("", Error::Empty),
        (" ", Error::Empty),
        ("port", Error::NoValue(text("port"))),
        ("port=", Error::NoValue(text("port="))),
        ("ports=80", Error::UnknownKey(text("ports"))),
        ("port=80 port=81", Error::Twice("port")),
        ("in=lan0 uid=0", Error::Contradiction("uid")),
        ("src=10.0.0.0/8 dst=fd00::/8", Error::Families),
        ("action=direct on_failure=reset", Error::NoFailure),
        (
            "name=a.example action=direct client_address=proxy_v2",
            Error::NoClientAddress,
        ),
        ("action=direct client_address=keep", Error::NoClientAddress),
        ("action=direct on_refusal=direct", Error::NoRefusal),
        ("client_address=keep on_refusal=direct", Error::NoRefusal),
        ("on_failure=reset on_refusal=direct", Error::NoRefusal),
        ("name=a.example refusal=exact", Error::NoExactness),
        ("action=direct refusal=exact", Error::NoExactness),
        ("action=reject refusal=exact", Error::NoExactness),
        ("port=80 quic=reject", Error::NoQuic),
        ("port=443 sport=5000 quic=reject", Error::NoQuic),
        ("quic=reject action=direct", Error::NoQuic),
        ("quic=reject name=a.example", Error::NoQuic),
        (
            "dst=127.0.0.0/8",
            Error::Loopback {
                key: "dst",
                value: "127.0.0.0".to_owned(),
            },
        ),
        (
            "src=10.20.1.2/16",
            Error::HostBits {
                key: "src",
                value: "10.20.1.2/16".parse().expect("a network"),
            },
        ),
    ] {
        assert_eq!(self::rule(rule), Err(error), "{rule:?}");
    }
    let long = format!("uid={}", "a".repeat(RULE_BYTES_MAX));
    assert_eq!(rule(&long), Err(Error::TooLong));
    for (wrong, key) in [
        ("port=0", "port"),
        ("port=90-80", "port"),
        ("port=65536", "port"),
        ("port=+80", "port"),
        ("port=80,,81", "port"),
        ("dst=10.0.0.0/33", "dst"),
        ("dst=example.org", "dst"),
        ("in=a\"b", "in"),
        ("in=interface-too-long", "in"),
        ("uid=a;b", "uid"),
        ("uid=4294967296", "uid"),
        ("cgroup=a/../b", "cgroup"),
        ("cgroup=a\"b", "cgroup"),
        ("action=drop", "action"),
        ("name=10.20.0.5", "name"),
        ("name=a.*.example", "name"),
        ("name=a,,b", "name"),
        ("client_address=proxy_v1", "client_address"),
        ("on_failure=hang", "on_failure"),
        ("quic=direct", "quic"),
        ("on_refusal=reset", "on_refusal"),
        ("refusal=reset", "refusal"),
    ] {
        let found = rule(wrong);
        let is_of_key = matches!(&found, Err(Error::Value { key: of, .. }) if *of == key);
        assert!(is_of_key, "{wrong}: {found:?}");
    }
}

#[test]
fn a_rule_whose_connections_an_earlier_one_has_is_hidden() {
    for (earlier, later, is_hidden) in [
        ("port=443", "port=443 name=a.example action=direct", true),
        ("port=443 name=a.example action=direct", "port=443", false),
        (
            "port=80-90 dst=10.0.0.0/8",
            "port=80,85 dst=10.1.0.0/16 uid=5",
            true,
        ),
        ("port=80", "port=80,443", false),
        ("dst=10.0.0.0/8", "port=80", false),
        ("uid=5", "port=80", false),
        ("sport=1-99", "port=80 sport=5,80-90", true),
        ("sport=1-99", "port=80", false),
        ("uid=5 port=80", "uid=5 gid=6 port=80", true),
        ("in=* port=80", "port=80", false),
        ("in=* port=80", "in=lan0 port=80", true),
        ("in=lan0 port=80", "in=lan0,lan1 port=80", false),
    ] {
        let rules = rules_of(&["port=1", earlier, later]);
        let hidden: Vec<_> = InterceptRule::hidden(&rules).collect();
        let expected = [(&rules[2], &rules[1])];
        assert_eq!(
            hidden,
            expected[..usize::from(is_hidden)],
            "{earlier}, {later}"
        );
    }
}

#[test]
fn a_rule_has_the_clients_of_a_network_that_its_sources_have() {
    for (text, network, clients) in [
        ("in=lan0 port=80", "10.1.0.0/16", &["10.1.0.0/16"][..]),
        ("in=lan0 action=direct", "10.1.0.0/16", &[]),
        ("in=lan0 action=reject", "10.1.0.0/16", &[]),
        (
            "in=lan0 name=a.example action=direct",
            "fd00::/64",
            &["fd00::/64"],
        ),
        ("in=lan0 src=10.0.0.0/8", "10.1.0.0/16", &["10.1.0.0/16"]),
        (
            "in=lan0 src=10.1.2.0/24,10.2.0.0/16,fd00::/8",
            "10.1.0.0/16",
            &["10.1.2.0/24"],
        ),
    ] {
        let found = rule(text)
            .expect("a rule")
            .clients_of(network.parse().expect("a network"));
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, clients, "{text}");
    }
}

#[test]
fn the_near_end_decides_by_name_as_the_rules_say_in_their_order() {
    let rules = [
        "port=80 dst=10.9.0.0/16 action=reject",
        "port=443,80 name=*.bank.example action=direct",
        "port=443 name=*.bank.example,media.example action=pass client_address=proxy_v2",
        "dst=10.20.0.0/16 name=evil.example action=reject",
        "sport=39999 action=pass",
        "port=80,443",
        "action=direct",
        "in=lan0 name=* action=reject",
        "in=lan0 action=direct",
    ];
    let rules = rules.map(|text| rule(text).expect("a rule"));
    assert_eq!(InterceptRule::check_all(&rules), Ok(()));
    let decide = |server: &str, names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let client = "[::ffff:10.1.0.2]:40000".parse().expect("an address");
        let server = server.parse().expect("an address");
        let (action, carriage) = InterceptRule::decide(&rules, false, client, server, &names);
        (action, carriage.client_address != ClientAddress::Hidden)
    };
    let plain = (Action::Optimize, false);
    for (server, names, expected) in [
        (
            "10.20.0.5:443",
            &["www.bank.example"][..],
            (Action::Direct, false),
        ),
        (
            "10.20.0.5:443",
            &["media.example"][..],
            (Action::Pass, true),
        ),
        ("10.20.0.5:80", &["media.example"][..], plain),
        (
            "10.20.0.5:80",
            &["evil.example"][..],
            (Action::Reject, false),
        ),
        ("10.21.0.5:80", &["evil.example"][..], plain),
        ("10.20.0.5:80", &["bank.example"][..], plain),
        ("10.20.0.5:443", &[], plain),
        // Of several names, one that a rule is about is enough, and the first such rule counts.
        (
            "10.20.0.5:443",
            &["other.example", "media.example"],
            (Action::Pass, true),
        ),
        (
            "10.20.0.5:443",
            &["evil.example", "media.example", "www.bank.example"],
            (Action::Direct, false),
        ),
        // The kernel has decided about those of the first rule.
        ("10.9.0.5:80", &[], plain),
        ("10.20.0.5:22", &[], (Action::Direct, false)),
    ] {
        assert_eq!(decide(server, names), expected, "{server} {names:?}");
    }
}

#[test]
fn rules_decide_about_each_connection_that_the_near_end_gets() {
    let check = |texts: &[&str]| InterceptRule::check_all(&rules_of(texts));
    for decided in [
        &["uid=0 action=direct", "name=a.example", "action=direct"][..],
        &[
            "uid=5 port=80 name=a.example",
            "in=lan0",
            "uid=5 port=79-81",
        ],
        &[
            "name=a dst=10.0.0.0/9",
            "name=b dst=fd00::/9",
            "dst=10.0.0.0/8,fd00::/8",
        ],
    ] {
        assert_eq!(check(decided), Ok(()), "{decided:?}");
    }
    for (rules, rest) in [
        (&["port=443 name=a"][..], "port=443 name=a action=optimize"),
        (
            &["port=80", "port=443 name=a", "port=80"],
            "port=443 name=a action=optimize",
        ),
        (
            &["name=a src=10.0.0.0/8", "src=10.0.0.0/9"],
            "src=10.0.0.0/8 name=a action=optimize",
        ),
        (&["name=a", "dst=10.0.0.0/8"], "name=a action=optimize"),
        (
            &["port=80 name=a", "in=lan0 port=80"],
            "port=80 name=a action=optimize",
        ),
    ] {
        assert_eq!(
            check(rules),
            Err(UndecidableRules::NoRest(rest.to_owned())),
            "{rules:?}"
        );
    }
    assert_eq!(
        check(&[
            "port=22 refusal=exact",
            "in=* refusal=exact",
            "name=a",
            "action=direct"
        ]),
        Ok(())
    );
    assert_eq!(
        check(&["name=a", "action=pass refusal=exact"]),
        Err(UndecidableRules::Exact(
            "action=pass refusal=exact".to_owned()
        ))
    );
    for (rules, other) in [
        (
            ["name=a.example", "uid=0 action=direct"],
            "uid=0 action=direct",
        ),
        (
            ["in=lan0 name=a.example", "in=lan1"],
            "in=lan1 action=optimize",
        ),
    ] {
        assert_eq!(
            check(&rules),
            Err(UndecidableRules::OtherKeys(other.to_owned()))
        );
    }
    assert_eq!(
        check(&["name=a.example", "on_failure=reset"]),
        Err(UndecidableRules::OtherFailure(
            "action=optimize on_failure=reset".to_owned()
        ))
    );
}

#[test]
fn each_handling_has_a_port_of_its_own() {
    let carried = [
        "",
        "action=pass",
        "client_address=proxy_v2",
        "action=pass client_address=proxy_v2",
        "client_address=keep",
        "action=pass client_address=keep",
        "on_refusal=direct",
        "action=pass on_refusal=direct",
        "client_address=proxy_v2 on_refusal=direct",
        "action=pass client_address=proxy_v2 on_refusal=direct",
    ];
    let carried = carried.into_iter().map(|words| format!("port=80 {words}"));
    let by_name = ["name=example.org", "name=example.org in=lan0"].map(str::to_owned);
    let all: Vec<_> = carried.chain(by_name).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let offsets = |rules: &[InterceptRule]| {
        let all = InterceptRule::handlings(rules).into_iter();
        all.map(Handling::port_offset).collect::<Vec<_>>()
    };
    // Two would be kept and relayed.
    let expected: Vec<u16> = (0..10).chain(12..14).collect();
    assert_eq!(offsets(&rules_of(&all)), expected);
    for (offset, rule) in expected.into_iter().zip(all).skip(1) {
        assert_eq!(offsets(&rules_of(&[rule])), [0, offset], "{rule}");
    }
    assert_eq!(offsets(&rules_of(&["action=direct", "action=reject"])), [0]);
}

proptest! {
    #[test]
    fn any_text_is_read_or_not(text in "\\PC{0,60}") {
        let _ = rule(&text);
    }

    #[test]
    fn a_rule_is_written_as_it_is_read(
        text in "(port=[0-9]{1,5}(-[0-9]{1,5})? ?)?(dst=[0-9.:/a-f]{1,20} ?)?(uid=[a-z0-9,]{1,9})?"
    ) {
        if let Ok(read) = rule(&text) {
            prop_assert_eq!(rule(&read.to_string()), Ok(read));
        }
    }
}
