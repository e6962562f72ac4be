//! The report as a web page.

use std::{fs, process::Command};

use tempfile::TempDir;

use super::{
    common::command::{refrain, refrain_fails},
    common::content::noise,
    json,
    packets::Capture,
    write,
};

/// A page about a site whose name tries to be a part of it.
fn page(folder: &TempDir, options: &[&str]) -> (String, String) {
    let mut capture = Capture::default();
    for port in [40_000, 40_001, 40_002] {
        let request = b"GET /secret-path HTTP/1.1\r\nHost: files.example\r\n\r\n";
        capture.exchange(port, request, &noise(1, 100_000));
    }
    let capture = write(folder, "<b>capture.pcap", &capture.pcap());
    let path = folder.path().join("report.html").display().to_string();
    let mut arguments = vec!["analyze", "--columns", "all", "--html", &path, &capture];
    arguments.extend(options);
    let output = refrain(&arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    (fs::read_to_string(&path).expect("a page"), path)
}

#[test]
fn a_page_loads_nothing_and_trusts_no_name() {
    let folder = TempDir::new().expect("a folder");
    let (page, _) = page(&folder, &[]);
    for part in [
        "http://",
        "https://",
        "<script",
        "src=",
        "@import",
        "url(",
        "<b>",
        "/secret-path",
    ] {
        assert!(!page.contains(part), "{part}");
    }
    assert!(page.contains("default-src 'none'") && page.contains("&lt;b&gt;capture.pcap"));
    assert!(page.contains("files.example") && page.contains("10.0.1.1"));
    // A plot has a text for those who do not see it, and its figures as a table.
    assert!(page.matches("<svg").count() >= 3);
    assert_eq!(
        page.matches("<svg").count(),
        page.matches("role=\"img\" aria-label=").count()
    );
    assert_eq!(
        page.matches("<svg").count(),
        page.matches("Figures of the plot").count()
    );
}

#[test]
fn a_page_replaces_no_input() {
    let folder = TempDir::new().expect("a folder");
    let path = write(&folder, "input", b"content");
    let below = folder.path().display().to_string();
    for arguments in [
        &["analyze", "--html", &path, &path][..],
        &["analyze", "--requests", "--html", &path, &path],
        &["analyze", "--objects", "--html", &path, &below],
        &["train", "--output", &path, &path],
    ] {
        let (code, error) = refrain_fails(arguments);
        assert_eq!(code, 2, "{arguments:?}: {error}");
        assert!(error.contains("would be overwritten"), "{error}");
        assert_eq!(fs::read(&path).expect("the file"), b"content");
    }
}

#[test]
fn an_anonymous_report_has_no_names() {
    let folder = TempDir::new().expect("a folder");
    let (page, _) = page(&folder, &["--anonymize"]);
    let capture = folder.path().join("<b>capture.pcap").display().to_string();
    let report = json(&["--anonymize", &capture], 0);
    for text in [page, report.to_string()] {
        for name in ["10.0.0.1", "10.0.1.1", "files.example", "capture.pcap"] {
            assert!(!text.contains(name), "{name}");
        }
        assert!(
            text.contains("machine-1") && text.contains("site-1") && text.contains("capture-1")
        );
    }
}

#[test]
fn chromium_draws_it_on_a_phone() {
    let Ok(version) = Command::new("chromium").arg("--version").output() else {
        println!("skipped: chromium is not here");
        return;
    };
    assert!(version.status.success());
    let folder = TempDir::new().expect("a folder");
    let (_, path) = page(&folder, &[]);
    // The page has no script. This one measures it: nothing is wider than the window, but what scrolls by itself.
    let measured = fs::read_to_string(&path).expect("a page").replace(
        "</body>",
        "<script>document.title = [document.documentElement.scrollWidth, innerWidth, \
         document.querySelectorAll('svg polyline').length].join(' ')</script></body>",
    );
    let measured = measured.replace(
        "style-src 'unsafe-inline'",
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'",
    );
    fs::write(&path, measured).expect("a page");
    let log = folder.path().join("net.json");
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=390,800",
            "--dump-dom",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .arg(format!("--log-net-log={}", log.display()))
        .arg(format!("file://{path}"))
        .output()
        .expect("it runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    let title = dom
        .split_once("<title>")
        .and_then(|(_, rest)| rest.split_once("</title>"));
    let title = title.unwrap_or_else(|| panic!("no title: {dom}")).0;
    let figures: Vec<u32> = title
        .split(' ')
        .map(|figure| figure.parse().expect("a number"))
        .collect();
    assert!(figures[0] <= figures[1], "wider than the window: {title}");
    assert!(figures[2] >= 4, "lines are missing: {title}");
    let requests = fs::read_to_string(log).expect("a log");
    assert!(
        !requests.contains("files.example"),
        "the page requested something"
    );
}
