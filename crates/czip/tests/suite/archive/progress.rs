//! What those are told who wait for an archive to be checked.

use std::{ops::ControlFlow, sync::Mutex};

use refrain_czip::{
    create::CreateOptions,
    verify::{bytes_to_verify, verify},
};
use refrain_czip_format::{Stream, header::Profile};

use crate::archive::{
    archive_of,
    encryption::{encrypted, pair},
    noise, open, options, tar_of,
};

#[test]
fn parts_of_the_table_count_as_frames_do() {
    let files: Vec<_> = (0..5)
        .map(|file| (format!("release/{file}"), noise(file, 400_000)))
        .collect();
    let content = tar_of(&files, 1_700_000_000);
    let (recipient, _) = pair();
    for options in [
        options(),
        CreateOptions {
            profile: Profile::Shared,
            ..options()
        },
        encrypted(&recipient, true, false),
    ] {
        let archive = open(archive_of(&content, &options));
        let frame_bytes = Stream::ALL.map(|stream| archive.root().stream(stream).stored_bytes());
        let frame_bytes: u64 = frame_bytes.iter().sum();
        let total = bytes_to_verify(&archive);
        let header = archive.header();
        assert!(frame_bytes < total && total < header.archive_bytes);
        for threads in [1, 3] {
            let told = Mutex::new(Vec::new());
            let verified = verify(&archive, threads, &|bytes| {
                told.lock().expect("no panic").push(bytes);
                ControlFlow::Continue(())
            });
            let verified = verified.expect("sound").expect("all of it");
            assert_eq!(verified.stored_bytes, frame_bytes);
            let mut told = told.into_inner().expect("no panic");
            if threads == 1 {
                assert!(told.is_sorted(), "it only grows: {told:?}");
            }
            told.sort_unstable();
            assert!(told[0] < total - frame_bytes, "the table comes first");
            assert_eq!(told.last(), Some(&total));
        }
    }
}

#[test]
fn who_is_told_of_the_table_may_stop_there() {
    let archive = open(archive_of(&noise(1, 300_000), &options()));
    let verified = verify(&archive, 1, &|_| ControlFlow::Break(()));
    assert_eq!(verified.expect("nothing is wrong"), None);
}
