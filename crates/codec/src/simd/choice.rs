//! What a user says about kernels: the instructions' name, or `auto`.

use core::{fmt, str::FromStr};

use super::{Backend, InstructionSet};

/// The kernels that a user wants.
///
/// ```
/// use refrain_codec::simd::{Backend, BackendChoice};
///
/// let choice: BackendChoice = "auto".parse()?;
/// assert_eq!(choice.backend(), Backend::best());
/// let choice: BackendChoice = "portable".parse()?;
/// assert_eq!(choice.backend(), Backend::PORTABLE);
/// # Ok::<(), refrain_codec::simd::BackendChoiceError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The fastest that this machine has, whichever that is.
    #[default]
    Auto,
    /// These, also where the machine has faster ones.
    Only(Backend),
}

impl BackendChoice {
    /// The backend that this means on this machine.
    #[must_use]
    pub fn backend(self) -> Backend {
        match self {
            Self::Auto => Backend::best(),
            Self::Only(backend) => backend,
        }
    }
}

impl FromStr for BackendChoice {
    type Err = BackendChoiceError;

    fn from_str(name: &str) -> Result<Self, BackendChoiceError> {
        if name == "auto" {
            return Ok(Self::Auto);
        }
        let set: InstructionSet = name.parse().map_err(|_| BackendChoiceError::Unknown)?;
        let backend = Backend::new(set).ok_or(BackendChoiceError::Lacking(set))?;
        Ok(Self::Only(backend))
    }
}

/// Why there are no kernels for a user's choice. In words, it says what this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoiceError {
    /// No instructions have this name.
    Unknown,
    /// This machine lacks these instructions.
    Lacking(InstructionSet),
}

impl fmt::Display for BackendChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                f.write_str("expected `auto`, `portable`, `avx2`, `avx512` or `neon`")?;
            }
            Self::Lacking(set) => write!(
                f,
                "this machine lacks {set}: expected `auto` or what it has"
            )?,
        }
        f.write_str("; this machine has")?;
        for (index, backend) in Backend::available().enumerate() {
            let before = if index == 0 { " " } else { ", " };
            write!(f, "{before}`{}`", backend.instruction_set())?;
        }
        Ok(())
    }
}

impl core::error::Error for BackendChoiceError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};

    #[test]
    fn a_choice_is_what_this_machine_has_or_an_error_that_says_what_it_has() {
        assert_eq!("auto".parse(), Ok(BackendChoice::Auto));
        assert_eq!(BackendChoice::default().backend(), Backend::best());
        for set in InstructionSet::ALL {
            let choice = set.to_string().parse::<BackendChoice>();
            match Backend::new(set) {
                Some(backend) => assert_eq!(choice.map(BackendChoice::backend), Ok(backend)),
                None => assert_eq!(choice, Err(BackendChoiceError::Lacking(set))),
            }
        }
        assert_eq!(
            "mmx".parse::<BackendChoice>(),
            Err(BackendChoiceError::Unknown)
        );
    }

    #[test]
    fn errors_name_what_may_be_given_and_what_there_is() {
        let errors = InstructionSet::ALL.map(BackendChoiceError::Lacking);
        for error in errors.into_iter().chain([BackendChoiceError::Unknown]) {
            let words = error.to_string();
            let (expected, has) = words.split_once("; this machine has ").expect("both");
            assert!(expected.contains("expected `auto`"), "{words}");
            let available = Backend::available();
            let available = available.map(|backend| backend.instruction_set().to_string());
            let named: String = has.replace(['`', ' '], "");
            assert!(
                available.eq(named.split(',').map(ToString::to_string)),
                "{words}"
            );
        }
    }
}
