//! curl, unmodified.

use std::{
    fs,
    process::{Command, Output},
};

use refrain_czip_format::header::Profile;

use super::world::{World, options, tar_of};

fn curl(arguments: &[&str]) -> Option<Output> {
    let run = Command::new("curl")
        .args(["--silent", "--show-error"])
        .args(arguments)
        .output();
    run.ok()
}

#[test]
fn curl_downloads_resumes_and_decodes() {
    let world = World::new();
    let content = tar_of(1, [3_000_000, 40_000, 512]);
    world.archive("a.tar.czip", &content, &options(Profile::Small));
    let url = format!("http://{}/a.tar", world.address);
    let Some(whole) = curl(&[&url]) else {
        return;
    };
    assert!(whole.stdout == content);
    let compressed = curl(&["--compressed", &url]).expect("curl runs");
    assert!(
        compressed.stdout == content,
        "{}",
        String::from_utf8_lossy(&compressed.stderr)
    );
    let part = curl(&["--range", "1000-1999", &url]).expect("curl runs");
    assert!(part.stdout == content[1000..2000]);
    let beside = tempfile::tempdir().expect("a temporary folder");
    let file = beside.path().join("part");
    fs::write(&file, &content[..1_234_567]).expect("a new file");
    let file_name = file.to_str().expect("UTF-8");
    let resumed = curl(&["--continue-at", "-", "--output", file_name, &url]).expect("curl runs");
    assert!(resumed.status.success());
    assert!(fs::read(&file).expect("it is there") == content);
}
