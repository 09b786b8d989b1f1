//! The language of pack workers: the private protocol of `contract::rpc`.

use std::sync::LazyLock;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::CallId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Problem, ToolReply};
use mainstay_contract::rpc::{
    Answer, FromWorker, Op, PROTOCOL, Probed, Progress, Ready, Stream, ToWorker,
};
use mainstay_contract::tool::{Annotations, Catalog, Pace, Rejections, ToolSpec};
use serde_json::json;

use super::body::{Call, Heard, Tongue};
use super::plan::Tool;

/// Name of the simulated pack.
pub(super) const PACK: &str = "simulated";
/// Build that its workers announce.
pub(super) const BUILD: &str = "1";

/// Number of a call that is never sent.
const STRANGER: u64 = 9_999_999;

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    let mut tools: Vec<ToolSpec> = Tool::ALL.into_iter().map(spec).collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    Catalog {
        pack: PACK.to_owned(),
        tools,
        ..Catalog::default()
    }
});

static READY: LazyLock<String> = LazyLock::new(|| {
    line(&FromWorker::Ready(Ready {
        protocol: PROTOCOL,
        build: BUILD.to_owned(),
        catalog: CATALOG.clone(),
        facts: Json::empty_object(),
    }))
});

/// What the simulated pack offers.
pub(super) fn catalog() -> Catalog {
    CATALOG.clone()
}

fn spec(tool: Tool) -> ToolSpec {
    ToolSpec {
        name: tool.name().to_owned(),
        description: "A simulated tool.".to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {"key": {"type": "string"}, "size": {"type": "integer"}},
            "required": ["key", "size"],
        }),
        output_schema: None,
        annotations: Annotations::default(),
        schema_version: 1,
        tooling_version: "0".to_owned(),
        replay: tool.replay(),
        timeout_ms: None,
        errors: Vec::new(),
        aliases: Vec::new(),
        argument_aliases: Vec::new(),
        rejections: Rejections::Coded,
        pace: Pace::Short,
        tasks: false,
    }
}

/// The protocol.
#[derive(Debug)]
pub(super) struct Rpc;

impl Tongue for Rpc {
    fn greeting(&self) -> Option<String> {
        Some(READY.clone())
    }

    fn hear(&mut self, line: &[u8]) -> Heard {
        let Ok(message) = serde_json::from_slice::<ToWorker>(line) else {
            return Heard::Nothing;
        };
        match message {
            ToWorker::Start(_) => Heard::Nothing,
            ToWorker::Ping { nonce } => Heard::Say(self::line(&FromWorker::Pong { nonce })),
            ToWorker::Drain {} => Heard::Drain,
            ToWorker::Cancel { call } => Heard::Cancel(call.to_string()),
            ToWorker::Call(sent) => {
                let (name, arguments, probe) = match sent.op {
                    Op::Tool {
                        name, arguments, ..
                    } => (name, arguments, false),
                    Op::Probe { name, arguments } => (name, arguments, true),
                    _ => return Heard::Nothing,
                };
                let arguments = arguments.to_value().unwrap_or_default();
                let Some(tool) = Tool::named(&name) else {
                    return Heard::Nothing;
                };
                let size = arguments["size"].as_u64().unwrap_or(0);
                Heard::Call(Call {
                    reference: sent.call.to_string(),
                    tool,
                    key: arguments["key"].as_str().unwrap_or_default().to_owned(),
                    size: usize::try_from(size).unwrap_or(0),
                    token: None,
                    probe,
                })
            }
        }
    }

    fn answer(&self, call: &Call) -> String {
        answered(call, Answer::Tool(reply(call)))
    }

    fn refusal(&self, call: &Call) -> String {
        answered(call, Answer::Failed(Problem::of(ErrorKind::NotFound)))
    }

    fn cancelled(&self, call: &Call) -> Option<String> {
        let cancelled = Answer::Failed(Problem::of(ErrorKind::Cancelled));
        Some(answered(call, cancelled))
    }

    fn probed(&self, call: &Call, applied: bool) -> String {
        let probed = if applied {
            Probed::Applied(reply(call))
        } else {
            Probed::NotApplied {}
        };
        answered(call, Answer::Probed(probed))
    }

    fn progress(&self, call: &Call, step: u64) -> Option<String> {
        let progress = Progress {
            message: "working".to_owned(),
            done: Some(step),
            total: None,
            stream: Stream::Info,
            phase: "work".to_owned(),
        };
        let call = number(call);
        Some(line(&FromWorker::Progress { call, progress }))
    }

    fn stranger(&self) -> String {
        let call = CallId::new(STRANGER);
        let answer = Answer::Tool(ToolReply {
            json: Json::empty_object(),
            text: None,
        });
        line(&FromWorker::Answer { call, answer })
    }
}

fn reply(call: &Call) -> ToolReply {
    let json = json!({"key": call.key, "pad": "x".repeat(call.size)});
    ToolReply {
        json: json.into(),
        text: None,
    }
}

fn answered(call: &Call, answer: Answer) -> String {
    let call = number(call);
    line(&FromWorker::Answer { call, answer })
}

fn number(call: &Call) -> CallId {
    CallId::new(call.reference.parse().unwrap_or(STRANGER))
}

fn line(message: &FromWorker) -> String {
    serde_json::to_string(message).unwrap_or_default()
}
