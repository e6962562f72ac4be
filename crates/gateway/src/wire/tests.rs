use std::future::poll_fn;

use super::*;

#[test]
fn the_front_of_slices_is_that_of_their_bytes() {
    let slices = [&b"ab"[..], b"", b"cdef", b"g"].map(IoSlice::new);
    for bytes in 0..=7 {
        let front: Vec<u8> = front(&slices, bytes)
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect();
        assert_eq!(front, b"abcdefg"[..bytes]);
    }
}

/// A connection of which the kernel says this.
fn rate(mbit: u64, is_app_limited: bool) -> Rate {
    Rate {
        minds_loss: true,
        info: TcpInfo {
            delivery_rate: mbit * 125_000,
            is_app_limited,
            round_trip_us: 50_000,
            round_trip_min_us: 50_000,
            segment_bytes: 1_448,
            unacknowledged: 1_000,
            ..TcpInfo::default()
        },
        ..Rate::default()
    }
}

#[test]
fn what_is_unsent_follows_the_rate() {
    let bound = |mbit| rate(mbit, false).new_bound();
    assert_eq!(bound(1), Some(16 << 10));
    assert_eq!(bound(20), Some(50_000));
    assert_eq!(bound(1_000), Some(2 << 20));
    assert_eq!(bound(10_000), Some(2 << 20));
}

#[test]
fn a_bound_stays_where_the_rate_is_as_before_or_unknown() {
    let mut rate = rate(20, false);
    assert_eq!(rate.new_bound(), Some(50_000));
    let mut at = |mbit: u64, is_app_limited| {
        rate.info.delivery_rate = mbit * 125_000;
        rate.info.is_app_limited = is_app_limited;
        rate.new_bound()
    };
    assert_eq!(at(22, false), None);
    assert_eq!(at(5, true), None);
    assert_eq!(at(40, true), Some(100_000));
    assert_eq!(at(5, false), Some(16 << 10));
}

#[test]
fn a_path_is_full_where_packets_wait_on_it() {
    for (round_trip_us, is_full) in [(50_000, false), (67_000, false), (68_000, true)] {
        let mut rate = rate(20, false);
        rate.info.round_trip_us = round_trip_us;
        assert_eq!(rate.is_path_full(), is_full, "{round_trip_us} us");
        // A radio link: no two round trips are alike.
        rate.info.round_trip_deviation_us = 10_000;
        assert!(!rate.is_path_full());
    }
}

#[test]
fn a_link_may_carry_more_than_it_did_where_there_was_nothing_more_to_send() {
    assert_eq!(rate(20, false).most(), 2_500_000);
    assert_eq!(rate(20, true).most(), 5_000_000);
}

#[test]
fn a_rate_still_grows_until_two_round_trips_after_it_last_did() {
    let now = Instant::now();
    let mut rate = rate(1, false);
    let mut look = |mbit: u64, ms: u64| {
        let now = now + Duration::from_millis(ms);
        rate.info.delivery_rate = mbit * 125_000;
        rate.note_growth(now);
        rate.is_starting(now)
    };
    assert!(!look(0, 0), "nothing is known");
    for (mbit, ms) in [(1, 50), (2, 100), (4, 150), (8, 200)] {
        assert!(look(mbit, ms), "{mbit} Mbit/s");
    }
    assert!(look(9, 290), "not yet over");
    assert!(!look(9, 300), "a little more is no growth");
    assert!(!look(2, 400));
    assert!(!look(9, 500), "it was as fast before");
    assert!(look(10, 600));
}

#[test]
fn losses_by_chance_make_a_link_lossy() {
    let now = Instant::now();
    let mut rate = rate(20, false);
    let mut look = |retransmitted, ms: u64| {
        rate.info.retransmitted = retransmitted;
        rate.loses(now + Duration::from_millis(ms))
    };
    assert!(!look(1, 0));
    assert!(!look(1, 20), "nothing further");
    assert!(!look(3, 40));
    assert!(look(4, 60));
    assert!(!look(5, 6_000), "the others are long ago");
}

#[test]
fn losses_of_a_full_queue_or_under_bbr_make_no_link_lossy() {
    let now = Instant::now();
    let mut full = rate(20, false);
    full.info.round_trip_us = 150_000;
    let mut bbr = rate(20, false);
    bbr.minds_loss = false;
    for retransmitted in 1..20 {
        full.info.retransmitted = retransmitted;
        bbr.info.retransmitted = retransmitted;
        assert!(!full.loses(now));
        assert!(!bbr.loses(now));
    }
}

#[test]
fn segments_that_the_peer_got_twice_were_not_lost() {
    let now = Instant::now();
    let mut rate = rate(20, false);
    for probe in 1..100 {
        // The peer's report comes a round trip later.
        rate.info.retransmitted = probe;
        assert!(!rate.loses(now));
        rate.info.duplicates = probe;
        assert!(!rate.loses(now));
    }
    // A probe seemed lost for a while, too. The first loss makes no difference to that.
    for _ in 1..LOSSES {
        rate.info.retransmitted += 1;
        assert!(!rate.loses(now));
    }
    rate.info.retransmitted += 1;
    assert!(rate.loses(now));
}

#[test]
fn a_queue_is_drained_under_bbr_alone_and_not_while_the_rate_grows() {
    let now = Instant::now();
    let mut rate = rate(20, false);
    rate.info.round_trip_us = 68_000;
    assert_eq!(
        rate.new_rate_bound(now, true),
        None,
        "its queue has a purpose"
    );
    rate.minds_loss = false;
    rate.note_growth(now);
    assert_eq!(rate.new_rate_bound(now, true), None);
    let mut later = |ms, is_app_limited| {
        rate.info.is_app_limited = is_app_limited;
        rate.new_rate_bound(now + Duration::from_millis(ms), true)
    };
    assert_eq!(later(100, false), Some(1_875_000));
    assert_eq!(later(150, false), None);
    assert_eq!(later(200, true), Some(2_500_000));
    assert_eq!(later(400, true), Some(u64::MAX));
}

#[test]
fn a_queue_is_more_than_own_segments_and_differences_of_round_trips() {
    let drains = |mbit, queued_us, deviation_us| {
        let mut rate = rate(mbit, false);
        rate.minds_loss = false;
        rate.info.round_trip_us += queued_us;
        rate.info.round_trip_deviation_us = deviation_us;
        rate.new_rate_bound(Instant::now(), true).is_some()
    };
    // Eight segments take 93 ms, and 9.
    for (mbit, usual_us) in [(1, 97_672), (10, 17_500)] {
        assert!(!drains(mbit, usual_us, 0));
        assert!(drains(mbit, usual_us + 1, 0));
        assert!(!drains(mbit, usual_us + 1, 3_000));
    }
}

#[test]
fn a_rate_after_a_pause_bounds_nothing_to_itself() {
    let mut short = rate(20, false);
    short.minds_loss = false;
    (short.info.round_trip_min_us, short.info.round_trip_us) = (19_999, 90_000);
    assert_eq!(
        short.new_rate_bound(Instant::now(), true),
        None,
        "a short path"
    );
    let mut rate = rate(20, false);
    rate.minds_loss = false;
    let now = Instant::now();
    assert_eq!(rate.new_rate_bound(now, true), None);
    rate.info.delivery_rate /= 20;
    let later = |round_trips| now + round_trips * Duration::from_millis(50);
    for look in 0..10 {
        let now = later(1) + look * Duration::from_millis(2);
        assert_eq!(rate.new_rate_bound(now, true), None, "one round trip");
    }
    rate.info.round_trip_us = 90_000;
    for look in 2..50 {
        let bound = rate.new_rate_bound(later(look), false);
        assert_eq!(bound, None, "nothing new is known");
    }
    rate.info.unacknowledged = 66;
    let bound = rate.new_rate_bound(later(49), true);
    assert_eq!(bound, None, "the queue is one of others");
    rate.info.unacknowledged = 67;
    let bound = rate.new_rate_bound(later(49) + Duration::from_millis(1), true);
    assert_eq!(bound, Some(1_435_547), "of the rate before the pause");
    assert_eq!(rate.new_rate_bound(later(51), false), None);
    assert_eq!(rate.new_rate_bound(later(52), false), Some(1_914_063));
    let ends = rate.new_rate_bound(later(56), false);
    assert_eq!(ends, Some(u64::MAX), "a bound ends, heard or not");
}

/// Takes all, and remembers what was to be apart.
#[derive(Default)]
struct Taker {
    written: usize,
    ends: Vec<usize>,
}

impl AsyncRead for Taker {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Taker {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl ByteStream for Taker {
    fn poll_write_apart(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        self.written += bytes;
        let end = self.written;
        self.ends.push(end);
        Poll::Ready(Ok(bytes))
    }
}

#[tokio::test]
async fn buffers_end_with_whole_segments_where_little_may_be_unsent() {
    let mut stream = Counted::new(Taker::default());
    let write = async |stream: &mut Counted<Taker>, mut bytes: usize| {
        while bytes > 0 {
            let piece = vec![0; bytes];
            let written = poll_fn(|context| Pin::new(&mut *stream).poll_write(context, &piece));
            bytes -= written.await.expect("it takes all");
        }
    };
    write(&mut stream, 5000).await;
    assert!(stream.inner.ends.is_empty(), "its rate is not known");
    stream
        .counts
        .unsent_bytes_max
        .store(24_000, Ordering::Relaxed);
    stream.counts.segment_bytes.store(1000, Ordering::Relaxed);
    for bytes in [12_345, 10, 700, 12_000, 1, 3000] {
        write(&mut stream, bytes).await;
    }
    assert_eq!(stream.inner.ends, [17_000, 18_000, 30_000, 33_000]);
    stream
        .counts
        .unsent_bytes_max
        .store(1 << 20, Ordering::Relaxed);
    write(&mut stream, 100_000).await;
    assert_eq!(
        stream.inner.ends.len(),
        4,
        "its buffers are filled in no time"
    );
    assert_eq!(stream.counts.sent(), 133_056);
}

#[tokio::test]
async fn what_came_is_read_however_records_are_cut() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("a port");
    let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (mut client, server) = (client.expect("a server"), server.expect("a client").0);
    let mut reader = Counted::new(server);
    let whole: Vec<u8> = [16_384_u16, 3, 0, 9_000, 1]
        .into_iter()
        .flat_map(|length| {
            let header = [&[23, 3, 3][..], &length.to_be_bytes()].concat();
            [header, vec![7; usize::from(length)]].concat()
        })
        .collect();
    let received = tokio::spawn(async move {
        let mut received = Vec::new();
        // Its last record is not whole.
        reader.read_to_end(&mut received).await.map(|_| received)
    });
    let cut = &whole[..whole.len() - 1];
    for (number, piece) in cut.chunks(1_001).enumerate() {
        client.write_all(piece).await.expect("a reader");
        if number % 5 == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    drop(client);
    let received = tokio::time::timeout(Duration::from_secs(20), received).await;
    let received = received.expect("it ends").expect("no panic");
    assert_eq!(received.expect("an end"), cut);
}
