//! A tar with all that the weave has an operation or a mask for.

/// A header as GNU tar and others write it, and its data.
fn member(name: &[u8], kind: u8, mtime: u64, link: &[u8], data: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name);
    put(100, b"0000644\x000001750\x000001750\x00");
    put(
        124,
        format!("{:011o}\0{mtime:011o}\0", data.len()).as_bytes(),
    );
    put(148, &[b' '; 8]);
    put(156, &[kind]);
    put(157, link);
    put(257, b"ustar\x0000refrain");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut member = header.to_vec();
    member.extend_from_slice(data);
    member.resize(member.len().next_multiple_of(512), 0);
    member
}

/// Files, a folder, links, an extended time, long names by GNU and by pax, and two zero blocks.
pub(crate) fn of_all_kinds() -> Vec<u8> {
    let long = [&b"release-1/"[..], &[b'n'; 120], b"\0"].concat();
    let times = b"30 mtime=1000000001.123456789\n";
    let path = [&b"139 path=release-1/"[..], &[b'p'; 119], b"\n"].concat();
    let mut tar = [
        member(b"release-1/", b'5', 1_000_000_000, b"", b""),
        member(b"release-1/one", b'0', 1_000_000_000, b"", b"one\n"),
        member(b"release-1/two", b'0', 1_000_000_007, b"", &[b'2'; 700]),
        member(b"release-1/link", b'2', 1_000_000_000, b"one", b""),
        member(b"././@LongLink", b'L', 0, b"", &long),
        member(&long[..100], b'0', 1_000_000_000, b"", b"long\n"),
        member(
            b"release-1/PaxHeaders/three",
            b'x',
            1_000_000_002,
            b"",
            times,
        ),
        member(b"release-1/three", b'0', 1_000_000_001, b"", b"three\n"),
        member(
            b"release-1/PaxHeaders/four",
            b'x',
            1_000_000_002,
            b"",
            times,
        ),
        member(b"release-1/four", b'0', 1_000_000_002, b"", b"four\n"),
        member(b"pax_global_header", b'g', 0, b"", b"13 comment=x\n"),
        member(b"release-1/PaxHeaders/path", b'x', 0, b"", &path),
        member(b"release-1/path", b'0', 1_000_000_000, b"", b"path\n"),
    ]
    .concat();
    tar.resize(tar.len() + 1024, 0);
    tar
}
