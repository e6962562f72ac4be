//! Makes folders, archives of them, and mounts those.

pub(crate) use crate::making::noise;

use std::{
    fs::{self, File, Permissions},
    io,
    ops::ControlFlow,
    os::unix::fs::{FileExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, UNIX_EPOCH},
};

use refrain_czip::{
    archive::{Archive, CacheBytes, FileSource, Source},
    create::{CreateOptions, Input, Output, create},
    mount::{MountError, MountOptions, Unmounter, mount},
};
use tempfile::TempDir;

/// A folder with something of everything, in which `tree` is what is to be archived.
pub(crate) fn sample() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    let repetitive = [noise(1, 70_000), noise(2, 10), noise(1, 70_000)]
        .concat()
        .repeat(20);
    let mut tar = tar::Builder::new(Vec::new());
    for number in 0..200 {
        let mut header = tar::Header::new_ustar();
        header.set_size(9_000);
        header.set_mtime(number);
        let path = format!("members/{number}");
        tar.append_data(&mut header, path, &noise(number, 9_000)[..])
            .expect("memory takes it");
    }
    let tar = tar.into_inner().expect("memory takes it");
    for (path, content, mode) in [
        ("empty", vec![], 0o644),
        ("small", b"hello\n".to_vec(), 0o600),
        ("program", noise(3, 4096), 0o755),
        ("a/b/c/deep", noise(4, 4097), 0o444),
        ("a/repetitive", repetitive, 0o640),
        ("a/archive.tar", tar, 0o644),
        ("noise", noise(5, 3_000_000), 0o644),
        ("other noise", noise(6, 2_000_000), 0o644),
    ] {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().expect("it is in the tree")).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(tree.join("hollow")).unwrap();
    for number in 0..700 {
        let path = tree.join("many").join(format!("file of number {number}"));
        fs::create_dir_all(tree.join("many")).unwrap();
        fs::write(path, number.to_string()).unwrap();
    }
    symlink("a/b", tree.join("to a folder")).unwrap();
    symlink("../../nowhere at all", tree.join("a/dangling")).unwrap();
    fs::hard_link(tree.join("program"), tree.join("a/the same program")).unwrap();
    for (path, mtime) in [
        (
            "small",
            UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789),
        ),
        ("noise", UNIX_EPOCH - Duration::new(77, 250_000_000)),
        ("a/b", UNIX_EPOCH),
    ] {
        File::open(tree.join(path))
            .unwrap()
            .set_modified(mtime)
            .unwrap();
    }
    folder
}

/// Makes an archive.
pub(crate) fn archive_of(inputs: Vec<Input>) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("it.czip");
    let options = CreateOptions {
        threads: 2,
        ..CreateOptions::default()
    };
    let output = Output::File(path.clone());
    create(inputs, output, &options, &mut |_| ControlFlow::Continue(())).expect("an archive");
    (folder, path)
}

pub(crate) fn open(path: &Path) -> Archive<FileSource> {
    let source = FileSource::new(File::open(path).unwrap()).unwrap();
    Archive::open(source, CacheBytes::default()).expect("an archive")
}

/// An archive that is mounted until this goes.
pub(crate) struct Mount {
    pub at: TempDir,
    /// What was told of reads that failed.
    pub failures: Arc<Mutex<Vec<String>>>,
    pub unmounter: Unmounter,
    serving: Option<JoinHandle<io::Result<()>>>,
}

impl Mount {
    /// Mounts an archive. None, and a line that says so, where nothing may be mounted.
    pub(crate) fn new<S: Source + 'static>(archive: Archive<S>) -> Option<Self> {
        let at = tempfile::tempdir().expect("a folder");
        let failures = Arc::<Mutex<Vec<String>>>::default();
        let told = failures.clone();
        let options = MountOptions {
            name: "a test, of mounting".to_owned(),
            allow_other: false,
            covers_mount: false,
            failed: Box::new(move |failure| {
                let path = String::from_utf8_lossy(failure.path);
                let text = format!("{path} at {}: {}", failure.offset, failure.error);
                told.lock().unwrap().push(text);
            }),
        };
        let mut mounted = match mount(archive, at.path(), options) {
            Ok(mounted) => mounted,
            Err(error @ (MountError::NoDevice | MountError::Mount { .. }))
                if is_refusal(&error) =>
            {
                let thread = thread::current();
                let test = thread.name().unwrap_or_default();
                eprintln!("skipped: {test}: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let unmounter = mounted.unmounter();
        let serving = Some(thread::spawn(|| mounted.serve()));
        Some(Self {
            at,
            failures,
            unmounter,
            serving,
        })
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.at.path().join(path)
    }

    pub(crate) fn is_served(&self) -> bool {
        let serving = self.serving.as_ref();
        serving.is_some_and(|serving| !serving.is_finished())
    }

    /// Waits until it ends.
    pub(crate) fn join(&mut self) -> io::Result<()> {
        let serving = self.serving.take().expect("joined once");
        serving.join().expect("it does not panic")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = self.unmounter.unmount();
        assert!(unmounted.is_ok() || thread::panicking(), "{unmounted:?}");
        if self.serving.is_some() && !thread::panicking() {
            self.join().expect("it ends well");
        }
    }
}

/// Whether it is the system that does not let us, rather than us who do it wrong.
fn is_refusal(error: &MountError) -> bool {
    let text = error.to_string().to_lowercase();
    [
        "/dev/fuse",
        "not permitted",
        "permission denied",
        "no such file",
    ]
    .iter()
    .any(|refusal| text.contains(refusal))
}

/// Some bytes of a file.
pub(crate) fn read(file: &File, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    file.read_exact_at(&mut buffer, offset)?;
    Ok(buffer)
}
