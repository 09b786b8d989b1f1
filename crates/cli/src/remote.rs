//! A host that is asked over HTTP, for one-off commands.
//!
//! What it answers is shown as a local host's answer is: the same text, the same exit codes.

use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::outcome::VERDICT_HEADER;
use mainstay_contract::uri::encode_segment;
use serde_json::{Map, Value, json};
use ureq::Agent;
use ureq::http::Response;

use crate::answer::{Refused, ToolAnswer, Wants, is_failure, verdict_code};
use crate::exit::{self, Failure};

/// Time to reach the host.
const CONNECT: Duration = Duration::from_secs(10);
/// Longer than any call may take.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest answer that is read.
const MAX_BODY: u64 = 64 * 1024 * 1024;
/// Members of a catalog entry that stand in the contract of a definition, in its order.
const CONTRACT: [&str; 5] = [
    "schemaVersion",
    "toolingVersion",
    "replay",
    "timeoutMs",
    "errors",
];

/// A host, and what it must be shown.
#[derive(Debug)]
pub(crate) struct Remote {
    url: String,
    token: Option<String>,
    agent: Agent,
}

impl Remote {
    /// The host at a URL such as `http://127.0.0.1:8080`.
    pub(crate) fn new(url: &str, token: Option<String>) -> Result<Self, Failure> {
        let is_http = url.starts_with("http://") || url.starts_with("https://");
        if !is_http || url.contains(['?', '#', '@']) {
            let failure = Failure::input(anyhow!("--url {url} is not the URL of a host"));
            return Err(failure.hint("name it as in --url http://127.0.0.1:8080"));
        }
        let config = Agent::config_builder()
            // The builder's default is whatever the environment says.
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(PATIENCE))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .user_agent(concat!("mainstay/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            token,
            agent: config.into(),
        })
    }

    /// The definitions of all tools, as `tools/list` has them.
    pub(crate) fn tools(&self) -> Result<Vec<Value>, Failure> {
        let mut request = self.agent.get(format!("{}/v1/tools", self.url));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let answer = self.answer(request.call())?;
        // Whoever sees the list may call: a later 401 is a tool's own answer.
        if answer.status == 401 {
            return Err(self.asks_for_a_token());
        }
        let mut catalog: Value = self.parsed(&answer)?;
        if answer.status != 200 {
            return Err(match answer.status {
                404 => self.is_no_host(),
                _ => self.refused(&catalog),
            });
        }
        match catalog.get_mut("tools").map(Value::take) {
            Some(Value::Array(tools)) if catalog.get("server").is_some() => {
                Ok(tools.into_iter().map(definition).collect())
            }
            _ => Err(self.is_no_host()),
        }
    }

    /// Calls a tool.
    pub(crate) fn call(
        &self,
        tool: &str,
        arguments: &Json,
        wants: Wants,
    ) -> Result<ToolAnswer, Failure> {
        let url = format!("{}/v1/tool/{}", self.url, encode_segment(tool));
        let accept = match wants {
            Wants::Text => "text/plain",
            Wants::Json => "application/json",
        };
        let mut request = self
            .agent
            .post(url)
            .header("Accept", accept)
            .content_type("application/json");
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let body = ObjectWriter::with_capacity(arguments.len() + 16);
        let body = body.raw("arguments", arguments.as_str()).finish();
        let answer = self.answer(request.send(body))?;
        if answer.status == 200 && wants == Wants::Text {
            return Ok(ToolAnswer {
                code: match answer.says_no {
                    true => exit::NO,
                    false => exit::SUCCESS,
                },
                text: answer.text,
                json: Value::Null,
            });
        }
        let mut envelope: Value = self.parsed(&answer)?;
        if answer.status == 200 {
            return match envelope.get_mut("data").map(Value::take) {
                Some(json) => Ok(ToolAnswer {
                    code: verdict_code(&json),
                    text: String::new(),
                    json,
                }),
                None => Err(self.is_no_host()),
            };
        }
        failed(&envelope).ok_or_else(|| self.is_no_host())
    }

    fn answer(&self, sent: Result<Response<ureq::Body>, ureq::Error>) -> Result<Answer, Failure> {
        let unreachable = |error: ureq::Error| {
            let failure = anyhow::Error::new(error).context(format!("cannot reach {}", self.url));
            Failure::input(failure).hint("start a host there with mainstay serve --http ADDR:PORT")
        };
        let mut response = sent.map_err(unreachable)?;
        let status = response.status().as_u16();
        let says_no = response.headers().contains_key(VERDICT_HEADER);
        let mut text = String::new();
        response
            .body_mut()
            .as_reader()
            .take(MAX_BODY + 1)
            .read_to_string(&mut text)
            .with_context(|| format!("the answer of {} broke off", self.url))
            .map_err(Failure::input)?;
        if text.len() as u64 > MAX_BODY {
            let said = anyhow!("the answer of {} is too long", self.url);
            return Err(Failure::input(said));
        }
        Ok(Answer {
            status,
            says_no,
            text,
        })
    }

    fn parsed(&self, answer: &Answer) -> Result<Value, Failure> {
        serde_json::from_str(&answer.text).map_err(|_| self.is_no_host())
    }

    /// What a refusal that is no envelope says.
    fn refused(&self, payload: &Value) -> Failure {
        let message = payload.get("message").and_then(Value::as_str);
        match (message, payload.as_object()) {
            (Some(message), Some(facts)) if facts.get("code").is_some_and(Value::is_string) => {
                Refused::Problem {
                    message: message.to_owned(),
                    facts: facts.clone(),
                }
                .into()
            }
            _ => self.is_no_host(),
        }
    }

    fn asks_for_a_token(&self) -> Failure {
        let (said, hint) = match self.token {
            None => (
                "asks for a token",
                "set MAINSTAY_TOKEN_FILE, or MAINSTAY_TOKEN",
            ),
            Some(_) => (
                "refuses the token",
                "look at MAINSTAY_TOKEN_FILE and MAINSTAY_TOKEN",
            ),
        };
        Failure::input(anyhow!("{} {said}", self.url)).hint(hint)
    }

    fn is_no_host(&self) -> Failure {
        let said = anyhow!("{} answers, but not as a Mainstay host does", self.url);
        Failure::input(said).hint("name the URL of mainstay serve --http, without a path")
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    /// True for a text whose tool answered "no".
    says_no: bool,
    text: String,
}

/// What an error envelope says, as a local host would say it; nothing if it is none.
fn failed(envelope: &Value) -> Option<ToolAnswer> {
    let error = envelope.get("error")?;
    let message = error.get("message")?.as_str()?;
    let details = error.get("details")?.as_object()?;
    details.get("code")?.as_str()?;
    let answer = ToolAnswer::problem(message, details);
    // A wrapped server's own words.
    let own = details.get("details").filter(|own| is_failure(own));
    Some(match own {
        Some(result) => ToolAnswer::of_failure(result.clone(), answer.text),
        None => answer,
    })
}

/// The definition of a tool, from its entry in the catalog.
fn definition(mut entry: Value) -> Value {
    let Some(members) = entry.as_object_mut() else {
        return entry;
    };
    members.shift_remove("toolId");
    if members.contains_key("replay") {
        let mut contract = Map::new();
        for name in CONTRACT {
            if let Some(value) = members.get(name) {
                contract.insert(name.to_owned(), value.clone());
            }
        }
        for name in ["replay", "timeoutMs", "errors"] {
            members.shift_remove(name);
        }
        members.insert("_meta".to_owned(), json!({ meta::CONTRACT: contract }));
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_becomes_the_definition_that_it_was() {
        let entry = json!({"toolId": "mcp.tool:a", "name": "a", "schemaVersion": 1,
            "toolingVersion": "1", "replay": "convergent", "timeoutMs": 5, "errors": []});
        assert_eq!(
            definition(entry).to_string(),
            r#"{"name":"a","schemaVersion":1,"toolingVersion":"1","_meta":{"io.mainstay/contract":{"schemaVersion":1,"toolingVersion":"1","replay":"convergent","timeoutMs":5,"errors":[]}}}"#
        );
        let foreign = json!({"name": "b", "_meta": {"x": 1}});
        assert_eq!(definition(foreign.clone()), foreign);
    }
}
