//! The language of wrapped servers: MCP, legacy and modern.
//!
//! The server keeps a session, as many real ones do: a legacy call before the handshake is an
//! error, and every answer of `get` names the log level that the client set.

use std::collections::BTreeSet;

use mainstay_host::wrap::{Condition, OnTimeout, ProbeRule, Rules, ToolRules};
use serde_json::{Value, json};

use super::body::{Call, Heard, Tongue};
use super::book::Book;
use super::plan::{Backend, Tool};

/// The tool that knows whether an effect was made.
const LOOKUP: &str = "lookup";

/// What the operator says about the simulated server.
pub(super) fn rules(has_tasks: bool) -> Rules {
    let mut rules = Rules {
        tasks: has_tasks,
        ..Rules::default()
    };
    if has_tasks {
        rules.on_timeout = OnTimeout::Detach;
    }
    for tool in Tool::ALL {
        let found = |equals: bool| Condition {
            path: "/structuredContent/found".to_owned(),
            equals: json!(equals),
        };
        let probe = (tool == Tool::Put).then(|| ProbeRule {
            tool: LOOKUP.to_owned(),
            arguments: [("key".to_owned(), json!("/key"))].into(),
            applied: found(true),
            not_applied: found(false),
        });
        let of_tool = ToolRules {
            replay: Some(tool.replay()),
            probe,
            ..ToolRules::default()
        };
        rules.tools.insert(tool.name().to_owned(), of_tool);
    }
    rules
}

/// The revisions that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    Legacy,
    Both,
}

/// One server process.
#[derive(Debug)]
pub(super) struct Mcp {
    book: Book,
    era: Era,
    /// Its key among the servers of a file.
    key: Option<String>,
    is_initialized: bool,
    level: String,
    subscribed: BTreeSet<String>,
}

impl Mcp {
    pub(super) fn new(book: Book, era: Era, key: Option<String>) -> Self {
        Self {
            book,
            era,
            key,
            is_initialized: false,
            level: String::new(),
            subscribed: BTreeSet::new(),
        }
    }

    /// A call of the other server of its file must not come.
    fn check_key(&self, call: &str) {
        let number = call.rsplit('-').next().and_then(|id| id.parse().ok());
        let wanted = number.map(Backend::key_of);
        if let (Some(key), Some(wanted)) = (self.key.as_deref(), wanted)
            && key != wanted
        {
            let detail = format!("{call} reaches {key}");
            self.book.violation("a call reaches another server", detail);
        }
    }

    /// The scheme of its resources.
    fn scheme(&self) -> &str {
        self.key.as_deref().unwrap_or("simulated")
    }

    fn request(&mut self, id: &Value, method: &str, params: &Value) -> Heard {
        let meta = &params["_meta"];
        let is_modern = meta
            .get("io.modelcontextprotocol/protocolVersion")
            .is_some();
        let result = match method {
            "initialize" => {
                self.is_initialized = true;
                let capabilities = match self.key {
                    Some(_) => json!({"tools": {}, "resources": {"subscribe": true}}),
                    None => json!({"tools": {}, "logging": {}}),
                };
                json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": capabilities,
                    "serverInfo": {"name": "simulated", "version": "0"},
                })
            }
            "ping" => json!({}),
            _ if !self.is_initialized && !is_modern && method != "server/discover" => {
                self.book
                    .violation("a session is not restored", format!("{method} {id}"));
                return Heard::Say(error(id, "the session is not initialized"));
            }
            "server/discover" if self.era == Era::Legacy => {
                return Heard::Say(error(id, "no such method"));
            }
            "server/discover" => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private",
                "serverInfo": {"name": "simulated", "version": "0"},
            }),
            "logging/setLevel" => {
                self.level = params["level"].as_str().unwrap_or_default().to_owned();
                json!({})
            }
            "resources/subscribe" => {
                let uri = params["uri"].as_str().unwrap_or_default();
                self.subscribed.insert(uri.to_owned());
                json!({})
            }
            "resources/unsubscribe" => {
                self.subscribed
                    .remove(params["uri"].as_str().unwrap_or_default());
                json!({})
            }
            "resources/list" => {
                let uri = format!("{}:///all", self.scheme());
                json!({"resources": [{"name": "all", "uri": uri}], "resultType": "complete",
                    "ttlMs": 0, "cacheScope": "private"})
            }
            "resources/templates/list" => json!({"resourceTemplates": [],
                "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}),
            "tools/list" => {
                let names = Tool::ALL.into_iter().map(Tool::name).chain([LOOKUP]);
                let tools: Vec<Value> = names.map(definition).collect();
                json!({"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
            }
            "tools/call" => return self.call(id, params, is_modern),
            _ => return Heard::Say(error(id, "no such method")),
        };
        Heard::Say(response(id, &result))
    }

    fn call(&self, id: &Value, params: &Value, is_modern: bool) -> Heard {
        let arguments = &params["arguments"];
        let key = arguments["key"].as_str().unwrap_or_default().to_owned();
        let name = params["name"].as_str().unwrap_or_default();
        if name == LOOKUP {
            let found = self.book.lock().is_applied(&key);
            let result = tool_result(&json!({"found": found, "key": key}), is_modern);
            return Heard::Say(response(id, &result));
        }
        let Some(tool) = Tool::named(name) else {
            return Heard::Say(error(id, "no such tool"));
        };
        self.check_key(&key);
        let size = arguments["size"].as_u64().unwrap_or(0);
        let token = params["_meta"].get("progressToken").map(Value::to_string);
        Heard::Call(Call {
            reference: id.to_string(),
            tool,
            key,
            size: usize::try_from(size).unwrap_or(0),
            token,
            probe: false,
        })
    }
}

impl Tongue for Mcp {
    fn greeting(&self) -> Option<String> {
        None
    }

    fn hear(&mut self, line: &[u8]) -> Heard {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            self.book
                .violation("a server gets junk", String::from_utf8_lossy(line));
            return Heard::Nothing;
        };
        let method = message["method"].as_str().unwrap_or_default();
        match (message.get("id"), method) {
            (Some(id), _) => self.request(id, method, &message["params"]),
            (None, "notifications/cancelled") => {
                Heard::Cancel(message["params"]["requestId"].to_string())
            }
            (None, _) => Heard::Nothing,
        }
    }

    fn answer(&self, call: &Call) -> String {
        let content = json!({
            "key": call.key, "level": self.level, "pad": "x".repeat(call.size),
        });
        let mut said = String::new();
        for uri in &self.subscribed {
            let updated = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated",
                "params": {"uri": uri}});
            said += &format!("{updated}\n");
        }
        said + &raw_response(&call.reference, &tool_result(&content, true))
    }

    fn refusal(&self, call: &Call) -> String {
        let content = json!([{"type": "text", "text": "{\"message\":\"not found\"}"}]);
        let result = json!({"content": content, "isError": true, "resultType": "complete"});
        raw_response(&call.reference, &result)
    }

    fn cancelled(&self, _: &Call) -> Option<String> {
        None
    }

    fn probed(&self, _: &Call, _: bool) -> String {
        String::new()
    }

    fn progress(&self, call: &Call, step: u64) -> Option<String> {
        let token = call.token.as_ref()?;
        Some(format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":\
             {{\"progressToken\":{token},\"progress\":{step},\"message\":\"{key}\"}}}}",
            key = call.key,
        ))
    }

    fn stranger(&self) -> String {
        raw_response("9999999", &json!({}))
    }
}

fn definition(name: &str) -> Value {
    json!({
        "name": name, "description": "A simulated tool.",
        "inputSchema": {"type": "object", "properties": {"key": {"type": "string"}}},
    })
}

fn tool_result(content: &Value, is_modern: bool) -> Value {
    let mut result = json!({
        "content": [{"type": "text", "text": "done"}], "structuredContent": content,
    });
    if is_modern {
        result["resultType"] = json!("complete");
    }
    result
}

fn response(id: &Value, result: &Value) -> String {
    raw_response(&id.to_string(), result)
}

fn raw_response(id: &str, result: &Value) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
}

fn error(id: &Value, message: &str) -> String {
    let error = json!({"code": -32600, "message": message});
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}")
}
