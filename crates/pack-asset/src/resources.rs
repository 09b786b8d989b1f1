//! Schemas and examples as resources, with completion: `schema:///NAME`, `example:///PATH`.

use std::sync::Arc;

use mainstay_schema::{Verdict, Violations};
use mainstay_worker::{
    Completion, CompletionTarget, Context, ErrorKind, Json, Problem, ResourceSpec,
    ResourceTemplate, ResourceText, Resources, uri,
};
use serde_json::json;

use crate::assets::Assets;
use crate::paths;
use crate::tools::verdict::failed;

/// One family of resources.
struct Family {
    scheme: &'static str,
    /// The part before the name.
    prefix: &'static str,
    template: &'static str,
    /// The template's one argument.
    argument: &'static str,
    description: &'static str,
    mime_type: &'static str,
}

const SCHEMA: Family = Family {
    scheme: "schema",
    prefix: "schema:///",
    template: "schema:///{name}",
    argument: "name",
    description: "An asset schema by its name.",
    mime_type: "application/schema+json",
};

const EXAMPLE: Family = Family {
    scheme: "example",
    prefix: "example:///",
    // A path keeps its slashes.
    template: "example:///{+path}",
    argument: "path",
    description: "An example asset by its path; only one that is valid is given.",
    mime_type: "application/json",
};

impl Family {
    fn template(&self) -> ResourceTemplate {
        ResourceTemplate {
            uri_template: self.template.to_owned(),
            name: self.scheme.to_owned(),
            description: Some(self.description.to_owned()),
            mime_type: Some(self.mime_type.to_owned()),
        }
    }

    fn spec(&self, name: &str) -> ResourceSpec {
        ResourceSpec {
            uri: format!("{}{}", self.prefix, uri::encode_path(name)),
            name: name.to_owned(),
            description: None,
            mime_type: Some(self.mime_type.to_owned()),
        }
    }

    /// The name in a URI of this family.
    fn name_in(&self, uri: &str) -> Option<Result<String, Problem>> {
        let encoded = uri.strip_prefix(self.prefix)?;
        Some(match uri::decode(encoded) {
            Some(name) if !paths::leaves_root(&name) => Ok(name.into_owned()),
            _ => Err(invalid_path()),
        })
    }

    fn text(&self, uri: &str, text: &str) -> ResourceText {
        ResourceText {
            uri: uri.to_owned(),
            mime_type: Some(self.mime_type.to_owned()),
            text: text.to_owned(),
        }
    }

    fn completes(&self, request: &Completion) -> bool {
        request.of == CompletionTarget::Resource(self.template.to_owned())
            && request.argument == self.argument
    }
}

/// The assets, by URI.
#[derive(Debug)]
pub(crate) struct AssetResources(pub(crate) Arc<Assets>);

impl Resources for AssetResources {
    fn schemes(&self) -> Vec<String> {
        [SCHEMA, EXAMPLE]
            .map(|family| family.scheme.to_owned())
            .into()
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        [SCHEMA, EXAMPLE].map(|family| family.template()).into()
    }

    fn list(&self, _context: &Context) -> Result<Vec<ResourceSpec>, Problem> {
        let (schemas, examples) = (self.0.schemas.list(), self.0.examples.list());
        let schemas = schemas.iter().map(|schema| SCHEMA.spec(&schema.name));
        let examples = examples.iter().map(|example| EXAMPLE.spec(&example.path));
        Ok(schemas.chain(examples).collect())
    }

    fn read(&self, uri: &str, _context: &Context) -> Result<ResourceText, Problem> {
        if let Some(name) = SCHEMA.name_in(uri) {
            let schema = self.0.schemas.find(&name?).ok_or_else(not_found)?;
            return Ok(SCHEMA.text(uri, &schema.text));
        }
        let path = EXAMPLE.name_in(uri).ok_or_else(not_found)??;
        let example = self.0.examples.find(&path).ok_or_else(not_found)?;
        let verdict = match self.0.schemas.usable(&example.schema) {
            Ok(schema) => schema.check(&example.document()),
            Err(why) => Verdict::Invalid(Violations::one(why.violation())),
        };
        let (message, violations) = match verdict {
            Verdict::Valid => return Ok(EXAMPLE.text(uri, &example.text)),
            Verdict::Invalid(violations) => {
                let message = "the example does not fit its schema and is not given";
                (message, violations)
            }
            Verdict::NotChecked(why) => {
                let message = "the example was not checked against its schema and is not given";
                (message, Violations::one(why))
            }
        };
        let details = Json::from(failed(&violations));
        Err(Problem::new(ErrorKind::Unsupported, message).with_details(details))
    }
}

fn not_found() -> Problem {
    Problem::of(ErrorKind::ResourceNotFound)
}

fn invalid_path() -> Problem {
    let details = json!({"ok": false, "reason": "validation_failed",
        "errors": [{"path": "/uri", "msg": "invalid_path"}]});
    Problem::new(ErrorKind::InvalidParams, "the URI leaves its root")
        .with_hint("use a URI that resources/list gives")
        .with_details(Json::from(details))
}

/// Names and paths that begin with what was typed.
pub(crate) fn complete(assets: &Assets, request: &Completion) -> Vec<String> {
    let fits = |name: &&str| name.starts_with(&request.value);
    if SCHEMA.completes(request) {
        let names = assets
            .schemas
            .list()
            .iter()
            .map(|schema| schema.name.as_str());
        return names.filter(fits).map(str::to_owned).collect();
    }
    if EXAMPLE.completes(request) {
        let paths = assets
            .examples
            .list()
            .iter()
            .map(|example| example.path.as_str());
        return paths.filter(fits).map(str::to_owned).collect();
    }
    Vec::new()
}
