//! The params of MCP methods, read from raw text.

use serde_json::json;

use super::{LEGACY_VERSIONS, MODERN_VERSION};
use crate::error::ErrorKind;
use crate::json::Json;
use crate::outcome::Problem;
use crate::rpc::{Completion, CompletionTarget};
use crate::scan;

/// The error of params that do not fit their method.
pub(super) fn bad(message: impl Into<String>) -> Problem {
    Problem::new(ErrorKind::InvalidParams, message)
}

/// The error of a member that does not fit, with a pointer to it.
pub(super) fn misplaced(pointer: &str, rule: &str) -> Problem {
    bad(format!("{pointer} {rule}")).with_details(json!({ "pointer": pointer }).into())
}

/// The error of a request whose client does not declare the extension that it belongs to.
pub(super) fn missing_extension(name: &str) -> Problem {
    let details = json!({ "requiredCapabilities": { "extensions": { name: {} } } });
    Problem::of(ErrorKind::MissingClientCapability).with_details(details.into())
}

/// The error of a protocol revision that is not served; it names those that are.
pub fn unsupported_version(requested: &str) -> Problem {
    let mut supported = vec![MODERN_VERSION];
    supported.extend(LEGACY_VERSIONS);
    let details = json!({ "supported": supported, "requested": requested });
    Problem::of(ErrorKind::UnsupportedVersion).with_details(details.into())
}

/// The parameters of a tool call, found in one pass, since its arguments may be long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallParams<'a> {
    pub(super) meta: Option<&'a str>,
    pub(super) task: Option<&'a str>,
    name: Option<&'a str>,
    arguments: Option<&'a str>,
}

impl<'a> CallParams<'a> {
    /// Reads the parameters of any request. Of several with the same key the last counts, as in [`scan::member`].
    pub(super) fn of(params: &'a str) -> Self {
        let mut read = Self::default();
        for (name, value) in scan::members(params) {
            match name.as_ref() {
                "_meta" => read.meta = Some(value),
                "task" => read.task = Some(value),
                "name" => read.name = Some(value),
                "arguments" => read.arguments = Some(value),
                _ => {}
            }
        }
        read.meta = read.meta.filter(|meta| meta.starts_with('{'));
        read
    }

    /// The name of the tool or prompt.
    pub(super) fn name(&self) -> Result<String, Problem> {
        as_string(self.name, "name")
    }

    /// The arguments, an empty object when absent.
    pub(super) fn arguments(&self) -> Result<Json, Problem> {
        as_object(self.arguments, "arguments")
    }
}

/// A required string.
pub(super) fn string(params: &str, key: &str) -> Result<String, Problem> {
    as_string(scan::member(params, key), key)
}

fn as_string(raw: Option<&str>, key: &str) -> Result<String, Problem> {
    let raw = raw.ok_or_else(|| bad(format!("{key} is missing")))?;
    let text = scan::unquote(raw).ok_or_else(|| bad(format!("{key} must be a string")))?;
    Ok(text.into_owned())
}

/// An optional object, empty when absent.
pub(super) fn object(params: &str, key: &str) -> Result<Json, Problem> {
    as_object(scan::member(params, key), key)
}

fn as_object(raw: Option<&str>, key: &str) -> Result<Json, Problem> {
    match raw {
        None => Ok(Json::empty_object()),
        Some(raw) if raw.starts_with('{') => Ok(Json::from_scanned(raw)),
        Some(_) => Err(bad(format!("{key} must be an object"))),
    }
}

/// An optional cursor; whether it was given out is for its issuer to say.
pub(super) fn cursor(params: &str) -> Result<Option<String>, Problem> {
    match scan::member(params, "cursor") {
        None => Ok(None),
        Some(_) => string(params, "cursor").map(Some),
    }
}

/// A listing of one page, for which no cursor is ever given out.
pub(super) fn first_page(params: &str) -> Result<(), Problem> {
    match cursor(params)? {
        None => Ok(()),
        Some(_) => Err(bad(
            "cursor is not one that was given out: the listing is one page",
        )),
    }
}

/// `completion/complete`.
pub(super) fn completion(params: &str) -> Result<Completion, Problem> {
    let reference = required_object(params, "ref")?;
    let of = match string(reference, "type")?.as_str() {
        "ref/prompt" => CompletionTarget::Prompt(string(reference, "name")?),
        "ref/resource" => CompletionTarget::Resource(string(reference, "uri")?),
        _ => return Err(bad("ref.type must be ref/prompt or ref/resource")),
    };
    let argument = required_object(params, "argument")?;
    let context = scan::member(params, "context").unwrap_or("{}");
    Ok(Completion {
        of,
        argument: string(argument, "name")?,
        value: string(argument, "value")?,
        context: object(context, "arguments")?,
    })
}

fn required_object<'a>(params: &'a str, key: &str) -> Result<&'a str, Problem> {
    scan::member(params, key)
        .filter(|raw| raw.starts_with('{'))
        .ok_or_else(|| bad(format!("{key} must be an object")))
}
