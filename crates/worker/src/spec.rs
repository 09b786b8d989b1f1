//! Writing a [`ToolSpec`] with only what differs from the usual.

use mainstay_contract::error::Code;
use mainstay_contract::replay::Replay;
use mainstay_contract::tool::{Annotations, Pace, Rejections, ToolSpec};
use serde_json::{Value, json};

/// Starts the spec of a tool. Until told otherwise it takes no arguments, may do anything, is
/// never replayed, and has schema version 1.
pub fn tool_spec(name: &str, description: &str) -> SpecBuilder {
    SpecBuilder(ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: json!({"type": "object", "properties": {}, "additionalProperties": false}),
        output_schema: None,
        annotations: Annotations {
            destructive_hint: true,
            ..Annotations::default()
        },
        schema_version: 1,
        tooling_version: String::new(),
        replay: Replay::NeverReplay,
        timeout_ms: None,
        errors: Vec::new(),
        aliases: Vec::new(),
        argument_aliases: Vec::new(),
        rejections: Rejections::Plain,
        pace: Pace::Short,
        tasks: false,
    })
}

/// Builds a [`ToolSpec`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SpecBuilder(ToolSpec);

impl SpecBuilder {
    /// Schema of the arguments.
    pub fn input(mut self, schema: Value) -> Self {
        self.0.input_schema = schema;
        self
    }

    /// Schema of the answer.
    pub fn output(mut self, schema: Value) -> Self {
        self.0.output_schema = Some(schema);
        self
    }

    /// The tool only reads, from a closed world, and may run again after a loss.
    pub fn read_only(mut self) -> ToolSpec {
        self.0.annotations = Annotations::READ_ONLY;
        self.0.replay = Replay::Convergent;
        self.0
    }

    /// The tool has effects: what may happen after a loss, and what clients are told.
    pub fn effects(mut self, replay: Replay, annotations: Annotations) -> ToolSpec {
        self.0.replay = replay;
        self.0.annotations = annotations;
        self.0
    }

    /// Monotonic version of arguments, answer and codes.
    pub fn schema_version(mut self, version: u32) -> Self {
        self.0.schema_version = version;
        self
    }

    /// Version of the implementation.
    pub fn tooling_version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.0.tooling_version);
        self
    }

    /// Codes beyond those that any call can get.
    pub fn errors(mut self, codes: &[Code]) -> Self {
        self.0.errors = codes.to_vec();
        self
    }

    /// Time for a call, where the host's default does not fit.
    pub fn timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.0.timeout_ms = Some(timeout_ms);
        self
    }

    /// Arguments that do not fit are answered with `code`, `message` and `hint` in the direct
    /// dialect, too.
    pub const fn coded_rejections(mut self) -> Self {
        self.0.rejections = Rejections::Coded;
        self
    }

    /// Calls may wait for minutes, for instance for other work to end. They run beside the worker's
    /// pool, so that short calls never queue behind them.
    pub const fn long_running(mut self) -> Self {
        self.0.pace = Pace::Long;
        self
    }

    /// Calls may run as tasks, which outlive their client and the host.
    pub const fn tasks(mut self) -> Self {
        self.0.tasks = true;
        self
    }

    /// A deprecated name that is still accepted.
    pub fn alias(mut self, name: &str) -> Self {
        self.0.aliases.push(name.to_owned());
        self
    }

    /// Another spelling that models use for an argument.
    pub fn argument_alias(mut self, written: &str, meant: &str) -> Self {
        self.0
            .argument_aliases
            .push((written.to_owned(), meant.to_owned()));
        self
    }
}
