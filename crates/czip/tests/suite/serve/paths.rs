//! No path leads out of the folder, or to what is hidden in it.

use std::{fs, os::unix::fs::symlink};

use refrain_czip::create::Input;
use refrain_czip_format::header::Profile;

use super::world::{World, letters, options};

#[test]
fn hostile_paths_find_nothing() {
    let world = World::new();
    let outside = tempfile::tempdir().expect("a temporary folder");
    fs::write(outside.path().join("secret"), b"secret").expect("a new file");
    world.archive("a.czip", &letters(1, 1000), &options(Profile::Small));
    fs::rename(world.path("a.czip"), outside.path().join("a.czip")).expect("moved out");
    fs::create_dir(world.path("sub")).expect("a new folder");
    fs::write(world.path("sub/file"), b"file").expect("a new file");
    fs::write(world.path(".hidden"), b"hidden").expect("a new file");
    fs::create_dir(world.path(".folder")).expect("a new folder");
    fs::write(world.path(".folder/file"), b"hidden").expect("a new file");
    symlink(outside.path().join("secret"), world.path("file")).expect("a link");
    symlink(outside.path(), world.path("folder")).expect("a link");
    symlink(outside.path().join("a.czip"), world.path("a.czip")).expect("a link");
    let name = outside
        .path()
        .file_name()
        .expect("a name")
        .to_str()
        .expect("UTF-8");
    let beside = [
        format!("/../{name}/secret"),
        format!("/sub/../../{name}/secret"),
        format!("/%2e%2e/{name}/secret"),
        format!("/..%2f{name}%2fsecret"),
        format!("/sub/..%2F..%2F{name}/secret"),
        format!("//{}/secret", outside.path().display()),
    ];
    let others = [
        "/file",
        "/folder/",
        "/folder/secret",
        "/a",
        "/a.czip",
        "/.hidden",
        "/.folder/",
        "/.folder/file",
        "/%2ehidden",
        "/sub//file",
        "/sub/./file",
        "/sub/../sub/file",
        "/sub/file%00",
        "/sub%00/file",
        "/%",
        "/%zz",
        "/%ff%fe",
        "/.czip/",
        "/.czip/chunk/",
        "/.czip/chunk/../../sub/file",
        "/.czip/chunk/zz",
    ];
    for path in beside.iter().map(String::as_str).chain(others) {
        let answer = world.get(path, &[]);
        assert_eq!(answer.status, 404, "{path}");
    }
    let deep = "/a".repeat(3000);
    assert_eq!(world.get(&deep, &[]).status, 404);
    let long = format!("/{}", "a".repeat(5000));
    assert_eq!(world.get(&long, &[]).status, 404);
    assert_eq!(world.get("/sub/file", &[]).body, b"file");
    let page = String::from_utf8(world.get("/", &[]).body).expect("UTF-8");
    for hidden in ["hidden", "folder/", "./file", "a.czip"] {
        assert!(!page.contains(hidden), "{hidden}: {page}");
    }
}

#[test]
fn a_pipe_in_the_folder_makes_nobody_wait() {
    let world = World::new();
    let made = std::process::Command::new("mkfifo")
        .arg(world.path("pipe"))
        .status();
    if !made.is_ok_and(|made| made.success()) {
        return;
    }
    assert_eq!(world.get("/pipe", &[]).status, 404);
}

#[test]
fn a_link_within_the_folder_is_followed_on_linux() {
    let world = World::new();
    fs::create_dir(world.path("sub")).expect("a new folder");
    fs::write(world.path("sub/file"), b"file").expect("a new file");
    symlink("sub", world.path("link")).expect("a link");
    let expected = if cfg!(target_os = "linux") { 200 } else { 404 };
    assert_eq!(world.get("/link/file", &[]).status, expected);
}

#[test]
fn what_is_listed_can_be_asked_for_however_deep_it_lies() {
    let world = World::new();
    let deep = "d/".repeat(300);
    let tree = world.path("tree");
    fs::create_dir_all(tree.join(&deep)).expect("new folders");
    let long = "n".repeat(250);
    for name in ["file", &long, "a b%\u{e4}"] {
        fs::write(tree.join(&deep).join(name), name).expect("a new file");
    }
    let content = letters(1, 5000);
    world.archive("inner.czip", &content, &options(Profile::Shared));
    fs::rename(
        world.path("inner.czip"),
        tree.join(&deep).join("inner.czip"),
    )
    .expect("moved");
    let inputs = vec![Input::Path(tree.clone())];
    world.archive_of("in.czip", inputs, &options(Profile::Small));
    // In an archive, and in the folder itself.
    for folder in [format!("/in/tree/{deep}"), format!("/tree/{deep}")] {
        let listing = world.get(&folder, &[]);
        assert_eq!(listing.status, 200, "{folder}");
        let rows: serde_json::Value = serde_json::from_slice(&listing.body).expect("JSON");
        let rows = rows.as_array().expect("rows");
        assert_eq!(rows.len(), 4);
        for row in rows {
            let link = row["link"].as_str().expect("a link");
            let link = link.strip_prefix("./").expect("relative");
            let answer = world.get(&format!("{folder}{link}"), &[]);
            assert_eq!(answer.status, 200, "{link}");
            if row["name"] != "inner.czip" {
                assert_eq!(answer.body, row["name"].as_str().expect("text").as_bytes());
            }
        }
    }
    // An archive that deep is one, too.
    let answer = world.get(&format!("/tree/{deep}inner"), &[]);
    assert_eq!((answer.status, answer.body == content), (200, true));
    // What is not there is not, after as many looks as it has folders.
    assert_eq!(world.get(&"/tree/x".repeat(1500), &[]).status, 404);
}
