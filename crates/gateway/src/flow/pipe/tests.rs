use std::{io::ErrorKind, time::Duration};

use proptest::prelude::*;
use tokio::time::timeout;

use super::*;

/// Writes all of `bytes`, in pieces.
async fn write(end: &PipeEnd, bytes: &[u8], piece: usize) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match end.try_write(&rest[..piece.min(rest.len())]) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => end.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads up to the end, in pieces.
async fn read(end: &PipeEnd, piece: usize) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
    loop {
        match end.try_read(&mut buffer) {
            Ok(0) => return Ok(all),
            Ok(read) => all.extend(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => end.readable().await?,
            Err(error) => return Err(error),
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn bytes_arrive_in_order_in_both_directions(
        up in prop::collection::vec(any::<u8>(), 0..200_000),
        down in prop::collection::vec(any::<u8>(), 0..200_000),
        pieces in prop::array::uniform4(1..100_000_usize),
    ) {
        let (one, other) = PipeEnd::pair();
        let expected = (down.clone(), up.clone());
        let run = async move {
            let first = tokio::spawn(async move {
                let written = async {
                    write(&one, &up, pieces[0]).await?;
                    one.finish();
                    Ok(())
                };
                tokio::try_join!(written, read(&one, pieces[1])).map(|(_, read)| read)
            });
            let second = tokio::spawn(async move {
                let written = async {
                    write(&other, &down, pieces[2]).await?;
                    other.finish();
                    Ok(())
                };
                tokio::try_join!(written, read(&other, pieces[3])).map(|(_, read)| read)
            });
            (first.await.unwrap().unwrap(), second.await.unwrap().unwrap())
        };
        let came = runtime().block_on(async { timeout(Duration::from_secs(30), run).await });
        prop_assert_eq!(came.expect("no one waits for ever"), expected);
    }
}

#[tokio::test]
async fn no_more_is_held_than_the_limit() {
    let (one, other) = PipeEnd::pair();
    assert_eq!(one.try_write(&vec![7; 1 << 20]).unwrap(), HELD_BYTES_MAX);
    let full = one.try_write(&[7]).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    assert_eq!(other.try_read(&mut [0; 10]).unwrap(), 10);
    assert_eq!(one.try_write(&[7; 20]).unwrap(), 10);
}

#[tokio::test]
async fn bytes_of_an_end_that_has_ended_arrive_after_it_is_dropped() {
    let (one, other) = PipeEnd::pair();
    one.try_write(b"last").unwrap();
    one.finish();
    drop(one);
    assert_eq!(read(&other, 3).await.unwrap(), b"last");
    let gone = other.try_write(b"x").unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn an_end_that_is_dropped_before_its_end_resets_the_other_which_waits() {
    let (one, other) = PipeEnd::pair();
    one.try_write(b"part").unwrap();
    let waiting = tokio::spawn(async move {
        let failed = other.failed().await.kind();
        (
            failed,
            other.try_read(&mut [0; 9]).map_err(|error| error.kind()),
        )
    });
    tokio::task::yield_now().await;
    drop(one);
    let reset = ErrorKind::ConnectionReset;
    assert_eq!(waiting.await.unwrap(), (reset, Err(reset)));
}

#[tokio::test]
async fn a_drained_pipe_has_no_memory() {
    let (one, other) = PipeEnd::pair();
    one.try_write(&vec![7; HELD_BYTES_MAX]).unwrap();
    assert_eq!(
        other.try_read(&mut vec![0; HELD_BYTES_MAX]).unwrap(),
        HELD_BYTES_MAX
    );
    assert_eq!(other.incoming.state().bytes.capacity(), 0);
}
