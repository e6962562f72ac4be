//! refrain.
fn main() {}
