//! `mainstay call` and `tools` with `--url`: as with a host of their own.

use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::{Serve, binary};

use crate::http::Host;

fn mainstay(words: &[&str], token: Option<&str>) -> anyhow::Result<Output> {
    let mut command = Command::new(binary("mainstay")?);
    command.args(words).env_remove("MAINSTAY_TOKEN");
    if let Some(token) = token {
        command.env("MAINSTAY_TOKEN", token);
    }
    command.output().context("running mainstay")
}

#[test]
fn output_and_exit_codes_are_those_of_a_local_host() -> anyhow::Result<()> {
    let host = Host::start(Serve::stdio()?.pack("asset"))?;
    let url = host.url();
    for words in [
        &["tools"][..],
        &["tools", "--json"],
        &["call", "list_schemas"],
        &["call", "list_schemas", "--render", "json"],
        &["call", "get_schema", "name=none"],
        &["call", "get_schema"],
        &["call", "nope"],
    ] {
        let local = mainstay(&[words, &["--pack", "asset"]].concat(), None)?;
        let remote = mainstay(&[words, &["--url", &url]].concat(), None)?;
        assert_eq!(remote, local, "{words:?}");
    }
    host.stop()
}

#[test]
fn who_cannot_be_asked_is_named_with_what_to_do() -> anyhow::Result<()> {
    let serve = Serve::stdio()?
        .pack("asset")
        .env("MAINSTAY_TOKEN", "s3cret");
    let host = Host::start(serve)?;
    let url = host.url();
    let tools = |url: &str, token| mainstay(&["tools", "--url", url], token);
    assert_eq!(tools(&url, Some("s3cret"))?.status.code(), Some(0));
    let elsewhere = format!("{url}/elsewhere");
    for (url, token, said) in [
        (url.as_str(), None, "asks for a token"),
        (url.as_str(), Some("other"), "refuses the token"),
        (
            elsewhere.as_str(),
            Some("s3cret"),
            "not as a Mainstay host does",
        ),
        (
            "http://127.0.0.1:1",
            None,
            "cannot reach http://127.0.0.1:1",
        ),
        ("127.0.0.1:1", None, "is not the URL of a host"),
    ] {
        let output = tools(url, token)?;
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(stderr.contains(said) && stderr.contains("hint"), "{stderr}");
    }
    host.stop()
}
