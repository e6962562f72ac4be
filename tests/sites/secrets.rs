//! Answers that are for one client, of HTTPS sites that a near end opens: they are in no cache and no store, and their
//! length on the link does not depend on others.

use std::{
    fs::{self, File},
    net::SocketAddr,
    os::unix::fs::FileExt,
    path::Path,
};

use crate::common::{
    addresses::free_address,
    content::{letters, noise},
    digest, http,
    nginx::Nginx,
    programs::{are_installed, run_ok},
    site::Pair,
};

/// Bytes of each body. They are long enough to be found again.
const BODY_BYTES: usize = 40_000;

/// Files with answers of several kinds.
const LOCATIONS: &str = "location /cookie/ { add_header Set-Cookie \"session=CanaryOfTheCookie\"; rewrite ^/cookie(.*) $1 break; }
             location /private/ { add_header Cache-Control private; rewrite ^/private(.*) $1 break; }
             location /no-store/ { add_header Cache-Control no-store; rewrite ^/no-store(.*) $1 break; }
             location /public/ { add_header Cache-Control public; rewrite ^/public(.*) $1 break; }";

/// The token that each page of a site has, in parts of so many bytes.
const PARTS: usize = 3;
const PART_BYTES: usize = 400;

struct World {
    nginx: Nginx,
    pair: Pair,
    near: SocketAddr,
    store: tempfile::TempDir,
}

impl World {
    fn start(has_http2: bool, far_options: &[&str]) -> World {
        World::start_with_lines(has_http2, far_options, "")
    }

    fn start_with_lines(has_http2: bool, far_options: &[&str], lines: &str) -> World {
        World::start_as(has_http2, far_options, &[], lines)
    }

    fn start_as(
        has_http2: bool,
        far_options: &[&str],
        near_options: &[&str],
        lines: &str,
    ) -> World {
        let nginx =
            Nginx::start_with_tls_and_http2_and_lines(has_http2, &format!("{LOCATIONS}{lines}"));
        let (near, store) = (free_address(), tempfile::tempdir().expect("a directory"));
        let folder = nginx.certificate().parent().expect("a folder").to_owned();
        let [certificate, key] =
            ["tls.crt", "tls.key"].map(|name| folder.join(name).display().to_string());
        let site = nginx.https.expect("it has TLS").port();
        let far = [&["--origin-ca", &certificate][..], far_options].concat();
        let service = format!("https://{near}=https://localhost:{site}");
        let store_path = store.path().display().to_string();
        let always = [
            "--service",
            &service,
            "--cert",
            &certificate,
            "--cert-key",
            &key,
            "--store",
            &store_path,
        ];
        let pair = Pair::start(&far, &[&always, near_options].concat());
        World {
            nginx,
            pair,
            near,
            store,
        }
    }

    /// What curl gets, and the bytes that the far end sent for it.
    fn get(&self, path: &str, options: &[&str]) -> (Vec<u8>, u64) {
        let folder = self
            .nginx
            .certificate()
            .parent()
            .expect("a folder")
            .to_owned();
        let url = format!("https://localhost:{}/{path}", self.near.port());
        let always = [
            "--silent",
            "--show-error",
            "--fail",
            "--noproxy",
            "*",
            "--cacert",
            "tls.crt",
            &url,
        ];
        let before = self.pair.far.link_bytes();
        let body = run_ok("curl", &folder, &[&always, options].concat());
        (body, self.pair.far.link_bytes() - before)
    }
}

/// Whether a file of a folder has these bytes.
fn is_found(folder: &Path, bytes: &[u8]) -> bool {
    let files = fs::read_dir(folder).expect("a folder").flatten();
    files.into_iter().any(|file| {
        let path = file.path();
        match path.is_dir() {
            true => is_found(&path, bytes),
            false => {
                let content = fs::read(&path).unwrap_or_default();
                content.windows(bytes.len()).any(|window| window == bytes)
            }
        }
    })
}

/// What a process has in its caches: only they ask the system for huge pages.
fn cached(process: u32) -> String {
    let maps = fs::read_to_string(format!("/proc/{process}/smaps")).expect("a process");
    let memory = File::open(format!("/proc/{process}/mem")).expect("a process");
    let (mut range, mut content) = (0..0, Vec::new());
    for line in maps.lines() {
        let (first, rest) = line.split_once(' ').expect("words");
        if let Some((start, end)) = first.split_once('-') {
            let number = |text| u64::from_str_radix(text, 16).expect("an address");
            range = number(start)..number(end);
        } else if first == "VmFlags:" && rest.split(' ').any(|flag| flag == "hg") {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let read = memory.read_exact_at(&mut bytes, range.start);
            read.expect("memory that is mapped");
            content.append(&mut bytes);
        }
    }
    String::from_utf8_lossy(&content).into_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn answers_for_one_client_are_neither_cached_nor_stored() {
    if !are_installed(&["nginx", "curl", "openssl"]) {
        return;
    }
    const AUTHORIZED: [&str; 2] = ["--header", "Authorization: Bearer CanaryOfTheRequest"];
    for has_http2 in [true, false] {
        let small = ["--cache-size", "4MiB"];
        let mut world = World::start_as(has_http2, &small, &small, "");
        let bodies: Vec<Vec<u8>> = (0..5).map(|seed| letters(100 + seed, BODY_BYTES)).collect();
        for (nth, body) in bodies.iter().enumerate() {
            world.nginx.serve(&format!("{nth}"), body);
        }
        for (path, options, is_private) in [
            ("cookie/0", &[][..], false),
            ("private/1", &[], true),
            ("no-store/2", &[], true),
            ("3", &AUTHORIZED, true),
            ("public/4", &AUTHORIZED, false),
        ] {
            let nth: usize = path[path.len() - 1..].parse().expect("a digit");
            let (first, _) = world.get(path, options);
            let (again, sent) = world.get(path, options);
            assert_eq!(
                (digest(&first), digest(&again)),
                (digest(&bodies[nth]), digest(&bodies[nth]))
            );
            match is_private {
                true => assert!(sent > BODY_BYTES as u64, "{path}: {sent}"),
                false => assert!(sent < 5000, "{path}: {sent}"),
            }
        }
        let caches = [&world.pair.near, &world.pair.far].map(|end| cached(end.process()));
        let pages = world.pair.ends().map(|(_, end)| {
            ["/metrics", "/status"].map(|page| http::get(end.admin, page, None).expect("a page").1)
        });
        let shown = pages.concat().concat();
        world.pair.near.signal("TERM");
        world.pair.near.wait_for_exit();
        let is_stored = |bytes: &[u8]| is_found(world.store.path(), bytes);
        for (nth, body) in bodies.iter().enumerate() {
            let is_private = (1..=3).contains(&nth);
            let text = std::str::from_utf8(body).expect("letters");
            for cache in &caches {
                let mut parts = text.as_bytes().chunks(256).map(std::str::from_utf8);
                let is_cached = parts.any(|part| cache.contains(part.expect("letters")));
                assert_eq!(is_cached, !is_private, "body {nth}, HTTP/2: {has_http2}");
            }
            // A part of a chunk, wherever chunks were cut.
            let mut parts = body.chunks(256);
            assert_eq!(
                parts.any(is_stored),
                !is_private,
                "body {nth}, HTTP/2: {has_http2}"
            );
        }
        for canary in ["CanaryOfTheCookie", "CanaryOfTheRequest"] {
            assert!(!is_stored(canary.as_bytes()), "{canary}");
            assert!(
                caches.iter().all(|cache| !cache.contains(canary)),
                "{canary}"
            );
            for (name, end) in world.pair.ends() {
                assert!(
                    !end.log().contains(canary),
                    "{canary} is in the log of {name}"
                );
            }
            assert!(!shown.contains(canary), "{canary} is shown: {shown}");
        }
    }
}

#[test]
fn private_answers_are_cached_where_the_far_end_says_so() {
    if !are_installed(&["nginx", "curl", "openssl"]) {
        return;
    }
    let world = World::start(false, &["--private-answers", "cache"]);
    let body = letters(7, BODY_BYTES);
    world.nginx.serve("0", &body);
    world.get("private/0", &[]);
    let (again, sent) = world.get("private/0", &[]);
    assert_eq!(digest(&again), digest(&body));
    assert!(sent < 5000, "{sent}");
}

/// An attacker has a client request pages that repeat a guess beside a token, and sees lengths: of each part of the token,
/// the shortest of a few guesses is taken for right. Without the policy, this finds all parts (BREACH). With it, lengths are
/// the same (P10).
#[test]
fn the_policy_hides_a_token_from_an_adaptive_guesser() {
    if !are_installed(&["nginx", "curl", "openssl"]) {
        return;
    }
    let part = |seed: u64| hex(&noise(seed, PART_BYTES / 2));
    let token: Vec<String> = (0..PARTS as u64).map(part).collect();
    let page = format!(
        "location = /page {{ default_type text/html; return 200 \"<p>$arg_guess</p><input value={}>\"; }}",
        token.concat()
    );
    let attack = |has_http2: bool, options: &[&str], is_safe: bool| {
        let world = World::start_as(has_http2, &[], options, &page);
        let length = |guess: &str| {
            // Without the policy, a guess that is repeated is a repeat of itself. Pings of the link come at times.
            let times = if is_safe { 5 } else { 1 };
            let lengths = (0..times).map(|_| world.get(&format!("page?guess={guess}"), &[]).1);
            lengths.min().expect("at least one")
        };
        length("none");
        let mut known = String::new();
        let mut found = 0;
        for (nth, right) in token.iter().enumerate() {
            // The right one is none of the first that is measured, nor the last.
            let wrong = |other: usize| part(100 + 10 * nth as u64 + other as u64);
            let guesses = [wrong(0), wrong(1), right.clone(), wrong(2)];
            let lengths = guesses
                .each_ref()
                .map(|guess| length(&format!("{known}{guess}")));
            let (least, most) = (lengths.iter().min(), lengths.iter().max());
            let (least, most) = (least.expect("four"), most.expect("four"));
            if is_safe {
                // An answer may take another record of the lane, of 22 bytes. A match would save 200 and more.
                assert!(most - least < 100, "part {nth}: {lengths:?}");
            }
            let shortest = lengths.iter().position(|length| length == least);
            known += &guesses[shortest.expect("one of them")];
            found += usize::from(known.ends_with(right.as_str()));
        }
        let is_stored = is_found(world.store.path(), token[0].as_bytes());
        assert!(!(is_safe && is_stored));
        found
    };
    // A busy machine can add bytes to one guess, so an attack may need a second try.
    let mut attacks = (0..3).map(|_| attack(true, &[], false));
    assert!(
        attacks.any(|found| found == PARTS),
        "no attack finds the token"
    );
    for has_http2 in [true, false] {
        attack(has_http2, &["--secret-safe"], true);
    }
}

/// An attacker who knows what else crosses the link, and sees lengths: right and wrong guesses of a cookie are alike (P10).
#[test]
fn the_length_of_a_cookie_shows_nothing_about_guesses() {
    if !are_installed(&["nginx", "curl", "openssl"]) {
        return;
    }
    // Long enough to show a match beside frames whose numbers grow, and dates.
    let cookie = |path: &str, nth: u64, seed: u64| {
        let value = hex(&noise(seed, 150));
        format!("location = /{path}{nth} {{ add_header Set-Cookie {value}; return 204; }}")
    };
    let right = (0..8).map(|nth| cookie("right", nth, 1));
    let wrong = (0..8).map(|nth| cookie("wrong", nth, 10 + nth));
    let world = World::start_with_lines(false, &[], &right.chain(wrong).collect::<String>());
    // On a busy machine, further records of the lane and pings only add to a length.
    let least = |path: &str| {
        let lengths = (1..8).map(|nth| world.get(&format!("{path}{nth}"), &[]).1);
        lengths.min().expect("seven")
    };
    world.get("right0", &[]);
    let (right, wrong) = (least("right"), least("wrong"));
    assert!(right.abs_diff(wrong) < 40, "right {right}, wrong {wrong}");
    assert!(wrong > 300, "it is not compressed: {wrong}");
    // The test can fail: a body that repeats shows it.
    world.nginx.serve("page", &letters(9, BODY_BYTES));
    let (_, first) = world.get("page", &[]);
    let (_, second) = world.get("page", &[]);
    assert!(second + 10_000 < first, "{first}, {second}");
}
