//! The code pack.
mod build;
mod fresh;
mod limits;
mod query;
mod settings;
mod store;
mod symbols;
mod text;
mod tree;
mod view;
pub use crate::settings::{CodeSettings, RootSetting};
