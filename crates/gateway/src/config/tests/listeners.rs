//! Listeners: how they are written, and who may use them.

use super::*;
use crate::config::listeners::parse_forward;

#[test]
fn an_address_is_listened_on_once() {
    let fixture = Fixture::new();
    let forward = ["--forward", "127.0.0.1:9000=intranet:80"];
    let admin = ["--admin", "127.0.0.1:9000"];
    let error = fixture.far_fault(&[forward, admin].concat());
    for part in [
        "--admin \"127.0.0.1:9000\": ",
        "--forward already listens",
        " 127.0.0.1:9000",
    ] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let socks = ["--socks5", "127.0.0.1:9000"];
    let error = fixture.near(&[forward, socks].concat()).unwrap_err();
    assert!(
        error.to_string().starts_with("--forward \"127.0.0.1:9000="),
        "{error}"
    );
    for (one, other, distinct) in [
        ("*:9000", "127.0.0.1:9000", false),
        ("127.0.0.1:9000", "*:9000", false),
        ("0.0.0.0:9000", "*:9000", false),
        ("0.0.0.0:9000", "127.0.0.1:9000", false),
        ("*:9000", "[::1]:9000", false),
        ("0.0.0.0:9000", "[::1]:9000", true),
        ("127.0.0.1:9000", "[::1]:9000", true),
        ("127.0.0.1:9000", "127.0.0.2:9000", true),
        ("*:9000", "127.0.0.1:9001", true),
        ("*:0", "127.0.0.1:0", true),
    ] {
        let both = ["--socks5", one, "--http-proxy", other, "--open-to-all"];
        match fixture.near(&both) {
            Ok(_) => assert!(distinct, "{one} {other}"),
            Err(error) => {
                assert!(!distinct, "{one} {other}");
                let error = error.to_string();
                assert!(error.contains("--socks5 already listens at "), "{error}");
            }
        }
    }
    let any_port = ["--socks5", "127.0.0.1:0", "--http-proxy", "127.0.0.1:0"];
    assert!(fixture.near(&any_port).is_ok());
}

#[test]
fn a_far_end_listens_on_all_addresses_unless_told_otherwise() {
    let fixture = Fixture::new();
    let listen = |flags: &[&str]| {
        let config = fixture.far(flags)?;
        let addresses = config.listen.iter().map(SocketAddr::to_string);
        Ok::<_, ConfigError>(addresses.collect::<Vec<_>>().join(" "))
    };
    assert_eq!(listen(&[]).unwrap(), "[::]:7000");
    assert_eq!(listen(&["--listen", "7001"]).unwrap(), "[::]:7001");
    assert_eq!(listen(&["--listen", "10.0.0.5"]).unwrap(), "10.0.0.5:7000");
    let two = ["--listen", "10.0.0.5", "--listen", "[fd00::5]:7001"];
    assert_eq!(listen(&two).unwrap(), "10.0.0.5:7000 [fd00::5]:7001");
    let file = fixture.write("far.toml", "listen = ['10.0.0.5', 7001]\n");
    let both = listen(&["--config", &file]).unwrap();
    assert_eq!(both, "10.0.0.5:7000 [::]:7001");
    let empty = fixture.write("far.toml", "listen = []\n");
    let error = listen(&["--config", &empty]).unwrap_err().to_string();
    assert!(error.contains("no address"), "{error}");
    let error = listen(&["--listen", "7001,*:7001"])
        .unwrap_err()
        .to_string();
    let taken = "--listen already listens at [::]:7001";
    assert!(error.contains(taken), "{error}");
    let error = listen(&["--listen", "far"]).unwrap_err().to_string();
    assert!(error.contains("or * for all addresses"), "{error}");
}

#[test]
fn a_peer_is_dialled_at_port_7000_unless_it_has_another() {
    let fixture = Fixture::new();
    for (peer, expected) in [
        ("far.example", "far.example:7000"),
        ("far.example:7001", "far.example:7001"),
        ("10.0.0.5", "10.0.0.5:7000"),
        ("[fd00::5]", "[fd00::5]:7000"),
    ] {
        let flags = ["--peer", peer, "--socks5", "1080"];
        let Program::Near(options) = fixture.parse("near", &flags) else {
            unreachable!("the flags begin with near");
        };
        assert_eq!(
            options.resolve().unwrap().dials[0].address.to_string(),
            expected
        );
    }
}

#[test]
fn all_listeners_take_the_same_spellings_and_have_the_same_error() {
    let fixture = Fixture::new();
    let listeners = |text: &str| {
        let forward = format!("{text}=intranet:80");
        let open = "--open-to-all";
        [
            fixture.near(&["--socks5", text, open]),
            fixture.near(&["--http-proxy", text, open]),
            fixture.near(&["--forward", &forward, open]),
            fixture.near(&[
                "--admin",
                text,
                "--allow",
                "a:1",
                "--admin-token",
                "0123456789abcdef",
            ]),
        ]
    };
    for (text, expected) in [
        ("1080", "127.0.0.1:1080"),
        (":1080", "127.0.0.1:1080"),
        ("localhost:1080", "127.0.0.1:1080"),
        ("[::1]:1080", "[::1]:1080"),
        ("*:1080", "[::]:1080"),
    ] {
        for config in listeners(text) {
            let config = config.unwrap();
            let [(_, address)] = config.listeners()[..] else {
                panic!("one listener");
            };
            assert_eq!(address.to_string(), expected, "{text}");
        }
    }
    for text in ["1080x", "::1:1080", "example.org:1080", "127.0.0.1"] {
        for config in listeners(text) {
            let error = config.unwrap_err().to_string();
            assert!(
                error.contains(&address::ListenError::NeedsPort.to_string()),
                "{error}"
            );
        }
    }
}

#[test]
fn a_service_has_a_listener_a_site_and_maybe_a_peer() {
    let fixture = Fixture::new();
    let service = |text: &str| {
        fixture
            .near(&["--service", text])
            .map(|config| config.ways_in[0].clone())
    };
    let way_in = service("5000=https://a.example,b.example").unwrap();
    assert_eq!(way_in.listen.to_string(), "127.0.0.1:5000");
    assert_eq!(
        way_in.service.unwrap().to_string(),
        "https://a.example,b.example"
    );
    let peer = format!("[::1]:5000=http://a.example@{}", fixture.peer);
    assert_eq!(service(&peer).unwrap().peer, Some(fixture.peer));
    for (text, part) in [
        ("a.example", "expected a listener and a URL"),
        ("https://a.example", "--cert"),
        ("https://8443=https://a.example", "--cert"),
        ("https://8443=http://a.example", "one https:// site"),
        (
            "https://8443=https://a.example,b.example",
            "one https:// site",
        ),
        ("5000=a.example", "https://"),
        ("5000=https://a.example/path", "write https://a.example"),
        ("x=https://a.example", "invalid listener"),
        ("5000=https://a.example@nobody", "unknown peer"),
        (
            "10.0.0.1:5000=https://a.example",
            "--clients or --open-to-all",
        ),
        ("5000=mysql://a.example", "the site must begin with"),
        ("postgres://a.example", "--cert"),
        ("postgres://5433=postgres://a.example", "--cert"),
        (
            "5433=postgres://a.example",
            "begin the listener with postgres://",
        ),
        (
            "smtp://25=postgres://a.example",
            "begin the listener with postgres://",
        ),
        ("postgres://x=postgres://a.example", "invalid listener"),
        ("postgres://a.example:x", "invalid host"),
        ("postgres://a.example/name", "invalid host"),
    ] {
        let error = service(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn files_of_certificates_are_read_at_the_start() {
    let fixture = Fixture::new();
    let authority = fixture.write("ca.pem", include_str!("ca.pem"));
    let list = fixture.write("list.pem", include_str!("list.pem"));
    let empty = fixture.write("empty", "");
    let far = |option: &str, file: &str| fixture.far(&["--origin-ca", &authority, option, file]);
    assert!(far("--origin-crl", &list).is_ok());
    assert!(far("--origin-ca", &authority).is_ok());
    let damaged = include_str!("ca.pem").replacen("MII", "MIJ", 1);
    let damaged = fixture.write("damaged", &damaged);
    for (option, file, part) in [
        ("--origin-ca", &*empty, "it has no certificate"),
        ("--origin-ca", &*list, "it has no certificate"),
        ("--origin-ca", &*damaged, "cannot be used"),
        ("--origin-ca", "missing", "no such file"),
        (
            "--origin-crl",
            &*empty,
            "it is not a certificate revocation list",
        ),
        (
            "--origin-crl",
            &*authority,
            "it is not a certificate revocation list",
        ),
        ("--origin-crl", "/", "is a directory"),
    ] {
        let error = far(option, file).unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains(option),
            "{option} {file}: {error}"
        );
    }
}

#[test]
fn an_error_of_a_forward_names_the_part_that_is_wrong() {
    let fixture = Fixture::new();
    for (text, part) in [
        ("intranet:80:8080", "invalid listener \"intranet\": "),
        ("8080:intranet:80:x", "invalid listener \"8080:intranet\": "),
        ("8080:intranet:x", "invalid target \"intranet:x\": "),
        ("8080=intranet", "invalid target \"intranet\": "),
        ("8080:10.0.0:80", "invalid target \"10.0.0:80\": "),
    ] {
        let error = fixture.near(&["--forward", text]).unwrap_err().to_string();
        let start = format!("--forward \"{text}\": {part}");
        assert!(error.starts_with(&start), "{error}");
        assert!(error.contains("such as 8080:intranet:80)"), "{error}");
    }
    for (text, word, instead) in [
        ("8080:fd00::2:80", "brackets", "8080:[fd00::2]:80"),
        ("8080:http://intranet:80", "URL", "8080:intranet:80"),
        ("8080:http://intranet:80/wiki", "URL", "8080:intranet:80"),
    ] {
        let error = fixture.near(&["--forward", text]).unwrap_err().to_string();
        let start = format!("--forward \"{text}\": ");
        assert!(error.starts_with(&start), "{error}");
        let end = format!(" {instead}");
        assert!(error.contains(word) && error.ends_with(&end), "{error}");
    }
}

#[test]
fn a_port_that_is_too_large_is_said_to_be() {
    let fixture = Fixture::new();
    let error = fixture.far_fault(&["--listen", "70000"]);
    assert!(error.starts_with("--listen \"70000\": "), "{error}");
    for error in [
        fixture.far(&["--listen", "70000"]),
        fixture.near(&["--socks5", "99999"]),
        fixture.near(&["--transparent", "127.0.0.1:99999"]),
        fixture.near(&["--forward", "99999:intranet:80"]),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("too large") && error.contains("65535"),
            "{error}"
        );
    }
}

#[test]
fn a_forward_is_written_as_ssh_has_it_or_with_an_equals_sign() {
    let fixture = Fixture::new();
    for (text, listen, target) in [
        ("8080:host:80", "127.0.0.1:8080", "host:80"),
        ("8080=host:80", "127.0.0.1:8080", "host:80"),
        (":8080:host:80", "127.0.0.1:8080", "host:80"),
        ("localhost:8080:host:80", "127.0.0.1:8080", "host:80"),
        ("127.0.0.2:8080:host:80", "127.0.0.2:8080", "host:80"),
        ("127.0.0.2:8080=host:80", "127.0.0.2:8080", "host:80"),
        ("[::1]:8080:host:80", "[::1]:8080", "host:80"),
        ("8080:[fd00::1]:80", "127.0.0.1:8080", "[fd00::1]:80"),
        ("[::1]:8080:[fd00::1]:80", "[::1]:8080", "[fd00::1]:80"),
        ("[::1]:8080=[fd00::1]:80", "[::1]:8080", "[fd00::1]:80"),
        ("8080:10.0.0.1:80", "127.0.0.1:8080", "10.0.0.1:80"),
    ] {
        let config = fixture.near(&["--forward", text]).unwrap();
        assert_eq!(config.ways_in, [forward(listen, target)], "{text}");
    }
    for text in [
        "",
        "8080",
        "8080:80",
        "8080:host",
        "8080::80",
        "host:8080:80",
        "::1:8080:host:80",
        "8080:fd00::1:80",
        "8080:host:80:90",
        "8080:[fd00::1:80",
        "8080=host",
        "=host:80",
    ] {
        let error = fixture.near(&["--forward", text]).unwrap_err().to_string();
        let start = match text {
            "" => "--forward is empty".to_owned(),
            _ => format!("--forward \"{text}\": "),
        };
        assert!(error.starts_with(&start), "{error}");
    }
}

#[test]
fn a_listener_that_others_can_reach_says_who_may_use_it() {
    let fixture = Fixture::new();
    let users = fixture.write("users", &format!("{USER}\n"));
    for (flag, value, needs) in [
        (
            "--socks5",
            "*:1080",
            "--clients, --proxy-auth or --open-to-all",
        ),
        (
            "--http-proxy",
            "10.0.0.5:3128",
            "--clients, --proxy-auth or --open-to-all",
        ),
        ("--forward", "0.0.0.0:80:a:80", "--clients or --open-to-all"),
    ] {
        let near = |more: &[&str]| fixture.near(&[&[flag, value], more].concat());
        let error = near(&[]).unwrap_err().to_string();
        let start = format!("{flag} \"{value}\": other machines can reach ");
        assert!(
            error.starts_with(&start) && error.contains(needs),
            "{error}"
        );
        let off = near(&["--open-to-all=false"]).unwrap_err().to_string();
        assert_eq!(off, error);
        let warnings = |more: &[&str]| near(more).unwrap().warnings();
        assert_eq!(warnings(&["--clients", "10.0.0.0/8"]), [""; 0]);
        let loudly = warnings(&["--open-to-all"]);
        assert!(
            loudly[0].contains(flag) && loudly[0].contains("open to all"),
            "{loudly:?}"
        );
        for value in [USER, &users] {
            let asked = ["--proxy-auth", value, "--socks5", "127.0.0.1:1"];
            let error = fixture.near(&[&asked[..2], &[flag, "[::1]:80:a:80"]].concat());
            match flag {
                "--forward" => {
                    let error = near(&asked[..2]).unwrap_err().to_string();
                    assert!(error.contains("needs --socks5 or --http-proxy"), "{error}");
                    let error = near(&asked[..4]).unwrap_err().to_string();
                    assert!(error.contains(needs), "{error}");
                }
                _ => {
                    assert!(error.is_err(), "not a listener's address");
                    assert_eq!(warnings(&asked[..2]), [""; 0]);
                }
            }
        }
    }
    // Of several the one that is meant.
    let [first, second, third] = ["81:a:80", "*:80:a:80", "82:a:80"];
    let several = ["--forward", first, "--forward", second, "--forward", third];
    let error = fixture.far_fault(&several);
    assert!(
        error.starts_with("--forward \"*:80:a:80\": other machines"),
        "{error}"
    );
    let several = [
        "--forward",
        "81:a:80",
        "--forward",
        "81:b:80",
        "--forward",
        third,
    ];
    let error = fixture.far_fault(&several);
    assert!(
        error.starts_with("--forward \"81:b:80\": --forward already listens at "),
        "{error}"
    );
    // The far end's forwards as well; its lanes prove keys.
    let forward = ["--forward", "*:80:a:80"];
    let error = fixture.far_fault(&forward);
    assert!(error.contains("--clients or --open-to-all"), "{error}");
    let open = fixture.far(&[&forward[..], &["--open-to-all"]].concat());
    assert!(open.unwrap().warnings()[0].contains("--forward [::]:80 is open to all"));
    let loopback = ["--forward", "80:a:80", "--clients", "10.0.0.0/8"];
    let nobody = fixture.far(&loopback).unwrap().warnings();
    assert!(nobody[0].contains("refuses all clients"), "{nobody:?}");
    let both = ["--clients", "::/0", "--open-to-all"];
    let error = fixture.far_fault(&[&forward[..], &both].concat());
    assert!(
        error.starts_with("--open-to-all: cannot ") && error.ends_with(" --clients"),
        "{error}"
    );
}

#[test]
fn a_switch_is_on_or_off_in_every_place() {
    let fixture = Fixture::new();
    let file = fixture.write("far.toml", "open_to_all = true\nforward = '*:80:a:80'\n");
    assert!(fixture.far(&["--config", &file]).is_ok());
    let off = fixture.far_fault(&["--config", &file, "--open-to-all=false"]);
    assert!(off.contains("--open-to-all, or"), "{off}");
    for text in ["open_to_all = 'yes'", "open_to_all = 1", "open_to_all = []"] {
        let file = fixture.write("far.toml", text);
        let error = fixture.far_fault(&["--config", &file]);
        assert!(error.contains("far.toml:1: open_to_all"), "{error}");
        assert!(error.contains("true"), "{error}");
    }
    let file = fixture.write("far.toml", "lanes = true\n");
    let error = fixture.far_fault(&["--config", &file]);
    assert!(error.contains("expected a whole number"), "{error}");
}

#[test]
fn an_error_never_shows_a_password_or_its_hash() {
    let fixture = Fixture::new();
    let users = fixture.write("users", "alice:hunter2\n");
    for (value, part) in [
        ("alice:hunter2", "htpasswd -nB"),
        ("alice:$6$hunter2", "htpasswd -nB"),
        (&users, "users:1: "),
    ] {
        let flags = ["--socks5", "1080", "--proxy-auth", value];
        let error = fixture.near(&flags).unwrap_err().to_string();
        assert!(
            error.starts_with("--proxy-auth: ") && error.contains(part),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
    let flags = ["--socks5", "1080", "--proxy-auth", USER];
    let shown = format!("{:?}", fixture.near(&flags).unwrap());
    assert!(
        !shown.contains("alice") && !shown.contains("$2y$"),
        "{shown}"
    );
}

proptest! {
    #[test]
    fn any_forward_parses_or_fails(text in any::<String>(), target in "[a-z:0-9@=\\[\\]]{0,20}") {
        let find = |_: &str| Ok(Some(PublicKey([0; 32])));
        let _ = parse_forward(&text, &find);
        let _ = parse_forward(&target, &find);
        let _ = parse_forward(&format!("127.0.0.1:80={target}"), &find);
    }

    #[test]
    fn both_ways_to_write_a_forward_mean_the_same(
        v4: [u8; 4], v6: [u16; 8], port: u16, target_port in 1u16.., name in "[a-z]{1,9}", form in 0..8
    ) {
        let find = |_: &str| Ok(Some(PublicKey([0; 32])));
        let address = |is_v6: bool| match is_v6 {
            true => std::net::IpAddr::from(v6),
            false => std::net::IpAddr::from(v4),
        };
        let listen = SocketAddr::new(address(form & 1 != 0), port);
        let target = match form & 2 != 0 {
            true => Target::from(SocketAddr::new(address(form & 4 != 0), target_port)),
            false => format!("{name}:{target_port}").parse().unwrap(),
        };
        let (target, peer) = (Some(target), Some(PublicKey([0; 32])));
        let expected = WayIn { target, peer, ..WayIn::any_target(&FORWARD, listen) };
        for sign in ['=', ':'] {
            let target = expected.target.as_ref().unwrap();
            let text = format!("{}{sign}{target}", expected.listen);
            prop_assert_eq!(&parse_forward(&text, &find).unwrap(), &expected);
            let with_peer = format!("{text}@AAAA=");
            prop_assert_eq!(&parse_forward(&with_peer, &find).unwrap(), &expected);
        }
    }
}
