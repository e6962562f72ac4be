use super::{keeper::tests::options, *};

/// A history whose thread hangs, with no room for any request.
fn hanging() -> (History, Receiver<Request>) {
    let (requests, asked) = sync_channel(1);
    let (done, _) = sync_channel(1);
    requests
        .try_send(Request::Settle(done))
        .expect("room for one");
    let shared = Arc::new(Shared::new(&options("store".into(), vec![])));
    let history = History {
        requests,
        shared,
        next_link: AtomicU64::new(0),
    };
    (history, asked)
}

/// What `call` gives, which may take a few seconds.
fn soon<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = sync_channel(1);
    std::thread::spawn(move || done.send(call()));
    let result = result.recv_timeout(Duration::from_secs(20));
    result.expect("it waits for nobody")
}

#[test]
fn a_link_begins_and_the_program_ends_while_the_disk_hangs() {
    let (history, _asked) = hanging();
    let history = soon(move || {
        drop(history.attach(Weak::<crate::link::SharedLink>::new(), "example"));
        history
    });
    assert!(soon(
        move || !history.settle_within(Duration::from_millis(50))
    ));
}

#[test]
fn nobody_waits_for_a_thread_that_is_gone() {
    let (history, asked) = hanging();
    drop(asked);
    assert!(history.settle_within(Duration::from_secs(20)));
}

#[test]
fn a_thread_that_panics_is_reported() {
    let shared = Shared::new(&options("store".into(), vec![]));
    report_panic(&shared, || ());
    assert!(shared.trouble.last().is_none());
    report_panic(&shared, || panic!("as a bug would"));
    let told = shared.trouble.last().expect("it is told").text;
    assert!(
        told.contains("nothing is predicted until a restart"),
        "{told}"
    );
}

#[test]
fn a_disk_that_became_read_only_stops_no_traffic() {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    for (kind, stops) in [(PermissionDenied, true), (ReadOnlyFilesystem, false)] {
        let error = StoreError::Io {
            doing: "open",
            path: "store/lock".into(),
            source: kind.into(),
        };
        assert_eq!(needs_somebody(&error), stops, "{error}");
    }
}

#[test]
fn a_disk_that_hangs_does_not_hold_up_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
    let options = options(own, vec![other]);
    let (answers, disk) = sync_channel::<()>(0);
    let open = move |options: &HistoryOptions, shared| {
        // Nobody sends: this ends when the other end does.
        let _ = disk.recv();
        Keeper::open(options, shared)
    };
    let history = soon(move || History::open_within(Duration::from_millis(50), &options, open));
    let history = history.expect("traffic goes on");
    let told = history.report().last_error.expect("it is told").text;
    assert!(told.contains("not open after 50ms"), "{told}");

    drop(answers);
    let patience = Instant::now() + Duration::from_secs(20);
    while history.report().last_error.is_some() {
        assert!(Instant::now() < patience, "the store is open");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(history.report().also[0].trouble.is_some());
}
