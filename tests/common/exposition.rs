//! Prometheus' text format 0.0.4, read as strictly as its page states it.

use std::collections::BTreeSet;

/// A metric: all that stands under its name.
#[derive(Debug)]
pub(crate) struct Family<'a> {
    pub name: &'a str,
    pub help: &'a str,
    pub kind: &'a str,
    /// Labels with their values, and the series' value.
    pub series: Vec<(Vec<(String, String)>, f64)>,
}

/// The metrics of a page. Panics where it breaks a rule, or leaves out a help or a type.
#[track_caller]
pub(crate) fn parse(page: &str) -> Vec<Family<'_>> {
    assert!(page.ends_with('\n'), "the last line must end");
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in page.lines().filter(|line| !line.is_empty()) {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a name and a text");
            let is_new = families.iter().all(|family| family.name != name);
            assert!(is_name(name) && is_new, "{line}");
            let (kind, series) = ("", Vec::new());
            families.push(Family {
                name,
                help,
                kind,
                series,
            });
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a type");
            let family = families.last_mut().expect("help stands before the type");
            assert_eq!((family.name, family.kind), (name, ""), "{line}");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert!(family.series.is_empty(), "{line}");
            family.kind = kind;
        } else {
            let family = families
                .last_mut()
                .expect("a type stands before its series");
            let rest = line.strip_prefix(family.name);
            let rest = rest.unwrap_or_else(|| panic!("{line} is not of {}", family.name));
            assert!(!family.kind.is_empty(), "{line}");
            let (labels, value) = match rest.strip_prefix('{') {
                Some(rest) => take_labels(rest),
                None => (Vec::new(), rest),
            };
            let value = value.strip_prefix(' ').expect("a space before the value");
            let value: f64 = value.parse().expect("a number, and no time behind it");
            let is_new = family.series.iter().all(|(other, _)| *other != labels);
            assert!(is_new && value.is_finite(), "{line}");
            family.series.push((labels, value));
        }
    }
    families
}

/// Labels up to their closing brace, and what follows it.
fn take_labels(mut rest: &str) -> (Vec<(String, String)>, &str) {
    let mut labels = Vec::new();
    loop {
        let (name, value) = rest.split_once("=\"").expect("a label and its value");
        assert!(is_name(name) && !name.contains(':'), "{name}");
        let (value, behind) = take_value(value);
        labels.push((name.to_owned(), value));
        match behind.strip_prefix(',') {
            Some(next) => rest = next,
            None => {
                let names: BTreeSet<_> = labels.iter().map(|(name, _)| name).collect();
                assert_eq!(
                    names.len(),
                    labels.len(),
                    "a label stands twice: {labels:?}"
                );
                return (labels, behind.strip_prefix('}').expect("a closing brace"));
            }
        }
    }
}

/// A value up to its closing quote, and what follows it.
fn take_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, escaped @ ('"' | '\\'))) => escaped,
                other => panic!("escapes {other:?}"),
            }),
            char => value.push(char),
        }
    }
    panic!("no closing quote: {text}");
}

/// `[a-zA-Z_:][a-zA-Z0-9_:]*`
fn is_name(name: &str) -> bool {
    let is_letter = |char: char| char.is_ascii_alphabetic() || matches!(char, '_' | ':');
    name.starts_with(is_letter)
        && name
            .chars()
            .all(|char| is_letter(char) || char.is_ascii_digit())
}
