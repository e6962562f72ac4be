//! A gateway's local socket: its admin pages for its own user and root, without any option.
//!
//! Each gateway has a socket of mode 0600, `near-PID.sock` or `far-PID.sock`, in a folder of mode
//! 0700: `$XDG_RUNTIME_DIR/refrain`, `/run/user/NUMBER/refrain` without this variable, or
//! `/run/refrain`. `refrain status` and `refrain check` look there. A gateway that was killed leaves
//! its socket behind; the next one that starts removes it.

use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process,
};

use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

/// The folder of the sockets, in each of the system's folders for them.
const FOLDER: &str = "refrain";

/// Others may not write where a gateway is looked for, or they could pass for one.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Sockets of one folder that are looked at.
const SOCKETS_MAX: usize = 32;

/// A socket's file. Dropped, it is removed.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl SocketFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // What is left is removed by the next gateway.
        let _ = fs::remove_file(&self.0);
    }
}

/// Listens on the local socket of this process, a gateway of this role.
pub async fn bind(role: &str) -> io::Result<(UnixListener, SocketFile)> {
    let folder = own_folders().swap_remove(0);
    let bound = bind_in(&folder, role).await;
    bound.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))
}

/// Where local sockets may be, the user's own folder first.
pub fn folders() -> Vec<PathBuf> {
    let mut folders = own_folders();
    if geteuid().is_root() {
        // Root can reach the gateways of all users.
        for user in fs::read_dir("/run/user").into_iter().flatten().flatten() {
            let folder = user.path().join(FOLDER);
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}

/// The sockets in a folder, those included that a killed gateway left.
pub fn sockets(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let metadata = fs::symlink_metadata(folder)?;
    let owner = metadata.uid();
    let user = geteuid();
    let is_trusted = owner == user.as_raw() || owner == 0 || user.is_root();
    let fault = match metadata.is_dir() {
        false => Some((io::ErrorKind::NotADirectory, "not a directory")),
        true if !is_trusted => Some((io::ErrorKind::PermissionDenied, "belongs to another user")),
        true if metadata.mode() & WRITABLE_BY_OTHERS != 0 => {
            Some((io::ErrorKind::Other, "others can write to it"))
        }
        true => None,
    };
    if let Some((kind, reason)) = fault {
        return Err(io::Error::new(kind, reason));
    }
    let mut sockets = Vec::new();
    for entry in fs::read_dir(folder)?.take(SOCKETS_MAX) {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_socket() && name.to_str().is_some_and(is_name) {
            sockets.push(entry.path());
        }
    }
    sockets.sort();
    Ok(sockets)
}

/// The user's folder, if there is one, and the system's.
fn own_folders() -> Vec<PathBuf> {
    let of_user = match env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => Some(PathBuf::from(folder)).filter(|folder| folder.is_absolute()),
        // Of a user who is logged in, and whose program has an environment of its own, as by sudo.
        None => Some(PathBuf::from(format!("/run/user/{}", geteuid().as_raw())))
            .filter(|folder| !geteuid().is_root() && folder.is_dir()),
    };
    let bases = of_user.into_iter().chain([PathBuf::from("/run")]);
    bases.map(|base| base.join(FOLDER)).collect()
}

/// A name that [`bind`] gives.
fn is_name(name: &str) -> bool {
    let number = name
        .strip_prefix("near-")
        .or_else(|| name.strip_prefix("far-"))
        .and_then(|name| name.strip_suffix(".sock"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

async fn bind_in(folder: &Path, role: &str) -> io::Result<(UnixListener, SocketFile)> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(folder)?;
    if metadata.uid() != geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    for socket in sockets(folder)? {
        remove_if_left(&socket).await;
    }
    let name = format!("{role}-{}.sock", process::id());
    // Between its making and its first listening a socket refuses, as one that was left does. So
    // it gets its name when it listens.
    let unnamed = folder.join(format!(".{name}"));
    let _ = fs::remove_file(&unnamed);
    let listener = UnixListener::bind(&unnamed)?;
    let _unnamed = SocketFile(unnamed.clone());
    fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600))?;
    let path = folder.join(name);
    fs::hard_link(&unnamed, &path)?;
    Ok((listener, SocketFile(path)))
}

/// Removes the socket of a gateway that does not run any more.
async fn remove_if_left(socket: &Path) {
    // A gateway that is busy or stopped does not refuse.
    if let Err(error) = UnixStream::connect(socket).await
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        let _ = fs::remove_file(socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("it exists").mode() & 0o777
    }

    #[tokio::test]
    async fn a_socket_is_for_its_user_and_goes_with_its_gateway() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("refrain");
        let (_listener, file) = bind_in(&folder, "near").await.expect("a socket");
        assert_eq!((mode(&folder), mode(file.path())), (0o700, 0o600));
        assert_eq!(sockets(&folder).expect("a folder"), [file.path()]);
        UnixStream::connect(file.path()).await.expect("it listens");
        // Another gateway of this process, as no other would have its number.
        assert!(bind_in(&folder, "near").await.is_err());
        UnixStream::connect(file.path())
            .await
            .expect("it listens still");
        drop(file);
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
    }

    #[tokio::test]
    async fn what_a_killed_gateway_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("refrain");
        let (_listener, alive) = bind_in(&folder, "far").await.expect("a socket");
        let left = folder.join("near-1.sock");
        drop(UnixListener::bind(&left).expect("a socket"));
        let others = [folder.join("near-2.sock"), folder.join("other.sock")];
        fs::write(&others[0], "a file").expect("a file");
        drop(UnixListener::bind(&others[1]).expect("a socket"));
        let (_second, near) = bind_in(&folder, "near").await.expect("a socket");
        assert!(!left.exists());
        assert!(others.iter().all(|other| other.exists()));
        let mut found = [alive.path(), near.path()];
        found.sort();
        assert_eq!(sockets(&folder).expect("a folder"), found);
    }

    #[tokio::test]
    async fn a_folder_that_others_planted_is_not_used() {
        let dir = tempfile::tempdir().expect("a folder");
        let open = dir.path().join("open");
        fs::create_dir(&open).expect("a folder");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("our own");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).expect("a link");
        let file = dir.path().join("file");
        fs::write(&file, "").expect("a file");
        for folder in [open, link, file] {
            assert!(bind_in(&folder, "near").await.is_err(), "{folder:?}");
            assert!(sockets(&folder).is_err(), "{folder:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 3);
    }
}
