//! A worker as a real process: what it does with its standard streams, its panics and its end.
//!
//! The test runs itself: with `AS_WORKER` as its argument it is the worker, otherwise it is the
//! host that starts one.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test, though without the harness by which clippy knows one"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use mainstay_worker::testing::rpc::FromWorker;
use mainstay_worker::{Pack, Reply, Subprocess, Unable, build_id, run, tool_spec, typed};
use serde_json::{Value, json};

const AS_WORKER: &str = "--as-worker";
const DEADLINE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(AS_WORKER) {
        return run("7.7.7", |settings| pack(&settings.parse()?));
    }
    let tests: [(&str, fn()); 4] = [
        (
            "prints_of_a_tool_and_its_subprocesses_do_not_touch_the_protocol",
            babble,
        ),
        ("a_panic_is_one_line_on_stderr", panics),
        (
            "a_worker_exits_when_its_host_has_gone_and_takes_its_subprocesses_along",
            host_gone,
        ),
        (
            "exit_codes_tell_a_drain_from_a_pack_that_cannot_start",
            exit_codes,
        ),
    ];
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    // What test runners ask of a harness: the list, and single tests by name.
    if has("--list") {
        for (name, _) in tests.iter().filter(|_| !has("--ignored")) {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let named: Vec<&String> = arguments
        .iter()
        .filter(|word| !word.starts_with("--"))
        .collect();
    let chosen = |name: &str| named.is_empty() || named.iter().any(|part| name.contains(*part));
    let mut passed = 0;
    for (name, test) in tests.into_iter().filter(|(name, _)| chosen(name)) {
        test();
        println!("test {name} ... ok");
        passed += 1;
    }
    println!("\ntest result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
    ExitCode::SUCCESS
}

fn pack(settings: &Value) -> Result<Pack, Unable> {
    if settings.get("refuse").is_some() {
        return Err(Unable::new("told to"));
    }
    let spec = |name| tool_spec(name, "For tests.").read_only();
    Ok(Pack::new("babble")
        .tool(
            spec("babble"),
            typed(|_: Value, context| {
                println!("{{\"pong\":{{\"nonce\":666}}}}");
                let mut line = String::new();
                let read = std::io::stdin().read_line(&mut line).unwrap_or(99);
                let output = Subprocess::new("/bin/sh")
                    .args(["-c", "cat; echo printed; echo loud >/dev/stderr"])
                    .run(context)?;
                Ok(Reply::json(
                    &json!({"read": read, "output": output.stdout.text()}),
                ))
            }),
        )
        .tool(
            spec("panic"),
            typed(|_: Value, _| -> Result<Reply, _> { panic!("first line\nsecond line") }),
        )
        .tool(
            spec("hang"),
            typed(|arguments: Value, context| {
                let file = arguments["file"].as_str().unwrap_or_default().to_owned();
                Subprocess::new("/bin/sh")
                    .args([
                        "-c",
                        "sleep 300 & echo $! > \"$0.tmp\"; mv \"$0.tmp\" \"$0\"; wait",
                        &file,
                    ])
                    .run(context)?;
                Ok(Reply::json(&json!({})))
            }),
        ))
}

struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start(settings: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(AS_WORKER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut worker = Self {
            child,
            input,
            output,
        };
        worker.send(&format!(
            r#"{{"start":{{"protocol":1,"generation":1,"pool":2,"frame_bytes":100000,"grace_ms":100,"settings":{settings}}}}}"#
        ));
        worker
    }

    fn send(&mut self, line: &str) {
        self.input
            .as_mut()
            .unwrap()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    fn call(&mut self, name: &str, arguments: &Value) {
        self.send(&format!(
            r#"{{"call":{{"call":5,"attempt":1,"timeout_ms":60000,"op":{{"tool":{{"name":"{name}","arguments":{arguments},"render":"json"}}}}}}}}"#
        ));
    }

    fn receive(&mut self) -> FromWorker {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn exit_code(&mut self) -> i32 {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().expect("not killed");
            }
            assert!(Instant::now() < deadline, "the worker did not exit");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn drain(mut self) -> String {
        self.send(r#"{"drain":{}}"#);
        assert_eq!(self.receive(), FromWorker::Drained {});
        assert_eq!(self.exit_code(), 0);
        let mut stderr = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        stderr
    }
}

fn ready() -> Worker {
    let mut worker = Worker::start("{}");
    let FromWorker::Ready(ready) = worker.receive() else {
        panic!("not ready")
    };
    // One executable, one build.
    assert_eq!(ready.build, build_id("7.7.7"));
    worker
}

fn babble() {
    let mut worker = ready();
    worker.call("babble", &json!({}));
    let FromWorker::Answer { answer, .. } = worker.receive() else {
        panic!("no answer")
    };
    let answer = serde_json::to_value(&answer).unwrap();
    assert_eq!(
        answer["tool"]["json"],
        json!({"read": 0, "output": "printed\n"})
    );
    let stderr = worker.drain();
    assert!(stderr.contains("666"), "{stderr}");
}

fn panics() {
    let mut worker = ready();
    worker.call("panic", &json!({}));
    let FromWorker::Answer { answer, .. } = worker.receive() else {
        panic!("no answer")
    };
    assert_eq!(
        serde_json::to_value(&answer).unwrap()["failed"]["kind"],
        "tool_panicked"
    );
    let stderr = worker.drain();
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(
        lines[0].starts_with("mcp:warning reason=panic "),
        "{stderr}"
    );
    assert!(lines[0].ends_with(r"first line\nsecond line"), "{stderr}");
    assert!(lines[0].contains("tests/process.rs:"), "{stderr}");
}

fn host_gone() {
    let dir = mainstay_worker::testing::TempDir::new().unwrap();
    let file = dir.path().join("pid");
    let mut worker = ready();
    worker.call("hang", &json!({"file": file}));
    let deadline = Instant::now() + DEADLINE;
    while !file.exists() {
        assert!(Instant::now() < deadline, "the subprocess did not start");
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = std::fs::read_to_string(&file).unwrap();
    worker.input = None;
    assert_eq!(worker.exit_code(), 0);
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        if stat.map_or(true, |stat| stat.contains(") Z ")) {
            break;
        }
        assert!(Instant::now() < deadline, "the subprocess lives on");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn exit_codes() {
    assert_eq!(ready().drain(), "");
    let mut worker = Worker::start(r#"{"refuse":true}"#);
    assert_eq!(
        worker.receive(),
        FromWorker::Unable {
            detail: "told to".into()
        }
    );
    assert_eq!(worker.exit_code(), 2);
    let mut worker = ready();
    worker.send("no message");
    assert_eq!(worker.exit_code(), 3);
}
