use proptest::prelude::*;
use tokio::io::duplex;

use super::*;

#[test]
fn proxies_are_read_and_their_passwords_are_not_shown() {
    let read = |text: &str| text.parse::<ViaProxy>();
    for (text, address, authorization) in [
        ("http://proxy.example:3128", "proxy.example:3128", None),
        ("proxy.example:3128/", "proxy.example:3128", None),
        ("HTTP://[fd00::1]:8080", "[fd00::1]:8080", None),
        // The example of RFC 7617, section 2.
        (
            "http://Aladdin:open%20sesame@10.0.0.1:80",
            "10.0.0.1:80",
            Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        ),
        ("http://a:p%40s:s@b:1", "b:1", Some("Basic YTpwQHM6cw==")),
        ("http://a:@b:1", "b:1", Some("Basic YTo=")),
    ] {
        let proxy = read(text).expect(text);
        assert_eq!(proxy.to_string(), address);
        assert_eq!(proxy.authorization.as_deref(), authorization, "{text}");
        assert_eq!(format!("{proxy:?}"), format!("ViaProxy({address})"));
    }
    for (text, reason) in [
        ("https://proxy:443", "found https://"),
        ("socks5://proxy:1080", "found socks5://"),
        ("http://proxy", "no port"),
        ("http://proxy:0", "1 to 65535"),
        ("http://proxy:80/path", "more after the port"),
        ("http://alice@proxy:80", "USER:PASSWORD"),
        ("http://:secret@proxy:80", "USER:PASSWORD"),
        ("http://a%3ab:secret@proxy:80", "USER:PASSWORD"),
        ("http://a:%0d%0aX@proxy:80", "USER:PASSWORD"),
        ("http://a:%ff@proxy:80", "USER:PASSWORD"),
        ("http://a:p@s@proxy:80", "USER:PASSWORD"),
        ("http://a:p%zz@proxy:80", "USER:PASSWORD"),
        ("http://a:p%4@proxy:80", "USER:PASSWORD"),
        ("http://a:p#s@proxy:80", "USER:PASSWORD"),
        ("", "no port"),
    ] {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains(reason), "{text}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

/// The result of an answer in two pieces, and the request.
async fn answered(
    proxy: &str,
    peer: &str,
    answer: &[u8],
    at: usize,
) -> (Result<(), TunnelError>, String) {
    let proxy: ViaProxy = proxy.parse().expect("a proxy");
    let (mut near, mut far) = duplex(64 << 10);
    let peer = peer.parse().expect("a target");
    let serve = async {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            far.read_buf(&mut asked).await.expect("a request");
        }
        let (first, second) = answer.split_at(at.min(answer.len()));
        for part in [first, second] {
            // It may have had enough.
            let _ = far.write_all(part).await;
            tokio::task::yield_now().await;
        }
        drop(far);
        String::from_utf8(asked).expect("a text")
    };
    tokio::join!(proxy.open(&mut near, &peer), serve)
}

#[tokio::test]
async fn a_tunnel_is_asked_for_and_refusals_say_what_to_do() {
    const PROXY: &str = "http://proxy:3128";
    const SIGNED_IN: &str = "http://Aladdin:open%20sesame@proxy:3128";
    let ok = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n";
    let (opened, asked) = answered(SIGNED_IN, "far.example:7000", ok, 20).await;
    opened.expect("a tunnel");
    assert_eq!(
        asked,
        "CONNECT far.example:7000 HTTP/1.1\r\nHost: far.example:7000\r\n\
         Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"
    );
    for (proxy, peer, answer, reason) in [
        (
            PROXY,
            "far:7000",
            "HTTP/1.1 103 Hints\r\n\r\nHTTP/1.0 200 OK\r\n\r\n",
            "",
        ),
        (
            PROXY,
            "far:7000",
            "HTTP/1.1 403 No\r\n\r\n",
            "403 No (many proxies allow only port 443",
        ),
        (
            PROXY,
            "far:443",
            "HTTP/1.1 403 No\x01\r\n\r\n",
            "not one of HTTP",
        ),
        (
            PROXY,
            "far:443",
            "HTTP/1.1 403 Forbidden\r\n\r\n",
            "answered 403 Forbidden",
        ),
        (
            PROXY,
            "far:443",
            "HTTP/1.1 503 Busy\r\n\r\n",
            "503 Busy (is refrain far running",
        ),
        (
            PROXY,
            "far:443",
            "HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n",
            "asks for a user name and a password",
        ),
        (
            SIGNED_IN,
            "far:443",
            "HTTP/1.1 407 Who\r\nproxy-authenticate: NTLM\r\nProxy-Authenticate: basic\r\n\r\n",
            "does not accept the user name",
        ),
        (
            PROXY,
            "far:443",
            "HTTP/1.1 407 Who\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM\r\n\r\n",
            "asks for Negotiate, NTLM",
        ),
        (
            SIGNED_IN,
            "far:443",
            "HTTP/1.0 401 Who\r\nWWW-Authenticate: Basic realm=\"x\"\r\n\r\n",
            "does not accept the user name",
        ),
        (PROXY, "far:443", "", "without an answer"),
        (PROXY, "far:443", "SSH-2.0-OpenSSH\r\n", "not one of HTTP"),
        (PROXY, "far:443", "HTTP/1.1 200 OK\r\n", "not one of HTTP"),
        (
            PROXY,
            "far:443",
            "HTTP/1.1 200 OK\r\n\r\nextra",
            "not one of HTTP",
        ),
    ] {
        for at in 0..=answer.len() {
            let (opened, asked) = answered(proxy, peer, answer.as_bytes(), at).await;
            assert!(
                asked.starts_with(&format!("CONNECT {peer} HTTP/1.1\r\n")),
                "{asked}"
            );
            let error = opened
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(error.contains(reason), "{answer:?}: {error}");
            assert_eq!(error.is_empty(), reason.is_empty(), "{answer:?}: {error}");
        }
    }
    // A head without an end.
    let endless = [b"HTTP/1.1 200 OK\r\n".to_vec(), b"a: b\r\n".repeat(4_000)].concat();
    let (opened, _) = answered(PROXY, "far:443", &endless, 0).await;
    assert!(matches!(opened, Err(TunnelError::NotHttp)), "{opened:?}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0..60_usize) {
        let _ = Answer::read(&bytes);
        let mut answer = b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\nVia: 1\r\n\r\n".to_vec();
        let at = at.min(answer.len());
        answer.splice(at.., bytes);
        if let Ok(Some((answer, head))) = Answer::read(&answer) {
            prop_assert!(head > 0 && answer.reason.chars().all(|char| (' '..='~').contains(&char)));
        }
    }
}
