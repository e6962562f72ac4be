use proptest::prelude::*;

use super::*;
use crate::http_proxy::{
    AcceptEncoding, Addressing, Answer, Exchange, HttpProxyError, Purpose, parse_head,
};

fn service(text: &str) -> Service {
    text.parse().unwrap()
}

/// The exchange of a request, and where it goes.
fn request(service: &Service, head: &str) -> Result<(Origin, Exchange), HttpProxyError> {
    let addressing = Addressing::Service(Arc::new(service.clone()));
    let (request, _) = parse_head(head.as_bytes(), &addressing, |_| AcceptEncoding::Keep)?.unwrap();
    match request.purpose {
        Purpose::Exchange(exchange) => Ok((request.origin, *exchange)),
        Purpose::Tunnel => panic!("a tunnel"),
    }
}

/// The head that a client gets of this answer to a request for `path`.
fn answered(service: &Service, path: &str, answer: &str) -> String {
    let (_, exchange) = request(
        service,
        &format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n"),
    )
    .unwrap();
    let mut passed = answer.as_bytes().to_vec();
    Answer::new(exchange.terms)
        .served_from(exchange.served)
        .pass(&mut passed, true);
    String::from_utf8(passed).unwrap()
}

#[test]
fn a_service_is_a_site_and_its_other_hosts() {
    for (text, shown, target) in [
        ("https://a.example", "https://a.example", "a.example:443"),
        ("https://A.example/", "https://a.example", "a.example:443"),
        (
            "https://a.example:443",
            "https://a.example",
            "a.example:443",
        ),
        ("HTTP://a.example", "http://a.example", "a.example:80"),
        ("https://[::1]:5000", "https://[::1]:5000", "[::1]:5000"),
        (
            "https://a.example,b.example,c.example:444",
            "https://a.example,b.example,c.example:444",
            "a.example:443",
        ),
    ] {
        let service = service(text);
        assert_eq!(service.to_string(), shown, "{text}");
        assert_eq!(service.site.target.to_string(), target, "{text}");
    }
    for text in [
        "",
        "a.example",
        "ftp://a.example",
        "https://",
        "https://a.example/path",
        "https://a.example?query",
        "https://user@a.example",
        "https://a.example,",
        "https://a.example,a.example:443",
        "https://a.example,https://b.example",
        "https://a.example,b.example,b.example",
        "https://10.0.0.300",
    ] {
        assert!(text.parse::<Service>().is_err(), "{text}");
    }
}

#[test]
fn a_request_goes_to_the_site_under_its_own_name() {
    let service = service("https://a.example,b.example:444");
    let head = "GET /x?y HTTP/1.1\r\nHost: localhost:5000\r\nAuthorization: Bearer x\r\nAccept: */*\r\n\r\n";
    let (origin, exchange) = request(&service, head).unwrap();
    assert_eq!(origin, service.site);
    assert_eq!(
        String::from_utf8(exchange.head.bytes).unwrap(),
        "GET /x?y HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nVia: 1.1 refrain\r\nAuthorization: Bearer x\r\n\r\n"
    );
}

#[test]
fn another_host_gets_its_path_and_no_credentials() {
    let service = service("https://a.example,b.example:444");
    for (path, expected) in [
        (
            "/_refrain/b.example:444/x/y?z=/_refrain/a.example/",
            "/x/y?z=/_refrain/a.example/",
        ),
        ("/_refrain/b.example:444/", "/"),
        ("/_refrain/b.example:444", "/"),
        ("/_refrain/B.example%3a444/x%3A", "/x%3A"),
    ] {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: x\r\nCookie: y\r\nX-Auth-Token: z\r\n\
             X-JFrog-Art-Api: k\r\nX-Session: s\r\nReferer: http://h/x?token=1\r\nOrigin: http://h\r\n\
             X-Amz-Security-Token: t\r\nAccept: */*\r\n\r\n"
        );
        let (origin, exchange) = request(&service, &head).unwrap();
        assert_eq!(origin.to_string(), "https://b.example:444");
        assert_eq!(
            String::from_utf8(exchange.head.bytes).unwrap(),
            format!(
                "GET {expected} HTTP/1.1\r\nHost: b.example:444\r\nAccept: */*\r\nVia: 1.1 refrain\r\n\r\n"
            )
        );
    }
}

#[test]
fn only_listed_hosts_and_paths_are_served() {
    let service = service("https://a.example,b.example:444");
    for (line, error) in [
        ("GET /_refrain/c.example/", HttpProxyError::UnknownHost),
        ("GET /_refrain/b.example/", HttpProxyError::UnknownHost),
        ("GET /_refrain/a.example/", HttpProxyError::UnknownHost),
        (
            "GET /_refrain/b.example:444@c.example/",
            HttpProxyError::UnknownHost,
        ),
        (
            "GET /_refrain/b.example:444%2f/",
            HttpProxyError::UnknownHost,
        ),
        ("GET /_refrain//b.example:444/", HttpProxyError::UnknownHost),
        ("GET http://a.example/", HttpProxyError::NotAProxy),
        // Its own name, or that of a site, for a client that takes it for a proxy.
        ("GET http://h/", HttpProxyError::NotAProxy),
        ("GET https://a.example/", HttpProxyError::NotAProxy),
        ("GET x", HttpProxyError::NotAProxy),
        ("CONNECT a.example:443", HttpProxyError::NotAProxy),
    ] {
        let head = format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(request(&service, &head).unwrap_err(), error, "{line}");
    }
    let path = "/_refrain/b.example:444/x";
    let alone = self::service("https://a.example");
    let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let (origin, exchange) = request(&alone, &head).unwrap();
    assert_eq!(
        origin.to_string(),
        "https://a.example",
        "it has no other hosts"
    );
    assert!(
        exchange
            .head
            .bytes
            .starts_with(format!("GET {path} ").as_bytes())
    );
    assert!(request(&service, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").is_ok());
}

#[test]
fn links_to_the_hosts_of_a_service_become_paths_of_its_listener() {
    let service = service("https://a.example,b.example:444");
    let location = |path: &str, url: &str| {
        let answer = format!("HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: {url}\r\n\r\n");
        let head = answered(&service, path, &answer);
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix("Location: "));
        line.expect("the field").to_owned()
    };
    for (url, expected) in [
        ("https://a.example/x?y#z", "/x?y#z"),
        ("https://A.example:443/x", "/x"),
        ("https://a.example", "/"),
        ("https://a.example?y", "/?y"),
        ("//a.example/x", "/x"),
        ("https://b.example:444/x", "/_refrain/b.example:444/x"),
        ("https://b.example:444", "/_refrain/b.example:444/"),
        // Other hosts, ports and schemes.
        ("https://b.example/x", "https://b.example/x"),
        ("http://a.example/x", "http://a.example/x"),
        ("https://c.example/x", "https://c.example/x"),
        ("https://user@a.example/x", "https://user@a.example/x"),
        ("mailto:a@a.example", "mailto:a@a.example"),
        ("/x", "/x"),
        ("x/y", "x/y"),
        ("?next=https://a.example/", "?next=https://a.example/"),
    ] {
        assert_eq!(location("/", url), expected, "{url}");
    }
    let other = "/_refrain/b.example:444/x";
    for (url, expected) in [
        ("/y", "/_refrain/b.example:444/y"),
        ("y", "y"),
        ("https://a.example/y", "/y"),
        ("//b.example:444/y", "/_refrain/b.example:444/y"),
    ] {
        assert_eq!(location(other, url), expected, "{url}");
    }
}

#[test]
fn cookies_are_of_the_listener_and_no_field_leads_past_it() {
    let service = service("https://a.example,b.example");
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"1\"\r\n\
        Set-Cookie: a=b=secure; Domain=.a.example; Path=/; Secure; HttpOnly; SameSite=None\r\n\
        set-cookie: c=d;secure ; DOMAIN = x;Expires=Thu, 01 Jan 2037 00:00:00 GMT\r\n\
        Strict-Transport-Security: max-age=1\r\nAlt-Svc: h3=\":443\"\r\n\r\n";
    assert_eq!(
        answered(&service, "/", answer),
        "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nVia: 1.1 refrain\r\nSet-Cookie: a=b=secure; Path=/; HttpOnly\r\n\
         Set-Cookie: c=d;Expires=Thu, 01 Jan 2037 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n"
    );
    let other = answered(&service, "/_refrain/b.example/", answer);
    assert!(!other.to_ascii_lowercase().contains("cookie"), "{other}");
}

proptest! {
    #[test]
    fn any_url_becomes_a_path_of_the_listener_or_stays(url in "[ -~]{0,60}", is_of_site: bool) {
        let service = Arc::new(service("https://a.example,b.example"));
        let origin = match is_of_site {
            true => service.site.clone(),
            false => service.others[0].clone(),
        };
        let served = Served::of(&service, &origin);
        if let Some(OwnPath { path: own, .. }) = served.own_path(&url) {
            prop_assert!(own.starts_with('/') && !own.starts_with("//"), "{}", own);
        }
    }

    #[test]
    fn no_url_becomes_one_of_another_host(
        path in "(/|\\\\|\\.|%2e|\t|\n|c.example|x){0,8}",
        is_other: bool,
    ) {
        let service = Arc::new(service("https://a.example,b.example"));
        let host = if is_other { "b.example" } else { "a.example" };
        let served = Served::of(&service, &service.site);
        let Some(own) = served.own_path(&format!("https://{host}/{path}")) else {
            return Ok(());
        };
        // As browsers read it.
        let read: String = own.path.chars().filter(|sign| !sign.is_ascii_control()).collect();
        let read = read.replace('\\', "/");
        prop_assert!(!read.starts_with("//"), "{}", own.path);
        let mut segments: Vec<&str> = Vec::new();
        for segment in read[1..].split('/') {
            match &*segment.replace("%2e", ".") {
                "." => {}
                ".." => drop(segments.pop()),
                _ => segments.push(segment),
            }
        }
        let is_of_another = segments.starts_with(&["_refrain", "b.example"]);
        prop_assert_eq!(is_of_another, is_other, "{}", own.path);
    }
}
