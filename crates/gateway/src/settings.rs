//! The texts of options and where each came from: a flag, the environment or a line of a file.
//!
//! Nothing is interpreted until a value is asked for with its type; an error then names the flag,
//! the variable, or the file, line and key where the user can mend it.

pub mod environment;
mod mistakes;

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use strsim::levenshtein;
use toml::de::{DeTable, DeValue};

use crate::options::{ALLOW, DefaultValue, OPTIONS, OptionSpec, Role, only_flag, ways_in};
use crate::text_file;
use mistakes::{duplicate, key_file, misquoted, no_sections, unquoted};

/// The options that were given, as texts.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    values: BTreeMap<&'static str, Vec<Given>>,
    read: RefCell<Readings>,
}

/// What options were read as, which shows what a reload changed.
#[derive(Clone, Default)]
pub struct Readings(BTreeMap<&'static str, Arc<dyn Reading>>);

/// A type that an option's values are read as.
pub trait OptionValue: Clone + PartialEq + Send + Sync + 'static {}

impl<T: Clone + PartialEq + Send + Sync + 'static> OptionValue for T {}

/// The values of one option.
trait Reading: Any + Send + Sync {
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<T: OptionValue> Reading for Vec<T> {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

impl Readings {
    /// The options of `role` that only a restart applies, and that `new` has otherwise.
    pub fn needs_restart(&self, new: &Readings, role: Role) -> Vec<&'static OptionSpec> {
        let differs = |spec: &&OptionSpec| {
            // An option that was not read before is one of something that was not there.
            let both = self.0.get(spec.key).zip(new.0.get(spec.key));
            both.is_some_and(|(old, new)| !old.equals(&**new))
        };
        let options = role.options().filter(|spec| !spec.reloads.contains(&role));
        options.filter(differs).collect()
    }
}

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the values, of which some are secrets.
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[derive(Debug, Clone)]
struct Given {
    text: String,
    origin: Origin,
}

/// Where a value was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    Flag,
    /// In the environment.
    Environment,
    /// In a configuration file.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line, from 1.
        line: usize,
    },
    /// Nowhere: it is the default.
    Default,
}

/// Where a user finds the option that is wrong.
#[derive(Debug, Clone)]
pub struct Place {
    spec: &'static OptionSpec,
    origin: Origin,
    /// The value as given; `None` for secrets, switches that are on, and where it is not one text.
    text: Option<String>,
}

/// What is wrong with a value.
pub(crate) type BoxedError = Box<dyn Error + Send + Sync>;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{option}: {}: {source}", text_file::failure(path, source))]
    Read {
        /// The flag or the variable that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not TOML, or has a key that no option of this end has.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// A value that does not parse, or does not go with the others.
    #[error("{}", place.describe(reason))]
    Value {
        /// Where it stands.
        place: Place,
        /// What is wrong with it.
        reason: BoxedError,
    },
    /// Options that have to be given.
    #[error("{}", missing_in_words(required, one_of))]
    Missing {
        /// These, each of them.
        required: Vec<&'static OptionSpec>,
        /// And any of these.
        one_of: Vec<&'static OptionSpec>,
    },
}

impl ConfigError {
    fn missing(spec: &'static OptionSpec) -> ConfigError {
        ConfigError::Missing {
            required: vec![spec],
            one_of: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads the configuration file of a program that `option` names.
    pub fn read_file(
        option: &'static str,
        path: &Path,
        role: Role,
    ) -> Result<Settings, ConfigError> {
        let text = read_text(path).map_err(|source| ConfigError::Read {
            option,
            path: path.into(),
            source,
        })?;
        Settings::parse(&text, path, role)
    }

    /// Reads the text of a configuration file of a program; `path` is for errors alone.
    pub fn parse(text: &str, path: &Path, role: Role) -> Result<Settings, ConfigError> {
        let line_at = |offset: usize| {
            1 + text.as_bytes()[..offset]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count()
        };
        let wrong_at = |offset, message| ConfigError::Syntax {
            path: path.into(),
            line: line_at(offset),
            message,
        };
        let table = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let number = line_at(offset);
            let line = text.lines().nth(number - 1).unwrap_or_default();
            let message = key_file(text)
                .or_else(|| misquoted(line, role))
                .or_else(|| unquoted(line, role))
                .or_else(|| duplicate(&error, text, number))
                .unwrap_or_else(|| error.message().to_owned());
            wrong_at(offset, message)
        })?;
        let mut settings = Settings::default();
        let shared_path: Arc<Path> = path.into();
        for (key, value) in table.get_ref() {
            let spec = find_key(key.get_ref(), role).map_err(|message| {
                let offset = key.span().start;
                let line = text.lines().nth(line_at(offset) - 1);
                let message = match value.get_ref() {
                    DeValue::Table(_) => no_sections(key.get_ref(), line.unwrap_or_default()),
                    _ => message,
                };
                wrong_at(offset, message)
            })?;
            let items = match value.get_ref() {
                DeValue::Array(items) if spec.repeats => items,
                _ => std::slice::from_ref(value),
            };
            if settings.values.insert(spec.key, Vec::new()).is_some() {
                let message = format!("\"{}\" is given twice, under its old name too", spec.key);
                return Err(wrong_at(key.span().start, message));
            }
            for item in items {
                let origin = Origin::File {
                    path: Arc::clone(&shared_path),
                    line: line_at(item.span().start),
                };
                let text = scalar_text(item.get_ref(), spec, &origin)?;
                settings.add(spec, text, origin);
            }
        }
        Ok(settings)
    }

    /// These settings, and those of `lower` for what is not given here. A list is taken whole
    /// from one of the two.
    pub fn over(mut self, lower: Settings) -> Settings {
        for (key, values) in lower.values {
            self.values.entry(key).or_insert(values);
        }
        self
    }

    /// Gives an option a value, besides those that it has.
    pub fn add(&mut self, spec: &'static OptionSpec, text: String, origin: Origin) {
        let values = self.values.entry(spec.key).or_default();
        values.push(Given { text, origin });
    }

    /// That all is given without which the program cannot run: everything that is missing is
    /// named at once.
    pub(crate) fn check_complete(&self, role: Role) -> Result<(), ConfigError> {
        let is_missing =
            |spec: &&OptionSpec| spec.default == DefaultValue::Required && !self.is_given(spec);
        let required: Vec<_> = role.options().filter(is_missing).collect();
        let has_value = |spec: &&OptionSpec| !self.values.get(spec.key).is_none_or(Vec::is_empty);
        // A near end without one may still connect for the far end's applications.
        let has_purpose =
            role != Role::Near || self.is_given(&ALLOW) || ways_in().any(|spec| has_value(&spec));
        let purposes = ways_in().chain([&ALLOW]);
        let one_of: Vec<_> = purposes.filter(|_| !has_purpose).collect();
        match required.is_empty() && one_of.is_empty() {
            true => Ok(()),
            false => Err(ConfigError::Missing { required, one_of }),
        }
    }

    /// What all options were read as that were asked for.
    pub(crate) fn into_readings(self) -> Readings {
        self.read.into_inner()
    }

    /// The values that were given, as they were written.
    pub(crate) fn shown(&self, spec: &OptionSpec) -> String {
        let given = self.values.get(spec.key).map_or(&[][..], Vec::as_slice);
        match spec.is_secret {
            true => "not shown".to_owned(),
            false => given
                .iter()
                .map(|given| &*given.text)
                .collect::<Vec<_>>()
                .join(", "),
        }
    }

    /// Whether the option was given at all, if only as an empty list.
    pub(crate) fn is_given(&self, spec: &OptionSpec) -> bool {
        self.values.contains_key(spec.key)
    }

    /// Whether any option was given but these.
    pub(crate) fn has_others_than(&self, specs: &[&OptionSpec]) -> bool {
        let is_other = |key: &&str| specs.iter().all(|spec| spec.key != *key);
        self.values.keys().any(is_other)
    }

    /// The option's values, or its default.
    pub(crate) fn many<T>(&self, spec: &'static OptionSpec) -> Result<Vec<T>, ConfigError>
    where
        T: OptionValue + FromStr<Err: Error + Send + Sync + 'static>,
    {
        self.many_with(spec, T::from_str)
    }

    /// The option's value or its default, or `None` if it has neither.
    pub(crate) fn optional<T>(&self, spec: &'static OptionSpec) -> Result<Option<T>, ConfigError>
    where
        T: OptionValue + FromStr<Err: Error + Send + Sync + 'static>,
    {
        Ok(self.many(spec)?.pop())
    }

    /// The option's value or its default.
    pub(crate) fn one<T>(&self, spec: &'static OptionSpec) -> Result<T, ConfigError>
    where
        T: OptionValue + FromStr<Err: Error + Send + Sync + 'static>,
    {
        self.one_with(spec, T::from_str)
    }

    /// The option's value or its default, read by `parse`.
    pub(crate) fn one_with<T: OptionValue, E: Into<BoxedError>>(
        &self,
        spec: &'static OptionSpec,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, ConfigError> {
        let last = self.many_with(spec, parse)?.pop();
        last.ok_or_else(|| ConfigError::missing(spec))
    }

    /// The option's value, if it was given, read by `parse`.
    pub(crate) fn optional_with<T: OptionValue, E: Into<BoxedError>>(
        &self,
        spec: &'static OptionSpec,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ConfigError> {
        Ok(self.many_with(spec, parse)?.pop())
    }

    /// Whether a switch is on.
    pub(crate) fn is_on(&self, spec: &'static OptionSpec) -> Result<bool, ConfigError> {
        let is_on = self.optional_with(spec, |text| {
            text.parse().map_err(|_| "expected `true` or `false`")
        })?;
        Ok(is_on.unwrap_or(false))
    }

    /// The option's values, or its default, read by `parse`.
    pub(crate) fn many_with<T: OptionValue, E: Into<BoxedError>>(
        &self,
        spec: &'static OptionSpec,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, ConfigError> {
        let read = |text: &str, origin: &Origin| {
            parse(text).map_err(|error| ConfigError::Value {
                place: Place::of(spec, text, origin),
                reason: error.into(),
            })
        };
        let values: Vec<T> = match (self.values.get(spec.key), spec.default) {
            (Some(values), _) => values
                .iter()
                .map(|given| read(&given.text, &given.origin))
                .collect::<Result<_, _>>()?,
            (None, DefaultValue::Value(text)) => vec![read(text, &Origin::Default)?],
            (None, DefaultValue::Required) => return Err(ConfigError::missing(spec)),
            (None, _) => Vec::new(),
        };
        let reading = Arc::new(values.clone());
        self.read.borrow_mut().0.insert(spec.key, reading);
        Ok(values)
    }

    /// An error about this option's value that only shows beside others.
    pub(crate) fn wrong(
        &self,
        spec: &'static OptionSpec,
        reason: impl Into<BoxedError>,
    ) -> ConfigError {
        let last = self
            .values
            .get(spec.key)
            .map_or(0, Vec::len)
            .saturating_sub(1);
        self.wrong_nth(spec, last, reason)
    }

    /// The same about one of several values, from 0.
    pub(crate) fn wrong_nth(
        &self,
        spec: &'static OptionSpec,
        nth: usize,
        reason: impl Into<BoxedError>,
    ) -> ConfigError {
        let values = self.values.get(spec.key);
        let place = match values.and_then(|values| values.get(nth)) {
            Some(given) => Place::of(spec, &given.text, &given.origin),
            None => Place {
                spec,
                origin: Origin::Default,
                text: None,
            },
        };
        let reason = reason.into();
        ConfigError::Value { place, reason }
    }
}

impl Place {
    fn of(spec: &'static OptionSpec, text: &str, origin: &Origin) -> Place {
        // The flag of a switch is written without a value.
        let is_shown = !(spec.is_secret || spec.is_switch() && text == "true");
        Place {
            spec,
            origin: origin.clone(),
            text: is_shown.then(|| shown(text)),
        }
    }

    /// What is wrong, and where: without the value if the reason quotes it, such as a file's name. A value with
    /// quotation marks of its own gets others around it.
    fn describe(&self, reason: &impl fmt::Display) -> String {
        let option = match &self.origin {
            Origin::Flag | Origin::Default => self.spec.flag(),
            Origin::Environment => self.spec.environment(),
            Origin::File { path, line } => {
                format!("{}:{line}: {}", path.display(), self.spec.key)
            }
        };
        let mut reason = reason.to_string();
        let has_comma = self.text.as_ref().is_some_and(|text| text.contains(','));
        if has_comma
            && self.spec.repeats
            && !self.spec.has_commas
            && matches!(self.origin, Origin::File { .. })
        {
            reason = "several values must be an array: [\"…\", \"…\"]".to_owned();
        }
        match &self.text {
            None => format!("{option}: {reason}"),
            Some(text) if text.is_empty() => format!("{option} is empty"),
            Some(text) if text.contains('"') => {
                let reason = reason.replace(&format!("\"{text}\""), "it");
                format!("{option} '{text}': {reason} (the value has quotation marks of its own)")
            }
            // The text may be cut short, and the reason then has more.
            Some(text) if reason.contains(&format!("\"{text}")) => format!("{option}: {reason}"),
            Some(text) => format!("{option} \"{text}\": {reason}"),
        }
    }
}

/// Reads a small text file that a user named.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    const BYTES_MAX: u64 = 1 << 20;
    let too_large = "too large (limit 1 MiB)";
    text_file::read(text_file::open(path)?, BYTES_MAX, too_large)
}

fn find_key(key: &str, role: Role) -> Result<&'static OptionSpec, String> {
    let known = OPTIONS.iter().find(|spec| spec.has_key(key)).copied();
    match known {
        Some(spec) if role.options().any(|own| own == spec) => Ok(spec),
        Some(_) => Err(format!("\"{key}\" is an option of {}", role.peer())),
        None => Err(match only_flag(key, role) {
            Some(flag) => format!("\"{key}\" is {flag}"),
            None => {
                let nearest = hint(&nearest_key(key, role));
                format!("unknown key \"{}\"{nearest}", shown(key))
            }
        }),
    }
}

/// As much of a text as an error shows.
fn shown(text: &str) -> String {
    const CHARS: usize = 64;
    text.chars().take(CHARS).collect()
}

fn missing_in_words(required: &[&OptionSpec], one_of: &[&OptionSpec]) -> String {
    let list = |specs: &[&OptionSpec], name: fn(&OptionSpec) -> String| {
        let names: Vec<String> = specs.iter().copied().map(name).collect();
        names.join(", ")
    };
    let mut parts = Vec::new();
    if !required.is_empty() {
        parts.push(format!(
            "{} (in a configuration file: {})",
            list(required, OptionSpec::flag),
            list(required, |spec| spec.key.to_owned())
        ));
    }
    if !one_of.is_empty() {
        let listeners = one_of.iter().copied().filter(|spec| **spec != ALLOW);
        let listeners: Vec<_> = listeners.collect();
        parts.push(format!(
            "one of {}, or --allow if only the far end has listeners",
            list(&listeners, OptionSpec::flag)
        ));
    }
    format!("missing {}", parts.join(", and "))
}

fn hint(nearest: &Option<impl fmt::Display>) -> String {
    match nearest {
        Some(key) => format!("; did you mean \"{key}\"?"),
        None => String::new(),
    }
}

fn scalar_text(
    value: &DeValue<'_>,
    spec: &'static OptionSpec,
    origin: &Origin,
) -> Result<String, ConfigError> {
    match value {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Boolean(value) if spec.is_switch() => Ok(value.to_string()),
        other => Err(ConfigError::Value {
            place: Place {
                spec,
                origin: origin.clone(),
                text: None,
            },
            reason: match other {
                DeValue::Array(_) if !spec.repeats => {
                    format!("{}, not an array", one_value(spec)).into()
                }
                other => format!("expected {}, not {}", expected(spec), found(other)).into(),
            },
        }),
    }
}

/// That an option has no more values.
fn one_value(spec: &OptionSpec) -> String {
    let value = match spec.is_switch() {
        true => "true or false",
        false => spec.value,
    };
    format!("takes one value ({value})")
}

/// A value of an option, as an error names it.
fn expected(spec: &OptionSpec) -> String {
    match spec.value {
        "" => "true or false".to_owned(),
        "BYTES" | "COUNT" => "a whole number".to_owned(),
        "RATE" | "SIZE" | "TIME" => format!("a {} in quotes", spec.value.to_lowercase()),
        // A number needs no quotes.
        "[HOST:]PORT" | "PORT|HOST[:PORT]" => {
            format!("a port, or a value in quotes ({})", spec.value)
        }
        value => format!("a value in quotes ({value})"),
    }
}

/// A value of the wrong type, in the same words.
fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Array(_) => "an array".to_owned(),
        // Decimal ones are of the right type.
        DeValue::Integer(number) => format!("a number in base {}", number.radix()),
        value => format!("a {}", value.type_str()),
    }
}

/// The key of this program that begins with `key`, or is the fewest edits away, if they are few.
fn nearest_key(key: &str, role: Role) -> Option<&'static str> {
    const BEGINNING_MIN: usize = 4;
    let mut keys = role.options().map(|spec| spec.key);
    if let Some(known) = keys.find(|known| key.len() >= BEGINNING_MIN && known.starts_with(key)) {
        return Some(known);
    }
    const EDITS_MAX: usize = 3;
    let is_near = |known: &&str| known.len().abs_diff(key.len()) <= EDITS_MAX;
    let known = role.options().map(|spec| spec.key).filter(is_near);
    let distances = known.map(|known| (levenshtein(key, known), known));
    let (edits, nearest) = distances.min()?;
    (edits <= EDITS_MAX.min(key.len() / 2)).then_some(nearest)
}

#[cfg(test)]
mod tests;
