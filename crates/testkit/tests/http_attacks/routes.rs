//! Places that are not there, and ways in which they may not be asked.

use anyhow::ensure;
use mainstay_testkit::http::{Request, Session, initialize};

use crate::victim::{KINDS, Victim, expect};

#[test]
fn unknown_route_is_not_found() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        for route in [
            "/nowhere",
            "/mcp/",
            "/mcp/x",
            "//mcp",
            "/MCP",
            "/../mcp",
            "/%6dcp",
            "/v1",
            "/schemas/../../../etc/passwd",
            "/schemas/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
            "/schemas/..%5c..%5cetc%5cpasswd",
        ] {
            for method in ["GET", "POST"] {
                let answer = victim.ask(&Request::to(victim.address, method, route))?;
                // Below /schemas there are places, only none that takes a POST.
                let is_wrong_way = method == "POST" && route.starts_with("/schemas/");
                let statuses: &[u16] = if is_wrong_way { &[404, 405] } else { &[404] };
                expect(&answer, statuses, &format!("{method} {route}"))?;
            }
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn wrong_method_is_refused_with_those_that_are_allowed() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        for method in ["PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"] {
            let request = Request::to(victim.address, method, "/mcp");
            let mut connection = victim.connect()?;
            connection.send(&request.bytes())?;
            // The answer to HEAD has a length and no body.
            let (head, _) = connection.head()?;
            ensure!(head.status == 405, "{method}: {}", head.status);
            let allow = head.header("allow").unwrap_or_default();
            for allowed in ["GET", "POST", "DELETE"] {
                ensure!(allow.contains(allowed), "{method}: Allow: {allow}");
            }
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn connect_opens_no_tunnel() -> anyhow::Result<()> {
    let victim = Victim::start(KINDS[0])?;
    let request = Request::to(victim.address, "CONNECT", "evil.example:80");
    let mut connection = victim.connect()?;
    connection.send(&request.bytes())?;
    let (head, _) = connection.head()?;
    ensure!((400..500).contains(&head.status), "{}", head.status);
    victim.survives()
}

#[test]
fn body_that_is_no_message_is_refused_and_opens_nothing() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        for body in [
            "",
            " ",
            "null",
            "{",
            "[]",
            "[{}]",
            "\"x\"",
            "{}\n{}",
            "\u{feff}{}",
            "{\"id\":1}",
        ] {
            let answer = victim.ask(&Request::message(victim.address, body))?;
            expect(&answer, &[400], &format!("{body:?}"))?;
            ensure!(answer.head.header("mcp-session-id").is_none(), "a session");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let answer = victim.ask(&Request::message(victim.address, &deep))?;
        expect(&answer, &[400], "a deep body")?;
        // A form, as a page may send it without asking first.
        for kind in ["text/plain", "application/x-www-form-urlencoded"] {
            let request = initialize(victim.address)
                .without("content-type")
                .header("Content-Type", kind);
            expect(&victim.ask(&request)?, &[400, 415], kind)?;
        }
        let session = Session::open(victim.address)?;
        let batch = session.post(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#);
        expect(&session.ask(&batch)?, &[400], "a batch")?;
        victim.survives()?;
    }
    Ok(())
}
