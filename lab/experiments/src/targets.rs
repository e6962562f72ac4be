//! What was asked for, beside what was measured.

/// One thing that was asked for.
pub(crate) struct Target {
    pub what: &'static str,
    pub asked: &'static str,
    /// `None` where it was not measured.
    pub measured: Option<Measured>,
}

/// What came out.
pub(crate) struct Measured {
    pub text: String,
    pub is_met: bool,
}

pub(crate) fn at_most(value: f64, bound: f64, text: String) -> Measured {
    Measured {
        text,
        is_met: value <= bound,
    }
}

pub(crate) fn at_least(value: f64, bound: f64, text: String) -> Measured {
    Measured {
        text,
        is_met: value >= bound,
    }
}
