//! A request to the HTTP proxy, or to a service: however the bytes are split, the answer is the same, the head
//! for the origin is one well-formed request that no reader can take for two, and its body ends in
//! one place. Asking for plain content changes the value of `Accept-Encoding` and nothing else.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use refrain_gateway::http_proxy::{
    AcceptEncoding, Addressing, HttpProxyError, ProxyRequest, Purpose, parse_head,
};

/// As near ends do by default.
fn parse(
    received: &[u8],
    addressing: &Addressing,
) -> Result<Option<(ProxyRequest, usize)>, HttpProxyError> {
    parse_head(received, addressing, |_| AcceptEncoding::Identity)
}

/// The lines of a head.
fn lines(head: &[u8]) -> Vec<&[u8]> {
    head.split(|&byte| byte == b'\n').collect()
}

fuzz_target!(|received: &[u8]| {
    let service = "https://a.example,b.example".parse();
    check(received, &Addressing::Proxy);
    check(
        received,
        &Addressing::Service(service.map(Arc::new).expect("a service")),
    );
});

fn check(received: &[u8], addressing: &Addressing) {
    let whole = parse(received, addressing);
    // Every prefix of a short input, some of a long one: parsing each is quadratic.
    let step = received.len() / 128 + 1;
    for length in (0..received.len()).step_by(step) {
        match parse(&received[..length], addressing) {
            Ok(None) => {}
            Ok(decided) => assert_eq!(Ok(decided), whole),
            Err(_) => assert!(whole.is_err()),
        }
    }

    // What is incomplete or refused does not depend on it.
    let Ok(Some((request, length))) = whole else {
        assert_eq!(
            whole,
            parse_head(received, addressing, |_| AcceptEncoding::Keep)
        );
        return;
    };
    assert!(length <= received.len());
    if let Purpose::Exchange(exchange) = request.purpose {
        assert!(exchange.head.secret_from <= exchange.head.bytes.len());
        let (head, rest) = (exchange.head.bytes, &received[length..]);
        let (mut whole, mut body) = (exchange.body.clone(), exchange.body);
        let taken = whole.take(rest);
        let pieces: usize = rest.chunks(1).map(|piece| body.take(piece)).sum();
        assert_eq!((taken, whole), (pieces, body));

        let end = head.windows(4).position(|window| window == b"\r\n\r\n");
        assert_eq!(end, Some(head.len() - 4));
        // It is in origin form now, so the proxy would have nothing to do with it; and with its
        // own fields added it may have more of them than the proxy takes.
        let again = parse(&head, &Addressing::Proxy);
        assert!(
            matches!(
                again,
                Err(HttpProxyError::NotProxied | HttpProxyError::TooLarge)
            ),
            "{again:?}"
        );

        let kept = parse_head(received, addressing, |_| AcceptEncoding::Keep);
        let Ok(Some((kept, _))) = kept else {
            panic!("{kept:?}");
        };
        let Purpose::Exchange(kept) = kept.purpose else {
            panic!("{kept:?}");
        };
        assert_eq!(lines(&head).len(), lines(&kept.head.bytes).len());
        for (line, kept) in lines(&head).into_iter().zip(lines(&kept.head.bytes)) {
            let is_lowered = line
                .strip_suffix(b": identity\r")
                .filter(|name| name.eq_ignore_ascii_case(b"accept-encoding"))
                .is_some_and(|name| kept.starts_with(name));
            assert!(line == kept || is_lowered, "{line:?} of {kept:?}");
        }
    }
}
