//! Tasks of one host belong to their credential or to their Unix user: for all others the id is unknown, at every
//! door and in the words for an id that never was.

use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request, Session};
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{NOBODY, TempDir, Transport, is_root};
use rustix::process::Uid;
use serde_json::{Value, json};

use crate::issuer::{FAR, Issuer, RESOURCE};
use crate::world::World;

/// An id that never was.
const UNKNOWN: &str = "00000000000000000000000000000000";

/// The questions about a task over MCP.
fn questions(id: &str) -> [(&'static str, Value); 4] {
    [
        ("tasks/get", json!({ "taskId": id })),
        ("tasks/result", json!({ "taskId": id })),
        ("tasks/cancel", json!({ "taskId": id })),
        (
            "resources/read",
            json!({ "uri": format!("mainstay://task/{id}") }),
        ),
    ]
}

/// An error without the id that was asked for.
fn refusal(answer: &Value, id: &str) -> anyhow::Result<String> {
    let error = answer.get("error").with_context(|| answer.to_string())?;
    Ok(error.to_string().replace(id, "ID"))
}

#[test]
fn callers_with_two_tokens_do_not_see_each_others_tasks() -> anyhow::Result<()> {
    let world = World::new()?;
    let folder = TempDir::new()?;
    let issuer = Issuer::new(folder.path())?;
    let host = issuer.trusted_by(world.serve(Transport::Http)?).spawn()?;
    let address = host.address()?;
    let tokens = ["ada", "bob"].map(|subject| issuer.token(subject, RESOURCE, FAR));
    let ask = |who: usize, method: &str, path: &str, body: Option<&Value>| {
        let mut request = Request::to(address, method, path)
            .header("Authorization", &format!("Bearer {}", tokens[who]));
        if let Some(body) = body {
            request = request
                .header("Content-Type", "application/json")
                .header("Prefer", "respond-async")
                .body(body.to_string());
        }
        Connection::open(address)?.ask(&request)
    };
    let (ada, bob) = (0, 1);
    let body = json!({ "arguments": { "text": "a", "pause_ms": 600_000 } });
    let accepted = ask(ada, "POST", "/v1/tool/append", Some(&body))?;
    ensure!(accepted.status() == 202, "{}", accepted.text());
    let id = accepted.json()?["data"]["taskId"].clone();
    let id = id.as_str().context("an id")?.to_owned();
    for method in ["GET", "DELETE"] {
        let said = |id: &str| -> anyhow::Result<(u16, String)> {
            let answer = ask(bob, method, &format!("/v1/tasks/{id}"), None)?;
            Ok((answer.status(), answer.text().replace(id, "ID")))
        };
        let (foreign, unknown) = (said(&id)?, said(UNKNOWN)?);
        ensure!(foreign.0 == 404, "{method}: {foreign:?}");
        ensure!(foreign == unknown, "{method}: {foreign:?} {unknown:?}");
    }
    let session = Session::open_as(address, Some(&tokens[bob]))?;
    for (foreign, unknown) in questions(&id).iter().zip(&questions(UNKNOWN)) {
        let method = foreign.0;
        let foreign = session.request("1", method, &foreign.1)?;
        let unknown = session.request("1", method, &unknown.1)?;
        let (foreign, unknown) = (refusal(&foreign, &id)?, refusal(&unknown, UNKNOWN)?);
        ensure!(foreign == unknown, "{method}: {foreign} {unknown}");
    }
    let listed = session.request("2", "tasks/list", &json!({}))?;
    ensure!(listed["result"]["tasks"] == json!([]), "{listed}");
    let session = Session::open_as(address, Some(&tokens[ada]))?;
    let listed = session.request("1", "tasks/list", &json!({}))?;
    ensure!(listed["result"]["tasks"][0]["taskId"] == id, "{listed}");
    let own = ask(ada, "GET", &format!("/v1/tasks/{id}"), None)?;
    ensure!(own.json()?["status"] == "working", "{}", own.text());
    let own = ask(ada, "DELETE", &format!("/v1/tasks/{id}"), None)?;
    ensure!(own.json()?["status"] == "cancelled", "{}", own.text());
    Ok(())
}

#[test]
fn another_unix_user_at_the_socket_does_not_see_a_task() -> anyhow::Result<()> {
    if !is_root() {
        println!("skipped: only root can connect as two users");
        return Ok(());
    }
    let world = World::new()?;
    let folder = TempDir::new()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    let host = world
        .serve(Transport::Socket)?
        .env("MCP_SOCKET_MODE", "0666")
        .at(folder.path().join("socket"))
        .spawn()?;
    let client = host.connect()?;
    client.open(&json!({}))?;
    let start = |client: &Client, text: &str| -> anyhow::Result<String> {
        let arguments = json!({ "text": text, "pause_ms": 600_000 });
        let params = json!({ "name": "append", "arguments": arguments, "task": {} });
        let answer = client.request("\"start\"", "tools/call", &params)?;
        let id = answer.at("/result/task/taskId");
        let id = id.as_str().with_context(|| format!("{answer:?}"))?;
        Ok(id.to_owned())
    };
    let of_root = start(&client, "root")?;
    // The user of a thread counts at the socket.
    let as_nobody = || -> anyhow::Result<String> {
        let nobody = Uid::from_raw(NOBODY);
        rustix::thread::set_thread_res_uid(None, nobody, None)?;
        let client = host.connect()?;
        client.open(&json!({}))?;
        for (foreign, unknown) in questions(&of_root).iter().zip(&questions(UNKNOWN)) {
            let method = foreign.0;
            let foreign = client.request(&format!("\"{method}\""), method, &foreign.1)?;
            let unknown = client.request(&format!("\"{method} 0\""), method, &unknown.1)?;
            let said = |answer: &Value, id| refusal(&json!({ "error": answer }), id);
            let foreign = said(&foreign.at("/error"), &of_root)?;
            let unknown = said(&unknown.at("/error"), UNKNOWN)?;
            ensure!(
                foreign == unknown && foreign != "null",
                "{method}: {foreign} {unknown}"
            );
        }
        let of_nobody = start(&client, "nobody")?;
        let listed = client.request("\"list\"", "tasks/list", &json!({}))?;
        let tasks = listed.at("/result/tasks");
        ensure!(tasks.as_array().map(Vec::len) == Some(1), "{listed:?}");
        ensure!(tasks[0]["taskId"] == of_nobody, "{listed:?}");
        Ok(of_nobody)
    };
    let of_nobody = std::thread::scope(|scope| scope.spawn(as_nobody).join());
    let of_nobody = of_nobody.map_err(|_| anyhow::anyhow!("the thread panicked"))??;
    // The command line is that of root.
    ensure!(world.show(&of_root)?["status"] == "working");
    for words in [["show", &of_nobody], ["cancel", &of_nobody]] {
        let output = world.tasks(&words)?;
        ensure!(output.status.code() == Some(1), "{words:?}: {output:?}");
    }
    let listed = world.tasks(&["list"])?;
    ensure!(listed.stdout.starts_with(b"1 task"), "{listed:?}");
    // Nor is the file of root any use to another user.
    let output = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(mainstay_testkit::process::binary("mainstay")?)
        .args(["tasks", "show", &of_root])
        .env("MAINSTAY_STATE_DIR", world.state())
        .output()
        .context("running setpriv")?;
    ensure!(!output.status.success(), "{output:?}");
    ensure!(output.stdout.is_empty(), "{output:?}");
    Ok(())
}
