//! nginx, curl and a browser through a pair of gateways, unmodified.

mod common;

use std::fs;

use common::{
    addresses::has_ipv6,
    content::letters,
    digest, eventually,
    listeners::AllListeners,
    nginx::{Nginx, assert_kept},
    programs::{are_installed, find, run_ok},
};

#[test]
fn curl_through_every_listener() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let nginx = Nginx::start();
    let page = nginx.serve_letters("page", 1, 300_000);
    let world = AllListeners::to(nginx.http);
    let (socks, proxy) = (world.socks.to_string(), world.proxy());
    let port = nginx.http.port();
    let direct = format!("http://127.0.0.1:{port}/page");
    let named = format!("http://localhost:{port}/page");
    let forward = format!("http://{}/page", world.forward);
    let ipv6 = format!("http://[::1]:{port}/page");
    let mut ways: Vec<Vec<&str>> = vec![
        vec![&forward],
        vec!["--socks5", &socks, &direct],
        vec!["--socks5-hostname", &socks, &named],
        vec!["--proxy", &proxy, &direct],
        vec!["--proxy", &proxy, &named],
        vec!["--proxy", &proxy, "--proxytunnel", &direct],
        vec!["--proxy", &proxy, "--proxytunnel", &named],
    ];
    if has_ipv6() {
        ways.push(vec!["--globoff", "--socks5", &socks, &ipv6]);
        ways.push(vec!["--globoff", "--proxy", &proxy, &ipv6]);
        ways.push(vec!["--globoff", "--proxy", &proxy, "--proxytunnel", &ipv6]);
    }
    let before = world.pair.near.link_bytes();
    world.curl(&ways[0]);
    let first = world.pair.near.link_bytes() - before;
    assert!(
        first > 100_000,
        "letters at random do not fit into {first} bytes"
    );
    for way in &ways {
        let before = world.pair.near.link_bytes();
        let received = world.curl(way);
        let again = world.pair.near.link_bytes() - before;
        assert_eq!(digest(&received), digest(&page), "curl {way:?}");
        // The page itself, the client's and the lane's words.
        assert!(
            again < first / 20,
            "curl {way:?}: {again} bytes, {first} at first"
        );
    }
}

#[test]
fn uploads_through_the_other_listeners() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let nginx = Nginx::start();
    let world = AllListeners::to(nginx.http);
    let body = letters(5, 1_000_000);
    fs::write(world.scratch.path().join("body"), &body).expect("a new file");
    let upload = ["--data-binary", "@body"];
    let forward = format!("http://{}/post", world.forward);
    assert_kept(&world.curl(&[&upload[..], &[&forward]].concat()), &body);
    let (socks, direct) = (
        world.socks.to_string(),
        format!("http://{}/post", nginx.http),
    );
    let command = [&upload[..], &["--socks5-hostname", &socks, &direct]].concat();
    assert_kept(&world.curl(&command), &body);
}

#[test]
fn https_is_sent_as_it_is_and_stays_out_of_the_cache() {
    if !are_installed(&["nginx", "curl", "openssl"]) {
        return;
    }
    let nginx = Nginx::start_with_tls();
    let page = nginx.serve_letters("page", 6, 3_000_000);
    let https = nginx.https.expect("it was asked for");
    let world = AllListeners::to(https);
    let (proxy, url) = (world.proxy(), format!("https://{https}/page"));
    // Slow enough to be looked at.
    let slow = ["--insecure", "--limit-rate", "1M", "--proxy", &proxy, &url];
    let (class, received) = std::thread::scope(|threads| {
        let download = threads.spawn(|| world.curl(&slow));
        let class = eventually("the flow is classified", || {
            let flow = world.pair.far.status().flows.pop()?;
            (flow.class != "unknown").then_some(flow.class)
        });
        (class, download.join().expect("no panic"))
    });
    assert_eq!(class, "excluded");
    assert_eq!(digest(&received), digest(&page));
    assert_eq!(
        digest(&world.curl(&["--insecure", "--proxy", &proxy, &url])),
        digest(&page)
    );
    let sent = world.pair.far.peer().sent;
    assert_eq!(sent.matching_saved_bytes, 0, "{sent:?}");
    assert_eq!(sent.cache_filled_bytes, 0, "{sent:?}");
    assert_eq!(sent.bypassed_blocks, sent.blocks, "{sent:?}");
}

#[test]
fn a_browser_shows_a_page() {
    // Too large for `lab/setup`: used where somebody has one.
    if find("chromium").is_none() {
        eprintln!("skipped: chromium is not installed");
        return;
    }
    if !are_installed(&["nginx"]) {
        return;
    }
    let nginx = Nginx::start();
    let script = "document.title = 'shown';";
    let text = "<html><script src='script.js'></script><p id='body'>a page</p></html>";
    nginx.serve("page.html", text.as_bytes());
    nginx.serve("script.js", script.as_bytes());
    let world = AllListeners::to(nginx.http);
    let url = format!("http://{}/page.html", nginx.http);
    for proxy in [world.proxy(), format!("socks5://{}", world.socks)] {
        let opened = world.pair.near.peer().counters.flows_opened;
        let shown = run_ok(
            "chromium",
            world.scratch.path(),
            &[
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--user-data-dir=profile",
                "--proxy-bypass-list=<-loopback>",
                &format!("--proxy-server={proxy}"),
                "--dump-dom",
                &url,
            ],
        );
        let shown = String::from_utf8_lossy(&shown);
        assert!(
            shown.contains("<title>shown</title>") && shown.contains("a page"),
            "{shown}"
        );
        let opened = world.pair.near.peer().counters.flows_opened - opened;
        assert!(opened > 0, "the browser went around {proxy}");
    }
}
