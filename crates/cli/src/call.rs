//! `mainstay call`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::normalise::{Resolution, resolve_method};
use mainstay_contract::render::warning;
use mainstay_contract::scan;
use mainstay_host::Served;
use serde_json::{Map, Value, json};

use crate::answer::{Wants, exit_code};
use crate::args::{Call, Render};
use crate::exit::{self, Failure, eprint_line, print};
use crate::target::Connection;

/// Calls one tool. What a host says is shown as its answer, even where it takes no calls at all.
pub(crate) fn run(call: &Call) -> Result<ExitCode, Failure> {
    match answered(call) {
        Err(Failure {
            payload: Some(payload),
            ..
        }) => {
            print(&format!("{payload}\n"))?;
            Ok(ExitCode::from(exit_code(&payload)))
        }
        other => other,
    }
}

fn answered(call: &Call) -> Result<ExitCode, Failure> {
    let mut connection = Connection::open(&call.target, Some(&call.tool))?;
    let called = call_tool(&mut connection, call);
    let (text, code) = match called {
        Ok((text, code, After::Build)) if connection.is_ours() => {
            print(&text)?;
            go_on_building(&mut connection);
            (String::new(), code)
        }
        Ok((text, code, After::Symbols)) if connection.is_ours() => {
            print(&text)?;
            go_on_with_symbols(&mut connection);
            (String::new(), code)
        }
        Ok((text, code, _)) => (text, code),
        Err(failure) => {
            connection.close()?;
            return Err(failure);
        }
    };
    if let Some(served) = connection.close()? {
        warn_of_alias(&served, &call.tool);
    }
    print(&text)?;
    Ok(ExitCode::from(code))
}

/// Warns of a name that the tool only keeps for old callers. A running host logs the same itself.
fn warn_of_alias(served: &Served, name: &str) {
    let mut tools = served.tools.iter();
    let is_it = |alias: &String| alias == name;
    if let Some(tool) = tools.find(|tool| tool.aliases.iter().any(is_it)) {
        let said = format!("{name} is a deprecated name; call {} instead", tool.name);
        eprint_line(&format!("mainstay: {}", warning(&said)));
    }
}

/// How long a command stays for the build that its search began: where somebody watches, and can
/// interrupt it, until it is done, if it can be; else just so long that every call gets further.
const WATCHED_BUILD: Duration = Duration::from_secs(120);
const UNWATCHED_BUILD: Duration = Duration::from_secs(3);
/// The same for the symbols of an index that has not got all of them, and how often they are
/// looked at.
const SYMBOLS: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(100);

/// What is left when a call has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Nothing,
    /// A search found no index; its build ends with the host.
    Build,
    /// A search found one; if it is still getting symbols, that ends with the host, too.
    Symbols,
}

/// Stays a while for the build. What is done by then is kept.
fn go_on_building(connection: &mut Connection) {
    let time = match connection.is_watched() {
        true => {
            eprint_line(
                "building the index for the next search; interrupt at will, what is done is kept",
            );
            WATCHED_BUILD
        }
        false => UNWATCHED_BUILD,
    };
    let wait = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    // It was not asked for, so it cannot fail the command.
    let _ = connection.call(
        "index_build",
        &json!({ "wait_ms": wait }).into(),
        Wants::Text,
    );
}

/// Stays a little while symbols are added, so that every call gets further.
fn go_on_with_symbols(connection: &mut Connection) {
    let until = Instant::now() + SYMBOLS;
    loop {
        // It was not asked for, so it cannot fail the command.
        let Ok(status) = connection.call("index_status", &Json::empty_object(), Wants::Json) else {
            return;
        };
        let covered = status.json.pointer("/layers/symbols");
        let all = covered
            .and_then(Value::as_f64)
            .is_none_or(|share| share >= 1.0);
        if all || Instant::now() >= until {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

fn after(tool: &str, answer: &Value) -> After {
    if tool != "search" {
        return After::Nothing;
    }
    let scanned = answer.get("scanned") == Some(&json!(true));
    match (scanned, answer.get("generation").and_then(Value::as_u64)) {
        (true, Some(0)) => After::Build,
        (_, Some(_)) => After::Symbols,
        (_, None) => After::Nothing,
    }
}

fn call_tool(connection: &mut Connection, call: &Call) -> Result<(String, u8, After), Failure> {
    let tools = connection.tools()?.tools;
    let (tool, mut arguments) = match find(&tools, &call.tool) {
        Ok(tool) => (
            Some(tool),
            parse_arguments(&call.arguments, tool.get("inputSchema"))?,
        ),
        // The host knows best why a tool is not on its list.
        Err(unlisted) => match parse_arguments(&call.arguments, None) {
            Ok(arguments) => (None, arguments),
            Err(_) => return Err(unlisted),
        },
    };
    // Only our tools know how they are to be rendered; others get what the user wrote.
    let ours = tool.is_some_and(is_ours);
    let wants = match call.render {
        Some(Render::Json) if !ours => Wants::Json,
        _ => Wants::Text,
    };
    if let (Some(render), true) = (call.render, ours) {
        let mode = match render {
            Render::Porcelain => "porcelain",
            Render::Json => "json",
        };
        arguments.retain(|(name, _)| name != "render");
        arguments.push(("render".to_owned(), json!(mode).into()));
    }
    let name = tool.and_then(|tool| tool.get("name")?.as_str());
    let name = name.unwrap_or(&call.tool);
    let answer = connection.call(name, &object(&arguments), wants)?;
    let after = match answer.code {
        exit::SUCCESS => after(name, &answer.json),
        _ => After::Nothing,
    };
    let text = match wants {
        Wants::Text => answer.text,
        Wants::Json => answer.json.to_string(),
    };
    Ok((format!("{text}\n"), answer.code, after))
}

/// Whether a definition has what only our tools have.
fn is_ours(tool: &Value) -> bool {
    tool.get("_meta")
        .and_then(|meta| meta.get(meta::CONTRACT))
        .is_some()
}

fn find<'a>(tools: &'a [Value], name: &str) -> Result<&'a Value, Failure> {
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool.get("name").and_then(Value::as_str))
        .collect();
    let resolution = resolve_method(name, &names, &[]);
    let nearest = match resolution {
        Resolution::Named(name) | Resolution::Alias(name) => {
            let mut all = tools.iter();
            if let Some(tool) = all.find(|tool| tool.get("name") == Some(&json!(name))) {
                return Ok(tool);
            }
            None
        }
        Resolution::Unknown { nearest } => nearest,
    };
    let failure = Failure::input(anyhow!("there is no tool {name:?}"));
    Err(failure.hint(match nearest {
        Some(nearest) => format!("did you mean {nearest}? mainstay tools lists all"),
        None => "mainstay tools lists all".to_owned(),
    }))
}

/// Arguments by name, each as it is written: the host judges a number that no tree can hold.
type Named = Vec<(String, Json)>;

fn object(arguments: &Named) -> Json {
    let writer = ObjectWriter::with_capacity(256);
    let write =
        |writer: ObjectWriter, (name, value): &(String, Json)| writer.raw(name, value.as_str());
    Json::from_scanned(&arguments.iter().fold(writer, write).finish())
}

/// One JSON object, or `KEY=VALUE` pairs and at most one bare word.
fn parse_arguments(words: &[String], schema: Option<&Value>) -> Result<Named, Failure> {
    if let [only] = words
        && only.trim_start().starts_with('{')
    {
        let object = Json::parse(only).map_err(|error| {
            let failure = Failure::input(anyhow!("the arguments are not JSON: {error}"));
            failure.hint("quote the object for the shell: '{\"key\": \"value\"}'")
        })?;
        let members = scan::members(object.as_str());
        return Ok(members
            .map(|(name, value)| (name.into_owned(), Json::from_scanned(value)))
            .collect());
    }
    let mut arguments = Named::new();
    let mut bare = None;
    for word in words {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) if is_argument(schema, key) => {
                (key.to_owned(), parse_value(value, property(schema, key)))
            }
            // What looks like a pair is never taken for something else.
            Some((key, _)) if bare_argument(schema).is_none() || is_name(key) => {
                let failure = Failure::input(anyhow!("the tool has no argument {key:?}"));
                let hint = argument_hint(schema);
                return Err(match bare_argument(schema) {
                    Some(bare) => {
                        failure.hint(format!("{hint}; a text with = in it: {bare}={word}"))
                    }
                    None => failure.hint(hint),
                });
            }
            _ => match bare_argument(schema) {
                Some(_) if let Some(first) = bare.replace(word) => {
                    let said =
                        anyhow!("{first:?} and {word:?} are two texts, and the tool takes one");
                    let words = words.iter().filter(|word| !word.contains('='));
                    let joined = words.cloned().collect::<Vec<_>>().join(" ");
                    return Err(Failure::input(said).hint(format!("quote them as one: {joined:?}")));
                }
                Some(key) => (key, json!(word).into()),
                None => {
                    let failure = Failure::input(anyhow!("{word:?} is not KEY=VALUE"));
                    return Err(failure.hint(argument_hint(schema)));
                }
            },
        };
        if arguments.iter().any(|(given, _)| *given == key) {
            return Err(Failure::input(anyhow!("the argument {key} is given twice")));
        }
        arguments.push((key, value));
    }
    Ok(arguments)
}

/// Whether a word may be meant as the name of an argument.
fn is_name(word: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
    !word.is_empty() && word.chars().all(fits)
}

fn properties(schema: Option<&Value>) -> Option<&Map<String, Value>> {
    schema?.get("properties")?.as_object()
}

fn property<'a>(schema: Option<&'a Value>, key: &str) -> Option<&'a Value> {
    properties(schema)?.get(key)
}

/// Of a tool without a schema nothing is known, so everything may be an argument.
fn is_argument(schema: Option<&Value>, key: &str) -> bool {
    schema.is_none() || property(schema, key).is_some()
}

/// The tool's only required string argument.
fn bare_argument(schema: Option<&Value>) -> Option<String> {
    let required = schema?.get("required")?.as_array()?;
    let mut strings = required.iter().filter_map(Value::as_str).filter(|key| {
        property(schema, key).and_then(|property| property.get("type")) == Some(&json!("string"))
    });
    match (strings.next(), strings.next()) {
        (Some(only), None) => Some(only.to_owned()),
        _ => None,
    }
}

/// Text where the schema wants text, else JSON where it is JSON.
fn parse_value(text: &str, property: Option<&Value>) -> Json {
    let wants_text = property
        .and_then(|property| property.get("type"))
        .is_some_and(|kind| {
            kind == "string"
                || kind
                    .as_array()
                    .is_some_and(|kinds| kinds.contains(&json!("string")))
        });
    match Json::parse(text) {
        Ok(value) if !wants_text => value,
        _ => json!(text).into(),
    }
}

fn argument_hint(schema: Option<&Value>) -> String {
    let names: Vec<_> = properties(schema)
        .into_iter()
        .flat_map(Map::keys)
        .cloned()
        .collect();
    if names.is_empty() {
        "the tool takes no arguments".to_owned()
    } else {
        format!("its arguments: {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "required": ["name", "count"], "properties": {
            "name": {"type": "string"}, "count": {"type": "integer"}, "tags": {"type": "array"},
            "render": {"type": "string"}}})
    }

    fn parse(words: &[&str]) -> Result<Value, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        parse_arguments(&words, Some(&schema()))
            .map(|arguments| object(&arguments).to_value().unwrap())
            .map_err(|failure| format!("{} / {:?}", failure.error, failure.hint))
    }

    #[test]
    fn pairs_take_the_type_that_the_schema_wants() {
        let arguments = parse(&["name=12", "count=12", "tags=[1,2]"]).unwrap();
        assert_eq!(
            arguments,
            json!({"name": "12", "count": 12, "tags": [1, 2]})
        );
    }

    #[test]
    fn a_bare_word_goes_to_the_only_required_string() {
        assert_eq!(
            parse(&["fn main() = 1", "count=2"]).unwrap(),
            json!({"name": "fn main() = 1", "count": 2})
        );
    }

    #[test]
    fn a_mistyped_name_is_never_the_value_of_another_argument() {
        let said = parse(&["nmae=x", "count=2"]).unwrap_err();
        assert!(said.contains("no argument \"nmae\""), "{said}");
        assert!(said.contains("name=nmae=x"), "{said}");
        assert_eq!(parse(&["name=nmae=x"]).unwrap(), json!({"name": "nmae=x"}));
    }

    #[test]
    fn a_number_out_of_range_reaches_the_host_as_it_is_written() {
        for words in [r#"tags=[{"a":1e400}]"#, r#"{"tags":[{"a":1e400}]}"#] {
            let arguments = parse_arguments(&[words.to_owned()], Some(&schema())).unwrap();
            assert_eq!(object(&arguments).as_str(), r#"{"tags":[{"a":1e400}]}"#);
        }
    }

    #[test]
    fn two_bare_words_are_refused_with_the_quotes_that_are_missing() {
        let said = parse(&["how", "is", "count=2"]).unwrap_err();
        assert!(said.contains("are two texts"), "{said}");
        assert!(said.contains(r#"quote them as one: \"how is\""#), "{said}");
    }

    #[test]
    fn one_object_is_taken_as_it_is() {
        assert_eq!(parse(&[r#"{"count": 3}"#]).unwrap(), json!({"count": 3}));
        assert!(parse(&["{count: 3}"]).unwrap_err().contains("not JSON"));
    }

    #[test]
    fn an_argument_given_twice_is_a_mistake() {
        assert!(parse(&["name=a", "name=b"]).unwrap_err().contains("twice"));
    }
}
