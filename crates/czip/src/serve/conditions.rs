//! Conditional requests and ranges (RFC 9110, chapters 13 and 14).

use std::{
    ops::Range,
    time::{Duration, SystemTime},
};

use hyper::{HeaderMap, Method, header};

/// What a client must be told of what it asks for, to hold its conditions against it.
#[derive(Clone, Debug)]
pub(super) struct Validators {
    /// With its quotes.
    pub(super) tag: String,
    /// None if that is not known.
    pub(super) modified: Option<SystemTime>,
}

/// What a request's conditions come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Whole,
    Part(Range<u64>),
    NotModified,
    Failed,
    Unsatisfiable,
}

/// Holds a request's conditions against what it asks for, which has `bytes`.
pub(super) fn evaluate(
    method: &Method,
    headers: &HeaderMap,
    validators: &Validators,
    bytes: u64,
    now: SystemTime,
) -> Outcome {
    // HTTP says seconds.
    let modified = validators.modified.map(seconds);
    let date = |name: header::HeaderName| {
        let value = headers.get(name)?.to_str().ok()?;
        httpdate::parse_http_date(value).ok().map(seconds)
    };
    if headers.contains_key(header::IF_MATCH) {
        if !any_matches(headers, header::IF_MATCH, &validators.tag, true) {
            return Outcome::Failed;
        }
    } else if let (Some(modified), Some(since)) = (modified, date(header::IF_UNMODIFIED_SINCE))
        && modified > since
    {
        return Outcome::Failed;
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        if any_matches(headers, header::IF_NONE_MATCH, &validators.tag, false) {
            return Outcome::NotModified;
        }
    } else if let (Some(modified), Some(since)) = (modified, date(header::IF_MODIFIED_SINCE))
        && modified <= since
    {
        return Outcome::NotModified;
    }
    if method != Method::GET || !is_same_still(headers, validators, now) {
        return Outcome::Whole;
    }
    match headers.get(header::RANGE).map(|range| range.to_str()) {
        Some(Ok(range)) => parse_range(range, bytes),
        _ => Outcome::Whole,
    }
}

/// Whether a range may be sent as far as `If-Range` says.
fn is_same_still(headers: &HeaderMap, validators: &Validators, now: SystemTime) -> bool {
    let Some(condition) = headers.get(header::IF_RANGE) else {
        return true;
    };
    let Ok(condition) = condition.to_str() else {
        return false;
    };
    if condition.starts_with(['"', 'W']) {
        return condition == validators.tag;
    }
    // A date tells bytes apart only if they were not changed twice within its second.
    let Some(modified) = validators.modified else {
        return false;
    };
    let is_old = modified + Duration::from_secs(2) < now;
    let date = httpdate::parse_http_date(condition);
    is_old && date.is_ok_and(|date| seconds(date) == seconds(modified))
}

fn any_matches(headers: &HeaderMap, name: header::HeaderName, tag: &str, is_strong: bool) -> bool {
    let values = headers.get_all(name).iter();
    values.filter_map(|value| value.to_str().ok()).any(|value| {
        // Our tags have no commas.
        value.split(',').map(str::trim).any(|one| {
            let weak = one.strip_prefix("W/").filter(|_| !is_strong);
            one == "*" || weak.unwrap_or(one) == tag
        })
    })
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// A range of what has `bytes`. What is no range, or is several, is ignored: the whole is an answer to
/// those as well.
fn parse_range(text: &str, bytes: u64) -> Outcome {
    let Some((unit, set)) = text.split_once('=') else {
        return Outcome::Whole;
    };
    let Some((first, last)) = set.trim().split_once('-') else {
        return Outcome::Whole;
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
        return Outcome::Whole;
    }
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has are beyond any end.
        true if !text.is_empty() => Some(text.parse::<u64>().unwrap_or(u64::MAX)),
        _ => None,
    };
    let range = match (number(first), number(last)) {
        (Some(first), None) if last.is_empty() => first..bytes,
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(bytes),
        (None, Some(suffix)) if first.is_empty() => bytes - suffix.min(bytes)..bytes,
        _ => return Outcome::Whole,
    };
    match range.start < range.end {
        true => Outcome::Part(range),
        false => Outcome::Unsatisfiable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_says() {
        for (text, expected) in [
            ("bytes=0-0", Outcome::Part(0..1)),
            ("bytes=0-", Outcome::Part(0..100)),
            ("Bytes=10-19", Outcome::Part(10..20)),
            ("bytes=90-1000", Outcome::Part(90..100)),
            ("bytes=-1", Outcome::Part(99..100)),
            ("bytes=-1000", Outcome::Part(0..100)),
            ("bytes=-0", Outcome::Unsatisfiable),
            ("bytes=100-", Outcome::Unsatisfiable),
            ("bytes=99999999999999999999999-", Outcome::Unsatisfiable),
            ("bytes=0-99999999999999999999999", Outcome::Part(0..100)),
            ("bytes=5-4", Outcome::Whole),
            ("bytes=0-1,5-6", Outcome::Whole),
            ("bytes=-", Outcome::Whole),
            ("bytes=+1-2", Outcome::Whole),
            ("bytes=a-b", Outcome::Whole),
            ("lines=0-1", Outcome::Whole),
            ("bytes", Outcome::Whole),
        ] {
            assert_eq!(parse_range(text, 100), expected, "{text}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Outcome::Unsatisfiable);
    }
}
