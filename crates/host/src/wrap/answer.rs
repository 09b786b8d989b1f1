//! How requests end: the server's answers with the few changes that may be made to them, and our
//! own answers in the server's place.

use mainstay_contract::dialect::encode;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, Generation, RequestId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::outcome::{Forwarded, Outcome, Problem, Success};
use mainstay_contract::render::{self, Bounds, RenderMode};
use mainstay_contract::rpc::Answer;
use mainstay_contract::scan;
use mainstay_contract::telemetry::{SchemaMismatch, Side};
use mainstay_kernel::action::{Delivery, End};
use serde_json::json;

use super::client::unknown_method;
use super::engine::Engine;
use super::lists::Kind;
use super::output::Bounded;
use super::remembered::{Discovered, Remembered};
use super::tools::{Learned, Standing};
use super::{edit, probe};
use crate::clock::iso_now;
use crate::system_tools;

/// `_meta` key of the note about a restart.
const RESTART_META: &str = "io.mainstay/restart";
/// `_meta` key with which a modern request asks for log lines.
const LOG_LEVEL_META: &str = "io.modelcontextprotocol/logLevel";
/// Progress tokens that are remembered as not to be passed on.
const SILENCED: usize = 1024;

impl Engine {
    /// What a server's answer to a call means, before the kernel hears of it.
    pub(super) fn called(
        &mut self,
        call: CallId,
        text: &str,
        result: Option<&str>,
        generation: Generation,
    ) -> Answer {
        if self.kernel.is_probing(call) {
            let tool = self
                .passed
                .get(&call)
                .and_then(|passed| passed.tool.as_ref());
            let rules = tool.and_then(|tool| self.common.rules.tools.get(tool));
            return match rules.and_then(|rules| rules.probe.as_ref()) {
                Some(rule) => Answer::Probed(probe::judge(rule, result)),
                None => Answer::Failed(Problem::of(ErrorKind::OutcomeUnknown)),
            };
        }
        let says_no = |result: &str| scan::member(result, "isError") == Some("true");
        let is_error = result.is_none_or(says_no);
        self.remember(call, text, result);
        let mut line = Json::from_scanned(text);
        // One that was given up is dropped by the kernel; nothing of it counts.
        let live = self.kernel.sent(generation, call).is_some();
        if let (Some(result), true) = (result, live) {
            match self.pass_result(call, text, result, generation) {
                Ok(Some(changed)) => line = changed,
                Ok(None) => {}
                Err(problem) => return Answer::Failed(problem),
            }
        }
        Answer::Forwarded(Forwarded { line, is_error })
    }

    /// The next run need not ask what this one was answered.
    fn remember(&mut self, call: CallId, text: &str, result: Option<&str>) {
        let Some(remembered) = &mut self.common.remembered else {
            return;
        };
        let passed = self.passed.get(&call);
        let method = passed.map(|passed| passed.method.as_str());
        // A question that was put wrongly says nothing about the server.
        let has_version = passed
            .and_then(|passed| passed.param("_meta"))
            .and_then(|meta| scan::member(meta, "io.modelcontextprotocol/protocolVersion"))
            .is_some();
        match (method, result) {
            (Some("server/discover"), Some(result)) => {
                remembered.learn(Discovered::Modern(Json::from_scanned(result)));
            }
            (Some("server/discover"), None) if !is_modern_error(text) && has_version => {
                remembered.learn(Discovered::Legacy);
            }
            // One that refuses the older way is not what it was.
            (Some("initialize"), None) => remembered.forget(),
            _ => {}
        }
    }

    /// Takes note of a result on its way, and changes it where it must be changed.
    fn pass_result(
        &mut self,
        call: CallId,
        text: &str,
        result: &str,
        generation: Generation,
    ) -> Result<Option<Json>, Problem> {
        let Some(passed) = self.passed.get(&call) else {
            return Ok(None);
        };
        let method = passed.method.clone();
        let params = passed.params().map(str::to_owned);
        if self.told.answered(&method, params.as_deref(), result) {
            self.retell(generation, &method, params.as_deref());
        }
        let mut changed: Option<String> = None;
        match method.as_str() {
            "tools/call" => {
                self.shadow_check(call, result);
                if let Some(limit) = self.common.rules.max_output {
                    match self.outputs.bound(self.clock.now(), result, limit) {
                        Bounded::AsItIs => {}
                        Bounded::Cut(cut) => changed = Some(cut),
                        Bounded::TooLarge(problem) => return Err(*problem),
                    }
                }
            }
            "initialize" | "server/discover" => {
                changed = self.with_resources(result);
                self.lends_resources = changed.is_some();
            }
            _ => {}
        }
        if let Some(kind) = Kind::of_method(&method) {
            let cursor = self
                .passed
                .get(&call)
                .and_then(|passed| passed.param("cursor"))
                .and_then(scan::unquote)
                .map(std::borrow::Cow::into_owned);
            let serves = self.serving() == Some(generation);
            if kind == Kind::Tools {
                if serves {
                    self.learn(result);
                }
                changed = self.visible_tools(result);
                if cursor.is_none() {
                    self.list_begun = self.tools.epoch();
                }
            }
            let seen = self.seen.entry(kind).or_default();
            let follows = seen.page(kind, cursor.as_deref(), result);
            if follows && serves && kind == Kind::Tools && seen.next().is_none() {
                self.tools_complete(self.list_begun);
            }
        }
        if method != "initialize"
            && result.starts_with('{')
            && let Some(generation) = self.restarted.take()
        {
            // A modern client says with each request whether it wants to hear of such things.
            let wants_log = self
                .passed
                .get(&call)
                .and_then(|passed| passed.param("_meta"))
                .and_then(|meta| scan::member(meta, LOG_LEVEL_META))
                .is_some();
            if wants_log && !self.told.has_session() {
                self.log_restart(generation);
            }
            let note = json!({"generation": generation, "time": iso_now()}).to_string();
            let result = changed.as_deref().unwrap_or(result);
            changed = Some(edit::with_inner(result, "_meta", RESTART_META, &note));
        }
        Ok(changed.map(|result| edit::with_result(text, &result)))
    }

    /// Whether a result is what the tool declares; a difference is told, nothing else.
    fn shadow_check(&mut self, call: CallId, result: &str) {
        let Some(name) = self
            .passed
            .get(&call)
            .and_then(|passed| passed.tool.clone())
        else {
            return;
        };
        let complete = matches!(
            scan::member(result, "resultType"),
            None | Some("\"complete\"")
        );
        if scan::member(result, "isError") == Some("true") || !complete {
            return;
        }
        let structured = scan::member(result, "structuredContent");
        let violation = self
            .tools
            .get(&name)
            .and_then(|tool| tool.mismatch(structured));
        if let Some(violation) = violation {
            self.kernel.note_mismatch(SchemaMismatch {
                tool: name,
                side: Side::Output,
                path: violation.path,
                message: violation.message,
            });
        }
    }

    /// With kept outputs there is something to read, whatever the server offers itself.
    fn with_resources(&self, result: &str) -> Option<String> {
        self.common.rules.max_output?;
        let capabilities = scan::member(result, "capabilities")?;
        if scan::member(capabilities, "resources").is_some() {
            return None;
        }
        Some(edit::with_inner(result, "capabilities", "resources", "{}"))
    }

    /// The list without what is withdrawn and with our own tools, if that makes a difference.
    fn visible_tools(&self, result: &str) -> Option<String> {
        let tools = scan::member(result, "tools")?;
        let all = edit::items(tools);
        let mut open: Vec<String> = all
            .iter()
            .filter(|definition| self.tools.shows(definition))
            .map(|definition| (*definition).to_owned())
            .collect();
        let is_last = scan::member(result, "nextCursor").is_none();
        if self.common.rules.system_tools && is_last {
            let timeout = self.kernel.limits().call_timeout_ms;
            let own = system_tools::specs(&self.common.version);
            open.extend(own.iter().map(|spec| spec.definition(timeout).to_string()));
        } else if open.len() == all.len() {
            return None;
        }
        let tools = edit::array(open.iter().map(String::as_str));
        Some(edit::with_member(result, "tools", &tools))
    }

    /// What an operator should know about a definition.
    pub(super) fn report(&self, learned: &Learned) {
        let (pack, tool) = (&self.common.name, render::visible(&learned.name));
        let reason = match learned.standing {
            Standing::Withdrawn(withdrawn) => Some(withdrawn.reason()),
            Standing::Open | Standing::Denied => None,
        };
        if let Some(reason) = reason {
            self.common.log.line(&format!(
                "mcp:warning reason={reason} pack={pack} tool={tool} withdrawn"
            ));
        }
        if learned.ambiguous {
            self.common.log.line(&format!(
                "mcp:warning reason=tool_ambiguous pack={pack} tool={tool} withdrawn"
            ));
        }
        if let Some(first) = learned.hidden.first() {
            let more = match learned.hidden.len() - 1 {
                0 => String::new(),
                more => format!(" places={}", more + 1),
            };
            self.common.log.line(&format!(
                "mcp:warning reason=hidden_characters pack={pack} tool={tool}{more} at {first}"
            ));
        }
        if let Some(why) = &learned.unchecked {
            let line = format!("mcp:warning reason=schema_unchecked pack={pack} tool={tool} {why}");
            self.common.log.say(crate::log::Level::Warn, line);
        }
    }

    /// Answers what is the host's own.
    pub(super) fn serve_own(&mut self, call: CallId) {
        let now = self.clock.now();
        let outcome = match self.passed.get(&call) {
            Some(passed) if passed.method == "resources/read" => {
                let uri = passed
                    .param("uri")
                    .and_then(scan::unquote)
                    .unwrap_or_default();
                let read = self.outputs.read(now, &uri);
                read.unwrap_or_else(|| Err(Problem::of(ErrorKind::ResourceNotFound)))
                    .map(Success::Members)
            }
            Some(passed) if passed.method == "server/discover" => {
                let known = self.common.remembered.as_ref().and_then(Remembered::answer);
                match known {
                    Some(Discovered::Modern(result)) => {
                        let lent = self.with_resources(result.as_str());
                        let result = lent.as_deref().unwrap_or(result.as_str());
                        let line = response(&passed.id, result);
                        self.lends_resources = lent.is_some();
                        Ok(Success::Forwarded(Forwarded {
                            line,
                            is_error: false,
                        }))
                    }
                    _ => Err(unknown_method(&passed.method)),
                }
            }
            Some(passed) if passed.method == "resources/list" => {
                Ok(Success::Members(Json::from(json!({"resources": []}))))
            }
            Some(passed) if passed.method == "resources/templates/list" => Ok(Success::Members(
                Json::from(json!({"resourceTemplates": []})),
            )),
            Some(passed) => self.own_tool(passed.tool.as_deref(), passed.param("arguments")),
            None => Err(Problem::of(ErrorKind::Internal)),
        };
        self.kernel.handle_served(now, call, outcome);
    }

    fn own_tool(&self, name: Option<&str>, arguments: Option<&str>) -> Outcome {
        let wants = arguments.and_then(|arguments| scan::member(arguments, "render"));
        let render = match wants {
            Some("\"json\"") => RenderMode::Json,
            _ => RenderMode::Porcelain,
        };
        let limits = self.kernel.limits();
        let bounds = Bounds {
            lines: limits.porcelain_lines,
            bytes: limits.porcelain_bytes,
        };
        match name {
            Some(system_tools::HEALTH) => Ok(Success::Tool(system_tools::health(
                &self.health(),
                render,
                bounds,
            ))),
            Some(system_tools::TELEMETRY) => Ok(Success::Tool(system_tools::telemetry(
                &self.kernel.telemetry(),
                render,
                bounds,
            ))),
            _ => Err(Problem::of(ErrorKind::UnknownTool)),
        }
    }

    /// A call that ran out of time, with what its server said last.
    fn lamented(&self, problem: &Problem, end: &End) -> Problem {
        let mut problem = problem.clone();
        let late = matches!(problem.kind, ErrorKind::Timeout | ErrorKind::WorkerNotReady);
        let server = problem.generation.or(end.generation);
        let server = server.and_then(|server| self.servers.get(&server));
        if let Some(server) = server.filter(|_| late && problem.stderr.is_none()) {
            let words = mainstay_contract::failure::tail(&server.handle.last_words());
            problem.stderr = Some(words).filter(|words| !words.is_empty());
        }
        problem
    }

    /// The one answer of a request goes to the client.
    pub(super) fn answer(&mut self, end: &End) {
        let passed = self.passed.remove(&end.call);
        self.held.retain(|(held, _)| *held != end.call);
        // Only what was sent can still report.
        if let (Some(passed), Err(_), 1..) = (&passed, &end.outcome, end.attempt)
            && let Some(token) = &passed.token
        {
            if self.silenced.len() >= SILENCED {
                self.silenced.pop_front();
            }
            self.silenced.push_back(token.clone());
        }
        if let (Err(_), Some(generation)) = (&end.outcome, end.generation)
            && let Some(server) = self.servers.get_mut(&generation)
        {
            server.given_up(end.call);
        }
        let mut output_bytes = 0;
        if end.delivery == Delivery::Send && self.client.is_some() {
            let line = match (&end.outcome, &passed) {
                // An automatic client then falls back to the older way of opening a session.
                (Err(_), Some(passed)) if passed.method == "server/discover" => {
                    let refused = Err(unknown_method(&passed.method));
                    encode::answer(&end.id, end.form, &refused)
                }
                (Ok(Success::Forwarded(response)), Some(passed))
                    if passed.method == "server/discover"
                        && response.is_error
                        && !says_what_it_means(response.line.as_str()) =>
                {
                    let refused = Err(unknown_method(&passed.method));
                    encode::answer(&end.id, end.form, &refused)
                }
                (Err(problem), _) => {
                    encode::answer(&end.id, end.form, &Err(self.lamented(problem, end)))
                }
                (outcome @ Ok(_), _) => encode::answer(&end.id, end.form, outcome),
            };
            output_bytes = line.len();
            self.tell_client(&line);
        }
        self.common.recorder.ended(end, output_bytes);
        self.pace();
    }
}

/// Whether an answer is an error of the modern revision.
fn is_modern_error(line: &str) -> bool {
    error_code(line).is_some_and(|code| (-32099..=-32020).contains(&code))
}

/// Whether a refusal needs no translation: the plain one about an unknown method, or a modern one.
fn says_what_it_means(line: &str) -> bool {
    error_code(line) == Some(-32601) || is_modern_error(line)
}

fn error_code(line: &str) -> Option<i64> {
    let error = scan::member(line, "error")?;
    scan::member(error, "code")?.parse().ok()
}

fn response(id: &RequestId, result: &str) -> Json {
    let line = ObjectWriter::with_capacity(result.len() + 64)
        .string("jsonrpc", "2.0")
        .raw("id", id.as_raw())
        .raw("result", result)
        .finish();
    Json::from_scanned(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_discovery_is_an_unknown_method() {
        use mainstay_contract::dialect::{Dialect, EchoId, Form, Shape};
        let form = Form {
            dialect: Dialect::Modern,
            shape: Shape::Plain,
        };
        let line = encode::answer(&EchoId::Null, form, &Err(unknown_method("server/discover")));
        assert!(line.contains("-32601"), "{line}");
    }
}
