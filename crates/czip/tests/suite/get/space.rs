//! What a get takes on the disk before it is done.

use std::{fs, ops::ControlFlow, os::unix::fs::MetadataExt, path::Path};

use refrain_czip::get::{GetError, Phase, get, partial};
use refrain_czip_format::header::Profile;

use crate::get::{Place, archive_of, creating, noise, options, release, serve};

/// What a folder takes on the disk.
fn taken(folder: &Path) -> u64 {
    let Ok(files) = fs::read_dir(folder) else {
        return 0;
    };
    let files = files.map(|file| fs::metadata(file.expect("readable").path()));
    files
        .map(|file| file.map_or(0, |file| file.blocks() * 512))
        .sum()
}

/// Whether the file system frees ranges of files.
fn has_holes(folder: &Path) -> bool {
    let file = fs::File::create(folder.join("holes")).expect("made");
    std::os::unix::fs::FileExt::write_all_at(&file, &[1; 1 << 16], 0).expect("written");
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    let has_holes = rustix::fs::fallocate(&file, flags, 0, 1 << 16).is_ok();
    fs::remove_file(folder.join("holes")).expect("there");
    has_holes
}

/// What a table takes beside the content, and the blocks that files end in.
const TABLE_BYTES: u64 = 160 << 10;

#[test]
fn a_partial_download_takes_no_more_than_the_finished_one() {
    let place = Place::new();
    if !has_holes(place.output().parent().expect("a folder")) {
        println!("skipped: the file system has no holes");
        return;
    }
    // What does not compress takes as much in the archive as outside of it.
    for content in [noise(1, 6 << 20), release(1)] {
        for profile in [Profile::Shared, Profile::Small] {
            let server = serve(archive_of(&content, &creating(profile), false));
            let place = Place::new();
            let most = content.len() as u64 + TABLE_BYTES;
            let mut options = options();
            options.remote.piece_bytes = 100_000;
            let mut is_over = None;
            // While it comes.
            let got = get(&server.url(), &place.output(), &options, &mut |now| {
                let taken = taken(&place.part());
                if now.phase != Phase::Output && taken > most {
                    is_over = Some(taken);
                }
                // And where it stops while it is put together: what is left.
                match now.phase == Phase::Output && now.done * 2 > now.total {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            assert!(matches!(got, Err(GetError::Interrupted)), "{got:?}");
            assert_eq!(is_over, None, "{profile}: of {most}");
            let left = partial(&place.output()).expect("it is left");
            assert_eq!(left.path, place.part());
            assert!(left.bytes <= most, "{profile}: {} of {most}", left.bytes);
            assert!(
                left.bytes > content.len() as u64 / 2,
                "{profile}: {}",
                left.bytes
            );
            // Nothing of it is fetched again, but for the header.
            let report = place.get(&server, &options).expect("a file");
            place.assert_is(&content);
            assert_eq!(report.from_server.chunks, 0, "{report:?}");
            assert_eq!(partial(&place.output()), None);
        }
    }
}

#[test]
fn what_is_kept_of_another_version_goes_when_what_fits_of_it_was_taken() {
    let [old, new] =
        [1, 2].map(|number| archive_of(&release(number), &creating(Profile::Shared), false));
    let place = Place::new();
    let stop_at_output = &mut |now: refrain_czip::get::GetProgress| match now.phase {
        Phase::Output => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    for archive in [old, new] {
        let server = serve(archive);
        let got = get(&server.url(), &place.output(), &options(), stop_at_output);
        assert!(matches!(got, Err(GetError::Interrupted)), "{got:?}");
        assert!(!place.part().join("chunks.old").exists());
    }
    let left = partial(&place.output()).expect("it is left");
    let most = release(2).len() as u64 + 2 * TABLE_BYTES;
    assert!(left.bytes <= most, "{} of {most}", left.bytes);
}

#[test]
fn what_others_left_is_not_called_a_partial_download() {
    let place = Place::new();
    assert_eq!(partial(&place.output()), None);
    fs::write(place.part(), b"a file").expect("written");
    assert_eq!(partial(&place.output()), None);
    fs::remove_file(place.part()).expect("there");
    std::os::unix::fs::symlink("/tmp", place.part()).expect("made");
    assert_eq!(partial(&place.output()), None);
}
