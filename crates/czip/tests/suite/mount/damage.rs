//! Archives that are not whole.

use std::fs::{self, File};

use refrain_czip::{
    archive::{Archive, CacheBytes},
    create::Input,
};

use crate::mount::mounting::{Mount, archive_of, noise, read};

#[test]
fn what_is_damaged_cannot_be_read_and_all_else_can() {
    let original = tempfile::tempdir().unwrap();
    let tree = original.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let contents: Vec<_> = (0..4).map(|seed| noise(seed, 2_000_000)).collect();
    for (number, content) in contents.iter().enumerate() {
        fs::write(tree.join(number.to_string()), content).unwrap();
    }
    let (_archive, path) = archive_of(vec![Input::Path(tree)]);
    // Noise is stored as it is.
    let mut bytes = fs::read(path).unwrap();
    let damaged = &contents[2][1_000_000..1_000_032];
    let at = bytes.windows(32).position(|window| window == damaged);
    bytes[at.expect("it is stored")] ^= 1;
    let archive = Archive::open(bytes, CacheBytes::default()).unwrap();
    let Some(mount) = Mount::new(archive) else {
        return;
    };
    for number in [0, 1, 3] {
        let read = fs::read(mount.path(&format!("tree/{number}"))).unwrap();
        assert!(read == contents[number]);
    }
    assert!(mount.failures.lock().unwrap().is_empty());
    let file = File::open(mount.path("tree/2")).unwrap();
    for _ in 0..3 {
        let error = read(&file, 1_000_000, 4096).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "{error}");
    }
    // A frame has about 256 KiB.
    assert!(read(&file, 0, 400_000).unwrap() == contents[2][..400_000]);
    assert!(read(&file, 1_600_000, 400_000).unwrap() == contents[2][1_600_000..]);
    let failures = mount.failures.lock().unwrap();
    let [failure] = &failures[..] else {
        panic!("told once: {failures:?}");
    };
    assert!(failure.starts_with("tree/2 at "), "{failure}");
    assert!(
        failure.contains("frame") && failure.contains("damaged"),
        "{failure}"
    );
}
