//! A tool: a function from arguments to a reply, and perhaps a probe.
//!
//! [`Tool`] takes the arguments as the client's own JSON text. [`typed`] makes a tool of a
//! function with typed arguments, which is what most packs want.
//!
//! Deliberately absent: schemas. The host checks arguments against the [`crate::ToolSpec`] before
//! a call is sent and answers against it after; a tool only reads them into its types.

use std::fmt;
use std::marker::PhantomData;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::Problem;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::context::Context;
use crate::reply::Reply;

/// One operation of a pack. Calls may run at the same time on several threads.
pub trait Tool: Send + Sync {
    /// Does the work.
    fn call(&self, arguments: &Json, context: &Context) -> Result<Reply, Problem>;

    /// False without a probe, so that no tool declares one that it lacks.
    fn has_probe(&self) -> bool {
        true
    }

    /// Finds out whether an earlier attempt with these arguments took effect. Only tools that
    /// declare `Replay::ProbeRequired` are ever asked.
    fn probe(&self, arguments: &Json, context: &Context) -> Result<Probe, Problem> {
        let _ = (arguments, context);
        Ok(Probe::Unknown)
    }
}

/// The result of a probe.
#[derive(Debug)]
pub enum Probe {
    /// The effect did not take place: running the call is safe.
    NotApplied,
    /// It did; this is the answer the lost attempt would have given.
    Applied(Reply),
    /// It cannot be said.
    Unknown,
}

/// A tool whose arguments are read into `A` first.
pub struct Typed<A, C, P> {
    call: C,
    probe: P,
    has_probe: bool,
    arguments: PhantomData<fn() -> A>,
}

type NoProbe<A> = fn(A, &Context) -> Result<Probe, Problem>;

/// Makes a tool of a function with typed arguments.
pub fn typed<A, C>(call: C) -> Typed<A, C, NoProbe<A>>
where
    A: DeserializeOwned,
    C: Fn(A, &Context) -> Result<Reply, Problem> + Send + Sync,
{
    Typed {
        call,
        probe: |_, _| Ok(Probe::Unknown),
        has_probe: false,
        arguments: PhantomData,
    }
}

impl<A, C, P> Typed<A, C, P> {
    /// Adds the probe of a `Replay::ProbeRequired` tool.
    pub fn probe<Q>(self, probe: Q) -> Typed<A, C, Q>
    where
        Q: Fn(A, &Context) -> Result<Probe, Problem> + Send + Sync,
    {
        Typed {
            call: self.call,
            probe,
            has_probe: true,
            arguments: PhantomData,
        }
    }
}

impl<A, C, P> Tool for Typed<A, C, P>
where
    A: DeserializeOwned,
    C: Fn(A, &Context) -> Result<Reply, Problem> + Send + Sync,
    P: Fn(A, &Context) -> Result<Probe, Problem> + Send + Sync,
{
    fn call(&self, arguments: &Json, context: &Context) -> Result<Reply, Problem> {
        (self.call)(read(arguments)?, context)
    }

    fn has_probe(&self) -> bool {
        self.has_probe
    }

    fn probe(&self, arguments: &Json, context: &Context) -> Result<Probe, Problem> {
        (self.probe)(read(arguments)?, context)
    }
}

impl<A, C, P> fmt::Debug for Typed<A, C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed").finish_non_exhaustive()
    }
}

fn read<A: DeserializeOwned>(arguments: &Json) -> Result<A, Problem> {
    serde_json::from_str(arguments.as_str()).map_err(|error| {
        let message = format!("the arguments do not fit: {error}");
        let errors = json!([{"path": "", "msg": message}]);
        let details = json!({"ok": false, "reason": "validation_failed", "errors": errors});
        Problem::new(ErrorKind::InvalidArguments, message).with_details(Json::from(details))
    })
}
