//! Every row of the error table, said by a tool: the same in every way, whatever it adds.

use anyhow::Context as _;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::Problem;
use mainstay_testkit::process::Serve;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::ways::Ways;

fn start() -> anyhow::Result<Ways> {
    Ways::start(|serve: Serve| serve.misbehaving("fail"))
}

/// The kind that clients see: an internal error that a pack reports is one of the tool.
fn seen(kind: ErrorKind) -> ErrorKind {
    match kind {
        ErrorKind::Internal => ErrorKind::ToolFailed,
        kind => kind,
    }
}

fn arguments(problem: &Problem) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(problem)?)
}

#[test]
fn every_row_is_equal_over_http_stdio_socket_and_the_command_line() -> anyhow::Result<()> {
    let mut ways = start()?;
    for kind in ErrorKind::ALL.iter().copied() {
        let mut problem = Problem::of(kind);
        problem.stderr = Some("last words".to_owned());
        let arguments = arguments(&problem)?;
        let said = ways.programs("once", &arguments).with_context(|| kind)?;
        assert_eq!(said.kind(), seen(kind));
        assert_eq!(said.payload()["message"], kind.row().message);
        ways.commands(&said, "once", &arguments)
            .with_context(|| kind)?;
    }
    ways.stop()
}

fn problems() -> impl Strategy<Value = Problem> {
    let text = || prop::option::of(any::<String>());
    let details = prop_oneof![
        Just(None),
        any::<String>().prop_map(|text| Some(json!({ "ok": false, "text": text }))),
        any::<i64>().prop_map(|number| Some(json!({ "n": number, "list": [null, 1.5, {}] }))),
    ];
    let timeout = prop::option::of(0_u64..1 << 53);
    (
        (prop::sample::select(ErrorKind::ALL), any::<String>()),
        (text(), text(), text()),
        (details, timeout),
    )
        .prop_map(
            |((kind, message), (hint, stderr, stdout), (details, timeout))| {
                let mut problem = Problem::new(kind, message);
                problem.hint = hint;
                problem.stderr = stderr;
                problem.stdout = stdout;
                problem.details = details.map(Json::from);
                problem.timeout_ms = timeout;
                problem
            },
        )
}

#[test]
fn whatever_a_problem_adds_to_its_row_is_said_in_every_way() -> anyhow::Result<()> {
    let mut ways = start()?;
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    });
    let tried = std::cell::RefCell::new(&mut ways);
    runner
        .run(&problems(), |problem| {
            let arguments = arguments(&problem).map_err(|error| fail(&error))?;
            let said = tried.borrow_mut().programs("once", &arguments);
            let said = said.map_err(|error| fail(&error))?;
            let seen = Problem {
                kind: seen(problem.kind),
                ..problem
            };
            prop_assert_eq!(said.kind(), seen.kind);
            prop_assert_eq!(&said.payload()["message"], &json!(seen.sentence()));
            Ok(())
        })
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    ways.stop()
}

fn fail(error: &anyhow::Error) -> TestCaseError {
    TestCaseError::fail(format!("{error:#}"))
}
