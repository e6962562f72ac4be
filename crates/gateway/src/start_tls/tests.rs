use proptest::prelude::*;

use super::*;

/// Has one side answer, unless it has come to its end.
fn step(side: &mut dyn Dialogue, from: &mut Vec<u8>, to: &mut Vec<u8>, end: &mut Step) {
    if *end != Step::More {
        return;
    }
    match side.next(from) {
        Step::Say(bytes) => to.extend(bytes),
        Step::Begin(bytes) => {
            to.extend(&bytes);
            *end = Step::Begin(bytes);
        }
        step => *end = step,
    }
}

/// Has a server and a client of ours talk, and gives what became of both.
fn talk(server: &mut dyn Dialogue, client: &mut dyn Dialogue) -> (Step, Step) {
    let (mut to_client, mut to_server) = (server.greeting(), client.greeting());
    let (mut of_server, mut of_client) = (Step::More, Step::More);
    for _ in 0..MESSAGES_MAX {
        step(server, &mut to_server, &mut to_client, &mut of_server);
        step(client, &mut to_client, &mut to_server, &mut of_client);
    }
    assert!(to_client.is_empty() && to_server.is_empty());
    (of_server, of_client)
}

#[test]
fn both_sides_of_each_protocol_begin_tls_with_each_other() {
    for protocol in PROTOCOLS {
        let (mut server, mut client) = (protocol.as_server(), protocol.as_client());
        let (server, client) = talk(&mut *server, &mut *client);
        let begun = matches!((&server, &client), (Step::Begin(_), Step::Begin(_)));
        assert!(begun, "{}: {server:?}, {client:?}", protocol.scheme);
    }
}

/// The steps of a server whose client says these messages.
fn steps(scheme: &str, messages: &[&[u8]]) -> Vec<Step> {
    let mut dialogue = StartTls::of(scheme).expect("a protocol").as_server();
    let steps = messages.iter().map(|message| {
        let mut received = message.to_vec();
        dialogue.next(&mut received)
    });
    steps.collect()
}

#[test]
fn postgres_asks_in_eight_bytes() {
    let ssl = b"\0\0\0\x08\x04\xd2\x16\x2f";
    let gss = b"\0\0\0\x08\x04\xd2\x16\x30";
    let cancel = b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02";
    let startup = b"\0\0\0\x13\0\x03\0\0user\0bob\0\0";
    let said = |bytes: &[u8]| Step::Say(bytes.into());
    assert_eq!(
        steps("postgres", &[gss, ssl]),
        [said(b"N"), Step::Begin(b"S".into())]
    );
    assert_eq!(steps("postgres", &[cancel]), [Step::Plain]);
    assert_eq!(steps("postgres", &[b"\x16\x03\x01"]), [Step::Direct]);
    let refused = &steps("postgres", &[startup])[0];
    let Step::Refuse(error, _) = refused else {
        panic!("{refused:?}");
    };
    assert!(error.starts_with(b"E\0\0\0"), "{error:?}");
    assert_eq!(error.len() - 1, usize::from(error[4]));
}

#[test]
fn nothing_but_tls_begins_before_tls() {
    for (scheme, message) in [
        ("smtp", &b"MAIL FROM:<a@example.org>\r\n"[..]),
        ("smtp", b"AUTH PLAIN AGEAYg==\r\n"),
        ("imap", b"a LOGIN user secret\r\n"),
    ] {
        match &steps(scheme, &[message])[0] {
            Step::Say(answer) => {
                let answer = String::from_utf8_lossy(answer).into_owned();
                assert!(answer.contains("STARTTLS"), "{answer}");
            }
            step => panic!("{scheme}: {step:?}"),
        }
    }
    // A bind with a password.
    let bind = b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0";
    match &steps("ldap", &[bind])[0] {
        Step::Refuse(answer, _) => assert!(answer.contains(&13), "confidentialityRequired"),
        step => panic!("{step:?}"),
    }
}

#[test]
fn a_tag_of_imap_does_not_write_lines() {
    match &steps("imap", &[b"a\rb NOOP\r\n"])[0] {
        Step::Say(answer) => assert_eq!(answer, b"* OK done\r\n"),
        step => panic!("{step:?}"),
    }
}

/// What a client of ours says of a server with these messages.
fn client(scheme: &str, messages: &[&str]) -> Step {
    let mut dialogue = StartTls::of(scheme).expect("a protocol").as_client();
    let mut last = Step::More;
    for message in messages {
        let mut received = message.as_bytes().to_vec();
        last = dialogue.next(&mut received);
    }
    last
}

#[test]
fn a_server_without_tls_is_named_as_the_reason() {
    let reason = |step| match step {
        Step::Refuse(_, reason) => reason.into_owned(),
        step => panic!("{step:?}"),
    };
    assert!(reason(client("postgres", &["N"])).contains("does not accept TLS"));
    assert!(reason(client("postgres", &["HTTP"])).contains("does not speak PostgreSQL"));
    let smtp = [
        "220-a\r\n220 b\r\n",
        "250-c\r\n250 d\r\n",
        "502 5.5.1 no \x1b[2J\r\n",
    ];
    let answered = reason(client("smtp", &smtp));
    assert!(
        answered.contains("before TLS") && answered.ends_with(": 502 5.5.1 no ?[2J"),
        "{answered}"
    );
    assert!(reason(client("imap", &["* OK hello\r\n", "r BAD no\r\n"])).contains("r BAD no"));
    assert!(reason(client("imap", &["* BYE busy\r\n"])).contains("* BYE busy"));
    let refused = "\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x02\x04\0\x04\0";
    assert!(reason(client("ldap", &[refused])).contains("code 2"));
}

proptest! {
    /// Whatever comes, in whatever pieces: each step takes bytes, or ends the matter, or waits.
    #[test]
    fn any_bytes_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        lines in "([a-zA-Z0-9* -]{0,20}\r\n){0,5}",
    ) {
        for protocol in PROTOCOLS {
            for input in [&bytes[..], lines.as_bytes()] {
                for mut dialogue in [protocol.as_server(), protocol.as_client()] {
                    let mut received = input.to_vec();
                    for _ in 0..=input.len() {
                        let before = received.len();
                        match dialogue.next(&mut received) {
                            Step::Say(_) => prop_assert!(received.len() < before),
                            _ => break,
                        }
                    }
                }
            }
        }
    }
}
