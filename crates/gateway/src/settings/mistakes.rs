//! Mistakes in configuration files that TOML's own errors do not name: missing values, quotes and brackets, and the
//! habits of other programs' files.

use toml::de::DeValue;

use super::{find_key, one_value, shown};
use crate::{keys::PublicKey, options::Role};

/// What a file is that is not TOML, if it is a key or a certificate.
pub(super) fn key_file(text: &str) -> Option<String> {
    let text = text.trim();
    let is_one = text.starts_with("-----BEGIN ") || text.parse::<PublicKey>().is_ok();
    is_one
        .then(|| "this is a key or a certificate, and a configuration file is expected".to_owned())
}

/// What is wrong with a line of a file that is not TOML, if its value lacks quotes, or is missing. The error of TOML
/// takes such a value for a number, a time or another type, by how it begins.
pub(super) fn unquoted(line: &str, role: Role) -> Option<String> {
    let line = line.split('#').next()?.trim();
    let (key, value) = match line.split_once('=') {
        Some((key, value)) => (key.trim(), value.trim()),
        // An item of an array.
        None => ("", line.strip_suffix(',')?),
    };
    if value.is_empty() && !key.is_empty() {
        return Some(format!("{}: the value is missing", shown(key)));
    }
    let is_begun = value.is_empty() || value == "[";
    if is_begun || value.contains(['"', '\'']) || DeValue::parse(value).is_ok() {
        return None;
    }
    Some(match find_key(key, role) {
        Ok(spec) if spec.is_switch() => format!("{key}: expected true or false"),
        Ok(spec) if !spec.is_secret && !value.starts_with('[') => {
            let value = shown(value);
            format!("{key}: put the value in quotes: {key} = {value:?}")
        }
        _ => "put each value in quotes".to_owned(),
    })
}

/// What is wrong with a line of a file that is not TOML, if its quoted value lacks the closing quote, or has others
/// after it.
pub(super) fn misquoted(line: &str, role: Role) -> Option<String> {
    let quotes = ['"', '\''];
    let (key, value) = match line.split_once('=') {
        Some((key, value)) if !key.contains(quotes) => (key.trim(), value.trim()),
        // An item of an array.
        _ => ("", line.trim()),
    };
    let quote = value.chars().next().filter(|it| quotes.contains(it))?;
    let Some((_, rest)) = value[1..].split_once(quote) else {
        return Some("the closing quote is missing".to_owned());
    };
    let next = rest.trim_start();
    // Three quotes begin a text of several lines.
    let is_another = next.starts_with(quotes) && next.len() < rest.len();
    let is_list = is_another || next.starts_with(',');
    let spec = find_key(key, role).ok().filter(|_| is_list)?;
    Some(match spec.repeats {
        true => format!("several values need an array: {key} = [\"…\", \"…\"]"),
        false => format!("{key}: {}", one_value(spec)),
    })
}

/// What is wrong with a line, numbered from 1, whose key an earlier line has too.
pub(super) fn duplicate(error: &toml::de::Error, text: &str, number: usize) -> Option<String> {
    let key_of = |line: &str| line.split_once('=').map(|(key, _)| key.trim().to_owned());
    let mut keys = text.lines().map(key_of);
    let key = keys.clone().nth(number - 1)?;
    let key = key.filter(|_| error.message() == "duplicate key")?;
    let first = 1 + keys.position(|other| other.as_ref() == Some(&key))?;
    let key = shown(&key);
    (first < number).then(|| format!("duplicate key \"{key}\" (it is in line {first} too)"))
}

/// What is wrong with the head of a section, which other programs' files have, or with a key that has its name before
/// a dot.
pub(super) fn no_sections(name: &str, line: &str) -> String {
    let dotted = line.trim_start().strip_prefix(name);
    let name = shown(name);
    let wanted = match dotted.and_then(|rest| rest.strip_prefix('.')) {
        // Without the value, which may be secret.
        Some(rest) => {
            let key = shown(rest.split('=').next().unwrap_or_default().trim());
            format!("write {key} = … instead of {name}.{key} = …")
        }
        None => format!("remove \"[{name}]\" and put its keys at the top level"),
    };
    format!("this file has no sections: {wanted}")
}
