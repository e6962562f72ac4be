//! Content and archives that are made for a test.

use std::{fs, io::Cursor, ops::ControlFlow};

use refrain_czip::create::{CreateOptions, Input, Output, create};
use refrain_czip_format::{chunker::Chunking, header::Profile};

/// Bytes that do not repeat.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut noise);
    noise
}

/// Options by which chunks are small, so that tests have many.
pub(crate) fn creating(profile: Profile) -> CreateOptions {
    CreateOptions {
        profile,
        chunking: Chunking::new(Default::default(), 4 << 10).expect("a power of two"),
        frame_bytes: 16 << 10,
        threads: 1,
        ..CreateOptions::default()
    }
}

/// An archive of `content`, as a file; `has_footer` as it goes down a pipe.
pub(crate) fn archive_of(content: &[u8], options: &CreateOptions, has_footer: bool) -> Vec<u8> {
    let input = Input::Stream(Box::new(Cursor::new(content.to_vec())));
    archive(vec![input], options, has_footer)
}

pub(crate) fn archive(inputs: Vec<Input>, options: &CreateOptions, has_footer: bool) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("archive");
    let output = match has_footer {
        true => Output::Pipe(Box::new(fs::File::create(&path).expect("a new file"))),
        false => Output::File(path.clone()),
    };
    create(inputs, output, options, &mut |_| ControlFlow::Continue(())).expect("an archive");
    fs::read(path).expect("it is there")
}
