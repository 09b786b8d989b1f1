//! Beside the tools: the log and the entries as resources, a prompt, and completion of keys.

use std::sync::Arc;

use mainstay_worker::{
    Completion, CompletionTarget, Context, ErrorKind, Problem, PromptArgument, PromptArguments,
    PromptReply, PromptSpec, Prompts, ResourceSpec, ResourceTemplate, ResourceText, Resources,
};

use crate::book::Book;

const LOG: &str = "ledger:///log";
const ENTRY: &str = "ledger:///entry/";
const ENTRY_TEMPLATE: &str = "ledger:///entry/{key}";
const RECONCILE: &str = "reconcile";
const KEY: &str = "key";

/// The resources.
#[derive(Debug)]
pub(crate) struct Entries(pub(crate) Arc<Book>);

impl Resources for Entries {
    fn schemes(&self) -> Vec<String> {
        vec!["ledger".to_owned()]
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        vec![ResourceTemplate {
            uri_template: ENTRY_TEMPLATE.to_owned(),
            name: "entry".to_owned(),
            description: Some("The value of a key.".to_owned()),
            mime_type: Some("text/plain".to_owned()),
        }]
    }

    fn list(&self, _context: &Context) -> Result<Vec<ResourceSpec>, Problem> {
        let log = ResourceSpec {
            uri: LOG.to_owned(),
            name: "log".to_owned(),
            description: Some("Every effect, one JSON line each.".to_owned()),
            mime_type: Some("application/x-ndjson".to_owned()),
        };
        let entries = self.0.state()?.values.into_keys().map(|key| ResourceSpec {
            uri: format!("{ENTRY}{key}"),
            name: key,
            description: None,
            mime_type: Some("text/plain".to_owned()),
        });
        Ok(std::iter::once(log).chain(entries).collect())
    }

    fn read(&self, uri: &str, _context: &Context) -> Result<ResourceText, Problem> {
        let text = |mime_type: &str, text| ResourceText {
            uri: uri.to_owned(),
            mime_type: Some(mime_type.to_owned()),
            text,
        };
        if uri == LOG {
            return Ok(text("application/x-ndjson", self.0.text()?));
        }
        let value = match uri.strip_prefix(ENTRY) {
            Some(key) => self.0.state()?.values.remove(key),
            None => None,
        };
        value
            .map(|value| text("text/plain", value))
            .ok_or_else(|| Problem::of(ErrorKind::ResourceNotFound))
    }
}

/// The prompt.
#[derive(Debug)]
pub(crate) struct Reconcile(pub(crate) Arc<Book>);

impl Prompts for Reconcile {
    fn specs(&self) -> Vec<PromptSpec> {
        vec![PromptSpec {
            name: RECONCILE.to_owned(),
            description: "Asks for a comparison of a key's value with what is expected.".to_owned(),
            arguments: vec![PromptArgument {
                name: KEY.to_owned(),
                description: "The key to look at.".to_owned(),
                required: true,
            }],
        }]
    }

    fn prompt(
        &self,
        _name: &str,
        arguments: &PromptArguments,
        _context: &Context,
    ) -> Result<PromptReply, Problem> {
        let key = arguments.get(KEY).unwrap_or_default();
        let value = self.0.state()?.values.remove(key);
        let known = match value {
            Some(value) => format!("The ledger holds `{value}` for `{key}`."),
            None => format!("The ledger has no value for `{key}`."),
        };
        Ok(PromptReply::new(format!("Reconcile {key}")).user(format!(
            "{known} Compare it with the sources you have, name every difference, and propose one \
             `put` call that corrects it, or say that nothing is to be done."
        )))
    }
}

/// Keys that begin with what was typed, for the prompt and for the entry template.
pub(crate) fn complete(book: &Book, request: &Completion) -> Result<Vec<String>, Problem> {
    let completes = match &request.of {
        CompletionTarget::Prompt(name) => name == RECONCILE,
        CompletionTarget::Resource(template) => template == ENTRY_TEMPLATE,
    };
    if !completes || request.argument != KEY {
        return Ok(Vec::new());
    }
    let keys = book.state()?.values.into_keys();
    Ok(keys.filter(|key| key.starts_with(&request.value)).collect())
}
