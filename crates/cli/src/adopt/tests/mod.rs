//! Whatever a file looks like: only command and args of its servers change, twice is once, and
//! what was done can be taken back to the byte.

mod forms;
mod json;
mod model;
mod toml;
mod yaml;

use super::plan::{Chosen, Fate, NoPlan, Plan, What};
use super::tree::{Document, Syntax};

const BINARY: &str = "/opt/bin/mainstay";

fn document(text: &str, syntax: Syntax) -> Document {
    Document::parse(text, syntax).unwrap_or_else(|mistake| panic!("{mistake:?} in {text}"))
}

fn adopt(text: &str, syntax: Syntax) -> String {
    let document = document(text, syntax);
    Plan::adopt(&document, BINARY, &Chosen::default(), |_| false)
        .unwrap()
        .text
}

fn undo(text: &str, syntax: Syntax, before: &[&str]) -> String {
    let older: Vec<Document> = before.iter().map(|text| document(text, syntax)).collect();
    let older: Vec<&Document> = older.iter().collect();
    Plan::undo(&document(text, syntax), &older, &Chosen::default())
        .unwrap()
        .text
}

/// True if a server is wrapped.
fn wraps(text: &str, syntax: Syntax, name: &str) -> bool {
    let document = document(text, syntax);
    let plan = Plan::adopt(&document, BINARY, &Chosen::default(), |_| false).unwrap();
    let is_it = |fate: &&Fate| fate.label == name || fate.label.starts_with(&format!("{name} ("));
    let fate = plan.fates.iter().find(is_it);
    fate.is_some_and(|fate| matches!(fate.what, What::Wrapped { .. }))
}

/// What holds for every document with servers.
fn holds(text: &str, syntax: Syntax) -> String {
    let adopted = adopt(text, syntax);
    assert_eq!(adopt(&adopted, syntax), adopted, "twice is once");
    assert_eq!(undo(&adopted, syntax, &[text]), text, "undone to the byte");
    let plan = Plan::adopt(&document(text, syntax), BINARY, &Chosen::default(), |_| {
        false
    })
    .unwrap();
    let by_hand = |fate: &Fate| matches!(fate.what, What::AlreadyWrapped { .. });
    if plan.fates.iter().any(by_hand) {
        return adopted;
    }
    assert_eq!(undo(text, syntax, &[]), text, "nothing to undo");
    let alone = undo(&adopted, syntax, &[]);
    assert_eq!(adopt(&alone, syntax), adopted, "undone without a memory");
    adopted
}

#[test]
fn a_list_of_arguments_keeps_its_form() {
    for (before, after) in [
        (
            r#"{"servers":{"a":{"command":"x","args":["y"]}}}"#,
            r#"{"servers":{"a":{"command":"/opt/bin/mainstay","args":["wrap","--name","a","--","x","y"]}}}"#,
        ),
        (
            r#"{"servers":{"a":{"command":"x"}}}"#,
            r#"{"servers":{"a":{"command":"/opt/bin/mainstay","args":["wrap","--name","a","--","x"]}}}"#,
        ),
        (
            "{\"servers\": {\"a\": {\r\n\t\"command\": \"x\" // why\r\n}}}",
            "{\"servers\": {\"a\": {\r\n\t\"command\": \"/opt/bin/mainstay\",\r\n\t\"args\": [\"wrap\", \"--name\", \"a\", \"--\", \"x\"] // why\r\n}}}",
        ),
        (
            "{\"servers\": {\"a\": {\"args\": [ /* none */ ], \"command\": \"\\u0078\"}}}",
            "{\"servers\": {\"a\": {\"args\": [\"wrap\", \"--name\", \"a\", \"--\", \"\\u0078\" /* none */ ], \"command\": \"/opt/bin/mainstay\"}}}",
        ),
        (
            "{\"servers\": {\"a\": {\"command\": \"x\", \"args\": [ // first\n    \"y\",\n  ],}}}",
            "{\"servers\": {\"a\": {\"command\": \"/opt/bin/mainstay\", \"args\": [ // first\n    \"wrap\",\n    \"--name\",\n    \"a\",\n    \"--\",\n    \"x\",\n    \"y\",\n  ],}}}",
        ),
    ] {
        assert_eq!(holds(before, Syntax::Json), after);
    }
}

#[test]
fn toml_keeps_its_form() {
    for (before, after) in [
        (
            "[mcp_servers.a]\ncommand = 'x' # why\n",
            "[mcp_servers.a]\ncommand = \"/opt/bin/mainstay\" # why\nargs = [\"wrap\", \"--name\", \"a\", \"--\", 'x']\n",
        ),
        (
            "[mcp_servers.a]\r\n  command = 'x'",
            "[mcp_servers.a]\r\n  command = \"/opt/bin/mainstay\"\r\n  args = [\"wrap\", \"--name\", \"a\", \"--\", 'x']",
        ),
        (
            "mcp_servers.\"a, b\" . command = \"x\"\n",
            "mcp_servers.\"a, b\" . command = \"/opt/bin/mainstay\"\nmcp_servers.\"a, b\" . args = [\"wrap\", \"--name\", \"a, b\", \"--\", \"x\"]\n",
        ),
        (
            "mcp_servers = { a = { command = \"x\", env = {} } }",
            "mcp_servers = { a = { command = \"/opt/bin/mainstay\", args = [\"wrap\", \"--name\", \"a\", \"--\", \"x\"], env = {} } }",
        ),
        (
            "[mcp_servers]\na = { args = [ # none\n], command = '''x''' }\n",
            "[mcp_servers]\na = { args = [\"wrap\", \"--name\", \"a\", \"--\", '''x''' # none\n], command = \"/opt/bin/mainstay\" }\n",
        ),
        (
            "[mcp_servers.a]\ncommand = \"x\"\nargs = [\n  \"y\", # last\n]\n[mcp_servers.a.env]\nA = \"1\"\n",
            "[mcp_servers.a]\ncommand = \"/opt/bin/mainstay\"\nargs = [\n  \"wrap\",\n  \"--name\",\n  \"a\",\n  \"--\",\n  \"x\",\n  \"y\", # last\n]\n[mcp_servers.a.env]\nA = \"1\"\n",
        ),
    ] {
        assert_eq!(holds(before, Syntax::Toml), after);
    }
    let left = "mcp_servers = { a.command = \"x\" }";
    assert_eq!(holds(left, Syntax::Toml), left, "there is no good place");
}

#[test]
fn a_server_at_a_url_keeps_its_headers_out_of_the_arguments() {
    for (before, after, syntax) in [
        (
            r#"{"servers":{"a":{"type":"http","url":"https://h/mcp","headers":{"X-Key":"${input:k}"}}}}"#,
            r#"{"servers":{"a":{"type":"stdio","command":"/opt/bin/mainstay","args":["wrap","--name","a","--url","https://h/mcp","--url-type","http"],"env":{"MAINSTAY_HEADER_X-Key":"${input:k}"}}}}"#,
            Syntax::Json,
        ),
        (
            "{\"mcpServers\": {\"a\": {\n  \"url\": \"https://h/mcp\" // docs\n}}}",
            "{\"mcpServers\": {\"a\": {\n  \"command\": \"/opt/bin/mainstay\",\n  \"args\": [\"wrap\", \"--name\", \"a\", \"--url\", \"https://h/mcp\"] // docs\n}}}",
            Syntax::Json,
        ),
        (
            "[mcp_servers.a]\nurl = 'https://h/mcp'\n",
            "[mcp_servers.a]\ncommand = \"/opt/bin/mainstay\"\nargs = [\"wrap\", \"--name\", \"a\", \"--url\", 'https://h/mcp']\n",
            Syntax::Toml,
        ),
    ] {
        assert_eq!(holds(before, syntax), after);
    }
    for left in [
        r#"{"servers":{"a":{"url":"https://h/mcp","oauth":{}}}}"#,
        r#"{"servers":{"a":{"url":"https://h/mcp","env":{}}}}"#,
        r#"{"servers":{"a":{"type":"ws","url":"https://h/mcp"}}}"#,
        r#"{"servers":{"a":{"url":"https://h/mcp","headers":{"X":1}}}}"#,
        r#"{"servers":{"a":{"serverUrl":"https://h/mcp"}}}"#,
    ] {
        assert_eq!(holds(left, Syntax::Json), left);
    }
}

#[test]
fn the_credentials_of_codex_reach_the_server_behind_us() {
    for (before, after) in [
        (
            "[mcp_servers.a]\nurl = 'https://h'\nbearer_token_env_var = 'X' # t\nenabled = true\n",
            "[mcp_servers.a]\ncommand = \"/opt/bin/mainstay\"\nargs = [\"wrap\", \"--name\", \"a\", \"--url\", 'https://h', \
             \"--token-env\", 'X']\nenv_vars = ['X']\n#mainstay \"a\": bearer_token_env_var = 'X' # t\nenabled = true\n",
        ),
        (
            "[mcp_servers.a]\r\n  env_http_headers = { \"K\" = \"V\", L = 'W' }\r\n  url = \"https://h\"\r\n  \
             http_headers = { X-A = \"b\", 'Y' = \"c\" }",
            "[mcp_servers.a]\r\n#mainstay \"a\":   env_http_headers = { \"K\" = \"V\", L = 'W' }\r\n  \
             command = \"/opt/bin/mainstay\"\r\n  args = [\"wrap\", \"--name\", \"a\", \"--url\", \"https://h\", \
             \"--header-env\", \"K=V\", \"--header-env\", \"L=W\"]\r\n  env_vars = [\"V\", 'W']\r\n  \
             env = { MAINSTAY_HEADER_X-A = \"b\", 'MAINSTAY_HEADER_Y' = \"c\" }",
        ),
        (
            "[mcp_servers.a]\nbearer_token_env_var = \"T\"\nurl = \"https://h\"\n[mcp_servers.a.http_headers]\nX = \"1\"\n\n\
             [mcp_servers.a.env_http_headers] # named\nK = \"V\" # why\n# more\nL = \"W\"\n[other]\nurl = 1\n",
            "[mcp_servers.a]\n#mainstay \"a\": bearer_token_env_var = \"T\"\ncommand = \"/opt/bin/mainstay\"\n\
             args = [\"wrap\", \"--name\", \"a\", \"--url\", \"https://h\", \"--token-env\", \"T\", \"--header-env\", \"K=V\", \
             \"--header-env\", \"L=W\"]\nenv_vars = [\"T\", \"V\", \"W\"]\n[mcp_servers.a.env]\nMAINSTAY_HEADER_X = \"1\"\n\n\
             #mainstay \"a\": [mcp_servers.a.env_http_headers] # named\n#mainstay \"a\": K = \"V\" # why\n\
             #mainstay \"a\": # more\n#mainstay \"a\": L = \"W\"\n[other]\nurl = 1\n",
        ),
    ] {
        let adopted = holds(before, Syntax::Toml);
        assert_eq!(adopted, after);
        let plan = Plan::undo(&document(&adopted, Syntax::Toml), &[], &Chosen::default()).unwrap();
        assert!(
            matches!(&plan.fates[0].what, What::Unwrapped { dropped, .. } if dropped.is_empty()),
            "{:?}",
            plan.fates
        );
    }
    for left in [
        "[mcp_servers.a]\nurl = 'https://h'\nbearer_token_env_var = ''\n",
        "[mcp_servers.a]\nurl = 'https://h'\nscopes = ['a']\n",
        "[mcp_servers.a]\nurl = 'https://h'\nenv_http_headers.X = 'V'\n",
        "[mcp_servers.a]\nurl = 'https://h'\nhttp_headers.X = 'V'\n",
        "[mcp_servers.a]\nurl = 'https://h'\nhttp_headers = { \"\\u0058\" = 'V' }\n",
        "mcp_servers.a = { url = 'https://h', bearer_token_env_var = 'X' }\n",
        "[mcp_servers]\na.url = 'https://h'\na.bearer_token_env_var = 'X'\n",
    ] {
        assert_eq!(holds(left, Syntax::Toml), left);
    }
    let json = r#"{"mcpServers":{"a":{"url":"https://h","bearer_token_env_var":"X"}}}"#;
    assert_eq!(holds(json, Syntax::Json), json);
}

#[test]
fn servers_of_one_name_are_all_wrapped_and_all_unwrapped() {
    let text = r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "x", "args": []}},
        "mcpServers": {"a": {"command": "x"}}}"#;
    let adopted = holds(text, Syntax::Json);
    assert_eq!(
        adopted
            .matches("\"wrap\", \"--name\", \"a\", \"--\", \"x\"")
            .count(),
        3
    );
}

#[test]
fn a_file_that_was_edited_since_is_unwrapped_as_it_is() {
    let before = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y", "args": ["z"]}}}"#;
    // Sorted by a program, with options and a comment of somebody, and a server more.
    let edited = r#"{
  "mcpServers": {
    "a": { "args": ["wrap", "--timeout", "5", /* ! */ "--", "x"], "command": "/old/mainstay" },
    "b": { "command": "mainstay", "args": ["wrap", "--", "y", "z",] },
    "c": { "command": "mainstay", "args": ["wrap", "--", "w",], "env": {} },
    "d": { "command": "mainstay", "args": ["wrap", "--config", "f"] },
  }
}"#;
    let older = document(before, Syntax::Json);
    let plan = Plan::undo(
        &document(edited, Syntax::Json),
        &[&older],
        &Chosen::default(),
    );
    let plan = plan.unwrap();
    assert_eq!(
        plan.text,
        r#"{
  "mcpServers": {
    "a": { "args": [], "command": "x" },
    "b": { "command": "y", "args": ["z",] },
    "c": { "command": "w", "args": [], "env": {} },
    "d": { "command": "mainstay", "args": ["wrap", "--config", "f"] },
  }
}"#
    );
    let dropped = vec!["--timeout".to_owned(), "5".to_owned()];
    assert_eq!(
        plan.fates[0].what,
        What::Unwrapped {
            program: "x".into(),
            dropped,
            loses: true
        }
    );
    assert!(matches!(
        plan.fates[2].what,
        What::Unwrapped { loses: false, .. }
    ));
    assert!(matches!(plan.fates[3].what, What::LeftAlone(_)));
}

#[test]
fn what_was_wrapped_by_hand_stays_unless_it_is_named() {
    let first = r#"{"mcpServers": {"a": {"command": "mainstay", "args": ["wrap", "--", "x"]},
        "b": {"command": "y"}}}"#;
    let second = adopt(first, Syntax::Json);
    assert_eq!(undo(&second, Syntax::Json, &[first]), first);
    // Adopted in two steps: the newer state does not hide that it was ours.
    let third = second.replace("}}}", "}, \"c\": {\"command\": \"z\"}}}");
    let fourth = adopt(&third, Syntax::Json);
    let undone = undo(&fourth, Syntax::Json, &[&third, first]);
    assert_eq!(
        undone,
        first.replace("}}}", "}, \"c\": {\"command\": \"z\"}}}")
    );
    let older = document(first, Syntax::Json);
    let chosen = Chosen {
        only: vec!["a".into()],
        except: Vec::new(),
        share: None,
    };
    let plan = Plan::undo(&document(&second, Syntax::Json), &[&older], &chosen).unwrap();
    assert!(plan.text.contains(r#""a": {"command": "x", "args": []}"#));
}

#[test]
fn a_command_line_in_one_text_is_left_alone_with_its_reason() {
    let text = r#"{"mcpServers": {"git": {"command": "uvx mcp-server-git"},
        "app": {"command": "/opt/My App/server"}}}"#;
    let is_missing = |program: &str| program.starts_with("uvx");
    let plan = Plan::adopt(
        &document(text, Syntax::Json),
        BINARY,
        &Chosen::default(),
        is_missing,
    );
    let plan = plan.unwrap();
    let What::LeftAlone(reason) = &plan.fates[0].what else {
        panic!("{:?}", plan.fates);
    };
    assert!(reason.contains("put them into args"), "{reason}");
    assert!(matches!(plan.fates[1].what, What::Wrapped { .. }));
    assert!(plan.text.contains(r#""command": "uvx mcp-server-git""#));
}

#[test]
fn what_adopting_writes_is_not_lost_when_it_is_undone() {
    let before = "[mcp_servers.a]\ncommand = 'x'\nargs = []\nstartup_timeout_sec = 20\n";
    let adopted = holds(before, Syntax::Toml);
    assert!(
        adopted.contains(r#"["wrap", "--name", "a", "--start-timeout", "20s", "--", 'x']"#),
        "{adopted}"
    );
    for written in ["20s", "30s"] {
        let text = adopted.replace("20s", written);
        let plan = Plan::undo(&document(&text, Syntax::Toml), &[], &Chosen::default()).unwrap();
        assert_eq!(plan.text, before, "without a memory, too");
        assert!(
            matches!(plan.fates[0].what, What::Unwrapped { loses: false, .. }),
            "{:?}",
            plan.fates
        );
    }
}

#[test]
fn names_choose_servers() {
    let text = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}"#;
    let document = document(text, Syntax::Json);
    let plan = |only: &[&str], except: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let chosen = Chosen {
            only: owned(only),
            except: owned(except),
            share: None,
        };
        Plan::adopt(&document, BINARY, &chosen, |_| false)
    };
    assert_eq!(plan(&["a"], &[]).unwrap().changed(), 1);
    assert_eq!(
        plan(&[], &["a"]).unwrap().text,
        plan(&["b"], &[]).unwrap().text
    );
    assert_eq!(plan(&["a", "b"], &["a", "b"]).unwrap().text, text);
    let unknown = plan(&["a", "c"], &[]).unwrap_err();
    let known = vec!["a".to_owned(), "b".to_owned()];
    let name = "c".to_owned();
    assert_eq!(unknown, NoPlan::UnknownName { name, known });
}

#[test]
fn servers_are_led_to_the_share_host_and_back() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "args": ["1"], "env": {"KEY": "k"}}, "b": {"command": "y"}}}"#;
    let document = document(text, Syntax::Json);
    let chosen = Chosen {
        share: Some(vec!["a".to_owned()]),
        ..Chosen::default()
    };
    let plan = Plan::adopt(&document, BINARY, &chosen, |_| false).unwrap();
    let shared = r#"["share", "--name", "a", "--shared", "--env", "KEY", "--", "x", "1"]"#;
    assert!(plan.text.contains(shared), "{}", plan.text);
    let own = r#"["share", "--name", "b", "--", "y"]"#;
    assert!(plan.text.contains(own), "{}", plan.text);
    let adopted = Document::parse(&plan.text, Syntax::Json).unwrap();
    let undone = Plan::undo(&adopted, &[&document], &Chosen::default()).unwrap();
    assert_eq!(undone.text, text);
    assert!(
        undone
            .fates
            .iter()
            .all(|fate| matches!(fate.what, What::Unwrapped { loses: false, .. })),
        "{:?}",
        undone.fates
    );
}
