//! What the kernel asks, and what an archive answers.
//!
//! All is immutable, so the kernel may keep whatever it was told, for good. Several threads answer.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};

use crate::{
    archive::{Archive, ReadError, Source},
    tree::{Inode, Node, NodeKind, Tree},
};

/// How long the kernel may believe what it was told: a year.
const FOR_GOOD: Duration = Duration::from_secs(365 * 24 * 3600);

/// The most that the kernel asks for at once, and so what answers take in memory, a thread.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Reads ahead that the kernel may have under way.
const AHEAD_MAX: u16 = 64;

const BLOCK_BYTES: u32 = 4096;

/// Two generations of an inode would be two files with one number, which never are.
const ONLY: Generation = Generation(0);

/// A read that failed.
#[derive(Debug)]
pub struct ReadFailure<'a> {
    /// The file's path in the archive.
    pub path: &'a [u8],
    /// Which byte of it, or one behind it.
    pub offset: u64,
    /// Why.
    pub error: &'a ReadError,
}

/// Called with each read that fails.
pub(super) type Failed = Box<dyn Fn(&ReadFailure<'_>) + Send + Sync>;

/// An archive that answers.
pub(super) struct FileSystem<S> {
    archive: Archive<S>,
    tree: Tree,
    owner: (u32, u32),
    failed: Failed,
    /// The last failure that was told: a program that tries again and again tells nothing new.
    told: Mutex<String>,
}

impl<S: Source> FileSystem<S> {
    pub(super) fn new(archive: Archive<S>, tree: Tree, owner: (u32, u32), failed: Failed) -> Self {
        Self {
            archive,
            tree,
            owner,
            failed,
            told: Mutex::default(),
        }
    }

    fn node(&self, inode: INodeNo) -> Result<&Node, Errno> {
        self.tree.node(Inode(inode.0)).ok_or(Errno::ENOENT)
    }

    fn attributes(&self, inode: Inode, node: &Node) -> FileAttr {
        let (kind, size) = match &node.kind {
            NodeKind::Folder(_) => (FileType::Directory, 0),
            NodeKind::File { bytes, .. } => (FileType::RegularFile, *bytes),
            NodeKind::SymbolicLink(target) => (FileType::Symlink, target.len() as u64),
        };
        let mtime = time(node.mtime_s, node.mtime_ns);
        FileAttr {
            ino: INodeNo(inode.0),
            size,
            blocks: size.div_ceil(512),
            atime: mtime,
            mtime,
            ctime: mtime,
            crtime: mtime,
            kind,
            perm: node.mode,
            nlink: node.links,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    /// Gives what is in a folder from `offset` on to `add`: where the next entry is, name, attributes. Ends where that
    /// says that it is full.
    fn list(
        &self,
        folder: INodeNo,
        offset: u64,
        mut add: impl FnMut(u64, &OsStr, &FileAttr) -> bool,
    ) -> Result<(), Errno> {
        let node = self.node(folder)?;
        let NodeKind::Folder(children) = &node.kind else {
            return Err(Errno::ENOTDIR);
        };
        let own = [(&b"."[..], Inode(folder.0)), (b"..", node.parent)];
        let children = children.iter().map(|(name, inode)| (&**name, *inode));
        let all = own.into_iter().chain(children).zip(1..);
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for ((name, inode), next) in all.skip(skipped) {
            if let Some(node) = self.tree.node(inode)
                && add(next, OsStr::from_bytes(name), &self.attributes(inode, node))
            {
                break;
            }
        }
        Ok(())
    }

    fn read_file(&self, inode: INodeNo, offset: u64, wanted: u32) -> Result<Vec<u8>, Errno> {
        let NodeKind::File { start, bytes } = self.node(inode)?.kind else {
            return Err(Errno::EISDIR);
        };
        let left = bytes.saturating_sub(offset);
        let mut buffer = vec![0; left.min(wanted.into()) as usize];
        if buffer.is_empty() {
            return Ok(buffer);
        }
        let content = self.archive.content(start + offset);
        match content.and_then(|mut content| content.read(&mut buffer)) {
            Ok(_) => Ok(buffer),
            Err(error) => {
                self.tell(Inode(inode.0), offset, &error);
                Err(Errno::EIO)
            }
        }
    }

    fn tell(&self, inode: Inode, offset: u64, error: &ReadError) {
        let path = self.tree.path(inode);
        let failure = ReadFailure {
            path: &path,
            offset,
            error,
        };
        let text = error.to_string();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != text {
            (self.failed)(&failure);
            *told = text;
        }
    }
}

impl<S: Source + 'static> Filesystem for FileSystem<S> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for wish in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ] {
            // A kernel that cannot does without.
            let _ = config.add_capabilities(wish);
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(AHEAD_MAX);
        // The read-ahead that the kernel offers is what `fuser` takes.
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let child = self.tree.child(Inode(parent.0), name.as_bytes());
        match child.and_then(|inode| Some((inode, self.tree.node(inode)?))) {
            Some((inode, node)) => reply.entry(&FOR_GOOD, &self.attributes(inode, node), ONLY),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(inode) {
            Ok(node) => reply.attr(&FOR_GOOD, &self.attributes(Inode(inode.0), node)),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.node(inode).map(|node| &node.kind) {
            Ok(NodeKind::SymbolicLink(target)) => reply.data(target),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_file(inode, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        reply.opened(FileHandle(0), flags);
    }

    fn readdir(
        &self,
        _: &Request,
        folder: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.list(folder, offset, |next, name, attributes| {
            reply.add(attributes.ino, next, attributes.kind, name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        folder: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.list(folder, offset, |next, name, attributes| {
            reply.add(attributes.ino, next, name, &FOR_GOOD, attributes, ONLY)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.archive.plain_bytes().div_ceil(BLOCK_BYTES.into());
        reply.statfs(
            blocks,
            0,
            0,
            self.tree.count(),
            0,
            BLOCK_BYTES,
            255,
            BLOCK_BYTES,
        );
    }

    // The kernel asks each of these once, and then does without. `fuser` would warn of each.

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: fuser::IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }
}

/// A time that an archive may hold; one that the system has no room for is 1970.
fn time(seconds: i64, nanoseconds: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    let whole = whole.and_then(|time| time.checked_add(Duration::from_nanos(nanoseconds.into())));
    whole.unwrap_or(UNIX_EPOCH)
}
