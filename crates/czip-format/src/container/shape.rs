//! What a cutter and a shape have between them.

/// What a shape wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// So many bytes at once.
    Head(usize),
    /// To pass over content up to this byte, and a head of none when it is next.
    Find(u8),
    /// To pass over all that is left.
    Rest,
}

/// What some bytes are, or, without bytes, what happens between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes of a member, or bytes that nothing is known of.
    Content,
    /// Bytes that seldom change.
    Fields,
    /// Bytes that often change.
    Times,
    /// Zeros between members.
    Zeros,
    /// A tar header at once, which its data and zeros follow: then [`TarPadding`](Kind::TarPadding), or
    /// [`TarBroken`](Kind::TarBroken) where something else has come.
    TarMember,
    /// A tar header at once. What follows may be anything.
    TarHeader,
    /// The zeros behind the data of a tar member, with which it is complete.
    TarPadding,
    /// A tar member's data or zeros are not as its header says.
    TarBroken,
    /// What the extended tar header before says of the next member's time.
    ExtendedTime(Option<u64>),
    /// A member of so many bytes begins: content is its, until something else comes.
    Begin(u64),
    /// The member that begins was written at this time, in seconds since 1970.
    Written(u64),
    /// A member's bytes end.
    End,
    /// A member ends, header and all, of which `draw` is a number that does not depend on what is
    /// around it. A place to begin anew, of the more weight the more bytes the member has.
    Pause { draw: u64, bytes: u64 },
}

/// A member of so many bytes passes.
pub(super) fn member(bytes: u64) -> [(Kind, u64); 3] {
    [
        (Kind::Begin(bytes), 0),
        (Kind::Content, bytes),
        (Kind::End, 0),
    ]
}

/// Where a container's bytes go.
pub(super) trait Pieces {
    /// What can go wrong.
    type Error;

    /// The next bytes, all of one kind.
    fn put(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), Self::Error>;
}

/// A kind of container.
pub(super) trait Shape: Send + Sync {
    /// What is to come when all that was to pass has.
    fn want(&self) -> Want;

    /// Puts into `pass` what the bytes of `head` are, and what follows them that need not be looked at. Bytes
    /// of `head` that are left out come again, with what is wanted then.
    fn head(&mut self, head: &[u8], pass: &mut Vec<(Kind, u64)>);
}
