//! The list of tools that a client gets: the form of our definitions, and tool search for long lists.
//!
//! Theory of operation. A list with more tools than [`ToolListRules::search_above`] is replaced by two tools of the
//! host, the pinned tools and those that the session used last. `search_tools` ranks the whole list (`rank`)
//! and returns the definitions of the best matches. `call_tool` is rewritten into a call of the tool that it
//! names before the request is routed, so rules, lock, checks and replay class are those of that tool. Every
//! hidden tool can be called by its own name, too.
//!
//! A shorter list, and a list in which a tool has one of the two names, stays as it is.

mod rank;

use std::borrow::Cow;
use std::collections::VecDeque;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::outcome::{Outcome, Problem, Success, ToolReply};
use mainstay_contract::scan;
use mainstay_contract::tool::DefinitionForm;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::server::edit;

/// The tool that finds tools.
pub const SEARCH: &str = "search_tools";
/// The tool that calls another one by its name.
pub const CALL: &str = "call_tool";

/// Matches that a search returns unless it asks for more.
const HITS: usize = 5;
/// Most matches that a search may ask for.
const HITS_MAX: usize = 20;
/// Longest query, in characters.
const QUERY_CHARS: usize = 1000;
/// Bytes of the definitions in one answer; the best match is always returned.
const ANSWER_BYTES: usize = 64 * 1024;
/// Names of servers and packs that the description of `search_tools` has.
const SOURCES: usize = 20;
/// Longest name of a tool that is remembered as used.
const NAME_BYTES: usize = 256;

/// The settings of `tools/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolListRules {
    /// The form of the definitions of packs and of the host's own tools.
    pub definitions: DefinitionForm,
    /// A list with more tools is replaced by tool search; `None` turns it off.
    pub search_above: Option<usize>,
    /// Tools that stay in a replaced list.
    pub pinned: Vec<String>,
    /// How many of the tools that a session used last stay in a replaced list.
    pub recent: usize,
}

impl Default for ToolListRules {
    fn default() -> Self {
        Self {
            definitions: DefinitionForm::default(),
            search_above: None,
            pinned: Vec::new(),
            recent: 8,
        }
    }
}

/// A tool as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolItem {
    pub(crate) name: String,
    /// Its definition, as JSON text.
    pub(crate) definition: String,
}

/// The tools that a session used last, the latest one first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recent(VecDeque<String>);

impl Recent {
    /// The session calls a tool.
    pub(crate) fn note(&mut self, tool: &str, rules: &ToolListRules) {
        if rules.search_above.is_none() || tool.len() > NAME_BYTES || tool == SEARCH {
            return;
        }
        self.0.retain(|known| known != tool);
        self.0.push_front(tool.to_owned());
        self.0.truncate(rules.recent);
    }
}

impl ToolListRules {
    /// True if a call of this name is for tool search. A tool of the same name has precedence, so the caller
    /// asks first if there is one.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        self.search_above.is_some() && matches!(name, SEARCH | CALL)
    }

    /// The list that a client gets in place of `tools`, if it gets another one.
    pub(crate) fn reduced(
        &self,
        tools: &[ToolItem],
        recent: &Recent,
        sources: &[&str],
    ) -> Option<Vec<String>> {
        let most = self.search_above?;
        let is_taken = tools.iter().any(|tool| self.is_own(&tool.name));
        if tools.len() <= most || is_taken {
            return None;
        }
        let is_kept =
            |tool: &&ToolItem| self.pinned.contains(&tool.name) || recent.0.contains(&tool.name);
        let kept = tools.iter().filter(is_kept);
        let kept = kept.map(|tool| tool.definition.clone());
        Some(own_definitions(sources).into_iter().chain(kept).collect())
    }
}

/// The definitions of `search_tools` and `call_tool`.
fn own_definitions(sources: &[&str]) -> [String; 2] {
    let shown = sources.get(..SOURCES).unwrap_or(sources).join(", ");
    let of = match (shown.as_str(), sources.len() > SOURCES) {
        ("", _) => String::new(),
        (shown, false) => format!(" of {shown}"),
        (shown, true) => format!(" of {shown} and others"),
    };
    let search = json!({
        "name": SEARCH,
        "description": format!(
            "Finds further tools{of} by what they do, and returns their names and arguments. Call them with {CALL}."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "maxLength": QUERY_CHARS,
                    "description": "What the tool must do, in a few words."},
                "limit": {"type": "integer", "minimum": 1, "maximum": HITS_MAX},
            },
            "required": ["query"],
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    });
    let call = json!({
        "name": CALL,
        "description": format!("Calls a tool that {SEARCH} found."),
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "arguments": {"type": "object"},
            },
            "required": ["name"],
            "additionalProperties": false,
        },
    });
    [search.to_string(), call.to_string()]
}

/// The answer of `search_tools`.
pub(crate) fn search(tools: &[ToolItem], arguments: &Json) -> Outcome {
    let invalid = |said: String| Err(Problem::new(ErrorKind::InvalidArguments, said));
    let given = arguments.to_value().unwrap_or_default();
    let query = given.get("query").and_then(Value::as_str).map(str::trim);
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return invalid(format!("{SEARCH} needs query: what the tool must do"));
    };
    if query.chars().count() > QUERY_CHARS {
        return invalid(format!("query has more than {QUERY_CHARS} characters"));
    }
    let limit = match given.get("limit") {
        None => Some(HITS),
        Some(limit) => limit.as_u64().and_then(|limit| usize::try_from(limit).ok()),
    };
    let Some(limit) = limit.filter(|limit| (1..=HITS_MAX).contains(limit)) else {
        return invalid(format!("limit must be a number from 1 to {HITS_MAX}"));
    };
    let mut found: Vec<String> = Vec::new();
    let mut bytes = 0;
    for index in rank::rank(query, tools, limit) {
        let Some(tool) = tools.get(index) else {
            continue;
        };
        let hit = edit::filtered(&tool.definition, |name| {
            matches!(
                name,
                "name" | "title" | "description" | "inputSchema" | "annotations"
            )
        });
        bytes += hit.len();
        if bytes > ANSWER_BYTES && !found.is_empty() {
            break;
        }
        found.push(hit);
    }
    let found = edit::array(found.iter().map(String::as_str));
    let json = ObjectWriter::with_capacity(found.len() + 16).raw("tools", &found);
    Ok(Success::Tool(ToolReply {
        json: Json::from_scanned(&json.finish()),
        text: None,
    }))
}

/// The tool and the arguments that a call of `call_tool` names.
pub(crate) fn named_call(arguments: &str) -> Result<(Cow<'_, str>, &str), Problem> {
    let invalid = |said: &str| Problem::new(ErrorKind::InvalidArguments, said);
    let name = scan::member(arguments, "name").and_then(scan::unquote);
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Err(invalid("call_tool needs name: the name of a tool"));
    };
    let inner = scan::member(arguments, "arguments").unwrap_or("{}");
    match inner.starts_with('{') {
        true if matches!(&*name, SEARCH | CALL) => Err(invalid("call this tool by its own name")),
        true => Ok((name, inner)),
        false => Err(invalid("call_tool takes arguments as an object")),
    }
}

/// The line of a call of `call_tool` as a call of the tool that it names. `None` if it is not such a call.
pub(crate) fn rewritten_line(line: &str) -> Option<String> {
    let params = scan::member(line, "params")?;
    if scan::member(params, "name").and_then(scan::unquote)? != CALL {
        return None;
    }
    let arguments = scan::member(params, "arguments").unwrap_or("{}");
    let (name, inner) = named_call(arguments).ok()?;
    let name = Value::from(&*name).to_string();
    let params = edit::with_member(params, "name", &name);
    let params = edit::with_member(&params, "arguments", inner);
    Some(edit::with_member(line, "params", &params))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(count: usize) -> Vec<ToolItem> {
        let item = |number: usize| ToolItem {
            name: format!("tool{number}"),
            definition: json!({"name": format!("tool{number}"), "description": "Reads a file.",
                "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}})
            .to_string(),
        };
        (0..count).map(item).collect()
    }

    fn names(definitions: &[String]) -> Vec<String> {
        let name = |text: &String| scan::unquote(scan::member(text, "name")?).map(Cow::into_owned);
        definitions.iter().filter_map(name).collect()
    }

    fn rules(above: usize) -> ToolListRules {
        ToolListRules {
            search_above: Some(above),
            pinned: vec!["tool3".to_owned(), "gone".to_owned()],
            recent: 2,
            ..ToolListRules::default()
        }
    }

    #[test]
    fn a_list_is_replaced_only_above_its_limit_and_never_by_default() {
        let recent = Recent::default();
        assert_eq!(rules(5).reduced(&items(5), &recent, &[]), None);
        let reduced = rules(5).reduced(&items(6), &recent, &["a", "b"]).unwrap();
        assert_eq!(names(&reduced), [SEARCH, CALL, "tool3"]);
        assert!(
            reduced[0].contains("further tools of a, b by"),
            "{}",
            reduced[0]
        );
        let default = ToolListRules::default();
        assert_eq!(default.reduced(&items(5000), &recent, &[]), None);
        assert!(!default.is_own(SEARCH) && rules(5).is_own(CALL));
    }

    #[test]
    fn a_list_with_a_tool_of_the_same_name_stays_as_it_is() {
        let mut tools = items(9);
        tools[4].name = SEARCH.to_owned();
        assert_eq!(rules(5).reduced(&tools, &Recent::default(), &[]), None);
    }

    #[test]
    fn the_last_used_tools_stay_in_the_order_of_the_list() {
        let (rules, mut recent) = (rules(5), Recent::default());
        for used in ["tool7", "tool1", "tool7", "tool0", SEARCH] {
            recent.note(used, &rules);
        }
        let reduced = rules.reduced(&items(9), &recent, &[]).unwrap();
        assert_eq!(names(&reduced), [SEARCH, CALL, "tool0", "tool3", "tool7"]);
    }

    #[test]
    fn an_answer_has_definitions_without_schemas_of_results() {
        let arguments = Json::from(json!({"query": "tool4 file", "limit": 1}));
        let Ok(Success::Tool(reply)) = search(&items(9), &arguments) else {
            panic!("a search answers");
        };
        assert_eq!(
            reply.json.as_str(),
            r#"{"tools":[{"name":"tool4","description":"Reads a file.","inputSchema":{"type":"object"}}]}"#
        );
        for bad in [
            json!({}),
            json!({"query": " "}),
            json!({"query": "x".repeat(QUERY_CHARS + 1)}),
            json!({"query": "x", "limit": 0}),
            json!({"query": "x", "limit": HITS_MAX + 1}),
        ] {
            let problem = search(&items(9), &Json::from(bad)).unwrap_err();
            assert_eq!(problem.kind, ErrorKind::InvalidArguments);
        }
    }

    #[test]
    fn a_call_keeps_every_byte_but_name_and_arguments() {
        let line = r#"{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"_meta":{"progressToken":7},"name":"call_tool","arguments":{"name":"a","arguments":{"n":1.00}}}}"#;
        assert_eq!(
            rewritten_line(line).unwrap(),
            r#"{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"_meta":{"progressToken":7},"name":"a","arguments":{"n":1.00}}}"#
        );
        assert_eq!(rewritten_line(&line.replace("call_tool", "other")), None);
        for bad in [
            r#"{}"#,
            r#"{"name":1}"#,
            r#"{"name":"a","arguments":[]}"#,
            r#"{"name":"call_tool"}"#,
        ] {
            assert!(named_call(bad).is_err(), "{bad}");
        }
    }
}
