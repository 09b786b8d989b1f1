//! Schemas as resources: `schema:///NAME`, with completion of the name.

use std::sync::Arc;

use mainstay_worker::{
    Completion, CompletionTarget, Context, ErrorKind, Problem, ResourceSpec, ResourceTemplate,
    ResourceText, Resources,
};

use crate::schemas::Schemas;

const PREFIX: &str = "schema:///";
const TEMPLATE: &str = "schema:///{name}";
const MIME_TYPE: &str = "application/schema+json";

/// The schemas, by URI.
#[derive(Debug)]
pub(crate) struct SchemaResources(pub(crate) Arc<Schemas>);

impl Resources for SchemaResources {
    fn schemes(&self) -> Vec<String> {
        vec!["schema".to_owned()]
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        vec![ResourceTemplate {
            uri_template: TEMPLATE.to_owned(),
            name: "schema".to_owned(),
            description: Some("An asset schema by its name.".to_owned()),
            mime_type: Some(MIME_TYPE.to_owned()),
        }]
    }

    fn list(&self, _context: &Context) -> Result<Vec<ResourceSpec>, Problem> {
        let specs = self.0.list().iter().map(|schema| ResourceSpec {
            uri: format!("{PREFIX}{}", schema.name),
            name: schema.name.clone(),
            description: None,
            mime_type: Some(MIME_TYPE.to_owned()),
        });
        Ok(specs.collect())
    }

    fn read(&self, uri: &str, _context: &Context) -> Result<ResourceText, Problem> {
        let schema = uri
            .strip_prefix(PREFIX)
            .and_then(|name| self.0.find(name))
            .ok_or_else(|| Problem::of(ErrorKind::ResourceNotFound))?;
        Ok(ResourceText {
            uri: uri.to_owned(),
            mime_type: Some(MIME_TYPE.to_owned()),
            text: schema.text.as_ref().to_owned(),
        })
    }
}

/// Names that begin with what was typed.
pub(crate) fn complete(schemas: &Schemas, request: &Completion) -> Vec<String> {
    let ours = request.of == CompletionTarget::Resource(TEMPLATE.to_owned());
    if !ours || request.argument != "name" {
        return Vec::new();
    }
    let names = schemas.list().iter().map(|schema| schema.name.clone());
    names
        .filter(|name| name.starts_with(&request.value))
        .collect()
}
