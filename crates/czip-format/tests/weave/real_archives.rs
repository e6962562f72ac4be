//! Archives that other programs make. A program that is not installed is skipped, or fails the test
//! where `REFRAIN_REQUIRE_PROGRAMS=1`.

use std::path::Path;
use std::process::Command;

use crate::{
    programs::are_installed,
    streams::{Told, assert_round_trip},
};

/// A folder of files that programs pack: names and links of all kinds.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let release = folder.path().join("release-1.0");
    let deep = release.join("a-long-component-of-a-name/".repeat(6));
    std::fs::create_dir_all(&deep).unwrap();
    for number in 0..40usize {
        let bytes = vec![number as u8; number * number * 13];
        std::fs::write(release.join(format!("file{number}")), &bytes).unwrap();
    }
    std::fs::write(deep.join("l\u{e4}nge"), b"deep").unwrap();
    std::os::unix::fs::symlink("file3", release.join("link")).unwrap();
    std::fs::hard_link(release.join("file9"), release.join("zz")).unwrap();
    let sparse = std::fs::File::create(release.join("sparse")).unwrap();
    sparse.set_len(300_000).unwrap();
    folder
}

/// Runs a shell's script in the folder. False if the program that it needs is not there.
fn ran(folder: &Path, program: &str, script: &str) -> bool {
    if !are_installed(&[program]) {
        return false;
    }
    let status = Command::new("sh")
        .args(["-ec", script])
        .current_dir(folder)
        .status();
    assert!(status.unwrap().success(), "{script}");
    true
}

fn woven(folder: &Path, name: &str) -> Told {
    let bytes = std::fs::read(folder.join(name)).unwrap();
    assert_round_trip(&bytes, &[1000, 7], &[10_000])
}

/// Members' headers that the format did not restore by itself.
fn odd_bytes(told: &Told) -> u64 {
    let [_, fields, times, _, _, headers, _] = told.operations();
    fields + times + headers
}

#[test]
fn archives_of_gnu_tar_have_no_odd_header() {
    let folder = folder();
    for format in ["gnu", "oldgnu", "pax", "posix", "ustar", "v7"] {
        let script = format!("tar --format={format} --exclude='*long*' -cf short.tar release-1.0");
        if !ran(folder.path(), "tar", &script) {
            return;
        }
        assert_eq!(odd_bytes(&woven(folder.path(), "short.tar")), 0, "{format}");
    }
    for format in ["gnu", "pax"] {
        let script = format!("tar --format={format} -cf long.tar release-1.0");
        assert!(ran(folder.path(), "tar", &script));
        let told = woven(folder.path(), "long.tar");
        assert_eq!(odd_bytes(&told), 0, "{format}");
        assert!(told.boundaries.len() >= 40);
    }
}

#[test]
fn sparse_and_incremental_archives_of_gnu_tar_come_back() {
    let folder = folder();
    for options in [
        "--format=gnu -S",
        "--format=pax -S",
        "--format=gnu -g list",
        "-H pax -V label",
    ] {
        if ran(
            folder.path(),
            "tar",
            &format!("tar {options} -cf odd.tar release-1.0"),
        ) {
            woven(folder.path(), "odd.tar");
        }
    }
}

#[test]
fn archives_of_the_tar_crate_have_no_odd_header() {
    let folder = folder();
    let mut builder = tar::Builder::new(Vec::new());
    builder.follow_symlinks(false);
    builder
        .append_dir_all("release-1.0", folder.path().join("release-1.0"))
        .unwrap();
    let bytes = builder.into_inner().unwrap();
    let told = assert_round_trip(&bytes, &[100], &[1000]);
    assert_eq!(odd_bytes(&told), 0);
    assert!(told.boundaries.len() >= 40);
}

#[test]
fn archives_of_python_have_no_odd_header() {
    let folder = folder();
    let script = "python3 -c \"import tarfile
for name, format in ('p', tarfile.PAX_FORMAT), ('g', tarfile.GNU_FORMAT):
    with tarfile.open(name + '.tar', 'w', format=format) as tar: tar.add('release-1.0')\"";
    if ran(folder.path(), "python3", script) {
        for name in ["p.tar", "g.tar"] {
            assert_eq!(odd_bytes(&woven(folder.path(), name)), 0, "{name}");
        }
    }
}

#[test]
fn zip_archives_are_cut_at_members() {
    let folder = folder();
    let script = "python3 -m zipfile -c python.zip release-1.0";
    if ran(folder.path(), "python3", script) {
        assert!(woven(folder.path(), "python.zip").boundaries.len() >= 40);
    }
    let script = "zip -qr seekable.zip release-1.0; zip -qr - release-1.0 | cat > streamed.zip";
    if ran(folder.path(), "zip", script) {
        assert!(woven(folder.path(), "seekable.zip").boundaries.len() >= 39);
        assert!(woven(folder.path(), "streamed.zip").boundaries.len() >= 39);
    }
}

#[test]
fn cpio_archives_are_cut_at_members() {
    let folder = folder();
    for format in ["newc", "crc"] {
        let script = format!("find release-1.0 | cpio --quiet -oH {format} > it.cpio");
        if ran(folder.path(), "cpio", &script) {
            assert!(woven(folder.path(), "it.cpio").boundaries.len() >= 38);
        }
    }
}

#[test]
fn ar_archives_and_packages_are_cut_at_members() {
    let folder = folder();
    if ran(folder.path(), "ar", "ar rc it.a release-1.0/file*") {
        let told = woven(folder.path(), "it.a");
        assert_eq!(told.boundaries.len(), 39);
        assert_eq!(
            told.operations()[0] + told.operations()[1] + told.operations()[2],
            std::fs::metadata(folder.path().join("it.a")).unwrap().len()
        );
    }
    let script = "mkdir release-1.0/DEBIAN
        printf 'Package: p\\nVersion: 1\\nArchitecture: all\\nMaintainer: m\\nDescription: d\\n' > release-1.0/DEBIAN/control
        dpkg-deb -Znone -b release-1.0 it.deb >&2";
    if ran(folder.path(), "dpkg-deb", script) {
        assert!(woven(folder.path(), "it.deb").boundaries.len() > 3);
    }
}
