//! The operator's page in a real browser, and what it refuses.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    missing_debug_implementations,
    unreachable_pub,
    reason = "helpers of tests, which clippy does not know as such"
)]

mod browser;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mainstay_testkit::process::{TempDir, kill, program};
use serde_json::{Value, json};

use self::browser::Browser;

const TOKEN: &str = "a-token-of-the-page";
/// For anything of a host.
const PATIENCE: Duration = Duration::from_secs(120);
/// The folder for pictures of the page, for the documentation.
const PICTURES: &str = "MAINSTAY_TEST_PICTURES";

/// A host on HTTP that wraps the test server.
struct Host {
    process: Child,
    url: String,
    folder: TempDir,
}

impl Host {
    fn start(token: Option<&str>) -> Self {
        let folder = TempDir::new().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/server.py");
        let python = program("python3", Path::new("/usr/bin")).unwrap();
        let server = folder.join("shop");
        let line = format!(
            "#!/bin/sh\nexec {} {} \"$@\"\n",
            python.display(),
            script.display()
        );
        fs::write(&server, line).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&server, mode).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
        command
            .args(["wrap", "--http", "127.0.0.1:0", "--name", "shop", "--"])
            .arg(&server)
            .arg(folder.path())
            .env("MCP_READY_FILE", folder.join("ready"))
            .env("MAINSTAY_RUNTIME_DIR", folder.join("run"))
            .env("MAINSTAY_CACHE_DIR", folder.join("cache"))
            .env("MAINSTAY_STATE_DIR", folder.join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(token) = token {
            command.env("MAINSTAY_TOKEN", token);
        }
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap())
            .lines()
            .map(Result::unwrap);
        let ready = lines.find(|line| line.contains("mcp:ready")).unwrap();
        // The host must not wait for a reader of its log.
        std::thread::spawn(move || lines.for_each(drop));
        let address = ready.split("address=").nth(1).unwrap();
        let address = address.split_whitespace().next().unwrap();
        Self {
            process,
            url: format!("http://{address}"),
            folder,
        }
    }

    /// Sends a request, and returns the status, the cookie that was set, and the body.
    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Reply {
        let config = ureq::Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE));
        let agent: ureq::Agent = config.build().into();
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let mut answer = match body {
            Some(body) => agent.run(request.body(body.to_string()).unwrap()),
            None => agent.run(request.body(()).unwrap()),
        }
        .unwrap();
        let header = |name: &str| {
            let value = answer.headers().get(name);
            value
                .map(|value| value.to_str().unwrap().to_owned())
                .unwrap_or_default()
        };
        let (cookie, policy) = (header("set-cookie"), header("content-security-policy"));
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().unwrap();
        Reply {
            status,
            cookie,
            policy,
            value: serde_json::from_str(&text).unwrap_or_default(),
        }
    }

    /// The process of the server and its generation, from the host's own report.
    fn server(&self) -> Option<(u32, u64)> {
        let bearer = format!("Bearer {TOKEN}");
        let health = self
            .send("GET", "/healthz", &[("authorization", &bearer)], None)
            .value;
        let worker = &health["workers"][0];
        let pid = u32::try_from(worker["pid"].as_u64()?).ok()?;
        Some((pid, worker["generation"].as_u64()?))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("go"), "");
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    cookie: String,
    policy: String,
    value: Value,
}

fn wait_until(mut is_over: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_over() {
        assert!(Instant::now() < deadline, "it never came true");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn has_python() -> bool {
    let found = program("python3", Path::new("/usr/bin")).is_some();
    if !found {
        println!("skipped: Python is not installed");
    }
    found
}

#[test]
fn an_operator_signs_in_sees_a_restart_cancels_a_call_and_tries_a_tool() {
    if !has_python() {
        return;
    }
    let Some(browser) = Browser::start() else {
        return;
    };
    let host = Host::start(Some(TOKEN));
    browser.resize(1200, 1000);
    browser.open(&host.url);
    browser.wait("!document.querySelector('#sign-in').hidden");
    assert_eq!(
        browser.script("return document.querySelector('#dashboard').hidden"),
        json!(true)
    );
    browser.type_into("#token", "another-token-of-sixteen");
    browser.click("#sign-in button[type=submit]");
    browser.wait("document.querySelector('#sign-in-error').innerText.length > 0");
    browser.script("document.querySelector('#token').value = ''");
    browser.type_into("#token", TOKEN);
    browser.click("#sign-in button[type=submit]");
    browser.wait("document.querySelector('#host-state').innerText === 'ready'");
    browser.wait("document.querySelectorAll('#catalog tbody tr').length === 4");

    // Words of a server stay words.
    assert!(browser.text("#catalog").contains("<img src=x onerror="));
    let markup = "return document.querySelectorAll('#catalog img, #catalog script, #timeline img, #catalog b').length";
    assert_eq!(browser.script(markup), json!(0));
    assert!(!browser.text("title, h1").contains("owned"));
    assert_ne!(browser.script("return document.title"), json!("owned"));

    // A server that is killed is replaced before the operator's eyes.
    let shows = |generation: u64| {
        format!(
            "document.querySelector('#timeline').innerText.includes('generation {generation} ')"
        )
    };
    let (before, generation) = host.server().unwrap();
    browser.wait(&shows(generation));
    assert!(kill(before));
    let is_next = |(pid, next): (u32, u64)| pid != before && next > generation;
    wait_until(|| host.server().is_some_and(is_next));
    let (_, next) = host.server().unwrap();
    browser.wait(&shows(next));
    browser.wait("document.querySelector('#faults').innerText.includes('signal 9')");
    browser.wait("document.querySelector('#host-state').innerText === 'ready'");

    // A call of another client is cancelled.
    let call = std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let bearer = format!("Bearer {TOKEN}");
            host.send(
                "POST",
                "/v1/tool/hold",
                &[("authorization", &bearer)],
                Some(json!({})),
            )
        });
        wait_until(|| host.folder.join("holding").exists());
        browser.wait("document.querySelector('#calls tbody tr')");
        assert!(browser.text("#calls").contains("hold"));
        pictures(&browser);
        browser.click("#calls button.danger");
        call.join().unwrap()
    });
    assert_eq!(call.status, 499, "{call:?}");
    assert_eq!(
        call.value["error"]["details"]["code"], "CANCELLED",
        "{call:?}"
    );
    browser.wait("!document.querySelector('#calls tbody tr')");

    // A tool is tried, by keyboard to the filter and by its form.
    browser.script("document.activeElement.blur(); document.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))");
    assert_eq!(
        browser.script("return document.activeElement.id"),
        json!("filter")
    );
    browser.type_into("#filter", "echo");
    browser.wait("document.querySelectorAll('#catalog tbody tr').length === 1");
    browser.click("#catalog button");
    browser.wait("document.querySelector('#try').open");
    browser.type_into("#argument-text", "good morning");
    pictures_of_the_form(&browser);
    browser.click("#try-run");
    browser.wait("document.querySelector('#try-answer').innerText.includes('good morning')");
    assert_eq!(
        browser.script("return document.querySelectorAll('#try-answer i').length"),
        json!(0)
    );
    browser.click("#try-close");

    let complaints = browser.log();
    let complaints = complaints.as_array().unwrap().iter();
    let policy: Vec<&Value> = complaints
        .filter(|one| {
            one["message"]
                .as_str()
                .unwrap()
                .contains("Content Security Policy")
        })
        .collect();
    assert!(
        policy.is_empty(),
        "the page breaks its own policy: {policy:#?}"
    );

    browser.script("document.querySelector('#filter').value = ''");
    browser.click("#leave");
    browser.wait("!document.querySelector('#sign-in').hidden");
}

/// Writes pictures of the page where the documentation wants them.
fn pictures(browser: &Browser) {
    for (name, dark, width, height) in [
        ("light", false, 1200, 1060),
        ("dark", true, 1200, 1060),
        ("narrow", false, 390, 1100),
    ] {
        browser.dark(dark);
        browser.resize(width, height);
        keep(browser, name);
    }
    browser.dark(false);
    browser.resize(1200, 1000);
    browser.wait("window.innerWidth === 1200");
}

fn pictures_of_the_form(browser: &Browser) {
    keep(browser, "try");
}

fn keep(browser: &Browser, name: &str) {
    let wanted = std::env::vars().find(|(variable, _)| variable == PICTURES);
    let Some((_, folder)) = wanted else {
        return;
    };
    // A frame in the new size.
    std::thread::sleep(Duration::from_millis(1200));
    let coded = Path::new(&folder).join(format!("{name}.base64"));
    fs::write(&coded, browser.screenshot()).unwrap();
}

#[test]
fn a_host_without_a_token_shows_its_page_at_once() {
    if !has_python() {
        return;
    }
    let Some(browser) = Browser::start() else {
        return;
    };
    let host = Host::start(None);
    browser.open(&host.url);
    browser.wait("document.querySelector('#host-state').innerText === 'ready'");
    browser.wait("document.querySelectorAll('#catalog tbody tr').length === 4");
    assert_eq!(
        browser.script("return document.querySelector('#leave').hidden"),
        json!(true)
    );
}

#[test]
fn a_session_is_worth_nothing_to_other_pages_and_elsewhere() {
    if !has_python() {
        return;
    }
    let host = Host::start(Some(TOKEN));
    let page = host.send("GET", "/", &[], None);
    assert_eq!(page.status, 200);
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "trusted-types 'none'",
    ] {
        assert!(page.policy.contains(part), "{part} in {}", page.policy);
    }
    assert_eq!(host.send("GET", "/page/data", &[], None).status, 401);
    let wrong = host.send(
        "POST",
        "/page/session",
        &[],
        Some(json!({"token": "wrong"})),
    );
    assert_eq!((wrong.status, wrong.cookie.as_str()), (401, ""));
    assert_eq!(
        host.send("POST", "/page/session", &[], Some(json!({})))
            .status,
        401
    );

    let begun = host.send("POST", "/page/session", &[], Some(json!({"token": TOKEN})));
    assert_eq!(begun.status, 200, "{begun:?}");
    for part in ["HttpOnly", "SameSite=Strict", "Path=/page"] {
        assert!(begun.cookie.contains(part), "{part} in {}", begun.cookie);
    }
    assert!(!begun.cookie.contains(TOKEN), "the cookie is not the token");
    let cookie = begun.cookie.split(';').next().unwrap().to_owned();
    let cookie = ("cookie", cookie.as_str());
    let secret = begun.value["secret"].as_str().unwrap();
    assert_eq!(host.send("GET", "/page/data", &[cookie], None).status, 200);

    // The cookie opens the page's own routes alone.
    for path in ["/v1/tools", "/metrics", "/v1/diagnostics"] {
        assert_eq!(
            host.send("GET", path, &[cookie], None).status,
            401,
            "{path}"
        );
    }
    // A change needs the secret, and a browser that says where it comes from.
    let arguments = Some(json!({"arguments": {"text": "x"}}));
    let change = |headers: &[(&str, &str)]| {
        let headers = [&[cookie], headers].concat();
        host.send("POST", "/page/tool/echo", &headers, arguments.clone())
            .status
    };
    assert_eq!(change(&[]), 403);
    assert_eq!(change(&[("x-mainstay-page", "guess")]), 403);
    let own = ("x-mainstay-page", secret);
    assert_eq!(change(&[own, ("sec-fetch-site", "same-site")]), 403);
    assert_eq!(change(&[own, ("origin", "https://evil.example")]), 403);
    assert_eq!(change(&[own, ("sec-fetch-site", "same-origin")]), 200);
    let cross = host.send(
        "POST",
        "/page/session",
        &[("sec-fetch-site", "cross-site")],
        Some(json!({"token": TOKEN})),
    );
    assert_eq!(cross.status, 403);

    // Approvals need a credential of their own, and a call that is not in flight cannot be cancelled.
    let post = |path: &str| {
        host.send("POST", path, &[cookie, own], Some(json!({})))
            .status
    };
    assert_eq!(post("/page/grant/x"), 403);
    assert_eq!(post("/page/cancel/999999"), 404);
    assert_eq!(
        host.send("GET", "/page/cancel/1", &[cookie, own], None)
            .status,
        405
    );

    assert_eq!(
        host.send("DELETE", "/page/session", &[cookie], None).status,
        403
    );
    assert_eq!(
        host.send("DELETE", "/page/session", &[cookie, own], None)
            .status,
        200
    );
    assert_eq!(host.send("GET", "/page/data", &[cookie], None).status, 401);
}
