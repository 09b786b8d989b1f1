//! The asset pack: schemas, examples, validation, diff and the backend, as tools and resources.
//!
//! [`catalog`] is what the pack offers, known without reading anything; [`pack`] reads the roots
//! of [`AssetSettings`] once and builds the pack that serves them. Whatever changes on disk later
//! is seen by the next generation.
//!
//! [`validate_file`] gives the verdict about one file without a worker, for the command line.
//!
//! Every validation, for any caller, goes one way: an asset is read with its exact numbers
//! (`exact`), its schema is found by name (`naming`, `schemas`), `$schemaRef` is taken out, and the
//! compiled schema says what is wrong. A verdict is an answer; what keeps a verdict from being
//! reached is a problem with the same JSON in its details.
//!
//! Deliberately absent: the environment (the command line fills the settings), and writing to the
//! roots.

mod assets;
mod backend;
mod diff;
mod documents;
mod exact;
mod examples;
mod file;
mod naming;
mod paths;
mod resources;
mod roots;
mod schemas;
mod settings;
mod tools;
mod tree;

use std::sync::Arc;
use std::thread;

use mainstay_worker::{Catalog, Pack, Unable};

use crate::assets::Assets;
use crate::resources::AssetResources;

pub use crate::file::{FileError, Verdict, validate_file};
pub use crate::settings::AssetSettings;

/// Name of the pack.
pub const NAME: &str = "asset";

/// The pack's catalog, with any settings. `tooling_version` is that of the executable.
pub fn catalog(tooling_version: &str) -> Catalog {
    serve(Arc::default(), tooling_version).catalog()
}

/// Reads the roots and builds the pack.
pub fn pack(settings: &AssetSettings, tooling_version: &str) -> Result<Pack, Unable> {
    let assets = Assets::load(settings)?;
    let facts = assets.facts(settings);
    let assets = Arc::new(assets);
    compile_aside(&assets);
    let dirs = settings.schemas_dir.iter().chain(&settings.examples_dir);
    let pack = serve(assets, tooling_version).facts(facts);
    Ok(dirs.fold(pack, |pack, dir| pack.root(dir, "")))
}

/// Compiling takes longer than everything else at start, and a call that needs one schema can
/// compile that one itself; so no call waits for all of them.
fn compile_aside(assets: &Arc<Assets>) {
    let aside = Arc::clone(assets);
    let compiling = move || aside.schemas.compile();
    if thread::Builder::new()
        .name("compile".into())
        .spawn(compiling)
        .is_err()
    {
        assets.schemas.compile();
    }
}

fn serve(assets: Arc<Assets>, tooling_version: &str) -> Pack {
    let completing = Arc::clone(&assets);
    tools::add(Pack::new(NAME), &assets, tooling_version)
        .resources(AssetResources(assets))
        .completions(move |request: &_, _: &_| Ok(resources::complete(&completing, request)))
}
