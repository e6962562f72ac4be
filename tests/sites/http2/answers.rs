//! Hostile answers by HTTP/1.1 to clients of HTTP/2: each is one answer, or visibly none.

use std::{io::Write, net::Shutdown, time::Duration};

use super::{
    TlsFront,
    peers::{Client, runtime, soon},
};
use crate::{
    common::{
        certificate::certificate,
        hostile_answers::{
            Reading::{Instead, Last, Truncated, Whole},
            SECRET, hostile_answers,
        },
        http::{HandMadeOrigin, read_head},
        programs::are_installed,
    },
    served,
};

#[test]
fn no_answer_brings_another() {
    if !are_installed(&["openssl", "socat"]) {
        return;
    }
    let answers = hostile_answers();
    // Its path is the number of an answer. Another one comes at once, or a little later.
    let origin = HandMadeOrigin::conversing({
        let answers = answers.clone();
        move |stream, head| loop {
            let path = head.split(' ').nth(1).unwrap_or_default();
            let (at_once, number) = (path.starts_with("/at-once/"), path.rsplit('/').next());
            let Some(number) = number.and_then(|number| number.parse::<usize>().ok()) else {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")?;
                *head = read_head(stream)?;
                if head.is_empty() {
                    return Ok(());
                }
                continue;
            };
            let (answer, reading) = &answers[number];
            if let Last(_) = reading {
                stream.write_all(answer.as_bytes())?;
                return stream.shutdown(Shutdown::Write);
            }
            if at_once {
                return stream.write_all((answer.clone() + SECRET).as_bytes());
            }
            stream.write_all(answer.as_bytes())?;
            std::thread::sleep(Duration::from_millis(5));
            return stream.write_all(SECRET.as_bytes());
        }
    });
    let folder = certificate();
    let runtime = runtime();
    let tls = TlsFront::start(folder.path(), origin.address);
    let (_pair, near) = served("https", folder.path(), tls.address.port());
    runtime.block_on(async {
        let other = Client::connect(near, folder.path()).await;
        for (number, (answer, reading)) in answers.iter().enumerate() {
            for when in ["at-once", "later"] {
                // What comes later would be the answer to its next request, which the same site must answer.
                let client = Client::connect(near, folder.path()).await;
                let came = client.get(&format!("/{when}/{number}")).await;
                let note = format!("{answer:?}, {when}: {came:?}");
                assert!(!note.replace(answer, "").contains("secret"), "{note}");
                let came = came.map(|came| (came.head.status.as_u16(), came.body));
                match (reading, came) {
                    (Whole(body) | Last(body), Ok((_, came))) => {
                        assert_eq!(came, body.as_bytes(), "{note}");
                    }
                    (Instead(status), Ok((came, _))) => assert_eq!(came, *status, "{note}"),
                    // An end of TLS that is no end of the connection may be an attacker's.
                    (Instead(_) | Truncated | Last(_), Err(_)) => {}
                    _ => panic!("{note}"),
                }
                let next = soon("an answer", other.get("/good")).await;
                assert_eq!(next.expect("an answer").body, b"good", "{note}");
            }
        }
    });
}
