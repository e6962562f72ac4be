//! Lines of request traces: access logs of web servers, of Squid, and the UMass trace of YouTube requests.

use time::{Date, Month, PrimitiveDateTime, Time, UtcOffset};

/// A request as a line tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Since 1970.
    pub nanos: u64,
    /// Its address or name.
    pub client: &'a [u8],
    /// The name of the object. `None` if it is no content that could repeat: other methods than GET, and other answers than
    /// 200, 203 and 206.
    pub object: Option<&'a [u8]>,
    /// Bytes of the answer.
    pub bytes: u64,
    /// Whether the trace has no sizes. `bytes` is [`media_bytes`] then.
    pub is_size_invented: bool,
}

/// Half of all media are longer.
const MEDIAN_BYTES: f64 = 9e6;
const BYTES_MIN: f64 = 1e6;
const BYTES_MAX: f64 = 60e6;

/// Of the logarithm of their lengths: one in six is twice as long as the median.
const DEVIATION: f64 = 0.7;

/// Reads a line of any known format. `None` if it has none of them.
#[must_use]
pub fn parse(line: &[u8]) -> Option<Request<'_>> {
    web_server(line)
        .or_else(|| squid(line))
        .or_else(|| umass(line))
}

/// The length that an invented file with this name has: 1 to 60 MB with a median of 9 MB and a mean of 11.5 MB (PACK's
/// sessions: 12 MB). It is always the same.
#[must_use]
pub fn media_bytes(name: &[u8]) -> u64 {
    let mut random = fastrand::Rng::with_seed(xxhash_rust::xxh3::xxh3_64(name));
    // The sum of twelve has a deviation of 1, and nearly a normal distribution.
    let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    (MEDIAN_BYTES * (DEVIATION * normal).exp()).clamp(BYTES_MIN, BYTES_MAX) as u64
}

/// The common or combined format of nginx and Apache, also with the host's name first:
/// `CLIENT IDENT USER [TIME] "GET PATH HTTP/1.1" STATUS BYTES …`.
fn web_server(line: &[u8]) -> Option<Request<'_>> {
    let (before, rest) = split_at(line, b" [")?;
    let (time, rest) = split_at(rest, b"] \"")?;
    let (request, rest) = quoted(rest)?;
    let mut before = words(before);
    let first = before.next()?;
    // CLIENT IDENT USER, or HOST CLIENT IDENT USER.
    let client = match before.count() {
        2 => first,
        3 => words(line).nth(1)?,
        _ => return None,
    };
    let mut rest = words(rest);
    let (status, bytes) = (rest.next()?, rest.next()?);
    let mut request = words(request);
    let (method, path) = (request.next().unwrap_or_default(), request.next());
    let bytes = match bytes {
        b"-" => 0,
        bytes => number(bytes)?,
    };
    Some(Request {
        nanos: calendar_time(time)?,
        client,
        object: path.filter(|_| is_content(method, status)),
        bytes,
        is_size_invented: false,
    })
}

/// Squid's own format: `TIME ELAPSED CLIENT RESULT/STATUS BYTES METHOD URL …`.
fn squid(line: &[u8]) -> Option<Request<'_>> {
    let mut words = words(line);
    let nanos = unix_time(words.next()?)?;
    number(words.next()?)?;
    let client = words.next()?;
    let (_, status) = split_at(words.next()?, b"/")?;
    let bytes = number(words.next()?)?;
    let (method, url) = (words.next()?, words.next()?);
    Some(Request {
        nanos,
        client,
        object: is_content(method, status).then_some(url),
        bytes,
        is_size_invented: false,
    })
}

/// The UMass trace (Zink et al., MMCN 2008): `TIME SERVER CLIENT GETVIDEO NAME SERVER`. It has no sizes. Some lines name a
/// server in place of the video: they count as requests without bytes.
fn umass(line: &[u8]) -> Option<Request<'_>> {
    let mut words = words(line);
    let nanos = unix_time(words.next()?)?;
    let (_, client) = (words.next()?, words.next()?);
    let _ = words.next()?;
    let name = words.next()?;
    if words.count() != 1 {
        return None;
    }
    // Parameters follow.
    let name = name.split(|byte| *byte == b'&').next()?;
    let is_video = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let object = Some(name).filter(|name| !name.is_empty() && name.iter().all(is_video));
    Some(Request {
        nanos,
        client,
        object,
        bytes: object.map_or(0, media_bytes),
        is_size_invented: true,
    })
}

fn is_content(method: &[u8], status: &[u8]) -> bool {
    method == b"GET" && [&b"200"[..], b"203", b"206"].contains(&status)
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// The parts before and after the first `mark`.
fn split_at<'a>(line: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = line.windows(mark.len()).position(|part| part == mark)?;
    Some((&line[..at], &line[at + mark.len()..]))
}

/// The part up to the next quote without a backslash, and the rest.
fn quoted(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut is_escaped = false;
    let end = line.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    })?;
    Some((&line[..end], &line[end + 1..]))
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number
        .then(|| str::from_utf8(digits).ok()?.parse().ok())
        .flatten()
}

/// Such as `1189828805.208862`. Not all traces have all zeros of the fraction.
fn unix_time(text: &[u8]) -> Option<u64> {
    let (seconds, fraction) = split_at(text, b".")?;
    number(fraction)?;
    let fraction = format!("0.{}", str::from_utf8(fraction).ok()?);
    let nanos = fraction.parse::<f64>().ok()? * 1e9;
    number(seconds)?
        .checked_mul(1_000_000_000)?
        .checked_add(nanos as u64)
}

/// Such as `10/Oct/2000:13:55:36 -0700`.
fn calendar_time(text: &[u8]) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let text = str::from_utf8(text).ok()?;
    let (date, rest) = text.split_once(':')?;
    let (time, offset) = rest.split_once(' ')?;
    let mut date = date.split('/');
    let (day, month, year) = (date.next()?, date.next()?, date.next()?);
    let month = MONTHS.iter().position(|name| *name == month)?;
    let month = Month::try_from(u8::try_from(month).ok()? + 1).ok()?;
    let date = Date::from_calendar_date(year.parse().ok()?, month, day.parse().ok()?).ok()?;
    let mut time = time.split(':').map(|part| part.parse::<u8>().ok());
    let time = Time::from_hms(time.next()??, time.next()??, time.next()??).ok()?;
    let (hours, minutes) = offset.split_at_checked(3)?;
    let hours: i8 = hours.parse().ok()?;
    let minutes: i8 = minutes.parse().ok()?;
    let sign = if offset.starts_with('-') { -1 } else { 1 };
    let offset = UtcOffset::from_hms(hours, sign * minutes, 0).ok()?;
    let at = PrimitiveDateTime::new(date, time).assume_offset(offset);
    u64::try_from(at.unix_timestamp())
        .ok()?
        .checked_mul(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(line: &str) -> Option<String> {
        let request = parse(line.as_bytes()).unwrap_or_else(|| panic!("{line}"));
        request
            .object
            .map(|object| String::from_utf8_lossy(object).into_owned())
    }

    #[test]
    fn an_access_log_of_a_web_server() {
        let line = "192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] \"GET /a.gif HTTP/1.0\" 200 2326 \
                    \"http://www.example.com/start\" \"Mozilla/4.08 [en]\"";
        let request = parse(line.as_bytes()).expect("a request");
        assert_eq!(
            request,
            Request {
                nanos: 971_211_336_000_000_000,
                client: b"192.0.2.7",
                object: Some(b"/a.gif"),
                bytes: 2326,
                is_size_invented: false,
            }
        );
        let host = line.replace("192.0.2.7 ", "www.example.com:80 2001:db8::7 ");
        let request = parse(host.as_bytes()).expect("a request");
        assert_eq!(request.client, b"2001:db8::7");
        for (new, has_object) in [
            ("GET /a\\\"b HTTP/1.0\" 206 5", true),
            ("GET /a HTTP/1.0\" 304 0", false),
            ("GET /a HTTP/1.0\" 404 153", false),
            ("HEAD /a HTTP/1.0\" 200 -", false),
            ("POST /a HTTP/1.0\" 200 10", false),
            ("-\" 400 0", false),
            ("\\x16\\x03\\x01\" 400 0", false),
        ] {
            let line = format!("::1 - - [29/Feb/2028:00:00:00 +0530] \"{new}");
            assert_eq!(object(&line).is_some(), has_object, "{line}");
        }
    }

    #[test]
    fn a_log_of_squid() {
        let line = "1286536309.586    921 192.168.0.68 TCP_MISS/200 507 GET http://a.example/b - DIRECT/64.4.20.1 text/xml";
        let request = parse(line.as_bytes()).expect("a request");
        assert_eq!(
            (request.nanos, request.client, request.bytes),
            (1_286_536_309_586_000_000, &b"192.168.0.68"[..], 507)
        );
        assert_eq!(object(line).as_deref(), Some("http://a.example/b"));
        for other in ["TCP_MISS/304", "TCP_TUNNEL/200"] {
            let line = line
                .replace("TCP_MISS/200", other)
                .replace("GET", "CONNECT");
            assert_eq!(object(&line), None);
        }
    }

    #[test]
    fn names_of_videos_have_no_parameters() {
        let line =
            "1189828810.2 63.22.65.73 35.139.191.73 GETVIDEO bBXyB7niEc0&origin 55.253.185.27 ";
        assert_eq!(object(line).as_deref(), Some("bBXyB7niEc0"));
        let request = parse(line.as_bytes()).expect("a request");
        assert_eq!(request.nanos, 1_189_828_810_200_000_000);
        assert_eq!(request.client, b"35.139.191.73");
        assert!(request.is_size_invented && request.bytes == media_bytes(b"bBXyB7niEc0"));
        let server = "594956655.1 63.22.65.73 205.1.1.1 GETVIDEO ash-v10.ash.youtube.com 193.1.1.1";
        assert_eq!(object(server), None);
        assert_eq!(parse(format!("{server} 3").as_bytes()), None);
        assert_eq!(parse(b"594956655.1"), None);
    }

    #[test]
    fn lengths_are_those_of_media_and_stay_the_same() {
        let bytes = |nth: u32| media_bytes(nth.to_string().as_bytes());
        let mut lengths: Vec<u64> = (0..1001).map(bytes).collect();
        assert_eq!(bytes(0), lengths[0]);
        lengths.sort_unstable();
        assert!(
            (8_000_000..10_000_000).contains(&lengths[500]),
            "{}",
            lengths[500]
        );
        assert!(lengths[0] >= 1_000_000 && lengths[1000] <= 60_000_000);
    }

    #[test]
    fn broken_lines_are_no_requests() {
        for line in [
            "",
            " ",
            "[",
            "a b c [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200",
            "a b c [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0 200 1",
            "a b c [31/Feb/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1",
            "a b c [10/Oct/2000:13:55:36 -07] \"GET / HTTP/1.0\" 200 1",
            "a b c [10/Oct/1900:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1",
            "a b c [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 99999999999999999999",
            "1286536309.586 921 c TCP_MISS 507 GET http://a.example/b",
            "99999999999999999999.5 921 c TCP_MISS/200 507 GET http://a.example/b",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
        }

        #[test]
        fn a_changed_line_is_read_or_refused(at in 0_usize..120, byte: u8) {
            let line = "192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.0\" 200 2326";
            let mut line = line.as_bytes().to_vec();
            let at = at % line.len();
            line[at] = byte;
            let _ = parse(&line);
            let _ = parse(&line[..at]);
        }
    }
}
