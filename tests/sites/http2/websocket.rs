//! WebSocket by HTTP/2 (RFC 8441).

use bytes::Bytes;

use super::{
    TlsFront, World,
    peers::{Client, runtime, send, soon},
};
use crate::{
    common::{certificate::certificate, programs::are_installed, websocket},
    served,
};

#[test]
fn a_websocket_of_http2_is_an_upgrade_at_the_site() {
    if !are_installed(&["openssl", "socat"]) {
        return;
    }
    let (folder, runtime) = (certificate(), runtime());
    let site = TlsFront::start(folder.path(), websocket::start_echo());
    let (_pair, near) = served("https", folder.path(), site.address.port());
    runtime.block_on(async {
        let client = Client::connect(near, folder.path()).await;
        let (response, mut stream) = client.websocket("/echo").await;
        let response = soon("a head", response).await.expect("a head");
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        // A text of five bytes, masked with zeros; it comes back without a mask. Then a close.
        send(&mut stream, Bytes::from_static(b"\x81\x85\0\0\0\0hello"))
            .await
            .expect("a stream");
        let mut came = Vec::new();
        while came.len() < 7 {
            came.extend(
                soon("an echo", body.data())
                    .await
                    .expect("more")
                    .expect("data"),
            );
        }
        assert_eq!(came, b"\x81\x05hello");
        send(&mut stream, Bytes::from_static(b"\x88\x80\0\0\0\0"))
            .await
            .expect("a stream");
        stream.send_data(Bytes::new(), true).expect("a stream");
        let rest = async { while body.data().await.is_some_and(|data| data.is_ok()) {} };
        soon("the end", rest).await;
    });
}

#[test]
fn a_websocket_to_a_site_without_it_fails() {
    for site in ["h2", "http/1.1"] {
        let Some(world) = World::start(&[site]) else {
            return;
        };
        world.runtime.block_on(async {
            let client = world.client().await;
            let (response, _stream) = client.websocket("/seen").await;
            let answer = soon("an end", response).await;
            assert!(answer.is_err(), "{answer:?}");
        });
    }
}
