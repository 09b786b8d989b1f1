//! The tools, one file per subject: what they promise, what they do, and how it reads.

mod contract;
mod diff;
mod examples;
mod populate;
mod schemas;
mod validate;
pub(crate) mod verdict;

use std::sync::Arc;

use mainstay_worker::{Context, Pack, Problem, Reply, ToolSpec, typed};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::assets::Assets;

/// A tool without arguments.
#[derive(Debug, Deserialize)]
struct NoArguments {}

/// Adds every tool.
pub(crate) fn add(pack: Pack, assets: &Arc<Assets>, version: &str) -> Pack {
    let adding = Adding {
        pack,
        assets,
        version,
    };
    adding
        .tool(schemas::list_spec, |assets, _: &NoArguments, _| {
            Ok(schemas::list(&assets.schemas))
        })
        .tool(schemas::get_spec, |assets, arguments, _| {
            schemas::get(&assets.schemas, arguments)
        })
        .tool(examples::list_spec, |assets, arguments, _| {
            Ok(examples::list(&assets.examples, arguments))
        })
        .tool(examples::get_spec, |assets, arguments, _| {
            examples::get(assets, arguments)
        })
        .tool(validate::one_spec, |assets, arguments, _| {
            validate::one(&assets.schemas, arguments)
        })
        .tool(validate::many_spec, validate::many)
        .tool(diff::spec, |_, arguments, _| diff::run(arguments))
        .tool(populate::spec, populate::run)
        .pack
}

struct Adding<'a> {
    pack: Pack,
    assets: &'a Arc<Assets>,
    version: &'a str,
}

impl Adding<'_> {
    fn tool<A: DeserializeOwned + 'static>(
        mut self,
        spec: fn(&str) -> ToolSpec,
        run: fn(&Assets, &A, &Context) -> Result<Reply, Problem>,
    ) -> Self {
        let assets = Arc::clone(self.assets);
        let tool = typed(move |arguments, context: &Context| run(&assets, &arguments, context));
        self.pack = self.pack.tool(spec(self.version), tool);
        self
    }
}
