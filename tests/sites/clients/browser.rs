//! Chromium: a page with 200 scripts.

use std::fs;

use super::{Access, Way, World, are_here, on_each_way, output, text};

const SCRIPTS: usize = 200;

#[test]
fn a_browser_loads_a_page_with_200_scripts() {
    if !are_here(&[], &["chromium", "certutil"]) {
        return;
    }
    let publish = |world: &World| {
        for number in 0..SCRIPTS {
            let script = format!("sum += {number};\ncount += 1;\n");
            fs::write(world.www().join(format!("{number}.js")), script).expect("a new file");
        }
        let scripts: String = (0..SCRIPTS)
            .map(|number| format!("<script src=\"{number}.js\"></script>\n"))
            .collect();
        let page = format!(
            "<!DOCTYPE html><script>var sum = 0, count = 0;</script>\n{scripts}<body><script>
                 const version = performance.getEntriesByType('navigation')[0].nextHopProtocol;
                 document.body.innerHTML = `${{version}} ${{count}} ${{sum}}`;
             </script>"
        );
        fs::write(world.www().join("page.html"), page).expect("a new file");
    };
    let sum = SCRIPTS * (SCRIPTS - 1) / 2;
    on_each_way("", publish, |access| {
        let dom = dom(access, "page.html");
        let version = if access.way == Way::Mirror {
            "http/1.1"
        } else {
            "h2"
        };
        let expected = format!("<body>{version} {SCRIPTS} {sum}</body>");
        assert!(dom.contains(&expected), "{:?}: {dom}", access.way);
    });
}

/// The page as the browser has it at last.
fn dom(access: &Access, page: &str) -> String {
    // It looks into one of both, by its version.
    for folder in [".pki/nssdb", ".local/share/pki/nssdb"] {
        let folder = access.folder.join(folder);
        fs::create_dir_all(&folder).expect("a new folder");
        let database = format!("sql:{}", folder.display());
        access.run("certutil", &["-N", "-d", &database, "--empty-password"]);
        // A certificate of nobody's is trusted as that of a server.
        let trust = if access.way == Way::Opened {
            "C,,"
        } else {
            "P,,"
        };
        let certificate = text(&access.trusted());
        let add = ["-A", "-t", trust, "-n", "own", "-i", &certificate];
        access.run("certutil", &[&["-d", &database], &add[..]].concat());
    }
    let profile = format!(
        "--user-data-dir={}",
        access.folder.join("profile").display()
    );
    let proxy = match access.proxy() {
        Some(proxy) => format!("--proxy-server={proxy}"),
        None => "--no-proxy-server".to_owned(),
    };
    let url = format!("{}/{page}", access.url());
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        &profile,
        &proxy,
        "--dump-dom",
        &url,
    ];
    let dom = output(&mut access.program("chromium", &arguments));
    String::from_utf8(dom).expect("text")
}
