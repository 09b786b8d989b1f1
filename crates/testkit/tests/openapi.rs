//! The description of our HTTP, read by others: the document is valid OpenAPI, and requests made up
//! from it, good and bad, are answered as it says.

#![expect(clippy::print_stdout, reason = "what is skipped is said")]

use std::fs;
use std::process::Command;

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request};
use mainstay_testkit::judge::{finished, python};
use mainstay_testkit::process::{Running, Serve};

/// Requests for each operation; with the seed, the same ones in every run.
const EXAMPLES: &str = "20";
const SEED: &str = "1";

/// What each answer is judged by. That good requests are accepted is not among it: the document
/// describes the arguments of all tools at once, and each tool is stricter.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,negative_data_rejection,\
    unsupported_method,allow_header_conformance";

/// A host with tools that need no network and no time, its document, and a Python with the judges.
struct Case {
    host: Running,
    document: String,
    python: Command,
}

/// `None`, with a word, where the judges are not installed or there is nothing to judge yet.
fn case(host: Serve) -> anyhow::Result<Option<Case>> {
    let Some(python) = python()? else {
        println!("SKIPPED: the readers of OpenAPI are not installed (cargo xtask tools)");
        return Ok(None);
    };
    let host = host.pack("asset").spawn()?;
    let request = Request::to(host.address()?, "GET", "/openapi.json");
    let answer = Connection::open(host.address()?)?.ask(&request)?;
    if answer.status() == 404 {
        println!("SKIPPED: this host does not describe itself");
        host.stop()?;
        return Ok(None);
    }
    ensure!(answer.status() == 200, "{}", answer.text());
    ensure!(
        answer.head.media_type() == "application/json",
        "{:?}",
        answer.head
    );
    let document = answer.text();
    Ok(Some(Case {
        host,
        document,
        python,
    }))
}

#[test]
fn description_is_valid_openapi() -> anyhow::Result<()> {
    let Some(mut case) = case(Serve::http()?)? else {
        return Ok(());
    };
    let file = case.host.folder().join("openapi.json");
    fs::write(&file, &case.document).context("a file")?;
    let judge = case.python.args(["-m", "openapi_spec_validator"]);
    finished(judge.arg(&file))?;
    case.host.stop()
}

#[test]
fn requests_made_up_from_the_description_are_answered_as_it_says() -> anyhow::Result<()> {
    let Some(mut case) = case(Serve::http()?)? else {
        return Ok(());
    };
    let url = format!("http://{}/openapi.json", case.host.address()?);
    let judge = case.python.args(["-m", "schemathesis.cli", "run", &url]);
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
    judge.args(["--request-timeout", "20", "--workers", "2"]);
    judge.arg("--continue-on-failure");
    finished(judge.current_dir(case.host.folder()))
        .with_context(|| format!("standard error: {:#?}", case.host.stderr()))?;
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
