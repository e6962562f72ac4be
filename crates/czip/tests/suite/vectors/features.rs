//! What vectors are made of: one for each feature of the format, each some hundred bytes.

use std::{
    fs::{self, File, FileTimes, Permissions},
    io::Cursor,
    ops::ControlFlow,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use refrain_czip::{
    create::{CreateOptions, EncryptOptions, Input, Output, create},
    crypt::{GroupSecret, Identities, Recipients},
};
use refrain_czip_format::{
    chunker::{Chunking, ChunkingMethod},
    header::Profile,
    method::{Compression, Method},
};

use crate::vectors::tar;

/// Whom encrypted vectors are for, and his key, which is nobody's.
const RECIPIENT: &str = "age18x9npz5grrssnqcn3q7jczj74m57w0km58xhh6f9xg8znvqad9ys99mrhc";
const IDENTITY: &str = "AGE-SECRET-KEY-13FRM9VGUH6XJ3AYLZ5VZDFH576C77QH98GK5PFVGUNNX5QYC0SQSLEAYVE";
/// The secret of their group.
pub(crate) const SECRET: &str = "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";

/// An archive to be: its name, what goes into it, how, and whether down a pipe.
pub(crate) struct Feature {
    pub name: &'static str,
    pub content: Content,
    pub options: CreateOptions,
    pub is_piped: bool,
}

/// What goes into an archive.
pub(crate) enum Content {
    /// Standard input.
    Bytes(Vec<u8>),
    /// A folder with files, folders and links.
    Tree,
}

/// Every feature, and the least of everything.
pub(crate) fn all() -> Vec<Feature> {
    let fixed = Chunking::new(ChunkingMethod::Fixed, 1024).unwrap();
    let options = || CreateOptions {
        chunking: fixed,
        frame_bytes: 2048,
        ..CreateOptions::default()
    };
    let with = |method| CreateOptions {
        compression: Compression::new(method),
        ..options()
    };
    let shared = || CreateOptions {
        profile: Profile::Shared,
        ..options()
    };
    let plain = |name, bytes, options| Feature {
        name,
        content: Content::Bytes(bytes),
        options,
        is_piped: false,
    };
    vec![
        plain("empty", Vec::new(), CreateOptions::default()),
        plain("one-byte", vec![b'x'], CreateOptions::default()),
        plain("example", b"refrain".to_vec(), {
            CreateOptions {
                is_woven: false,
                ..with(Method::None)
            }
        }),
        plain("none", text(300, 1), with(Method::None)),
        plain("gzip", text(3000, 2), with(Method::Gzip)),
        plain("bzip2", text(3000, 3), with(Method::Bzip2)),
        plain("bases", similar(), options()),
        plain("repeats", repeats(), options()),
        plain("shared", repeats(), shared()),
        plain("woven", tar::of_all_kinds(), options()),
        plain("woven-shared", tar::of_all_kinds(), shared()),
        plain(
            "unwoven",
            tar::of_all_kinds(),
            CreateOptions {
                is_woven: false,
                ..options()
            },
        ),
        plain("restarts", text(8192, 5).repeat(150), {
            CreateOptions {
                chunking: Chunking::new(ChunkingMethod::Fixed, 8192).unwrap(),
                ..options()
            }
        }),
        plain("modp", similar(), {
            CreateOptions {
                chunking: Chunking::new(ChunkingMethod::Modp, 1024).unwrap(),
                ..options()
            }
        }),
        plain("encrypted", similar(), encrypted(options(), false, None)),
        plain(
            "encrypted-shared",
            tar::of_all_kinds(),
            encrypted(shared(), true, Some(SECRET)),
        ),
        Feature {
            is_piped: true,
            ..plain("footer", similar(), options())
        },
        Feature {
            content: Content::Tree,
            ..plain("tree", Vec::new(), options())
        },
    ]
}

/// The same, encrypted to [`IDENTITY`]'s recipient.
fn encrypted(options: CreateOptions, is_padded: bool, secret: Option<&str>) -> CreateOptions {
    let parse = |secret: &str| GroupSecret::parse(secret.as_bytes()).unwrap();
    CreateOptions {
        encryption: Some(Arc::new(EncryptOptions {
            recipients: Recipients::parse(&[RECIPIENT]).unwrap(),
            group_secret: secret.map(parse),
            is_padded,
        })),
        ..options
    }
}

/// What opens encrypted vectors.
pub(crate) fn identities() -> Identities {
    let mut identities = Identities::new();
    identities.add("identity", IDENTITY.as_bytes()).unwrap();
    identities
}

/// The secret of the vector that has one.
pub(crate) fn secret() -> GroupSecret {
    GroupSecret::parse(SECRET.as_bytes()).unwrap()
}

impl Feature {
    /// Whether keys are drawn for it, so that no archive is as another.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.options.encryption.is_some()
    }

    /// Makes the archive.
    pub(crate) fn make(&self) -> Vec<u8> {
        self.make_with(self.options.threads)
    }

    /// Makes the archive with so many threads.
    pub(crate) fn make_with(&self, threads: usize) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let input = match &self.content {
            Content::Bytes(bytes) => Input::Stream(Box::new(Cursor::new(bytes.clone()))),
            Content::Tree => {
                make_tree(&folder.path().join("tree"));
                Input::Path(folder.path().join("tree"))
            }
        };
        let options = CreateOptions {
            threads,
            ..self.options.clone()
        };
        if self.is_piped {
            let out = Pipe::default();
            let output = Output::Pipe(Box::new(out.clone()));
            create(vec![input], output, &options, &mut |_| {
                ControlFlow::Continue(())
            })
            .unwrap();
            return std::mem::take(&mut out.0.lock().unwrap());
        }
        let path = folder.path().join("out.czip");
        create(
            vec![input],
            Output::File(path.clone()),
            &options,
            &mut |_| ControlFlow::Continue(()),
        )
        .unwrap();
        fs::read(path).unwrap()
    }

    /// The plain content, if it is known without reading the archive.
    pub(crate) fn plain(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Bytes(bytes) => Some(bytes),
            Content::Tree => None,
        }
    }
}

/// What goes down a pipe.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Words in an order that the seed says: what compresses and does not repeat.
pub(crate) fn text(bytes: usize, seed: u64) -> Vec<u8> {
    const WORDS: [&str; 8] = [
        "chunk ",
        "frame ",
        "weave ",
        "of ",
        "names ",
        "root\n",
        "a ",
        "content, ",
    ];
    let mut state = seed;
    let mut text = Vec::new();
    while text.len() < bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.extend_from_slice(WORDS[(state >> 61) as usize].as_bytes());
        text.push(b'a' + (state >> 40) as u8 % 26);
    }
    text.truncate(bytes);
    text
}

/// Two versions of a text: all chunks of the second are new, and similar to one of the first.
fn similar() -> Vec<u8> {
    let first = text(4096, 4);
    let mut second = first.clone();
    for chunk in second.chunks_mut(1024) {
        chunk[512] = b'!';
    }
    [first, second].concat()
}

/// Chunks that occur again: in order, out of it, and one many times.
fn repeats() -> Vec<u8> {
    let chunks: Vec<Vec<u8>> = (10..14).map(|seed| text(1024, seed)).collect();
    let order = [0, 1, 2, 0, 1, 2, 3, 3, 3, 3, 1, 0, 2, 3];
    let mut bytes: Vec<u8> = order.iter().flat_map(|&of| chunks[of].clone()).collect();
    bytes.extend([0; 3000]);
    bytes
}

fn make_tree(root: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let times = FileTimes::new().set_modified(time);
    fs::create_dir_all(root.join("folder/empty")).unwrap();
    let files: [(&str, &[u8], u32); 4] = [
        ("a", &text(1500, 6), 0o644),
        ("folder/program", b"#!/bin/sh\n", 0o4755),
        ("folder/nothing", b"", 0o600),
        ("z and \u{e9}", &text(1500, 6), 0o444),
    ];
    for (path, bytes, mode) in files {
        let path = root.join(path);
        fs::write(&path, bytes).unwrap();
        File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_times(times)
            .unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    symlink("../outside", root.join("link")).unwrap();
    fs::hard_link(root.join("a"), root.join("zz")).unwrap();
    // The standard library sets no time of a link.
    let touched = Command::new("touch")
        .args(["--no-dereference", "--date=@1000000000"])
        .arg(root.join("link"))
        .status();
    assert!(touched.unwrap().success());
    for folder in ["folder/empty", "folder", ""] {
        let path = root.join(folder);
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        File::open(&path).unwrap().set_times(times).unwrap();
    }
}
