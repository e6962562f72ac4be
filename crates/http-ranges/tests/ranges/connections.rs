//! Several connections at a time, and the memory that they fill.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use refrain_http_ranges::{Remote, RemoteError, RemoteOptions};

use crate::{
    assert_holds, fetched, options,
    server::{Ending, File, Reply, Server},
};

/// Long enough to tell that something does not come at all.
const NEVER: Duration = Duration::from_secs(3600);

#[test]
fn as_many_requests_run_at_a_time_as_were_asked_for_on_connections_that_are_kept() {
    let file = File::new(400_000);
    let served = file.clone();
    let running = Arc::new((Mutex::new(0), Condvar::new()));
    let server = Server::start(move |request| {
        // The first four wait for each other.
        if (1..5).contains(&request.number) {
            let (count, changed) = &*running;
            let mut count = count.lock().unwrap();
            *count += 1;
            changed.notify_all();
            let (_count, waited) = changed
                .wait_timeout_while(count, Duration::from_secs(60), |count| *count < 4)
                .unwrap();
            assert!(!waited.timed_out(), "four requests do not run at a time");
        }
        served.reply(request)
    });
    let options = RemoteOptions {
        piece_bytes: 20_000,
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    assert_holds(
        &fetched(&remote, &[0..400_000]).unwrap(),
        &[0..400_000],
        &file,
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 1 + 20);
    let connections: HashSet<usize> = requests.iter().map(|request| request.connection).collect();
    assert_eq!(connections.len(), 4);
}

/// The first piece comes last, and all others are there at once.
#[test]
fn what_waits_for_its_turn_fills_the_window_and_no_more() {
    let file = File::new(2_000_000);
    let served = file.clone();
    let server = Server::start(move |request| {
        let reply = served.reply(request);
        match request.number {
            1 if request
                .range(2_000_000)
                .is_some_and(|range| range.start == 16) =>
            {
                reply.ending(Ending::Stall(10))
            }
            _ => reply,
        }
    });
    let window_bytes = 300_000;
    let options = RemoteOptions {
        piece_bytes: 50_000,
        window_bytes,
        connections: 3,
        progress_timeout: Duration::from_millis(500),
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    assert_holds(
        &fetched(&remote, &[0..2_000_000]).unwrap(),
        &[0..2_000_000],
        &file,
    );
    let held = remote.counters().held_bytes_max;
    assert!(held <= window_bytes as u64, "{held}");
}

#[test]
fn a_sink_that_is_slow_stops_the_server_and_not_the_memory() {
    let file = File::new(64 << 20);
    let served = file.clone();
    let server = Arc::new(Server::start(move |request| served.reply(request)));
    let options = RemoteOptions {
        window_bytes: 1 << 20,
        piece_bytes: 16 << 20,
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    let mut is_first = true;
    let seen = server.clone();
    remote
        .fetch(&[0..64 << 20], &mut |offset, bytes| {
            let at = offset as usize;
            assert_eq!(bytes, &file.bytes[at..at + bytes.len()]);
            if !std::mem::take(&mut is_first) {
                return Ok::<(), RemoteError>(());
            }
            // Until nothing more is sent for a while.
            let mut before = u64::MAX;
            while before != seen.sent_bytes() {
                before = seen.sent_bytes();
                std::thread::sleep(Duration::from_millis(200));
            }
            assert!(before < 60 << 20, "the server sent {before}");
            Ok(())
        })
        .unwrap();
    let held = remote.counters().held_bytes_max;
    assert!(held <= 1 << 20, "{held}");
    assert!(held > 1 << 18, "the window is used: {held}");
}

/// A stalled connection would hold it for an hour.
#[test]
fn a_sink_that_fails_ends_it_at_once() {
    #[derive(Debug)]
    enum Failed {
        Remote,
        Sink,
    }
    impl From<RemoteError> for Failed {
        fn from(_: RemoteError) -> Self {
            Self::Remote
        }
    }
    let file = File::new(100_000);
    let served = file.clone();
    let server = Server::start(move |request| {
        let reply = served.reply(request);
        match request.range(100_000) {
            Some(range) if range.start > 50_000 => reply.ending(Ending::Stall(10)),
            _ => reply,
        }
    });
    let options = RemoteOptions {
        piece_bytes: 10_000,
        progress_timeout: NEVER,
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    let outcome = remote.fetch(
        &[0..40_000, 60_000..100_000],
        &mut |offset, _| match offset {
            0..30_000 => Ok(()),
            _ => Err(Failed::Sink),
        },
    );
    assert!(matches!(outcome, Err(Failed::Sink)), "{outcome:?}");
    // And it can be used on.
    assert_holds(&fetched(&remote, &[100..200]).unwrap(), &[100..200], &file);
}

#[test]
fn a_piece_that_fails_ends_it_while_others_stall() {
    let file = File::new(100_000);
    let server = Server::start(move |request| {
        let reply = file.reply(request);
        match request.range(100_000).map(|range| range.start) {
            Some(16) => reply.ending(Ending::Stall(10)),
            Some(0) => reply,
            _ => reply.with("Content-Encoding", "gzip"),
        }
    });
    let options = RemoteOptions {
        piece_bytes: 50_000,
        progress_timeout: NEVER,
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    let error = fetched(&remote, &[0..100_000]).unwrap_err();
    assert!(matches!(error, RemoteError::Encoded { .. }), "{error}");
}

#[test]
fn a_sink_that_panics_leaves_no_thread_waiting() {
    let file = File::new(1_000_000);
    let server = Server::start(move |request| file.reply(request));
    let options = RemoteOptions {
        window_bytes: 10_000,
        piece_bytes: 100_000,
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        remote.fetch(&[100..1_000_000], &mut |_, _| -> Result<(), RemoteError> {
            panic!("as it should")
        })
    }));
    assert!(outcome.is_err());
}

#[test]
fn a_fetch_that_fails_leaves_another_alone() {
    let file = File::new(100_000);
    let served = file.clone();
    let has_failed = Arc::new(AtomicBool::new(false));
    let may_go_on = has_failed.clone();
    let server = Server::start(move |request| {
        if request.number == 1 {
            while !may_go_on.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        served.reply(request)
    });
    let options = RemoteOptions {
        retries: 0,
        progress_timeout: NEVER,
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    std::thread::scope(|threads| {
        let other = threads.spawn(|| fetched(&remote, &[60_000..70_000]));
        while server.requests().len() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let outcome = remote.fetch(&[20_000..30_000], &mut |_, _| {
            Err(RemoteError::Thread {
                source: std::io::Error::other("it fails"),
            })
        });
        has_failed.store(true, Ordering::Relaxed);
        assert!(outcome.is_err());
        let other = other.join().unwrap().unwrap();
        assert_holds(&other, &[60_000..70_000], &file);
        let requests = server.requests();
        let starts = requests.iter().filter_map(|request| request.range(100_000));
        assert_eq!(starts.filter(|range| range.start == 60_000).count(), 1);
    });
}

#[test]
fn a_failure_ends_requests_while_there_is_still_something_to_hand_on() {
    let file = File::new(4_000_000);
    let served = file.clone();
    let server = Server::start(move |request| match request.range(4_000_000) {
        Some(range) if range.start == 400_000 => Reply::new(404, ""),
        _ => served.reply(request),
    });
    let options = RemoteOptions {
        connections: 2,
        piece_bytes: 100_000,
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    let mut end = 200_000;
    let outcome = remote.fetch(&[200_000..4_000_000], &mut |offset, bytes: &[u8]| {
        assert_eq!(offset, end);
        assert!(!bytes.is_empty());
        end += bytes.len() as u64;
        std::thread::sleep(Duration::from_millis(50));
        Ok::<(), RemoteError>(())
    });
    assert!(outcome.is_err());
    assert!(end <= 400_000, "{end}");
    // One for the first bytes, three in order, and what the other connection asked for meanwhile.
    let asked = server.requests().len();
    assert!(asked < 8, "{asked} requests");
}
