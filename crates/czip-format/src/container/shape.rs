//! What a cutter and a shape have between them.

use super::Pieces;

/// What a shape wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// So many bytes at once.
    Head(usize),
    /// To pass over content up to this byte.
    Find(u8),
    /// To pass over all that is left.
    Rest,
}

/// What some bytes are that a shape need not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A member's, or anybody's.
    Content,
    /// What seldom changes.
    Fields,
    /// What often changes.
    Times,
    /// No bytes: a member of so many begins.
    Begin(u64),
    /// No bytes: a member ends.
    End,
}

/// A member of so many bytes passes.
pub(super) fn member(bytes: u64) -> [(Kind, u64); 3] {
    [
        (Kind::Begin(bytes), 0),
        (Kind::Content, bytes),
        (Kind::End, 0),
    ]
}

/// A kind of container.
pub(super) trait Shape {
    /// What is to come when all that was to pass has.
    fn want(&self) -> Want;

    /// Tells `out` what the first bytes of `head` are, puts into `pass` what follows them and need
    /// not be looked at, and returns how many they are. They are at least one, or the next want is
    /// another.
    fn head<P: Pieces>(
        &mut self,
        head: &[u8],
        pass: &mut Vec<(Kind, u64)>,
        out: &mut P,
    ) -> Result<usize, P::Error>;

    /// The byte that was to be found is next.
    fn found(&mut self) {}

    /// The file ends, before what was wanted had come.
    fn end<P: Pieces>(&mut self, _out: &mut P) -> Result<(), P::Error> {
        Ok(())
    }
}
