//! Kernels: the loops that touch every byte, written for each processor.
//!
//! One folder a kernel. Its `mod.rs` says in pseudocode what it computes and picks the version;
//! the files beside it are the versions, `portable.rs` always among them. All are held equal to
//! [`reference`](crate::reference), on every [`Backend`] that the machine has.
//!
//! A [`Backend`] can only be had where its instructions were found. That is what makes the
//! calls from a kernel's `mod.rs` into `avx2.rs`, `avx512.rs` and `neon.rs` sound.
//!
//! Deviation: a processor with AVX-512 but without the instructions that came with Ice Lake
//! (GFNI, VBMI and the others below) is given AVX2. The kernels that gain most from AVX-512
//! consist of those instructions, and such processors clock down for the rest.

/// Calls the version of a kernel that is written for a backend.
macro_rules! dispatch {
    ($backend:expr, $kernel:ident($($argument:expr),*)) => {
        match $backend.instruction_set() {
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            // SAFETY: the backend exists, so its instructions do.
            $crate::simd::InstructionSet::Avx512 => unsafe { avx512::$kernel($($argument),*) },
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            // SAFETY: as above.
            $crate::simd::InstructionSet::Avx2 => unsafe { avx2::$kernel($($argument),*) },
            _ => portable::$kernel($($argument),*),
        }
    };
}

pub(crate) mod blake3;
pub(crate) mod compare;
pub(crate) mod maxp;
pub(crate) mod modp;
pub(crate) mod pack;
pub(crate) mod polyval;
pub(crate) mod positions;
pub(crate) mod prefetch;
pub(crate) mod samplebyte;
pub(crate) mod xxh3;

use core::{fmt, str::FromStr};

use thiserror::Error;

names! {
    /// A set of instructions that kernels are written for, the one that helps least first.
    pub enum InstructionSet {
        /// What every processor has, and a compiler makes of it.
        Portable = "portable",
        /// 64-bit ARM, all of which has NEON.
        Neon = "neon",
        /// x86-64 with AVX2, BMI1 and 2, POPCNT, PCLMULQDQ: from Haswell (2013) and Zen (2017) on.
        Avx2 = "avx2",
        /// x86-64 with AVX-512 F, BW, CD, DQ, VL, VBMI, VBMI2, BITALG, VPOPCNTDQ, GFNI and
        /// VPCLMULQDQ: from Ice Lake (2019) and Zen 4 (2022) on.
        Avx512 = "avx512",
    }
}

/// The kernels to use: proof that this machine has their instructions.
///
/// ```
/// use refrain_codec::simd::{Backend, InstructionSet};
///
/// // The fastest that this machine has, and a given one.
/// let best = Backend::best();
/// let portable = Backend::new(InstructionSet::Portable).expect("every machine has it");
/// assert!(Backend::available().any(|backend| backend == best));
/// assert!(Backend::available().any(|backend| backend == portable));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backend(InstructionSet);

impl Backend {
    /// The backend that every machine has.
    pub const PORTABLE: Self = Self(InstructionSet::Portable);

    /// The backend for `set`; `None` where the machine lacks its instructions.
    #[must_use]
    pub fn new(set: InstructionSet) -> Option<Self> {
        is_present(set).then_some(Self(set))
    }

    /// The fastest that this machine has.
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::PORTABLE)
    }

    /// All that this machine has, the slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        InstructionSet::ALL.into_iter().filter_map(Self::new)
    }

    /// Runs `work` compiled for this backend's instructions, as far as the compiler takes it in:
    /// it, and what it calls, must be `#[inline(always)]`. Kernels that it calls are taken in as
    /// well, which a short one gains most from.
    #[inline]
    pub(crate) fn run<R>(self, work: impl FnOnce() -> R) -> R {
        match self.0 {
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            // SAFETY: the backend exists, so its instructions do.
            InstructionSet::Avx512 => unsafe { run_avx512(work) },
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            // SAFETY: as above.
            InstructionSet::Avx2 => unsafe { run_avx2(work) },
            _ => work(),
        }
    }

    /// The instructions that its kernels use.
    #[must_use]
    pub fn instruction_set(self) -> InstructionSet {
        self.0
    }
}

impl FromStr for Backend {
    type Err = NoSuchBackend;

    /// The backend for the instructions of this name, or the best for `auto`.
    fn from_str(name: &str) -> Result<Self, NoSuchBackend> {
        if name == "auto" {
            return Ok(Self::best());
        }
        let set = name.parse().map_err(|_| NoSuchBackend::Unknown)?;
        Self::new(set).ok_or(NoSuchBackend::Lacking(set))
    }
}

/// Why there are no kernels for a user's choice. In words, it says what this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoSuchBackend {
    /// No instructions have this name.
    #[error(
        "expected `auto`, `portable`, `avx2`, `avx512` or `neon`; this machine has {Available}"
    )]
    Unknown,
    /// This machine lacks these instructions.
    #[error(
        "this machine lacks {0}: expected `auto` or one that it has; this machine has {Available}"
    )]
    Lacking(InstructionSet),
}

/// The names of what this machine has.
struct Available;

impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, backend) in Backend::available().enumerate() {
            let before = if index == 0 { "" } else { ", " };
            write!(f, "{before}`{}`", backend.instruction_set())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,pclmulqdq")]
fn run_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[target_feature(
    enable = "avx2,bmi1,bmi2,popcnt,pclmulqdq,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,\
              avx512vbmi,avx512vbmi2,avx512bitalg,avx512vpopcntdq,gfni,vpclmulqdq"
)]
fn run_avx512<R>(work: impl FnOnce() -> R) -> R {
    work()
}

// A target without SSE2 passes floats and vectors in its own way (kernels, bootloaders); Miri
// has no processor to ask.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
fn is_present(set: InstructionSet) -> bool {
    cpufeatures::new!(avx2, "avx2", "bmi1", "bmi2", "popcnt", "pclmulqdq");
    cpufeatures::new!(
        avx512,
        "avx512f",
        "avx512bw",
        "avx512cd",
        "avx512dq",
        "avx512vl",
        "avx512vbmi",
        "avx512vbmi2",
        "avx512bitalg",
        "avx512vpopcntdq",
        "gfni",
        "vpclmulqdq",
        // rustc's AVX-512 has it in it.
        "fma"
    );
    match set {
        InstructionSet::Portable => true,
        InstructionSet::Avx2 => avx2::get(),
        InstructionSet::Avx512 => avx2::get() && avx512::get(),
        InstructionSet::Neon => false,
    }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
fn is_present(set: InstructionSet) -> bool {
    match set {
        InstructionSet::Portable => true,
        InstructionSet::Avx2 | InstructionSet::Avx512 => false,
        InstructionSet::Neon => {
            cfg!(all(
                target_arch = "aarch64",
                target_feature = "neon",
                not(miri)
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};

    #[test]
    fn names_are_read_back() {
        for set in InstructionSet::ALL {
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        assert!("sse9".parse::<InstructionSet>().is_err());
    }

    #[test]
    fn the_best_is_the_last_available() {
        assert_eq!(Backend::available().next(), Some(Backend::PORTABLE));
        assert_eq!(Backend::available().last(), Some(Backend::best()));
    }

    #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
    #[test]
    fn what_the_standard_library_finds_is_found() {
        let avx2 = std::is_x86_feature_detected!("avx2");
        assert_eq!(Backend::new(InstructionSet::Avx2).is_some(), avx2);
        let vbmi2 = std::is_x86_feature_detected!("avx512vbmi2");
        assert_eq!(Backend::new(InstructionSet::Avx512).is_some(), vbmi2);
        assert_eq!(Backend::new(InstructionSet::Neon), None);
    }

    #[test]
    fn a_choice_is_what_this_machine_has_or_an_error_that_says_what_it_has() {
        assert_eq!("auto".parse(), Ok(Backend::best()));
        for set in InstructionSet::ALL {
            let choice = set.to_string().parse::<Backend>();
            match Backend::new(set) {
                Some(backend) => assert_eq!(choice, Ok(backend)),
                None => assert_eq!(choice, Err(NoSuchBackend::Lacking(set))),
            }
        }
        assert_eq!("mmx".parse::<Backend>(), Err(NoSuchBackend::Unknown));
    }

    #[test]
    fn errors_name_what_may_be_given_and_what_there_is() {
        let errors = InstructionSet::ALL.map(NoSuchBackend::Lacking);
        for error in errors.into_iter().chain([NoSuchBackend::Unknown]) {
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
