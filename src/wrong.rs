//! What was asked for makes no sense: it ends as arguments do that cannot be parsed.

use thiserror::Error;

/// Arguments that each are right and make no sense together, or for what is there.
#[derive(Debug, Error)]
#[error("{0:#}")]
pub(crate) struct WrongArguments(pub anyhow::Error);
