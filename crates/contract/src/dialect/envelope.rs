//! The two methods of the envelope dialect, and what their answers are about.

use super::params::{self, bad};
use super::{Op, Shape};
use crate::envelope::{Asked, TOOL_ID_PREFIX, tool_name};
use crate::json::ObjectWriter;
use crate::outcome::Problem;
use crate::scan;

/// The methods.
pub(super) const METHODS: [&str; 2] = [Asked::DISCOVER, Asked::INVOKE];

/// The kinds of requests in this dialect.
pub(super) fn op(method: &str, params: &str) -> Result<Op, Problem> {
    if method == Asked::DISCOVER {
        only(params, &[])?;
        return Ok(Op::Catalog {});
    }
    only(params, &["toolId", "arguments"])?;
    let tool_id = params::string(params, "toolId")?;
    let Some(name) = tool_name(&tool_id) else {
        return Err(bad(format!(
            "toolId must be {TOOL_ID_PREFIX} and the name of a tool, with letters, digits and _ . / -"
        )));
    };
    Ok(Op::CallTool {
        name: name.to_owned(),
        arguments: params::object(params, "arguments")?,
    })
}

/// One run of a tool, asked for in another way than with `mcp.tool.invoke`: what is refused there
/// is refused here, in the same words. The arguments are JSON text.
pub fn run_of(tool_id: &str, arguments: Option<&str>) -> Result<Op, Problem> {
    let length = arguments.map_or(0, str::len) + tool_id.len() + 40;
    let params = ObjectWriter::with_capacity(length)
        .string("toolId", tool_id)
        .optional_raw("arguments", arguments);
    op(Asked::INVOKE, &params.finish())
}

/// The kind of result that a method has.
pub(super) fn shape(method: &str) -> Shape {
    if method == Asked::INVOKE {
        Shape::Tool
    } else {
        Shape::Cacheable
    }
}

/// Refuses members that mean nothing here; `_meta` is JSON-RPC's neighbour and may stand anywhere.
fn only(params: &str, known: &[&str]) -> Result<(), Problem> {
    let unknown = scan::members(params)
        .map(|(name, _)| name)
        .find(|name| name != "_meta" && !known.contains(&name.as_ref()));
    match unknown {
        None => Ok(()),
        Some(name) => {
            let shown = crate::render::shorten(&name, 64);
            Err(bad(format!("the params have no member {shown:?}")))
        }
    }
}
