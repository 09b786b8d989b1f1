//! The working tree: which files count, what is in them, and what kind of file each is.

pub(crate) mod class;
pub(crate) mod file;
pub(crate) mod git;
pub(crate) mod git_index;
pub(crate) mod ignore_rules;
pub(crate) mod lang;
pub(crate) mod walk;
