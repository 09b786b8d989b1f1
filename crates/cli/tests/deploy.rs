//! The files under `deploy`: each is parsed, and its command line, environment, signals and probes are
//! tried with real processes. No service manager, container engine or cluster runs here.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test says when it is skipped, and fails then where nothing may be skipped"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mainstay_testkit::http::{Connection, Request};
use mainstay_testkit::judge;
use mainstay_testkit::process::{Launch, Running, TempDir, program, tool, wait_for};
use rustix::process::Signal;
use serde_json::Value;

const TOKEN: &str = "a-token-of-enough-length";
/// For a start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn file(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../../deploy").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap()
}

/// The documents of a YAML file; `None` where no Python with a YAML parser is installed.
fn yaml(name: &str) -> Option<Vec<Value>> {
    let program = "import json, sys, yaml\n\
                   print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let Some(mut python) = judge::python().unwrap() else {
        assert!(std::env::var_os("CI").is_none(), "Python is not installed");
        println!("skipped: Python is not installed; cargo xtask tools installs it");
        return None;
    };
    let output = judge::finished(python.args(["-c", program]).arg(file(name))).unwrap();
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().unwrap().iter();
    items
        .map(|item| item.as_str().unwrap().to_owned())
        .collect()
}

/// A command line of a file under `deploy`, to be run with its paths below a scratch folder and any port.
struct Deployed {
    folder: TempDir,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Deployed {
    fn new(arguments: &[String], variables: &[(String, String)], token: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let at = |text: &str| {
            let mut text = text.to_owned();
            for path in [
                "/srv",
                "/var/cache/mainstay",
                "/var/lib/mainstay",
                "/etc/mainstay",
            ] {
                if text == path || text.starts_with(&format!("{path}/")) {
                    let here = folder.join(path.trim_start_matches('/'));
                    fs::create_dir_all(&here).unwrap();
                    text = text.replacen(path, here.to_str().unwrap(), 1);
                    break;
                }
            }
            text.replace("0.0.0.0:8080", "127.0.0.1:0")
        };
        let secret = folder.join("token");
        fs::write(&secret, TOKEN).unwrap();
        fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let variables = variables
            .iter()
            // The launch has a folder of its own for the sockets.
            .filter(|(name, _)| name != "MAINSTAY_RUNTIME_DIR")
            .map(|(name, value)| {
                let value = if value == token {
                    secret.to_str().unwrap().to_owned()
                } else {
                    at(value)
                };
                (name.clone(), value)
            })
            .collect();
        let arguments = arguments.iter().map(|argument| at(argument)).collect();
        Self {
            folder,
            arguments,
            variables,
        }
    }

    fn start(&self) -> Running {
        let mut launch = Launch::new([env!("CARGO_BIN_EXE_mainstay")])
            .unwrap()
            .words(&self.arguments);
        for (name, value) in &self.variables {
            launch = launch.env(name, value);
        }
        launch.spawn_http().unwrap()
    }
}

fn status(host: &Running, path: &str, token: Option<&str>) -> u16 {
    let address = host.address().unwrap();
    let mut request = Request::to(address, "GET", path);
    if let Some(token) = token {
        request = request.header("Authorization", &format!("Bearer {token}"));
    }
    let mut connection = Connection::open(address).unwrap().with_patience(PATIENCE);
    connection.ask(&request).unwrap().status()
}

/// Waits for a status, since a host may listen a moment before it is ready.
fn becomes(host: &Running, path: &str, wanted: u16) {
    let start = Instant::now();
    while status(host, path, None) != wanted {
        assert!(
            start.elapsed() < PATIENCE,
            "{path} does not become {wanted}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The settings of a unit: section, key, value.
fn unit() -> Vec<(String, String, String)> {
    let (mut section, mut settings) = (String::new(), Vec::new());
    for line in text("mainstay.service").lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if let Some((key, value)) = line.split_once('=')
            && !line.starts_with('#')
        {
            settings.push((section.clone(), key.to_owned(), value.to_owned()));
        }
    }
    settings
}

fn one(settings: &[(String, String, String)], key: &str) -> String {
    let mut found = settings.iter().filter(|(_, name, _)| name == key);
    let (_, _, value) = found.next().unwrap_or_else(|| panic!("{key} is missing"));
    assert!(found.next().is_none(), "{key} is set twice");
    value.clone()
}

#[test]
fn systemd_accepts_the_unit() {
    let Some(analyze) = program("systemd-analyze", Path::new("/usr/bin")) else {
        println!("skipped: systemd-analyze is not installed");
        return;
    };
    let folder = TempDir::new().unwrap();
    let copy = folder.join("mainstay.service");
    // It checks that the program exists.
    let unit =
        text("mainstay.service").replace("/usr/local/bin/mainstay", env!("CARGO_BIN_EXE_mainstay"));
    fs::write(&copy, unit).unwrap();
    let output = Command::new(analyze)
        .arg("verify")
        .arg(&copy)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("mainstay.service"), "{said}");
}

#[test]
fn the_command_of_the_unit_starts_reloads_and_stops() {
    let settings = unit();
    let start = one(&settings, "ExecStart");
    let mut words = start.split(' ').map(str::to_owned);
    assert_eq!(words.next().as_deref(), Some("/usr/local/bin/mainstay"));
    let arguments: Vec<String> = words.collect();
    let variables: Vec<(String, String)> = settings
        .iter()
        .filter(|(_, key, _)| key == "Environment")
        .map(|(_, _, value)| {
            let (name, value) = value.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        })
        .collect();
    let deployed = Deployed::new(&arguments, &variables, "%d/token");
    let configuration = deployed.folder.join("etc/mainstay/mainstay.toml");
    let written = text("mainstay.toml")
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("/srv", deployed.folder.join("srv").to_str().unwrap())
        .replace(
            "/var/lib/mainstay",
            deployed.folder.path().to_str().unwrap(),
        );
    fs::create_dir_all(deployed.folder.join("srv")).unwrap();
    let everything = tool("node-servers/node_modules/.bin/mcp-server-everything").unwrap();
    let written = match &everything {
        Some(server) => written.replace("\"npx\"", &format!("{:?}", server.to_str().unwrap())),
        None => written.replace("[servers.demo]", "[servers.demo]\nenabled = false"),
    };
    fs::write(&configuration, written).unwrap();

    let mut host = deployed.start();
    becomes(&host, "/readyz", 200);
    assert_eq!(status(&host, "/v1/tools", None), 401);
    assert_eq!(status(&host, "/v1/tools", Some(TOKEN)), 200);
    let reload = one(&settings, "ExecReload");
    assert_eq!(reload, "/bin/kill -HUP $MAINPID");
    host.signal(Signal::HUP).unwrap();
    host.wait_for_line("reread").unwrap();
    assert_eq!(status(&host, "/v1/tools", Some(TOKEN)), 200);
    host.terminate().unwrap();
    assert!(host.wait().unwrap().success());
    assert!(deployed.folder.join("events.jsonl").exists());
}

#[test]
fn the_command_of_the_compose_file_serves() {
    let Some(documents) = yaml("compose.yaml") else {
        return;
    };
    let service = &documents[0]["services"]["mainstay"];
    let variables: Vec<(String, String)> = service["environment"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    let secret = strings(&service["secrets"]);
    assert!(documents[0]["secrets"].get(&secret[0]).is_some());
    let token = format!("/run/secrets/{}", secret[0]);
    let deployed = Deployed::new(&strings(&service["command"]), &variables, &token);
    let host = deployed.start();
    becomes(&host, "/readyz", 200);
    assert_eq!(status(&host, "/v1/tools", None), 401);
    assert_eq!(status(&host, "/v1/tools", Some(TOKEN)), 200);
    host.stop().unwrap();
}

#[test]
fn the_container_of_the_manifest_serves_and_answers_its_probes() {
    let Some(documents) = yaml("kubernetes.yaml") else {
        return;
    };
    let kind = |wanted: &str| {
        let mut found = documents
            .iter()
            .filter(|document| document["kind"] == wanted);
        found.next().unwrap()
    };
    let pod = &kind("Deployment")["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let variables: Vec<(String, String)> = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| {
            let text = |key: &str| variable[key].as_str().unwrap().to_owned();
            (text("name"), text("value"))
        })
        .collect();
    let deployed = Deployed::new(
        &strings(&container["args"]),
        &variables,
        "/run/secrets/mainstay/token",
    );
    let host = deployed.start();
    for probe in ["readinessProbe", "livenessProbe"] {
        let asked = &container[probe]["httpGet"];
        assert_eq!(asked["port"], container["ports"][0]["name"]);
        becomes(&host, asked["path"].as_str().unwrap(), 200);
    }
    assert_eq!(status(&host, "/v1/tools", Some(TOKEN)), 200);
    host.stop().unwrap();

    // What the pod mounts is declared, and the service finds the pod.
    let names = |value: &Value| -> BTreeSet<String> {
        let items = value.as_array().unwrap().iter();
        items
            .map(|item| item["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names(&container["volumeMounts"]),
        names(&pod["spec"]["volumes"])
    );
    assert_eq!(
        kind("Service")["spec"]["selector"],
        pod["metadata"]["labels"]
    );
}

/// Names of metrics in a text.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("mainstay_") || word.starts_with("mcp_"))
        .map(|word| word.trim_end_matches("_bucket").to_owned())
        .collect()
}

#[test]
fn every_metric_of_the_alerts_and_of_the_dashboard_is_exported() {
    let mut named = BTreeSet::new();
    let dashboard: Value = serde_json::from_str(&text("dashboard.json")).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            named.append(&mut metrics(target["expr"].as_str().unwrap()));
        }
    }
    if let Some(alerts) = yaml("mainstay-alerts.yml") {
        for rule in alerts[0]["groups"][0]["rules"].as_array().unwrap() {
            named.append(&mut metrics(rule["expr"].as_str().unwrap()));
            assert!(rule["annotations"]["action"].is_string(), "{rule}");
        }
    }
    assert!(named.len() > 10, "{named:?}");
    let host = Launch::new([env!("CARGO_BIN_EXE_mainstay")])
        .unwrap()
        .words(["serve", "--pack", "asset", "--http", "127.0.0.1:0"])
        .spawn_http()
        .unwrap();
    let address = host.address().unwrap();
    let mut connection = Connection::open(address).unwrap().with_patience(PATIENCE);
    let answer = connection
        .ask(&Request::to(address, "GET", "/metrics"))
        .unwrap();
    let said = answer.text();
    let exported: BTreeSet<String> = said
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .map(str::to_owned)
        .collect();
    let unknown: Vec<&String> = named.difference(&exported).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    if let Some(scraped) = yaml("prometheus.yml") {
        assert_eq!(scraped[0]["scrape_configs"][0]["metrics_path"], "/metrics");
    }
    host.stop().unwrap();
}

/// A running nginx; it ends with the test.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        // Its master ends its workers, so it must not be killed.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, Signal::TERM);
        let _ = wait_for(&mut self.0, PATIENCE);
    }
}

#[test]
fn a_host_behind_nginx_serves_calls_streams_and_cancels() {
    let nginx = program("nginx", Path::new("/usr/sbin"));
    let (Some(nginx), Some(curl)) = (nginx, program("curl", Path::new("/usr/bin"))) else {
        assert!(
            std::env::var_os("CI").is_none(),
            "nginx or curl is not installed"
        );
        println!("skipped: nginx or curl is not installed; cargo xtask tools installs them");
        return;
    };
    let ledger = mainstay_testkit::process::binary("ledger").unwrap();
    let host = Launch::new([env!("CARGO_BIN_EXE_mainstay")])
        .unwrap()
        .words([
            "serve",
            "--http",
            "127.0.0.1:0",
            "--allow-host",
            "tools.example.com",
        ])
        .words([
            "--pack",
            &format!("ledger={} --file ledger.jsonl", ledger.display()),
        ])
        .env("MAINSTAY_TOKEN", TOKEN)
        .spawn_http()
        .unwrap();
    let folder = TempDir::new().unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let key = folder.join("key.pem");
    let certificate = folder.join("certificate.pem");
    let subject = ["-subj", "/CN=tools.example.com", "-days", "2", "-nodes"];
    judge::finished(
        Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048"])
            .args(subject)
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate),
    )
    .unwrap();
    let server = text("nginx.conf")
        .replace("listen 443 ssl", &format!("listen 127.0.0.1:{port} ssl"))
        .replace(
            "/etc/nginx/tls/tools.example.com.pem",
            certificate.to_str().unwrap(),
        )
        .replace(
            "/etc/nginx/tls/tools.example.com.key",
            key.to_str().unwrap(),
        )
        .replace("127.0.0.1:8080", &host.address().unwrap().to_string());
    let here = folder.path().display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {here}/{kind};\n"))
        .concat();
    let whole = format!(
        "pid {here}/nginx.pid;\ndaemon off;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{server}}}\n"
    );
    let settings = folder.join("nginx.conf");
    fs::write(&settings, whole).unwrap();
    let log = folder.join("error.log");
    let _proxy = Proxy(
        Command::new(nginx)
            .arg("-p")
            .arg(folder.path())
            .arg("-e")
            .arg(&log)
            .arg("-c")
            .arg(&settings)
            .stdin(Stdio::null())
            .spawn()
            .unwrap(),
    );

    let url = format!("https://tools.example.com:{port}");
    let ask = |route: &str| {
        let mut command = Command::new(&curl);
        command
            .args([
                "--silent",
                "--no-buffer",
                "--fail-with-body",
                "--noproxy",
                "*",
            ])
            .args([
                "--retry",
                "100",
                "--retry-delay",
                "1",
                "--retry-connrefused",
            ])
            .args(["--resolve", &format!("tools.example.com:{port}:127.0.0.1")])
            .arg("--cacert")
            .arg(&certificate)
            .args(["-H", &format!("Authorization: Bearer {TOKEN}")])
            .args(["-H", "Content-Type: application/json"])
            .arg(format!("{url}{route}"));
        command
    };
    let called =
        judge::finished(ask("/v1/tool/append").args(["-d", r#"{"arguments":{"text":"one"}}"#]))
            .unwrap();
    let called: Value = serde_json::from_slice(&called.stdout).unwrap();
    assert_eq!(called["ok"], true, "{called}");

    // Progress arrives while the call runs; a client that leaves cancels the call.
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait",
        "arguments":{"ms":600000,"steps":1000},"_meta":{"progressToken":"p",
        "io.modelcontextprotocol/protocolVersion":"2026-07-28",
        "io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},
        "io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let mut waiting = ask("/mcp")
        .args(["-H", "Accept: application/json, text/event-stream"])
        .args(["-H", "MCP-Protocol-Version: 2026-07-28"])
        .args(["-H", "Mcp-Method: tools/call", "-H", "Mcp-Name: wait"])
        .args(["-d", body])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(waiting.stdout.take().unwrap()).lines();
    let mut progress = lines
        .map(Result::unwrap)
        .filter(|line| line.contains("notifications/progress"));
    assert!(progress.next().is_some() && progress.next().is_some());
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let idle = || {
        let read = judge::finished(&mut ask("/metrics")).unwrap();
        let said = String::from_utf8(read.stdout).unwrap();
        said.lines()
            .any(|line| line == "mainstay_pack_in_flight{pack=\"ledger\"} 0")
    };
    let start = Instant::now();
    while !idle() {
        assert!(start.elapsed() < PATIENCE, "the call goes on");
        std::thread::sleep(Duration::from_millis(100));
    }
    host.stop().unwrap();
}
