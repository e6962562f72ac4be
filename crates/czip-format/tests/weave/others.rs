//! cpio, zip and ar archives, as programs write them and damaged.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::archives::{file, tar};
use crate::streams::{Told, assert_round_trip, pieces, weave};

/// A member of any of them.
#[derive(Clone, Debug)]
struct Member {
    name: String,
    data: Vec<u8>,
    time: u32,
}

fn ar(members: &[Member]) -> Vec<u8> {
    let mut ar = b"!<arch>\n".to_vec();
    for Member { name, data, time } in members {
        let size = data.len();
        ar.extend(format!("{name:<16}{time:<12}0     0     100644  {size:<10}`\n").as_bytes());
        ar.extend(data);
        if size % 2 == 1 {
            ar.push(b'\n');
        }
    }
    ar
}

fn cpio(members: &[Member], magic: &str) -> Vec<u8> {
    let mut cpio = Vec::new();
    let end = Member {
        name: "TRAILER!!!".to_owned(),
        data: Vec::new(),
        time: 0,
    };
    for Member { name, data, time } in members.iter().chain([&end]) {
        let inode = time / 3;
        let header = format!(
            "{magic}{inode:08x}000081a4000003e8000003e800000001{time:08X}{:08x}{}{:08x}00000000",
            data.len(),
            "00000000".repeat(4),
            name.len() + 1
        );
        cpio.extend(header.as_bytes());
        cpio.extend(name.as_bytes());
        cpio.push(0);
        cpio.resize(cpio.len().next_multiple_of(4), 0);
        cpio.extend(data);
        cpio.resize(cpio.len().next_multiple_of(4), 0);
    }
    cpio.resize(cpio.len().next_multiple_of(512), 0);
    cpio
}

/// With `streamed`, sizes are behind the data alone.
fn zip(members: &[Member], streamed: bool, extra: &[u8]) -> Vec<u8> {
    let mut zip = Vec::new();
    let mut directory = Vec::new();
    let number = |value: usize| (value as u32).to_le_bytes();
    for Member { name, data, time } in members {
        let at = zip.len();
        let flags = if streamed { 8 } else { 0 };
        let sizes = [[0; 4], number(data.len()), number(data.len())].concat();
        let lengths = [
            number(name.len())[..2].to_vec(),
            number(extra.len())[..2].to_vec(),
        ];
        let common = [&[20, 0, flags, 0, 0, 0][..], &time.to_le_bytes()].concat();
        zip.extend(b"PK\x03\x04");
        zip.extend(&common);
        zip.extend(if streamed { vec![0; 12] } else { sizes.clone() });
        zip.extend(lengths.concat());
        zip.extend(name.as_bytes());
        zip.extend(extra);
        zip.extend(data);
        if streamed {
            zip.extend(b"PK\x07\x08");
            zip.extend(&sizes);
        }
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&common);
        directory.extend(&sizes);
        directory.extend(lengths.concat());
        directory.extend([0; 10]);
        directory.extend(number(at));
        directory.extend(name.as_bytes());
        directory.extend(extra);
    }
    let at = zip.len();
    zip.extend(&directory);
    zip.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    zip.extend([number(directory.len()), number(at)].concat());
    zip.extend(b"\x03\0end");
    zip
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let data = prop_oneof![
        vec(any::<u8>(), 0..40),
        "[P K]{0,300}".prop_map(String::into_bytes),
        (any::<u8>(), 0..20_000usize).prop_map(|(byte, count)| vec![byte; count]),
    ];
    let member = ("[a-z/]{1,15}", data, 0..100u32);
    vec(
        member.prop_map(|(name, data, time)| Member { name, data, time }),
        0..6,
    )
}

fn archive() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        members().prop_map(|members| ar(&members)),
        (members(), "07070[127]").prop_map(|(members, magic)| cpio(&members, &magic)),
        (members(), any::<bool>(), vec(any::<u8>(), 0..20))
            .prop_map(|(members, streamed, extra)| zip(&members, streamed, &extra)),
    ]
}

/// Archives, and what remains of them when a byte, the end or the beginning of something is another.
fn archives() -> impl Strategy<Value = Vec<u8>> {
    let change = (
        0..4u8,
        any::<prop::sample::Index>(),
        vec(any::<u8>(), 1..20),
    );
    (archive(), archive(), change).prop_map(|(mut archive, behind, (what, at, bytes))| {
        let at = at.index(archive.len());
        match what {
            0 => archive[at] ^= bytes[0],
            1 => archive.truncate(at),
            2 => drop(archive.splice(at..at, bytes)),
            _ => archive.extend(behind),
        }
        archive
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn other_archives_come_back(archive in archives(), pieces in pieces()) {
        assert_round_trip(&archive, &pieces, &[100, 3000]);
    }

    #[test]
    fn archives_in_tar_archives_come_back(inner in archives(), cut in 0..3000usize, pieces in pieces()) {
        let outer = tar(&[file("t/inner", &inner, 1), file("t/b", b"data", 1)], 1);
        assert_round_trip(&outer[..outer.len() - cut.min(outer.len())], &pieces, &[100, 3000]);
    }
}

fn two() -> [Member; 2] {
    [("one", 10_001), ("another", 20_000)].map(|(name, count)| Member {
        name: name.to_owned(),
        data: vec![name.len() as u8; count],
        time: 77,
    })
}

/// What differs between archives of the same members at two times.
fn differs(make: impl Fn(&[Member]) -> Vec<u8>) -> (Told, Told) {
    let later = two().map(|member| Member { time: 99, ..member });
    (weave(&make(&two())), weave(&make(&later)))
}

#[test]
fn times_of_other_archives_are_times_and_members_content() {
    for (first, second) in [
        differs(ar),
        differs(|members| cpio(members, "070701")),
        differs(|members| cpio(members, "070702")),
        differs(|members| zip(members, false, b"")),
    ] {
        assert!(first.fields == second.fields);
        assert!(first.content == second.content);
        assert!(first.times != second.times);
        assert!(first.content == two().map(|member| member.data).concat());
        assert_eq!(first.boundaries, [10_001, 30_001]);
    }
}

#[test]
fn members_of_cpio_archives_were_written_when_they_say() {
    let [one, two] = two();
    let written = weave(&cpio(&[one.clone(), two.clone()], "070701")).written;
    let one_ends = one.data.len();
    let all_ends = one_ends + two.data.len();
    let told = [(0, one.time), (one_ends, two.time), (all_ends, 0)];
    assert_eq!(written, told.map(|(at, time)| (at, i64::from(time))));
}

#[test]
fn streamed_members_of_zip_archives_end_where_the_next_record_begins() {
    let told = weave(&zip(&two(), true, b"extra"));
    assert!(told.content == two().map(|member| member.data).concat());
    assert_eq!(told.boundaries, [10_001, 30_001]);
}

#[test]
fn members_of_ar_archives_without_filler_are_cut_too() {
    let mut ar = ar(&two());
    assert_eq!(ar.remove(8 + 60 + 10_001), b'\n');
    assert_eq!(weave(&ar).boundaries, [10_001, 30_001]);
}

#[test]
fn where_a_member_of_a_zip_archive_is_does_not_change_its_fields() {
    let first = weave(&zip(&two(), false, b""));
    let second = weave(&zip(&two()[1..], false, b""));
    let directory_entry = 12 + 26 + "another".len();
    let from_end = directory_entry + "end".len();
    let last = |fields: &[u8]| fields[fields.len() - from_end..].to_vec();
    assert_eq!(last(&first.fields), last(&second.fields));
}

#[test]
fn members_of_archives_in_a_tar_archive_end_at_boundaries() {
    for (inner, before) in [
        (ar(&two()), 68),
        (zip(&two(), false, b""), 33),
        (cpio(&two(), "070701"), 116),
    ] {
        let told = weave(&tar(&[file("t/inner", &inner, 1)], 2));
        assert!(told.content == inner);
        assert_eq!(told.boundaries[..2], [before, before + 10_001]);
        assert_eq!(told.boundaries.last(), Some(&inner.len()));
    }
}
