//! The description of our HTTP, read by others: the document is valid OpenAPI, and requests made up
//! from it, good and bad, are answered as it says.

#![expect(clippy::print_stdout, reason = "what is skipped is said")]

use std::process::Command;

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request};
use mainstay_testkit::judge::{finished, python};
use mainstay_testkit::process::{Running, Serve};

/// Requests for each operation; with the seed, the same ones in every run.
const EXAMPLES: &str = "20";
const SEED: &str = "1";

/// Operations that there are at least, without those of `/mcp`.
const OPERATIONS: usize = 8;

/// What each answer is judged by. That good requests are accepted is not among it: the document
/// describes the arguments of all tools at once, and each tool is stricter.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,negative_data_rejection,\
    unsupported_method,allow_header_conformance";

/// A host with tools that need no network and no time, where it describes itself, and a Python
/// with the judges.
struct Case {
    host: Running,
    url: String,
    python: Command,
}

/// `None`, with a word, where the judges are not installed.
fn case(host: Serve) -> anyhow::Result<Option<Case>> {
    let Some(python) = python()? else {
        println!("SKIPPED: the readers of OpenAPI are not installed (cargo xtask tools)");
        return Ok(None);
    };
    let host = host.pack("asset").spawn()?;
    let request = Request::to(host.address()?, "GET", "/openapi.json");
    let answer = Connection::open(host.address()?)?.ask(&request)?;
    ensure!(answer.status() == 200, "{}", answer.text());
    ensure!(
        answer.head.media_type() == "application/json",
        "{:?}",
        answer.head
    );
    let url = format!("http://{}/openapi.json", host.address()?);
    Ok(Some(Case { host, url, python }))
}

#[test]
fn description_is_valid_openapi() -> anyhow::Result<()> {
    let Some(mut case) = case(Serve::http()?)? else {
        return Ok(());
    };
    // From its text alone, without the address from which it came.
    let validate = "import json, sys, urllib.request, openapi_spec_validator as v; \
        v.validate(json.load(urllib.request.urlopen(sys.argv[1])))";
    finished(case.python.args(["-c", validate, &case.url]))?;
    case.host.stop()
}

#[test]
fn requests_made_up_from_the_description_are_answered_as_it_says() -> anyhow::Result<()> {
    let Some(mut case) = case(Serve::http()?)? else {
        return Ok(());
    };
    let judge = case
        .python
        .args(["-m", "schemathesis.cli", "run", &case.url]);
    // Streams have no end; the conformance suite judges them.
    judge.args([
        "--exclude-path",
        "/mcp",
        "--phases",
        "examples,coverage,fuzzing",
    ]);
    judge.args([
        "--checks",
        CHECKS,
        "--max-examples",
        EXAMPLES,
        "--seed",
        SEED,
    ]);
    // One worker: with several, Python 3.11 now and then fails to parse its own source
    // (gh-106905, "AST constructor recursion depth mismatch").
    judge.args(["--request-timeout", "120", "--workers", "1"]);
    judge.arg("--continue-on-failure");
    let judged = finished(judge.current_dir(case.host.folder()))
        .with_context(|| format!("standard error: {:#?}", case.host.stderr()))?;
    let said = String::from_utf8_lossy(&judged.stdout);
    let tested = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("Tested: ")?.parse::<usize>().ok());
    ensure!(tested >= Some(OPERATIONS), "{tested:?} operations: {said}");
    case.host.stop()
}

/// The document and what it describes are for those who have the token.
#[test]
fn description_says_what_is_guarded() -> anyhow::Result<()> {
    let host = Serve::http()?.env("MAINSTAY_TOKEN", "open-sesame");
    let host = host.pack("asset").spawn()?;
    let request = Request::to(host.address()?, "GET", "/openapi.json");
    let refused = Connection::open(host.address()?)?.ask(&request)?;
    ensure!(refused.status() == 401, "{}", refused.status());
    host.stop()
}

/// The page of metrics, read by Prometheus' own library: every family has a type, every counter its
/// ending, and what was done is counted.
#[test]
fn metrics_are_read_by_prometheus() -> anyhow::Result<()> {
    let Some(mut case) = case(Serve::http()?)? else {
        return Ok(());
    };
    let address = case.host.address()?;
    let call = Request::to(address, "POST", "/v1/tool/list_schemas")
        .header("Content-Type", "application/json")
        .body("{}");
    ensure!(Connection::open(address)?.ask(&call)?.status() == 200);
    let read = "import sys, urllib.request as r\n\
        from prometheus_client.parser import text_string_to_metric_families as families\n\
        text = r.urlopen(sys.argv[1]).read().decode()\n\
        seen = {f.name: f for f in families(text)}\n\
        assert len(seen) > 8, list(seen)\n\
        assert all(f.type != 'unknown' and f.documentation for f in seen.values()), seen\n\
        counted = [s for s in seen['mainstay_requests'].samples if s.labels.get('tool') == 'list_schemas']\n\
        assert sum(s.value for s in counted) == 1, counted\n\
        times = seen['mcp_server_operation_duration_seconds']\n\
        assert times.type == 'histogram', times\n\
        lines = [l.split()[2] for l in text.splitlines() if l.startswith('# TYPE')]\n\
        assert len(lines) == len(set(lines)), lines\n";
    let url = format!("http://{address}/metrics");
    finished(case.python.args(["-c", read, &url]))?;
    case.host.stop()
}
