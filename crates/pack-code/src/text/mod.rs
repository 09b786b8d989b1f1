//! Words and definitions: what ranking knows about text without parsing it.

pub(crate) mod defs;
pub(crate) mod hash;
pub(crate) mod stem;
pub(crate) mod words;
