//! How a tool runs: the library with which a tool pack is written.
//!
//! A pack is a value: [`Pack`] with its tools ([`Tool`], most often made by [`typed`]), resources,
//! prompts and completions. [`run`] makes a worker process of it. Tools get a [`Context`] for
//! cancellation, progress and subprocesses, and give a [`Reply`] or a [`Problem`].
//!
//! ```no_run
//! use mainstay_worker::{Pack, Porcelain, Reply, ToolSpec, run, typed};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! struct Greet {
//!     name: String,
//! }
//!
//! fn spec() -> ToolSpec {
//!     mainstay_worker::tool_spec("greet", "Greets a person.")
//!         .input(serde_json::json!({
//!             "type": "object", "additionalProperties": false, "required": ["name"],
//!             "properties": {"name": {"type": "string"}},
//!         }))
//!         .read_only()
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     run(env!("CARGO_PKG_VERSION"), |_settings| {
//!         Ok(Pack::new("greeter").tool(spec(), typed(|greet: Greet, _context| {
//!             let text = format!("hello, {}", greet.name);
//!             Ok(Reply::json(&serde_json::json!({"text": text}))
//!                 .porcelain(move || Porcelain::summary(text)))
//!         })))
//!     })
//! }
//! ```
//!
//! This crate must never know a client, a transport, a runtime or the network; what it speaks to
//! the host is the private protocol of `mainstay_contract::rpc`.

mod build_id;
mod cancel;
mod completion;
mod context;
mod digest;
mod dispatch;
mod inside;
mod pack;
mod progress;
mod prompt;
mod reply;
mod resource;
#[cfg(unix)]
mod rooted;
mod run;
mod settings;
mod spec;
#[cfg(unix)]
mod subprocess;
mod sync;
pub mod testing;
mod tool;
mod warning;

pub use build_id::build_id;
pub use cancel::CancelToken;
pub use completion::Completions;
pub use context::Context;
pub use digest::Digest;
pub use pack::Pack;
pub use prompt::{PromptArguments, PromptReply, Prompts};
pub use reply::Reply;
pub use resource::{ResourceText, Resources};
#[cfg(unix)]
pub use rooted::{Entry, RootedDir, RootedError, Survey};
pub use run::{Ended, Pipes, run, serve};
pub use settings::{Settings, Unable};
pub use spec::{SpecBuilder, tool_spec};
#[cfg(unix)]
pub use subprocess::{Captured, Output, Subprocess};
pub use tool::{Probe, Tool, Typed, typed};
pub use warning::warn;

// What an author needs of the contract, so that a pack depends on this crate alone.
pub use mainstay_contract::error::{Code, ErrorKind};
pub use mainstay_contract::id::{CallId, Generation};
pub use mainstay_contract::json::{Json, ObjectWriter, push_pointer_part};
pub use mainstay_contract::outcome::Problem;
pub use mainstay_contract::render::{self, Bounds, Porcelain, RenderMode};
pub use mainstay_contract::replay::Replay;
pub use mainstay_contract::rpc::{Completion, CompletionTarget, Progress, Stream};
pub use mainstay_contract::scan;
pub use mainstay_contract::tool::{
    Annotations, Catalog, PromptArgument, PromptSpec, REQUIRED_MARKER, ResourceSpec,
    ResourceTemplate, ToolSpec,
};
pub use mainstay_contract::uri;

/// Runs the examples of the skill for authors as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../skills/mcp-bootstrap/references/fresh-server.md")]
struct SkillExamples;
