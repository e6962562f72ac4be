//! A request to the HTTP proxy: however the bytes are split, the answer is the same, the head
//! for the origin is one well-formed request that no reader can take for two, and its body ends in
//! one place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::http_proxy::{HttpProxyError, Purpose, parse_head};

fuzz_target!(|received: &[u8]| {
    let whole = parse_head(received);
    // Every prefix of a short input, some of a long one: parsing each is quadratic.
    let step = received.len() / 128 + 1;
    for length in (0..received.len()).step_by(step) {
        match parse_head(&received[..length]) {
            Ok(None) => {}
            Ok(decided) => assert_eq!(Ok(decided), whole),
            Err(_) => assert!(whole.is_err()),
        }
    }

    let Ok(Some((request, length))) = whole else {
        return;
    };
    assert!(length <= received.len());
    if let Purpose::Exchange(exchange) = request.purpose {
        let (head, rest) = (exchange.head, &received[length..]);
        let (mut whole, mut body) = (exchange.body.clone(), exchange.body);
        let taken = whole.take(rest);
        let pieces: usize = rest.chunks(1).map(|piece| body.take(piece)).sum();
        assert_eq!((taken, whole), (pieces, body));

        let end = head.windows(4).position(|window| window == b"\r\n\r\n");
        assert_eq!(end, Some(head.len() - 4));
        // It is in origin form now, so the proxy would have nothing to do with it; and with its
        // own fields added it may have more of them than the proxy takes.
        let again = parse_head(&head);
        assert!(
            matches!(
                again,
                Err(HttpProxyError::NotProxied | HttpProxyError::TooLarge)
            ),
            "{again:?}"
        );
    }
});
