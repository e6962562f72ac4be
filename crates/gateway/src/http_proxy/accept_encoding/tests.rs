use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    super::request::{Addressing, parse_head},
    *,
};
use crate::http_proxy::{HEAD_BYTES_MAX, ProxyRequest, Purpose};

/// The head that the origin sees.
fn forward(text: &str, asking: AcceptEncoding) -> String {
    let (request, _) = parse_head(text.as_bytes(), &Addressing::Proxy, |_| asking)
        .expect("a request")
        .expect("a whole head");
    match request.purpose {
        Purpose::Exchange(exchange) => String::from_utf8(exchange.head.bytes).expect("text"),
        Purpose::Tunnel => panic!("{request:?}"),
    }
}

fn get(fields: &str) -> String {
    format!("GET http://a/ HTTP/1.1\r\n{fields}\r\n")
}

/// What an origin sees of these fields.
fn lowered(fields: &str) -> String {
    let head = forward(&get(fields), AcceptEncoding::Identity);
    let fields = head.strip_prefix("GET / HTTP/1.1\r\nHost: a\r\n");
    let fields = fields.and_then(|fields| fields.strip_suffix("Via: 1.1 refrain\r\n\r\n"));
    fields.expect(&head).to_owned()
}

#[test]
fn what_browsers_and_tools_accept_becomes_identity() {
    for accepted in [
        "gzip",
        "gzip, deflate, br, zstd",
        "deflate, gzip;q=1.0, *;q=0.5",
        "br;q=1.0, gzip;q=0.8, *;q=0.1, identity;q=0.001",
        "*",
        "gzip, IDENTITY, *;Q=0",
        ", ,gzip,",
        "identity;q=0.5, gzip ; q=1",
    ] {
        let fields = |value: &str| format!("A: 1\r\naccept-encoding: {value}\r\nB: 2\r\n");
        assert_eq!(lowered(&fields(accepted)), fields("identity"), "{accepted}");
        let kept = forward(&get(&fields(accepted)), AcceptEncoding::Keep);
        assert!(kept.contains(&fields(accepted)), "{kept}");
    }
}

#[test]
fn what_may_not_or_need_not_be_lowered_stays() {
    for fields in [
        "",
        // Plain content is all that is asked for.
        "Accept-Encoding: \r\n",
        "Accept-Encoding: identity\r\n",
        "Accept-Encoding: identity;q=1, *;q=0\r\n",
        "Accept-Encoding: gzip;q=0\r\n",
        "Accept-Encoding: gzip;q=0, br;q=0.000\r\n",
        // Plain content is refused.
        "Accept-Encoding: gzip, identity;q=0\r\n",
        "Accept-Encoding: gzip, Identity ; Q=0.000\r\n",
        "Accept-Encoding: gzip, *;q=0\r\n",
        "Accept-Encoding: gzip, *; q=0.\r\n",
        "Accept-Encoding: gzip\r\nAccept-Encoding: identity;q=0\r\n",
        "Accept-Encoding: identity;q=0, gzip, identity\r\n",
        // It may be: the weight has no one reading.
        "Accept-Encoding: gzip, identity;q=\r\n",
        "Accept-Encoding: gzip, identity;q=x\r\n",
        "Accept-Encoding: gzip, identity;level=1\r\n",
        // The client forbids it.
        "Cache-Control: no-transform\r\nAccept-Encoding: gzip\r\n",
        "Accept-Encoding: gzip\r\nCache-Control: max-age=0\r\ncache-control: x,, No-Transform\r\n",
        // These are about something else.
        "Accept: gzip\r\nAccept-Encodings: gzip\r\nX-Accept-Encoding: gzip\r\n",
    ] {
        assert_eq!(lowered(fields), fields);
    }
}

#[test]
fn each_of_several_fields_is_lowered_in_its_place() {
    let fields = "Accept-Encoding: gzip\r\nRange: bytes=1-\r\nACCEPT-ENCODING: br;q=0.5\r\n\
         If-Range: \"x\"\r\nAccept-Encoding: *;q=0.1\r\n";
    let expected = "Accept-Encoding: identity\r\nRange: bytes=1-\r\nACCEPT-ENCODING: identity\r\n\
         If-Range: \"x\"\r\nAccept-Encoding: identity\r\n";
    assert_eq!(lowered(fields), expected);
}

#[test]
fn a_field_for_the_proxy_itself_goes_no_further() {
    let fields = "Connection: accept-encoding\r\nAccept-Encoding: gzip\r\n";
    assert_eq!(lowered(fields), "");
}

#[test]
fn tunnels_and_upgrades_are_left_alone() {
    let upgrade = get("Accept-Encoding: gzip\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n");
    let head = forward(&upgrade, AcceptEncoding::Identity);
    assert!(head.contains("\r\nAccept-Encoding: gzip\r\n"), "{head}");
    let connect = "CONNECT a:1 HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n";
    let asking = |_: &_| panic!("nothing is asked for");
    let (request, _) = parse_head(connect.as_bytes(), &Addressing::Proxy, asking)
        .unwrap()
        .unwrap();
    assert_eq!(request.purpose, Purpose::Tunnel);
}

#[test]
fn all_methods_and_versions_are_lowered_alike() {
    for method in ["GET", "HEAD", "POST", "OPTIONS", "OTHER"] {
        for version in ["1.0", "1.1"] {
            let text = format!("{method} http://a/ HTTP/{version}\r\nAccept-Encoding: br\r\n\r\n");
            let head = forward(&text, AcceptEncoding::Identity);
            assert!(head.contains("\r\nAccept-Encoding: identity\r\n"), "{head}");
        }
    }
}

#[test]
fn it_depends_on_the_target() {
    let text = "GET http://a:81/ HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n";
    let mut asked = None;
    parse_head(text.as_bytes(), &Addressing::Proxy, |target| {
        asked = Some(target.clone());
        AcceptEncoding::Identity
    })
    .unwrap();
    assert_eq!(asked, Some("a:81".parse().unwrap()));
}

/// A head as large as one may be, which becomes longer.
#[test]
fn the_limit_is_on_what_clients_send() {
    let field = "Accept-Encoding: br\r\n";
    let fields = field.repeat((HEAD_BYTES_MAX - get("X: \r\n").len()) / field.len());
    let rest = HEAD_BYTES_MAX - get(&format!("{fields}X: \r\n")).len();
    let text = get(&format!("{fields}X: {}\r\n", "x".repeat(rest)));
    assert_eq!(text.len(), HEAD_BYTES_MAX);
    let head = forward(&text, AcceptEncoding::Identity);
    assert!(head.len() > HEAD_BYTES_MAX);
    let count = fields.len() / field.len();
    assert_eq!(head.matches("Accept-Encoding: identity\r\n").count(), count);
}

/// A coding, and its weight in thousandths.
type Weighted = (&'static str, Option<u32>);

fn weighted() -> impl Strategy<Value = Weighted> {
    let names = vec!["gzip", "x-gzip", "deflate", "br", "zstd", "identity", "*"];
    let weight = prop_oneof![Just(None), select(vec![0, 1, 500, 1000]).prop_map(Some)];
    (select(names), weight)
}

fn written((name, weight): &Weighted) -> String {
    match weight {
        None => (*name).to_owned(),
        Some(0) => format!("{name};q=0"),
        Some(thousandths) => format!("{name}; q={}.{:03}", thousandths / 1000, thousandths % 1000),
    }
}

/// RFC 9110, section 12.5.3, by its letter: whether plain content is acceptable, and whether any other is.
fn acceptable(codings: &[Weighted]) -> (bool, bool) {
    let weights_of = |name: &str| -> Vec<u32> {
        let named = codings.iter().filter(|(other, _)| *other == name);
        named.map(|(_, weight)| weight.unwrap_or(1000)).collect()
    };
    let plain = match (weights_of("identity"), weights_of("*")) {
        (own, others) if own.is_empty() => !others.contains(&0),
        (own, _) => !own.contains(&0),
    };
    let coded = codings
        .iter()
        .any(|(name, weight)| *name != "identity" && *weight != Some(0));
    (plain, coded)
}

proptest! {
    /// All else in the head stays, byte by byte and in its order.
    #[test]
    fn only_what_is_acceptable_changes(
        // Of each line: a field of another name, or some codings.
        lines in vec(prop_oneof![
            select(vec!["Accept: */*", "Range: bytes=5-", "Cache-Control: max-age=0", "X: gzip"])
                .prop_map(Err),
            vec(weighted(), 0..4).prop_map(Ok),
        ], 0..8),
        forbids in any::<bool>(),
    ) {
        let fields = |lowered: bool| -> String {
            let line = |line: &Result<Vec<Weighted>, &str>| match line {
                Err(other) => format!("{other}\r\n"),
                Ok(_) if lowered => "Accept-Encoding: identity\r\n".to_owned(),
                Ok(codings) => {
                    let codings: Vec<String> = codings.iter().map(written).collect();
                    format!("Accept-Encoding: {}\r\n", codings.join(", "))
                }
            };
            let forbidding = if forbids { "Cache-Control: no-transform\r\n" } else { "" };
            lines.iter().map(line).collect::<String>() + forbidding
        };
        let codings: Vec<Weighted> = lines.iter().flatten().flatten().copied().collect();
        let (plain, coded) = acceptable(&codings);
        prop_assert_eq!(lowered(&fields(false)), fields(plain && coded && !forbids));
    }

    /// Whatever a value holds, it is kept or replaced as a whole.
    #[test]
    fn any_value_stays_or_becomes_identity(
        values in vec(vec(select(b"gzip;q=01.,* \"identity\t\xff".to_vec()), 0..20), 1..4),
    ) {
        let mut head = b"GET http://a/ HTTP/1.1\r\n".to_vec();
        for value in &values {
            head.extend([b"Accept-Encoding: ", &value[..], b"\r\n"].concat());
        }
        head.extend(b"\r\n");
        let seen = |head: &[u8], asking| -> ProxyRequest {
            parse_head(head, &Addressing::Proxy, |_| asking).unwrap().unwrap().0
        };
        let fields = |request: ProxyRequest| match request.purpose {
            Purpose::Exchange(exchange) => exchange.head.bytes,
            Purpose::Tunnel => unreachable!("it is a GET"),
        };
        let (kept, lowered) = (
            fields(seen(&head, AcceptEncoding::Keep)),
            fields(seen(&head, AcceptEncoding::Identity)),
        );
        let line = b"Accept-Encoding: identity\r\n".repeat(values.len());
        let expected = [b"GET / HTTP/1.1\r\nHost: a\r\n", &line[..], b"Via: 1.1 refrain\r\n\r\n"];
        prop_assert!(lowered == kept || lowered == expected.concat());
    }
}
