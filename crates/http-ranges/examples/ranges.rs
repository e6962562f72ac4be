//! Reads pieces of a file on a web server, which is in this program too.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use refrain_http_ranges::{ProxyChoice, Remote, RemoteError, RemoteOptions};

/// Answers one request, for the bytes `begin` to `end` of the file.
fn answer(mut client: TcpStream, file: &[u8]) -> std::io::Result<()> {
    let (mut begin, mut end) = (0, file.len() - 1);
    for line in BufReader::new(&client).lines() {
        let line = line?.to_ascii_lowercase();
        if let Some((first, last)) = line
            .strip_prefix("range: bytes=")
            .and_then(|range| range.split_once('-'))
        {
            begin = first.parse().unwrap_or(begin);
            end = last.parse().unwrap_or(end).min(end);
        }
        if line.is_empty() {
            break;
        }
    }
    write!(
        client,
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {begin}-{end}/{}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        file.len(),
        end - begin + 1
    )?;
    client.write_all(&file[begin..=end])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/numbers", listener.local_addr()?);
    let served = file.clone();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Who leaves early has all that it wants.
            let _ = answer(client, &served);
        }
    });

    let options = RemoteOptions {
        proxy: ProxyChoice::Direct,
        ..RemoteOptions::default()
    };
    let remote = Remote::open(&url, options)?;
    let mut number = [0; 4];
    remote.read_at(4 * 90_000, &mut number)?;
    assert_eq!(u32::from_be_bytes(number), 90_000);

    // Ranges come in the order of the file, in few requests.
    let mut got = Vec::new();
    remote.fetch(&[390_000..390_008, 300_000..300_004], &mut |at, bytes| {
        println!("{} bytes at {at}", bytes.len());
        got.extend_from_slice(bytes);
        Ok::<(), RemoteError>(())
    })?;
    assert_eq!(
        got,
        [&file[300_000..300_004], &file[390_000..390_008]].concat()
    );
    println!("{:?}", remote.counters());
    Ok(())
}
