//! A file of list prices: egress by tier and servers by the hour, each under a name.
//!
//! One is built in ([`BUILT_IN`]), with its date; users give their own. What is wrong in it is an
//! error that says where.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow, ensure};
use serde::{Deserialize, Serialize};

use super::tiers::{AMOUNT_MAX, Tiers, is_amount};

/// The list that is taken where the user gives none.
pub const BUILT_IN: &str = include_str!("prices.toml");

/// A list of prices is a page, not a book.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

const CORES_MAX: u32 = 4096;

/// Prices, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceList {
    /// When they were.
    pub as_of: String,
    /// In what.
    pub currency: String,
    egress: BTreeMap<String, Tiers>,
    servers: BTreeMap<String, Server>,
    default: Defaults,
}

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Its price for an hour.
    pub per_hour: f64,
    /// How many CPU seconds it has in a second.
    pub cores: u32,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    as_of: String,
    currency: String,
    #[serde(default)]
    default: Defaults,
    egress: BTreeMap<String, Vec<(f64, f64)>>,
    servers: BTreeMap<String, Server>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    egress: Option<String>,
    server: Option<String>,
}

impl PriceList {
    /// Reads the text of a file.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let file: File = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        check_text("as_of", &file.as_of)?;
        check_text("currency", &file.currency)?;
        let mut egress = BTreeMap::new();
        for (name, pairs) in file.egress {
            check_text("a name of egress", &name)?;
            let tiers = Tiers::new(&pairs).with_context(|| format!("egress {name}"))?;
            egress.insert(name, tiers);
        }
        for (name, server) in &file.servers {
            check_text("a name of servers", name)?;
            server.check(name)?;
        }
        Ok(Self {
            as_of: file.as_of,
            currency: file.currency,
            egress,
            servers: file.servers,
            default: file.default,
        })
    }

    /// The tiers of that name, or of the list's default.
    pub fn egress(&self, name: Option<&str>) -> anyhow::Result<(String, Tiers)> {
        find(&self.egress, "egress", name, self.default.egress.as_deref())
    }

    /// The server of that name, or of the list's default.
    pub fn server(&self, name: Option<&str>) -> anyhow::Result<(String, Server)> {
        find(
            &self.servers,
            "server",
            name,
            self.default.server.as_deref(),
        )
    }
}

impl Server {
    /// That its figures can be reckoned with; `name` is for the error.
    pub fn check(&self, name: &str) -> anyhow::Result<()> {
        ensure!(
            is_amount(self.per_hour),
            "server {name}: a price is a number from 0 to {AMOUNT_MAX}"
        );
        ensure!(
            (1..=CORES_MAX).contains(&self.cores),
            "server {name}: cores are 1 to {CORES_MAX}"
        );
        Ok(())
    }
}

fn find<T: Clone>(
    list: &BTreeMap<String, T>,
    what: &str,
    name: Option<&str>,
    default: Option<&str>,
) -> anyhow::Result<(String, T)> {
    let known = || {
        list.keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    // One alone needs no name.
    let only = list.keys().next().filter(|_| list.len() == 1);
    let name = name.or(default).or(only.map(String::as_str));
    let name = name.with_context(|| {
        format!(
            "the prices name no default {what}: give --{what}; there are {}",
            known()
        )
    })?;
    let found = list.get(name);
    let found =
        found.with_context(|| format!("no {what} is called `{name}`; there are {}", known()))?;
    Ok((name.to_owned(), found.clone()))
}

/// Texts are printed as they are.
fn check_text(what: &str, text: &str) -> anyhow::Result<()> {
    ensure!(
        !text.contains(char::is_control),
        "{what} has a control character"
    );
    Ok(())
}

/// What the parser found, and the line, from 1.
fn syntax(text: &str, error: &toml::de::Error) -> anyhow::Error {
    let offset = error.span().map_or(0, |span| span.start);
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
    anyhow!("line {line}: {}", error.message())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMALL: &str = "as_of = '2026'\ncurrency = '€'\n[egress]\na = [[inf, 0.5]]\n\
                         [servers]\nb = { per_hour = 1, cores = 4 }\n";

    #[test]
    fn the_built_in_list_has_its_date_and_defaults() {
        let list = PriceList::parse(BUILT_IN).expect("prices");
        assert!(list.as_of.contains("2025") && list.as_of.contains("check"));
        let (name, tiers) = list.egress(None).expect("a default");
        assert_eq!(name, "aws_us_east_1");
        assert!((tiers.cost(20_000.0) - 1750.0).abs() < 1e-6);
        let (name, server) = list.server(None).expect("a default");
        assert_eq!((name.as_str(), server.cores), ("aws_m7i_large", 2));
        assert!(list.egress(Some("gcp_premium_na")).is_ok());
    }

    #[test]
    fn a_name_alone_needs_no_default() {
        let list = PriceList::parse(SMALL).expect("prices");
        assert_eq!(list.egress(None).expect("the only one").0, "a");
        assert_eq!(list.server(None).expect("the only one").0, "b");
        let two = SMALL.replace("[servers]", "c = [[inf, 0.1]]\n[servers]");
        let error = PriceList::parse(&two).expect("prices").egress(None);
        let error = error.expect_err("two of them").to_string();
        assert!(
            error.contains("no default egress: give --egress; there are a, c"),
            "{error}"
        );
        let unknown = list.server(Some("x")).expect_err("no such server");
        assert_eq!(unknown.to_string(), "no server is called `x`; there are b");
    }

    #[test]
    fn each_mistake_says_where_it_is() {
        for (good, bad, part) in [
            ("currency", "currenzy", "currenzy"),
            ("[[inf, 0.5]]", "[[inf, -0.5]]", "egress a: tier 1: a price"),
            ("[[inf, 0.5]]", "[[inf, nan]]", "egress a: tier 1: a price"),
            ("[[inf, 0.5]]", "[[nan, 0.5]]", "egress a: tier 1 ends"),
            ("[[inf, 0.5]]", "[[5, 0.5]]", "inf"),
            ("[[inf, 0.5]]", "[]", "0 tiers"),
            ("[[inf, 0.5]]", "[[inf]]", "line 4"),
            ("[[inf, 0.5]]", "'free'", "line 4"),
            ("per_hour = 1,", "per_hour = -1,", "server b: a price"),
            ("per_hour = 1,", "per_hour = nan,", "server b: a price"),
            ("per_hour = 1,", "", "per_hour"),
            ("cores = 4", "cores = 0", "server b: cores"),
            ("cores = 4", "cores = -1", "line 6"),
            ("'2026'", "\"\\u001b[2J\"", "as_of"),
            ("[servers]", "[servers", "line 5"),
        ] {
            let text = SMALL.replace(good, bad);
            let error = format!("{:#}", PriceList::parse(&text).expect_err(bad));
            assert!(error.contains(part), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_an_error(text in ".{0,200}", at in 0..SMALL.len(), cut in 0usize..40) {
            let _ = PriceList::parse(&text);
            // A list with a hole in it, or with anything in its place.
            let (head, tail) = (&SMALL.as_bytes()[..at], &SMALL.as_bytes()[at..]);
            let tail = &tail[cut.min(tail.len())..];
            let holed = [head, text.as_bytes(), tail].concat();
            let _ = PriceList::parse(&String::from_utf8_lossy(&holed));
        }
    }
}
