//! What a wrapped server is held to: deadlines, cancels, checks, bounds, lists of allowed tools.

mod wrapping;

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use mainstay_testkit::fixture::{read_executed, read_told};
use mainstay_testkit::peer::{Client, Message, request_line};
use mainstay_testkit::process::{Launch, MARKER, TempDir, binary, kill};
use serde_json::{Value, json};

use self::wrapping::{
    SERVER, call, configured, echo, eventually, failure, fixture, only_server, open, stop, text,
    wait_told,
};

#[test]
fn a_cancel_reaches_the_server_in_the_clients_own_words_and_is_not_answered() -> anyhow::Result<()>
{
    let fixture = fixture("", "")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    client.send(&call("7", "sleep", &json!({"ms": 600_000})))?;
    wait_told(&state, "\"sleep\"", 1)?;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7, "reason":"changed my mind"}}"#;
    client.send(cancel)?;
    echo(client, "8")?;
    let heard = read_told(&state)?.iter().any(|told| told.line == cancel);
    assert!(heard, "the server was told");
    let (rest, _) = running.finish()?;
    assert!(rest.iter().all(|line| line.id() != Some("7")), "{rest:?}");
    Ok(())
}

#[test]
fn a_cancel_in_the_other_form_is_answered_and_reaches_the_server_too() -> anyhow::Result<()> {
    let fixture = fixture("", "")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    client.send(&call("7", "sleep", &json!({"ms": 600_000})))?;
    wait_told(&state, "\"sleep\"", 1)?;
    client.send(r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"7"}}"#)?;
    assert_eq!(failure(&client.answer("7")?)?["code"], "CANCELLED");
    echo(client, "8")?;
    let heard = read_told(&state)?;
    let is_cancel =
        |line: &str| line.contains("notifications/cancelled") && line.contains("\"requestId\":7");
    assert!(heard.iter().any(|told| is_cancel(&told.line)), "{heard:?}");
    stop(running)
}

#[test]
fn deadlines_stand_still_while_the_user_is_asked() -> anyhow::Result<()> {
    let running = fixture("--timeout 15", "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({"elicitation": {}}))?;
    client.send(&call("1", "ask_user", &json!({"question": "sure?"})))?;
    let asked = client.take("the question", |message| {
        message.method().as_deref() == Some("elicitation/create")
    })?;
    std::thread::sleep(Duration::from_secs(16));
    let id = asked.id().unwrap_or_default();
    client.send(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{"answer":"yes"}}}}}}"#
    ))?;
    let answer = client.answer("1")?;
    assert_ne!(answer.at("/result/isError"), true, "{answer:?}");
    // The clock goes on: the next one has its deadline.
    assert_eq!(
        failure(&client.call("2", "hang", &json!({}))?)?["code"],
        "TOOL_TIMEOUT"
    );
    stop(running)
}

#[test]
fn a_question_of_a_lost_server_is_withdrawn_and_its_answer_goes_nowhere() -> anyhow::Result<()> {
    let running = fixture("", "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({"elicitation": {}}))?;
    let server = only_server(&running)?;
    client.send(&call("1", "ask_user", &json!({"question": "sure?"})))?;
    let is_question = |message: &Message| message.method().as_deref() == Some("elicitation/create");
    let first = client.take("the question", is_question)?;
    assert!(kill(server));
    failure(&client.answer("1")?)?;
    let withdrawn = client.notification("notifications/cancelled")?;
    assert_eq!(
        withdrawn.at("/params/requestId").to_string(),
        first.id().unwrap_or_default()
    );
    // The successor counts anew; a late answer to the first question must not be taken for its.
    client.send(&call("2", "ask_user", &json!({"question": "again?"})))?;
    let second = client.take("the second question", is_question)?;
    assert_ne!(first.id(), second.id());
    let answer = |id: &str, word: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{"answer":"{word}"}}}}}}"#
        )
    };
    client.send(&answer(first.id().unwrap_or_default(), "late"))?;
    client.send(&answer(second.id().unwrap_or_default(), "right"))?;
    let answered = client.answer("2")?;
    assert!(answered.text().contains("right"), "{answered:?}");
    stop(running)
}

#[test]
fn arguments_that_do_not_fit_never_reach_the_server() -> anyhow::Result<()> {
    let fixture = fixture("", "")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let failure = failure(&client.call("1", "typed", &json!({"n": "00713"}))?)?;
    assert_eq!(failure["code"], "INVALID_REQUEST");
    assert_eq!(failure["details"]["errors"][0]["path"], "/n");
    echo(client, "2")?;
    assert!(
        read_told(&state)?
            .iter()
            .all(|told| !told.line.contains("00713"))
    );
    stop(running)
}

#[test]
fn results_that_do_not_fit_pass_and_are_told_to_the_operator() -> anyhow::Result<()> {
    let running = open("--system-tools", "")?;
    let client = running.client()?;
    let listed = client.request("1", "tools/list", &json!({}))?;
    assert!(listed.text().contains("system_health"));
    let wrong = client.call("2", "typed", &json!({"n": 1, "wrong": true}))?;
    assert_ne!(wrong.at("/result/isError"), true, "{wrong:?}");
    let telemetry = client.call("3", "system_telemetry", &json!({"render": "json"}))?;
    let mismatches = telemetry.at("/result/structuredContent/schema_mismatches");
    assert_eq!(mismatches[0]["tool"], "typed", "{telemetry:?}");
    assert_eq!(mismatches[0]["side"], "output");
    let health = client.call("4", "system_health", &json!({"render": "json"}))?;
    assert_eq!(health.at("/result/structuredContent/state"), "ready");
    stop(running)
}

#[test]
fn a_flood_is_bounded_and_every_call_is_answered_once() -> anyhow::Result<()> {
    let running = open("", "")?;
    let client = running.client()?;
    echo(client, "\"first\"")?;
    let calls = 1000;
    let lines: String = (1..=calls)
        .map(|id| call(&id.to_string(), "sleep", &json!({"ms": 20})) + "\n")
        .collect();
    client.send_raw(lines)?;
    let mut answered = BTreeSet::new();
    let mut overloaded = 0;
    for _ in 1..=calls {
        let answer = client.take("an answer", |message| message.id().is_some())?;
        let id = answer.id().unwrap_or_default().to_owned();
        assert!(answered.insert(id.clone()), "{id} was answered twice");
        if answer.at("/result/isError") == true {
            assert_eq!(failure(&answer)?["code"], "QUEUE_OVERLOADED");
            overloaded += 1;
        }
    }
    assert_eq!(answered.len(), calls);
    assert!(overloaded > 0, "nothing was refused");
    echo(client, "\"last\"")?;
    stop(running)
}

#[test]
fn text_that_is_too_long_is_cut_and_the_rest_can_be_read() -> anyhow::Result<()> {
    let running = fixture("--max-output 1K", "")?.spawn()?;
    let client = running.client()?;
    let opened = client.open(&json!({}))?;
    assert!(opened.at("/result/capabilities/resources").is_object());
    let big = client.call("1", "big", &json!({"bytes": 50_000}))?;
    let shown = text(&big);
    assert!(shown.len() < 1400, "{}", shown.len());
    let uri = shown
        .rsplit(' ')
        .find(|word| word.starts_with("mainstay://output/"))
        .unwrap_or_default();
    let rest = client.request("2", "resources/read", &json!({"uri": uri}))?;
    // What was shown and the rest are everything, once.
    let rest = rest.at("/result/contents/0/text");
    let rest = rest.as_str().unwrap_or_default();
    let given = shown.get(..1024).unwrap_or_default();
    assert!(!given.contains(char::is_whitespace), "{shown}");
    assert_eq!(given.len() + rest.len(), 50_000, "{uri}");
    let structured = client.call("3", "big", &json!({"bytes": 50_000, "structured": true}))?;
    let failure = failure(&structured)?;
    assert!(
        failure["hint"]
            .as_str()
            .unwrap_or_default()
            .contains("ask for less"),
        "{failure}"
    );
    let small = client.call("4", "big", &json!({"bytes": 100}))?;
    assert_eq!(text(&small).len(), 100);
    stop(running)
}

#[test]
fn denied_tools_are_neither_listed_nor_called() -> anyhow::Result<()> {
    let running = open("--allow e* --allow add --allow append --deny append", "")?;
    let client = running.client()?;
    let listed = client.request("1", "tools/list", &json!({}))?;
    let names: Vec<String> = listed
        .at("/result/tools")
        .as_array()
        .map_or_else(Vec::new, |tools| {
            tools
                .iter()
                .filter_map(|tool| Some(tool["name"].as_str()?.to_owned()))
                .collect()
        });
    assert!(
        names.contains(&"echo".to_owned()) && names.contains(&"add".to_owned()),
        "{names:?}"
    );
    assert!(
        names
            .iter()
            .all(|name| name == "add" || name.starts_with('e')),
        "{names:?}"
    );
    let refused = failure(&client.call("2", "append", &json!({"key": "k", "text": "t"}))?)?;
    assert_eq!(refused["code"], "FORBIDDEN");
    echo(client, "3")?;
    stop(running)
}

#[test]
fn a_lost_call_is_probed_for_and_repeated_only_if_it_took_no_effect() -> anyhow::Result<()> {
    let probe = json!({"tool": "lookup", "arguments": {"key": "/key"},
        "applied": {"path": "/structuredContent/found", "equals": true},
        "not_applied": {"path": "/structuredContent/found", "equals": false}});
    let rules = json!({"tools": {"settle": {"replay": "probe_required", "probe": probe}}});
    let fixture = configured(&rules, "")?;
    let (effects, state) = (fixture.effects(), fixture.state());
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    // Lost before its effect: it runs again. Lost after it: it does not.
    for (id, key, pause) in [
        ("1", "before", "pause_ms"),
        ("2", "after", "pause_after_ms"),
    ] {
        let server = only_server(&running)?;
        client.send(&call(
            id,
            "settle",
            &json!({"key": key, "value": "v", pause: 4000}),
        ))?;
        wait_told(&state, &format!("\"{key}\""), 1)?;
        if key == "after" {
            eventually("the effect took place", || {
                read_executed(&effects)
                    .is_ok_and(|executed| executed.iter().any(|one| one.key == key))
            })?;
        }
        assert!(kill(server));
        let answer = client.answer(id)?;
        assert_ne!(answer.at("/result/isError"), true, "{key}: {answer:?}");
        let executed = read_executed(&effects)?;
        let times = executed.iter().filter(|one| one.key == key).count();
        assert_eq!(times, 1, "{key}");
        if key == "after" {
            assert_eq!(answer.at("/result/structuredContent/applied"), true);
        }
    }
    stop(running)
}

#[test]
fn a_successor_with_other_tools_is_announced_once() -> anyhow::Result<()> {
    for options in ["--declare-list-changed", ""] {
        let fixture = fixture("", options)?;
        let tools = fixture.path("tools.json");
        let echo_tool = json!({"name": "echo", "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": true}});
        std::fs::write(&tools, json!([echo_tool]).to_string())?;
        let running = fixture.word("--tools").word(&tools).spawn()?;
        let client = running.client()?;
        let opened = client.open(&json!({}))?;
        let declared = opened.at("/result/capabilities/tools/listChanged");
        assert_eq!(
            declared, true,
            "the host announces it, whatever the server does"
        );
        client.request("1", "tools/list", &json!({}))?;
        let more = json!({"name": "add", "inputSchema": {"type": "object"}});
        std::fs::write(&tools, json!([echo_tool, more]).to_string())?;
        assert!(kill(only_server(&running)?));
        echo(client, "2")?;
        client.notification("notifications/tools/list_changed")?;
        let (rest, _) = running.finish()?;
        let again = rest.iter().any(|line| line.text().contains("list_changed"));
        assert!(!again, "{rest:?}");
    }
    Ok(())
}

#[test]
fn characters_that_nobody_sees_are_flagged() -> anyhow::Result<()> {
    let fixture = fixture("", "")?;
    let tools = fixture.path("tools.json");
    let poisoned = json!([{"name": "echo", "inputSchema": {"type": "object"},
        "description": "Echoes.\u{200b}\u{e0041}\u{1b}"}]);
    std::fs::write(&tools, poisoned.to_string())?;
    let running = fixture.word("--tools").word(&tools).spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let listed = client.request("1", "tools/list", &json!({}))?;
    assert!(listed.text().contains("Echoes."), "it passes unchanged");
    let told = "tool=echo at /description U+200B U+E0041 U+001B";
    running.wait_for_line(&format!("reason=hidden_characters pack=mcp-fixture {told}"))?;
    stop(running)
}

#[test]
fn discovery_is_answered_at_once_the_second_time() -> anyhow::Result<()> {
    let cache = TempDir::new()?;
    let discover = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let private = r#""ttlMs":0,"cacheScope":"private""#;
    let changed = |to: &str| format!("{private}=>{to}");
    let (public, of_one) = (
        changed(r#""ttlMs":3600000,"cacheScope":"public""#),
        changed(r#""ttlMs":3600000,"cacheScope":"private""#),
    );
    for (era, rewrite, code) in [
        ("both", &public, Value::Null),
        ("both", &of_one, Value::Null),
        ("legacy", &public, json!(-32601)),
    ] {
        let mut answers = Vec::new();
        // While the gate is shut the server does not begin to read: an answer cannot be its own.
        let gate = cache.path().join("gate");
        let script = "while [ -e gate ]; do sleep 0.1; done; exec \"$0\" \"$@\"";
        for is_shut in [false, true] {
            if is_shut {
                std::fs::write(&gate, "")?;
            }
            let mainstay = binary("mainstay")?.into_os_string();
            let here = cache.path().as_os_str().to_owned();
            // What is remembered is that of a command in a directory with an environment.
            let prefix = [
                "env".into(),
                "-u".into(),
                MARKER.into(),
                "-C".into(),
                here,
                mainstay,
                "wrap".into(),
                "--".into(),
            ];
            let program = binary("mcp-fixture")?;
            let launch = Launch::new(prefix)?
                .words(["sh", "-c", script])
                .words([program.into_os_string()])
                .words(["--era", era, "--rewrite", rewrite])
                .env("MAINSTAY_CACHE_DIR", cache.path());
            let running = launch.spawn()?;
            let client = running.client()?;
            client.send(discover)?;
            let answer = client.answer("1")?;
            answers.push(answer.text().to_owned());
            assert_eq!(answer.at("/error/code"), code, "{answer:?}");
            drop(running);
        }
        let [first, second] = &answers[..] else {
            anyhow::bail!("two runs");
        };
        // Its age is taken from the time for which it may be kept; all else has the same bytes.
        let without_ttl = |text: &str| {
            let (before, rest) = text.split_once("\"ttlMs\":").unwrap_or((text, ""));
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}{rest}")
        };
        if code.is_null() {
            assert_eq!(without_ttl(first), without_ttl(second));
            assert_ne!(first, second, "it is older");
        }
        std::fs::remove_file(&gate)?;
    }
    Ok(())
}

#[test]
fn progress_is_coalesced_and_the_last_one_comes_before_the_answer() -> anyhow::Result<()> {
    let running = open("", "")?;
    let client = running.client()?;
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":600,"steps":20000},"_meta":{"progressToken":"t"}}}"#;
    let began = Instant::now();
    client.send(line)?;
    let (mut seen, mut last) = (0_u64, 0);
    let answer = loop {
        let message = client.next()?;
        if message.id().is_some() {
            break message;
        }
        assert_eq!(message.at("/method"), "notifications/progress");
        let progress = message.at("/params/progress").as_u64().unwrap_or_default();
        assert!(progress > last, "{progress} after {last}");
        (seen, last) = (seen + 1, progress);
    };
    let seconds = began.elapsed().as_secs() + 1;
    assert_eq!(text(&answer), "slept 600 ms");
    assert_eq!(last, 20_000, "the last one is kept");
    // Four for each second, and the last one early.
    assert!(seen <= 4 * seconds + 1, "{seen} in {seconds} s");
    stop(running)
}

#[test]
fn no_spelling_of_a_denied_tool_reaches_the_server() -> anyhow::Result<()> {
    let fixture = fixture("--deny echo", "")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    for (number, name) in ["echo", "ECHO", "Echo", "echo ", "e\u{301}cho", "unheard"]
        .iter()
        .enumerate()
    {
        let id = number.to_string();
        let refused = failure(&client.call(&id, name, &json!({"text": "x"}))?)?;
        assert_eq!(refused["code"], "FORBIDDEN", "{name}: {refused}");
    }
    let params = json!({"name": "echo", "arguments": {"text": "x"}});
    client.send(&request_line("8", "Tools/Call", &params))?;
    let refused = client.next()?;
    assert_eq!(refused.at("/error/code"), -32601, "{refused:?}");
    let added = client.call("9", "add", &json!({"a": 1, "b": 2}))?;
    assert_ne!(added.at("/result/isError"), true, "{added:?}");
    let told = std::fs::read_to_string(state)?;
    assert_eq!(told.matches("tools/call").count(), 1, "{told}");
    stop(running)
}

#[test]
fn rejected_arguments_are_logged_and_kept_with_their_request() -> anyhow::Result<()> {
    let running = open("--system-tools", "")?;
    let client = running.client()?;
    let refused = failure(&client.call("\"r-7\"", "add", &json!({"a": "one", "b": 2}))?)?;
    assert_eq!(refused["code"], "INVALID_REQUEST", "{refused}");
    running.wait_for_line("reason=schema_mismatch side=input tool=add path=\"/a\" request=")?;
    let telemetry = client.call("2", "system_telemetry", &json!({}))?;
    let telemetry = telemetry.at("/result/structuredContent");
    let mismatch = &telemetry["schema_mismatches"][0];
    assert_eq!(mismatch["tool"], "add", "{telemetry:#}");
    assert_eq!(mismatch["request_id"], "\"r-7\"", "{telemetry:#}");
    assert!(
        mismatch["ts"].as_str().is_some_and(|ts| ts.ends_with('Z')),
        "{telemetry:#}"
    );
    // The host's own tools are counted by their names.
    let again = client.call("3", "system_telemetry", &json!({}))?;
    let again = again.at("/result/structuredContent/methods");
    let methods: Vec<&str> = again
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|method| method["method"].as_str())
        .collect();
    assert!(methods.contains(&"system_telemetry"), "{methods:?}");
    assert!(!methods.contains(&"tools/call"), "{methods:?}");
    stop(running)
}

#[test]
fn each_client_of_a_socket_has_a_server_of_its_own() -> anyhow::Result<()> {
    let fixture = fixture("--socket mcp.sock", "")?;
    let socket = fixture.path("mcp.sock");
    let running = fixture.spawn()?;
    running.wait_for_line("mcp:ready mode=socket")?;
    let connect = || -> anyhow::Result<(Client, UnixStream)> {
        let stream = UnixStream::connect(&socket)?;
        let client = Client::new(stream.try_clone()?, stream.try_clone()?);
        client.open(&json!({}))?;
        Ok((client, stream))
    };
    let ((first, _kept), (second, stream)) = (connect()?, connect()?);
    let servers = running.wait_for_workers(SERVER, 2)?;
    // Equal ids do not meet.
    for client in [&first, &second] {
        echo(client, "1")?;
    }
    failure(&first.call("2", "crash", &json!({"how": "kill"}))?)?;
    echo(&second, "2")?;
    echo(&first, "3")?;
    assert_eq!(
        running
            .workers(SERVER)
            .iter()
            .filter(|pid| servers.contains(pid))
            .count(),
        1
    );
    stream.shutdown(std::net::Shutdown::Both)?;
    running.wait_for_workers(SERVER, 1)?;
    echo(&first, "4")?;
    running.terminate()?;
    Ok(())
}
