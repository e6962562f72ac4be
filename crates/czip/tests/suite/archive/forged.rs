//! What a server could do to an encrypted archive, which has no key and mends all digests: whoever opens
//! it finds out before he reads a byte.

use std::ops::ControlFlow;

use refrain_czip::{
    archive::{Archive, CacheBytes, ReadError},
    create::CreateOptions,
    crypt::{GroupKeys, Identities},
    verify::verify_names,
};
use refrain_czip_format::{
    FormatError, Portion, Stream,
    chunker::{Chunking, ChunkingMethod},
    header::Profile,
    part::PartKind,
    root::{PartPlace, StreamRoot},
};

use crate::archive::{
    archive_of,
    encryption::{encrypted, pair, release, secret},
    noise, open, read_all,
};

/// Where the header has what the private root vouches for.
const VOUCHED: std::ops::Range<usize> = 12..152;

fn digest(bytes: &[u8], count: usize) -> Vec<u8> {
    blake3::hash(bytes).as_bytes()[..count].to_vec()
}

/// An archive that is changed in place: so short that its root is stored as it is, and has its digests
/// as they are.
#[derive(Clone)]
struct Forged {
    bytes: Vec<u8>,
    root: std::ops::Range<usize>,
    public_root: std::ops::Range<usize>,
    keys: std::ops::Range<usize>,
}

impl Forged {
    fn of(bytes: Vec<u8>) -> Self {
        let header = open(bytes.clone()).header().clone();
        let place = header.root;
        assert_eq!(place.stored_bytes, place.plain_bytes, "stored as it is");
        let begin = place.offset as usize;
        let end = begin + place.stored_bytes as usize;
        let keys = header.keys.offset as usize;
        Self {
            bytes,
            root: begin..end + place.private_stored_bytes as usize,
            public_root: begin..end,
            keys: keys..keys + header.keys.bytes as usize,
        }
    }

    fn lists(&self, stream: Stream) -> StreamRoot {
        open(self.bytes.clone()).root().stream(stream).clone()
    }

    fn place(&self, stream: Stream, kind: PartKind) -> PartPlace {
        self.lists(stream).list(kind).rows()[0].place
    }

    fn range(place: &PartPlace) -> std::ops::Range<usize> {
        let begin = place.offset as usize;
        begin..begin + place.stored_bytes as usize
    }

    /// Puts other bytes in the place of a part, and its digest into the root.
    fn set_part(&mut self, place: &PartPlace, part: &[u8], digest_bytes: usize) {
        let range = Self::range(place);
        let before = digest(&self.bytes[range.clone()], digest_bytes);
        assert_eq!(before, place.digest[..digest_bytes], "stored as it is");
        self.bytes[range].copy_from_slice(part);
        self.replace_in_root(&before, &digest(part, digest_bytes));
    }

    fn replace_in_root(&mut self, before: &[u8], after: &[u8]) {
        let root = &mut self.bytes[self.public_root.clone()];
        let at = root.windows(before.len()).position(|it| it == before);
        let at = at.expect("the root has it");
        root[at..at + after.len()].copy_from_slice(after);
    }

    /// With the digests that its bytes have.
    fn mended(mut self) -> Vec<u8> {
        let root = digest(&self.bytes[self.root.clone()], 32);
        let keys = digest(&self.bytes[self.keys.clone()], 32);
        self.bytes[152..184].copy_from_slice(&root);
        self.bytes[196..228].copy_from_slice(&keys);
        let check = digest(&self.bytes[..240], 16);
        self.bytes[240..256].copy_from_slice(&check);
        self.bytes
    }
}

fn unlocked(archive: Vec<u8>, identities: &Identities) -> Result<Archive<Vec<u8>>, ReadError> {
    let mut archive = Archive::open(archive, CacheBytes::default())?;
    archive.unlock(identities, None, &mut |_| None)?;
    Ok(archive)
}

#[track_caller]
fn assert_refused(what: &str, archive: Vec<u8>, identities: &Identities) {
    match unlocked(archive, identities) {
        Ok(_) => panic!("{what}: opened"),
        Err(ReadError::Format(FormatError::Digest(found))) => {
            assert_eq!(found, Portion::PrivateRoot, "{what}");
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Six chunks, of which the last four are similar to the first two; a recipient's keys.
fn sound(profile: Profile, seed: u64) -> (Forged, Identities) {
    let (recipient, identities) = pair();
    let options = CreateOptions {
        profile,
        is_woven: false,
        frame_bytes: 0,
        chunking: Chunking::new(ChunkingMethod::Fixed, 1024).expect("a length"),
        ..encrypted(&recipient, false, false)
    };
    let one = noise(seed, 2048);
    let mut content = one.repeat(3);
    for (number, chunk) in content.chunks_mut(1024).enumerate().skip(2) {
        chunk[512] ^= number as u8;
    }
    (Forged::of(archive_of(&content, &options)), identities)
}

#[test]
fn a_header_that_a_server_changed_is_refused() {
    let (sound, identities) = sound(Profile::Small, 1);
    let mended = sound.clone().mended();
    assert!(mended == sound.bytes, "mending alone changes nothing");
    unlocked(mended, &identities).expect("sound");
    for at in VOUCHED {
        let mut forged = sound.clone();
        forged.bytes[at] ^= 1;
        let opened = unlocked(forged.mended(), &identities);
        assert!(opened.is_err(), "byte {at}");
    }
}

#[test]
fn names_frames_and_bases_that_a_server_changed_are_refused() {
    for profile in [Profile::Small, Profile::Shared] {
        let (sound, identities) = sound(profile, 2);
        let names = sound.place(Stream::Content, PartKind::Chunks);
        let frames = sound.place(Stream::Content, PartKind::Frames);

        let mut swapped = sound.bytes[Forged::range(&names)].to_vec();
        swapped[..40].rotate_left(20);
        let mut forged = sound.clone();
        forged.set_part(&names, &swapped, 20);
        assert_refused("two names", forged.mended(), &identities);

        // Lengths, gaps, bases and digests of frames.
        let part = sound.bytes[Forged::range(&frames)].to_vec();
        for at in 0..part.len() {
            let mut changed = part.clone();
            changed[at] ^= 1;
            let mut forged = sound.clone();
            forged.set_part(&frames, &changed, 12);
            assert_refused("what is said of frames", forged.mended(), &identities);
        }

        // A frame that somebody sealed who knows what is in it.
        let mut forged = sound.clone();
        let row = open(sound.bytes.clone())
            .frame_row(Stream::Content, 0)
            .expect("a first frame");
        let range = row.offset as usize..row.offset as usize + row.stored_bytes as usize;
        let before = digest(&forged.bytes[range.clone()], 12);
        let text = vec![0; range.len() - 16];
        let sealed = GroupKeys::new(None).seal_frame(text, false).stored;
        forged.bytes[range].copy_from_slice(&sealed);
        let at = part.windows(12).position(|it| it == before);
        let mut changed = part.clone();
        changed[at.expect("its digest")..][..12].copy_from_slice(&digest(&sealed, 12));
        forged.set_part(&frames, &changed, 12);
        assert_refused("a frame", forged.mended(), &identities);
    }
}

#[test]
fn private_parts_that_a_server_swapped_are_refused() {
    let (sound, identities) = sound(Profile::Shared, 3);
    let [one, other] =
        [Stream::Content, Stream::Catalog].map(|stream| sound.place(stream, PartKind::References));
    assert_eq!(one.stored_bytes, other.stored_bytes);
    let [one_part, other_part] =
        [&one, &other].map(|place| sound.bytes[Forged::range(place)].to_vec());
    // With the digests that are there, mended or not.
    let mut forged = sound.clone();
    forged.bytes[Forged::range(&one)].copy_from_slice(&other_part);
    forged.bytes[Forged::range(&other)].copy_from_slice(&one_part);
    let opened = unlocked(forged.clone().mended(), &identities).expect("its root is as it was");
    assert!(matches!(
        read_all(&opened),
        Err(ReadError::Format(FormatError::Digest(_)))
    ));
    let [one_digest, other_digest] = [one, other].map(|place| place.digest[..12].to_vec());
    let marker = [0xaa; 12];
    forged.replace_in_root(&one_digest, &marker);
    forged.replace_in_root(&other_digest, &one_digest);
    forged.replace_in_root(&marker, &other_digest);
    assert_refused("parts with their digests", forged.mended(), &identities);
}

#[test]
fn roots_and_keys_of_another_version_are_refused() {
    let (new, identities) = sound(Profile::Shared, 4);
    let (old, of_old) = sound(Profile::Shared, 5);
    assert_eq!(new.root, old.root);
    for (what, range) in [
        ("public root", new.public_root.clone()),
        ("private root", new.public_root.end..new.root.end),
    ] {
        let mut forged = new.clone();
        forged.bytes[range.clone()].copy_from_slice(&old.bytes[range]);
        assert_refused(what, forged.mended(), &identities);
    }
    // Keys of another archive, where frames were: they open, and are not those of this one.
    let keys = &old.bytes[old.keys.clone()];
    let at = open(new.bytes.clone())
        .frame_row(Stream::Content, 0)
        .expect("a first frame")
        .offset;
    let mut forged = new.clone();
    forged.keys = at as usize..at as usize + keys.len();
    forged.bytes[forged.keys.clone()].copy_from_slice(keys);
    forged.bytes[184..192].copy_from_slice(&at.to_le_bytes());
    forged.bytes[192..196].copy_from_slice(&(keys.len() as u32).to_le_bytes());
    assert_refused("keys", forged.mended(), &of_old);
}

#[test]
fn a_frame_of_another_group_is_told_from_a_damaged_one() {
    let (recipient, identities) = pair();
    let archive = archive_of(&release(), &encrypted(&recipient, false, true));
    let unlock = |secret| {
        let mut archive = open(archive.clone());
        archive
            .unlock(&identities, secret, &mut |_| None)
            .expect("a recipient");
        archive
    };
    let names = |archive| verify_names(archive, 2, &|_| ControlFlow::Continue(()));
    let without = unlock(None);
    without.check_group_secret().expect("none is wrong");
    assert!(!without.can_name());
    assert!(matches!(names(&without), Err(ReadError::Locked)));
    let right = secret();
    let with = unlock(Some(&right));
    with.check_group_secret().expect("its own");
    assert!(with.can_name());
    assert_eq!(
        names(&with).expect("right names"),
        Some(with.header().chunks)
    );
    let other = refrain_czip::crypt::GroupSecret::parse(&[b'f'; 64]).expect("32 bytes");
    let archive = unlock(Some(&other));
    assert!(matches!(
        archive.check_group_secret(),
        Err(ReadError::OtherGroupSecret)
    ));
    assert!(matches!(
        read_all(&archive),
        Err(ReadError::ForeignFrame { .. })
    ));
}
