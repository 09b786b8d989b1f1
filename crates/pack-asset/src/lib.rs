//! The asset pack: JSON Schemas of assets, served as tools and as resources.
//!
//! [`catalog`] is what the pack offers, known without reading anything; [`pack`] reads the roots
//! of [`AssetSettings`] once and builds the pack that serves them. Whatever changes on disk later
//! is seen by the next generation.
//!
//! Deliberately absent: the environment (the command line fills the settings), and writing to the
//! roots.

mod resources;
mod schema_tools;
mod schemas;
mod settings;

use std::sync::Arc;

use mainstay_worker::{Catalog, Json, Pack, Unable, typed};
use serde_json::json;

use crate::resources::SchemaResources;
use crate::schemas::Schemas;

pub use crate::settings::AssetSettings;

/// Name of the pack.
pub const NAME: &str = "asset";

/// What the pack offers, whatever its settings. `tooling_version` is that of the executable.
pub fn catalog(tooling_version: &str) -> Catalog {
    serve(Schemas::default(), tooling_version).catalog()
}

/// Reads the roots and builds the pack.
pub fn pack(settings: &AssetSettings, tooling_version: &str) -> Result<Pack, Unable> {
    let schemas = match &settings.schemas_dir {
        Some(dir) => Schemas::load(dir)?,
        None => Schemas::default(),
    };
    let facts = json!({
        "schemas_dir": settings.schemas_dir,
        "schemas": schemas.list().len(),
        "schemas_fingerprint": schemas.fingerprint(),
    });
    Ok(serve(schemas, tooling_version).facts(Json::from(facts)))
}

fn serve(schemas: Schemas, tooling_version: &str) -> Pack {
    let schemas = Arc::new(schemas);
    let [list, get, complete] = [(); 3].map(|()| Arc::clone(&schemas));
    Pack::new(NAME)
        .tool(
            schema_tools::list_spec(tooling_version),
            typed(move |_: schema_tools::NoArguments, _| Ok(schema_tools::list(&list))),
        )
        .tool(
            schema_tools::get_spec(tooling_version),
            typed(move |arguments, _| schema_tools::get(&get, &arguments)),
        )
        .resources(SchemaResources(schemas))
        .completions(move |request: &_, _: &_| Ok(resources::complete(&complete, request)))
}
