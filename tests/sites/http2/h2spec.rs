//! h2spec: what a server of HTTP/2 must do, case by case, of a site and through the near end.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, process::Command};

use super::World;
use crate::common::programs::{are_large_ones_installed, find};

/// Version 2.2.1 has 145.
const CASES_MIN: usize = 140;

/// The cases by their section, and whether each is passed.
fn cases(server: SocketAddr, folder: &Path) -> BTreeMap<String, bool> {
    let report = folder.join(format!("{}.xml", server.port()));
    let port = server.port().to_string();
    // It fails if one case does.
    let output = Command::new(find("h2spec").expect("its presence was tested"))
        .args([
            "-h",
            "localhost",
            "-p",
            &port,
            "-P",
            "/20",
            "-t",
            "-k",
            "-o",
            "1",
            "-j",
        ])
        .arg(&report)
        .output()
        .expect("it runs");
    let report = std::fs::read_to_string(report)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let value = |case: &str, name: &str| {
        let (_, rest) = case
            .split_once(&format!("{name}=\""))
            .expect("an attribute");
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    let cases = report.split("<testcase ").skip(1).map(|case| {
        let name = format!("{}: {}", value(case, "package"), value(case, "classname"));
        (name, !case.contains("<failure") && !case.contains("<error"))
    });
    cases.collect()
}

/// Both servers are of the same library. What the near end adds must not make it differ.
#[test]
fn a_near_end_passes_the_cases_that_its_library_passes() {
    if !are_large_ones_installed(&["h2spec"]) {
        return;
    }
    let Some(world) = World::start(&["h2"]) else {
        return;
    };
    let direct = cases(world.site, world.folder.path());
    let through = cases(world.near, world.folder.path());
    assert!(direct.len() >= CASES_MIN, "{direct:?}");
    assert!(direct.keys().eq(through.keys()), "{direct:?} {through:?}");
    let passed = |cases: &BTreeMap<String, bool>| cases.values().filter(|&&passes| passes).count();
    println!(
        "h2spec: {} of {} cases direct, {} through the pair",
        passed(&direct),
        direct.len(),
        passed(&through)
    );
    let worse: Vec<&String> = direct
        .iter()
        .filter(|(name, passes)| **passes && !through[*name])
        .map(|(name, _)| name)
        .collect();
    assert!(worse.is_empty(), "{worse:#?}");
}
