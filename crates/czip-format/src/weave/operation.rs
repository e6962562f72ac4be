//! The numbers of operations.

/// What an operation does; its number is what the weave has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    /// So many bytes of content.
    Content = 0,
    /// So many bytes of fields.
    Fields = 1,
    /// So many bytes of times.
    Times = 2,
    /// So many zeros.
    Zeros = 3,
    /// So many tar headers, each with what follows it.
    Members = 4,
    /// So many tar headers alone.
    Headers = 5,
    /// State begins anew; no operand.
    Anew = 6,
}

impl Operation {
    /// The operation of a number, if there is one.
    pub(crate) fn of(number: u8) -> Option<Operation> {
        Some(match number {
            0 => Operation::Content,
            1 => Operation::Fields,
            2 => Operation::Times,
            3 => Operation::Zeros,
            4 => Operation::Members,
            5 => Operation::Headers,
            6 => Operation::Anew,
            _ => return None,
        })
    }
}
