//! What a shape finds in a container, told as it goes.

use crate::weave::tar::Block;

/// Where a container's bytes go.
pub(super) trait Pieces {
    /// What can go wrong.
    type Error;

    /// A member of so many bytes begins: content is its, until something else is told.
    fn member(&mut self, bytes: u64) -> Result<(), Self::Error>;

    /// The member that begins was written at this time, in seconds since 1970.
    fn written(&mut self, mtime: u64);

    /// Bytes of a member, or bytes that nothing is known of.
    fn content(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Bytes that seldom change.
    fn fields(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Bytes that often change.
    fn times(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Zeros between members.
    fn zeros(&mut self, count: usize) -> Result<(), Self::Error>;

    /// A member's bytes end.
    fn boundary(&mut self) -> Result<(), Self::Error>;

    /// A member ends, header and all, of which `draw` is a number that does not depend on what is
    /// around it. A place to begin anew, of the more weight the more bytes the member has.
    fn pause(&mut self, draw: u64, bytes: u64);

    /// A tar header, which its data and zeros follow. [`tar_padding`](Pieces::tar_padding) tells that
    /// they have come, [`tar_broken`](Pieces::tar_broken) that something else has.
    fn tar_member(&mut self, header: &Block) -> Result<(), Self::Error>;

    /// A tar header. What follows may be anything.
    fn tar_header(&mut self, header: &Block) -> Result<(), Self::Error>;

    /// The zeros behind the data of a tar member, with which it is complete. `text` is its data if it
    /// is an extended header.
    fn tar_padding(&mut self, count: usize, text: Option<&[u8]>) -> Result<(), Self::Error>;

    /// A tar member's data or zeros are not as its header says.
    fn tar_broken(&mut self) -> Result<(), Self::Error>;
}
