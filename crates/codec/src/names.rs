//! Sets of things that users name.

use core::fmt;

/// Defines an enum whose variants have names: what it prints, and what is parsed.
#[macro_export]
macro_rules! names {
    ($(#[$about:meta])+ $visibility:vis enum $set:ident {
        $($(#[$of_one:meta])+ $variant:ident = $name:literal,)+
    }) => {
        $(#[$about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $set {
            $($(#[$of_one])+ $variant,)+
        }

        impl $set {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Their names, with bars between them.
            pub const NAMES: &str = concat!($("|", $name),+).split_at(1).1;

            /// Its name in options and reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl core::fmt::Display for $set {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }

        impl core::str::FromStr for $set {
            type Err = $crate::UnknownName;

            fn from_str(name: &str) -> Result<Self, $crate::UnknownName> {
                let mut all = Self::ALL.into_iter();
                let found = all.find(|one| one.name() == name);
                found.ok_or($crate::UnknownName { known: &[$($name),+] })
            }
        }
    };
}

/// A name that nothing in a set has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// Those that the set has.
    pub known: &'static [&'static str],
}

/// Sets with more names than these are listed without a last "or".
const ALTERNATIVES_MAX: usize = 4;

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, is_list) = (self.known.len(), self.known.len() > ALTERNATIVES_MAX);
        f.write_str(if is_list {
            "expected one of "
        } else {
            "expected "
        })?;
        for (index, name) in self.known.iter().enumerate() {
            let before = match index {
                0 => "",
                _ if index + 1 == count && !is_list => " or ",
                _ => ", ",
            };
            write!(f, "{before}`{name}`")?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownName {}

#[cfg(test)]
mod tests {
    use crate::{
        chunk::{chunking::ChunkingMethod, hash::ChunkHasher},
        marker::MarkerAlgorithm,
    };
    use alloc::string::ToString;

    #[test]
    fn an_unknown_name_is_answered_with_those_that_there_are() {
        let error = |parsed: Result<(), super::UnknownName>| parsed.expect_err("none").to_string();
        let two = error("md5".parse::<ChunkHasher>().map(drop));
        assert_eq!(two, "expected `blake3` or `sha1`");
        let three = error("gear".parse::<ChunkingMethod>().map(drop));
        assert_eq!(three, "expected `fixed`, `modp` or `pack`");
        let five = error("gear".parse::<MarkerAlgorithm>().map(drop));
        let names = "`samplebyte`, `modp`, `maxp`, `maxp-bytes`, `fixed`";
        assert_eq!(five, ["expected one of ", names].concat());
    }
}
