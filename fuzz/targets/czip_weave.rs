//! Weaves. The first byte is 0: what follows is a file, which is woven in pieces and comes back, from each
//! restart point. Else it and two more are lengths of weave, fields and times; the rest is content:
//! nothing but an error or some bytes may come of them, by reading or by passing over.
#![no_main]

use std::convert::Infallible;

use libfuzzer_sys::fuzz_target;
use refrain_czip_format::{
    Stream,
    container::{RestartPoint, Weaver, Woven},
    weave::{StreamReader, Streams, Unweaver, WeaveError},
};

/// A weave of a few bytes may stand for any number.
const PLAIN_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|data: &[u8]| match data {
    [0, piece, file @ ..] => round_trip(usize::from(*piece) + 1, file),
    [weave, fields, times, rest @ ..] => {
        let mut rest = rest;
        let mut take = |count: u8| {
            let (taken, left) = rest.split_at(rest.len().min(count.into()));
            rest = left;
            taken.to_vec()
        };
        let (weave, fields, times) = (take(*weave), take(*fields), take(*times));
        let told = Told {
            weave,
            fields,
            times,
            content: rest.to_vec(),
            restarts: Vec::new(),
        };
        read(told.unweaver(RestartPoint::default()));
        let mut unweaver = told.unweaver(RestartPoint::default());
        for _ in 0..64 {
            let passed = unweaver.skip(u64::MAX / 128).unwrap_or(0);
            if passed == 0 {
                break;
            }
        }
    }
    _ => {}
});

fn round_trip(piece: usize, file: &[u8]) {
    let mut told = Told::default();
    let mut weaver = Weaver::new();
    weaver.begin_file();
    for piece in file.chunks(piece) {
        let Ok(()) = weaver.feed(piece, &mut told);
    }
    let Ok(()) = weaver.end_file(&mut told);
    let Ok(()) = weaver.finish(&mut told);
    for restart in told.restarts.iter().copied() {
        let back = read(told.unweaver(restart)).expect("what was woven comes back");
        assert!(back == file[restart.plain as usize..], "from {restart:?}");
    }
    assert_eq!(told.restarts.is_empty(), file.is_empty());
}

/// All that comes, up to a bound; nothing after an error.
fn read(mut unweaver: Unweaver<Slice<'_>>) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let mut piece = [0; 1500];
    while plain.len() < PLAIN_BYTES_MAX {
        match unweaver.read(&mut piece).ok()? {
            0 => break,
            count => plain.extend_from_slice(&piece[..count]),
        }
    }
    Some(plain)
}

/// What a weaver tells.
#[derive(Default)]
struct Told {
    weave: Vec<u8>,
    content: Vec<u8>,
    fields: Vec<u8>,
    times: Vec<u8>,
    restarts: Vec<RestartPoint>,
}

impl Told {
    fn unweaver(&self, from: RestartPoint) -> Unweaver<Slice<'_>> {
        Unweaver::new(Streams {
            weave: Slice(&self.weave[from.weave as usize..]),
            content: Slice(&self.content[from.content as usize..]),
            fields: Slice(&self.fields[from.fields as usize..]),
            times: Slice(&self.times[from.times as usize..]),
        })
    }
}

impl Woven for Told {
    type Error = Infallible;

    fn put(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), Infallible> {
        let stream = match stream {
            Stream::Content => &mut self.content,
            Stream::Weave => &mut self.weave,
            Stream::Fields => &mut self.fields,
            Stream::Times => &mut self.times,
            Stream::Catalog => panic!("the catalog is not woven"),
        };
        stream.extend_from_slice(bytes);
        Ok(())
    }

    fn boundary(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn restart(&mut self, at: RestartPoint) -> Result<(), Infallible> {
        self.restarts.push(at);
        Ok(())
    }
}

/// A stream, whose reader may not ask for more than there is.
struct Slice<'a>(&'a [u8]);

impl StreamReader for Slice<'_> {
    type Error = WeaveError;

    fn left(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), WeaveError> {
        let (now, rest) = self.0.split_at(bytes.len());
        bytes.copy_from_slice(now);
        self.0 = rest;
        Ok(())
    }

    fn skip(&mut self, count: u64) -> Result<(), WeaveError> {
        self.0 = &self.0[usize::try_from(count).expect("it is within the stream")..];
        Ok(())
    }
}
