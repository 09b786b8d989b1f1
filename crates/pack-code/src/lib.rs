//! The code pack: an index of source trees and six tools over it.
//!
//! [`catalog`] is what the pack offers, known without reading anything; [`pack`] opens the
//! repositories of [`CodeSettings`] and builds the pack that serves them. Indexes live in the cache
//! directory, never in a tree; [`cache`] lists and removes them.
//!
//! The parts, from the disk up: `tree` (which files count), `text` (words and definitions),
//! `store` (tables, segments, generations), `build` (from a tree to a generation), `view` (a
//! generation and what has changed since), `fresh` (watch, sweep and the thread that keeps an index
//! up to date), `symbols` (tree-sitter), `query` (searching), `tools`.
//!
//! Deliberately absent: the environment, the network, writing to a tree, and `unsafe`: index files
//! are read by position, tree files are read whole, nothing is mapped.

mod build;
pub mod cache;
mod fresh;
mod limits;
mod query;
mod settings;
mod store;
mod symbols;
mod text;
mod tools;
mod tree;
mod view;
mod workspace;

use std::sync::Arc;

use mainstay_worker::{Catalog, Json, Pack, Unable, typed};
use serde_json::json;

use crate::tools::{build as build_tool, check, search, search_spec, show, status};
use crate::workspace::{Current, Workspace};

pub use crate::settings::{CodeSettings, RootSetting};

/// Name of the pack.
pub const NAME: &str = "code";

/// What the pack offers, whatever its settings. `tooling_version` is that of the executable.
pub fn catalog(tooling_version: &str) -> Catalog {
    serve(Workspace::default(), tooling_version).catalog()
}

/// Opens the repositories and builds the pack. A repository that cannot be opened is listed by
/// `workspace_status` and harms no other.
pub fn pack(settings: &CodeSettings, tooling_version: &str) -> Result<Pack, Unable> {
    let workspace = Workspace::open(settings);
    let roots: Vec<String> = workspace
        .members
        .iter()
        .map(|member| member.root.display().to_string())
        .collect();
    let facts = json!({"roots": roots, "cache_dir": settings.cache_dir});
    let several = workspace.members.len() > 1;
    let dirs: Vec<_> = workspace
        .members
        .iter()
        .map(|member| match several {
            true => (member.root.clone(), format!("{}/", member.alias)),
            false => (member.root.clone(), String::new()),
        })
        .collect();
    let pack = serve(workspace, tooling_version).facts(Json::from(facts));
    let pack = dirs
        .iter()
        .fold(pack, |pack, (dir, prefix)| pack.root(dir, prefix));
    Ok(pack)
}

fn serve(workspace: Workspace, version: &str) -> Pack {
    let workspace = Arc::new(Current::new(workspace));
    let [building, indexed, searched, shown, checked, listed] =
        [(); 6].map(|()| Arc::clone(&workspace));
    let said = version.to_owned();
    Pack::new(NAME)
        .tool(
            build_tool::spec(version),
            typed(move |arguments, context| build_tool::call(&building.get(), &arguments, context)),
        )
        .tool(
            status::spec(version),
            typed(move |arguments, context| status::call(&indexed.get(), &arguments, context)),
        )
        .tool(
            search_spec::spec(version),
            typed(move |arguments, context| search::call(&searched.get(), &arguments, context)),
        )
        .tool(
            show::spec(version),
            typed(move |arguments, context| show::call(&shown.get(), &arguments, context)),
        )
        .tool(
            check::spec(version),
            typed(move |_: status::NoArguments, _| Ok(check::call(&checked.get(), &said))),
        )
        .tool(
            status::workspace_spec(version),
            typed(move |_: status::NoArguments, _| Ok(status::workspace_call(&listed.get()))),
        )
}
