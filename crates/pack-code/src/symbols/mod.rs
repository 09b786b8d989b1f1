//! Symbols.
pub(crate) mod layer;
