//! git over HTTP: clones and pushes.

use crate::{
    common::git::{GitServer, commit_version, git, tree},
    place::{Needs, Place, Program, listen_lines},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Usual(&GitServer::PROGRAMS),
    test,
};

fn test(place: &Place) {
    let server = place.at_origin(|| GitServer::start_with_lines(&listen_lines("80")));
    let served = server.repository("project.git");
    let work = place.path("work");
    git(
        place.folder(),
        &["init", "--quiet", "--initial-branch=main", "work"],
    );
    commit_version(&work, 0);
    let (from, to) = (work.display().to_string(), served.display().to_string());
    git(place.folder(), &["clone", "--quiet", "--bare", &from, &to]);
    for (host, version) in place.hosts().into_iter().zip(1..) {
        let url = format!("http://{}/git/project.git", host.in_url());
        place.run("git", &["clone", "--quiet", &url, host.label()]);
        let cloned = place.path(host.label());
        assert_eq!(tree(&cloned, "HEAD"), tree(&served, "main"));
        git(&cloned, &["fsck", "--strict"]);
        commit_version(&cloned, version);
        place.run("git", &["-C", host.label(), "push", "--quiet"]);
        assert_eq!(tree(&cloned, "HEAD"), tree(&served, "main"));
        git(&served, &["fsck", "--strict"]);
    }
}
