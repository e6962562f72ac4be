//! The four pairs of versions, of a client and of a site.

use std::future::poll_fn;

use super::{World, peers::soon};

#[test]
fn interim_answers_and_trailers_pass_on_all_four_pairs_of_versions() {
    for site in ["h2", "http/1.1"] {
        let Some(world) = World::start(&[site]) else {
            return;
        };
        world.runtime.block_on(async {
            let client = world.client().await;
            let request = client.request("GET", "/hints").body(()).expect("a request");
            let mut sender = client.sender.clone();
            let (mut response, _) = sender.send_request(request, true).expect("a stream");
            let hints = poll_fn(|context| response.poll_informational(context));
            let hints = soon("hints", hints).await.expect("hints").expect("hints");
            assert_eq!(
                (hints.status().as_u16(), &hints.headers()["link"]),
                (103, &"x".parse().unwrap())
            );
            let mut body = soon("a head", response).await.expect("a head").into_body();
            assert_eq!(
                soon("a body", body.data())
                    .await
                    .expect("data")
                    .expect("data"),
                "ok"
            );
            let trailers = async {
                while body.data().await.is_some() {}
                body.trailers().await
            };
            let trailers = soon("trailers", trailers)
                .await
                .expect("an end")
                .expect("trailers");
            assert_eq!(trailers["x-sum"], "7");

            let answer = world
                .answers_of_http1(&["GET /hints\r\nTE: trailers\r\nConnection: TE, close"])
                .await;
            for part in [
                "http/1.1 103 ",
                "http/1.1 200 ",
                "\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n",
            ] {
                assert!(answer.contains(part), "{part}: {answer}");
            }
        });
    }
}

#[test]
fn a_100_and_an_answer_without_a_body_pass_on_all_four_pairs_of_versions() {
    for site in ["h2", "http/1.1"] {
        let Some(world) = World::start(&[site]) else {
            return;
        };
        world.runtime.block_on(async {
            let client = world.client().await;
            let request = client.request("POST", "/continue");
            let request = request.header("expect", "100-continue");
            let request = request.header("content-length", "4").body(());
            let mut sender = client.sender.clone();
            let (mut response, mut stream) = sender
                .send_request(request.expect("a request"), false)
                .expect("a stream");
            let interim = poll_fn(|context| response.poll_informational(context));
            let interim = soon("a 100", interim).await.expect("one").expect("one");
            assert_eq!(interim.status(), 100, "{site}");
            stream.send_data("body".into(), true).expect("a stream");
            let mut body = soon("a head", response).await.expect("a head").into_body();
            let data = soon("a body", body.data()).await.expect("data");
            assert_eq!(data.expect("data"), "got 4", "{site}");

            let answer = client.get("/only-trailers").await.expect("an answer");
            assert_eq!(answer.head.headers["grpc-status"], "5");
            assert!(answer.is_only_head, "{site}: {answer:?}");

            let post = "POST /continue\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody";
            let get = "GET /only-trailers\r\nConnection: close";
            let answers = world.answers_of_http1(&[post, get]).await;
            for part in ["http/1.1 100 ", "got 4", "grpc-status: 5\r\n"] {
                assert!(answers.contains(part), "{site}: {part}: {answers}");
            }
        });
    }
}

#[test]
fn clients_of_http1_reach_a_site_that_speaks_only_http2() {
    let Some(world) = World::start(&["h2"]) else {
        return;
    };
    world.runtime.block_on(async {
        // One after the other on a connection.
        let requests = [
            "HEAD /1000",
            "GET /seen\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX: y",
            "POST /echo\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Own: 1",
            "POST /echo\r\nContent-Length: 4\r\nConnection: close\r\n\r\n4242",
        ];
        let answers = world.answers_of_http1(&requests).await;
        for part in [
            "content-length: 1000\r\n",
            "get https://localhost",
            "\nx: y\n",
            "\r\nbody\r\n0\r\n",
            "x-own: 1\r\nx-bytes: 4\r\n",
            "\r\n4242\r\n0\r\n",
        ] {
            assert!(answers.contains(part), "{part}: {answers}");
        }
        assert!(!answers.contains("upgrade: "), "{answers}");
        assert_eq!(world.seen.streams(), 4);
        assert_eq!(world.seen.connections(), 1);
        // Each has a connection of its own.
        world
            .answers_of_http1(&["GET /seen\r\nConnection: close"])
            .await;
        assert_eq!(world.seen.connections(), 2);
        let early = "POST /early\r\nContent-Length: 3000000\r\n\r\nthe beginning";
        let answer = world.answers_of_http1(&[early]).await;
        assert!(
            answer.contains("413 ") && answer.contains("too large"),
            "{answer}"
        );
        // What breaks off is no whole answer.
        let answer = world.answers_of_http1(&["GET /reset"]).await;
        assert!(!answer.contains("\r\n0\r\n"), "{answer}");
        let answer = world.answers_of_http1(&["GET /refuse"]).await;
        assert!(answer.contains("502 "), "{answer}");
    });
}
