//! WebSocket by HTTP/2 (RFC 8441).

use bytes::Bytes;

use super::{
    World,
    peers::{Client, runtime, send, soon},
};
use crate::{
    common::{
        addresses::free_address, certificate::certificate, eventually, programs::are_installed,
        websocket,
    },
    served,
};

#[test]
fn a_websocket_of_http2_is_an_upgrade_at_the_site() {
    if !are_installed(&["openssl", "socat"]) {
        return;
    }
    let (folder, runtime) = (certificate(), runtime());
    // TLS in front of a server of HTTP/1.1 without it.
    let (site, echo) = (free_address(), websocket::start_echo());
    let listen = format!(
        "OPENSSL-LISTEN:{},bind=127.0.0.1,fork,reuseaddr,verify=0,cert=tls.crt,key=tls.key",
        site.port()
    );
    let mut socat = std::process::Command::new("socat")
        .args([listen, format!("TCP:{echo}")])
        .current_dir(folder.path())
        .spawn()
        .expect("socat starts");
    eventually("socat listens", || std::net::TcpStream::connect(site).ok());
    let (_pair, near) = served("https", folder.path(), site.port());
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
    let _ = socat.kill();
    let _ = socat.wait();
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
