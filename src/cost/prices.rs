//! A file of list prices: egress by tier and servers by the hour, each under a name.
//!
//! One is built in ([`BUILT_IN`]), with its date; users give their own. What is wrong in it is an
//! error that says where.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tiers::{AMOUNT_MAX, Tiers, TiersError, is_amount};

/// The list that is taken where the user gives none.
pub const BUILT_IN: &str = include_str!("prices.toml");

/// A list of prices is a page, not a book.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

const CORES_MAX: u32 = 4096;
const TEXT_CHARS_MAX: usize = 64;

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

/// Why prices cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    /// Not the TOML that a list of prices is.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What the parser found.
        message: String,
    },
    /// A text that is too long, empty, or has signs in it that no name has.
    #[error("{what}: expected 1 to {TEXT_CHARS_MAX} letters, digits, spaces and `{SIGNS}`")]
    Text {
        /// Which.
        what: &'static str,
    },
    /// Tiers that are none.
    #[error("egress {name}: {error}")]
    Tiers {
        /// Whose.
        name: String,
        /// What is wrong.
        error: TiersError,
    },
    /// A server's price that is none.
    #[error("server {name}: a price is a number from 0 to {AMOUNT_MAX}")]
    ServerPrice {
        /// Whose.
        name: String,
    },
    /// A server's cores.
    #[error("server {name}: cores are 1 to {CORES_MAX}")]
    Cores {
        /// Whose.
        name: String,
    },
    /// A name that the list does not have.
    #[error("no {what} is called `{name}`; there are {}", known.join(", "))]
    Unknown {
        /// `egress` or `server`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// The names of the list.
        known: Vec<String>,
    },
    /// Nothing was asked for, and the list has no default.
    #[error("the prices name no default {what}: give --{what}; there are {}", known.join(", "))]
    NoDefault {
        /// `egress` or `server`.
        what: &'static str,
        /// The names of the list.
        known: Vec<String>,
    },
}

impl PriceError {
    fn syntax(text: &str, error: &toml::de::Error) -> Self {
        let offset = error.span().map_or(0, |span| span.start);
        let before = &text.as_bytes()[..offset.min(text.len())];
        Self::Syntax {
            line: 1 + before.iter().filter(|&&byte| byte == b'\n').count(),
            message: error.message().to_owned(),
        }
    }
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

/// What texts may have beside letters, digits and spaces: they are printed, and stand in plots.
const SIGNS: &str = "_-.,:()/€$£¥";

impl PriceList {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// Where [`PriceError`] says.
    pub fn parse(text: &str) -> Result<Self, PriceError> {
        let file: File = toml::from_str(text).map_err(|error| PriceError::syntax(text, &error))?;
        check_text("as_of", &file.as_of)?;
        check_text("currency", &file.currency)?;
        let mut egress = BTreeMap::new();
        for (name, pairs) in file.egress {
            check_text("a name of egress", &name)?;
            match Tiers::new(&pairs) {
                Ok(tiers) => egress.insert(name, tiers),
                Err(error) => return Err(PriceError::Tiers { name, error }),
            };
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
    ///
    /// # Errors
    /// [`PriceError::Unknown`], [`PriceError::NoDefault`].
    pub fn egress(&self, name: Option<&str>) -> Result<(String, Tiers), PriceError> {
        find(&self.egress, "egress", name, self.default.egress.as_deref())
    }

    /// The server of that name, or of the list's default.
    ///
    /// # Errors
    /// [`PriceError::Unknown`], [`PriceError::NoDefault`].
    pub fn server(&self, name: Option<&str>) -> Result<(String, Server), PriceError> {
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
    ///
    /// # Errors
    /// [`PriceError::ServerPrice`], [`PriceError::Cores`].
    pub fn check(&self, name: &str) -> Result<(), PriceError> {
        let name = name.to_owned();
        if !is_amount(self.per_hour) {
            Err(PriceError::ServerPrice { name })
        } else if !(1..=CORES_MAX).contains(&self.cores) {
            Err(PriceError::Cores { name })
        } else {
            Ok(())
        }
    }
}

fn find<T: Clone>(
    list: &BTreeMap<String, T>,
    what: &'static str,
    name: Option<&str>,
    default: Option<&str>,
) -> Result<(String, T), PriceError> {
    let known = || list.keys().cloned().collect();
    // One alone needs no name.
    let only = list.keys().next().filter(|_| list.len() == 1);
    let Some(name) = name.or(default).or(only.map(String::as_str)) else {
        let known = known();
        return Err(PriceError::NoDefault { what, known });
    };
    match list.get(name) {
        Some(found) => Ok((name.to_owned(), found.clone())),
        None => Err(PriceError::Unknown {
            what,
            name: name.to_owned(),
            known: known(),
        }),
    }
}

fn check_text(what: &'static str, text: &str) -> Result<(), PriceError> {
    let is_good = |sign: char| sign.is_alphanumeric() || sign == ' ' || SIGNS.contains(sign);
    let chars = text.chars().count();
    match (1..=TEXT_CHARS_MAX).contains(&chars) && text.chars().all(is_good) {
        true => Ok(()),
        false => Err(PriceError::Text { what }),
    }
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
        assert!(matches!(error, Err(PriceError::NoDefault { .. })));
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
            ("'€'", "''", "currency"),
            ("[servers]", "[servers", "line 5"),
        ] {
            let text = SMALL.replace(good, bad);
            let error = PriceList::parse(&text).expect_err(bad).to_string();
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
